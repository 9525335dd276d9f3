"""LRP against its literal twin, and everything it promises about totals, batches and the model it explains."""

import copy
import threading
from functools import cache

import pytest
import torch
from torch import nn
from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel, LEDConfig, LEDForConditionalGeneration

from hf_nmt_interp.attribution import LRP
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models import gated
from tests.reference.lrp import lrp as twin
from tests.tiny_models import FAMILIES, random_batch, tiny_model

SETTINGS = {
    "alpha 1": {},
    "alpha 1/2": {"alpha": 0.5, "beta": 0.5},
    # eps=1 and, for T5 whose norms have no bias, a large eps of the norm: norms do not change when their input is
    # scaled, so their messages nearly cancel; shares with a smaller eps reach 1e30 and rounding is all that is left
    "epsilon": {"rule": "epsilon", "epsilon": 1.0},
    "values": {"attention": "values"},
    "label": {"logit": "label"},
}
ALPHA_BETA = {name: setting for name, setting in SETTINGS.items() if name != "epsilon"}
LENGTHS = [(4, 3), (2, 2)]
every_family = pytest.mark.parametrize("family", FAMILIES)


@cache
def model_of(family: str, dtype: torch.dtype = torch.float32, **overrides):
    """A model that tests must leave as it is."""
    return tiny_model(family, dtype, **overrides)


@cache
def twins_of(family: str, setting: str):
    """A float64 model, a padded batch, and the twin's results for each of its sentences."""
    overrides = {"layer_norm_epsilon": 0.1} if setting == "epsilon" and family.startswith("t5") else {}
    model = model_of(family, torch.float64, **overrides)
    batch = random_batch(model, LENGTHS)
    settings = {{"epsilon": "eps"}.get(name, name): value for name, value in SETTINGS[setting].items()}
    rows = zip(batch["input_ids"], batch["labels"], LENGTHS, strict=True)
    return model, batch, [twin(model, ids[:S], labels[:T], **settings) for ids, labels, (S, T) in rows]


def assert_close(scores, row: int, expected: dict, tolerance: float) -> None:
    """Compare relative to the step's largest value, or absolutely where that is below 1."""
    T, S = expected["source"].shape
    largest = torch.cat([expected["source"], expected["prefix"], expected["start"][:, None]], 1).abs().amax(1)
    for name, actual in {
        "source": scores.source[row, :T, :S],
        "prefix": scores.prefix[row, :T, :T],
        "start": scores.start[row, :T, None],
    }.items():
        error = (actual - expected[name].reshape(actual.shape)).abs() / largest.clamp(min=1)[:, None]
        assert error.max() <= tolerance, (name, error.max())


# ------------------------------------------------------------------------------------------------------------ the twin
@every_family
@pytest.mark.parametrize("setting", SETTINGS)
def test_agrees_with_the_twin(family, setting):
    model, batch, expected = twins_of(family, setting)
    scores = LRP(model, **SETTINGS[setting])(**batch)
    for row, sentence in enumerate(expected):
        assert_close(scores, row, sentence, 1e-6)
        T = len(sentence["log_probs"])
        torch.testing.assert_close(scores.log_probs[row, :T], sentence["log_probs"], atol=1e-9, rtol=0)


@every_family
def test_head_relevance_agrees_with_the_twin(family):
    model, batch, expected = twins_of(family, "alpha 1")
    both = LRP(model).head_relevance([batch])
    one_by_one = LRP(model).head_relevance(
        {"input_ids": batch["input_ids"][i : i + 1, :S], "labels": batch["labels"][i : i + 1, :T]}
        for i, (S, T) in enumerate(LENGTHS)
    )
    for kind in ("encoder", "decoder", "cross"):
        steps = torch.cat([sentence["heads"][kind] for sentence in expected])  # [steps, L, H]
        mean = (steps / steps.sum(-1, keepdim=True)).mean(0)
        torch.testing.assert_close(both[kind], mean, atol=1e-6, rtol=0)
        torch.testing.assert_close(one_by_one[kind], both[kind], atol=1e-9, rtol=0)
        torch.testing.assert_close(both[kind].sum(-1), torch.ones(2, dtype=torch.float64))


# ---------------------------------------------------------------------------------------------------------- the totals
@every_family
@pytest.mark.parametrize("setting", ALPHA_BETA)
def test_every_step_conserves_its_total_in_float32(family, setting):
    model = model_of(family)
    batch = random_batch(model, [(7, 6), (1, 1)])
    scores = LRP(model, **ALPHA_BETA[setting])(**batch)
    total = scores.source.double().sum(-1) + scores.prefix.double().sum(-1) + scores.start.double()
    gap = (total - (batch["labels"] != -100).double()).abs().amax(-1)
    print(f"\nconservation gap of {family}, {setting}: {scores.conservation_gap.max():.1e}")
    assert gap.max() <= 1e-4
    torch.testing.assert_close(scores.conservation_gap.double(), gap, atol=1e-6, rtol=0)
    assert min(scores.source.min(), scores.prefix.min(), scores.start.min()) >= 0


def test_the_gap_is_reported_not_hidden():
    model = model_of("t5")  # epsilon 1e-6 and no biases: rounding in float32 must show
    scores = LRP(model, rule="epsilon")(**random_batch(model, [(5, 4)]))
    total = scores.source.sum(-1) + scores.prefix.sum(-1) + scores.start
    assert scores.conservation_gap[0] >= 0.5 * (1 - total).abs().max()


def test_relevance_that_overflows_is_an_error():
    model = tiny_model("t5", num_layers=6)
    explainer, batch = LRP(model, rule="epsilon"), random_batch(model, [(5, 4)])
    for explain in (lambda: explainer(**batch), lambda: explainer.head_relevance([batch])):
        with pytest.raises(InputError, match=r"Epsilon\(epsilon=1e-06\) gave relevance too large for torch.float32"):
            explain()


# --------------------------------------------------------------------------------------------------------- the batches
@every_family
def test_prefix_is_causal_and_padding_is_exactly_zero(family):
    model = model_of(family)
    lengths = [(7, 6), (3, 4), (5, 2)]
    scores = LRP(model)(**random_batch(model, lengths))
    assert torch.equal(scores.prefix, scores.prefix.tril(-1))
    for row, (S, T) in enumerate(lengths):
        assert (scores.prefix[row, 1:T, 0] > 0).all()
        assert (scores.start[row, :T] > 0).all()
        for padding in (
            scores.source[row, :, S:],
            scores.source[row, T:],
            scores.prefix[row, T:],
            scores.prefix[row, :, T:],
            scores.start[row, T:],
            scores.log_probs[row, T:],
        ):
            assert not padding.any()


@every_family
def test_result_does_not_depend_on_the_batch(family):
    model = model_of(family)
    lengths = [(6, 4), (2, 5), (4, 1)]
    batch = random_batch(model, lengths)
    together = LRP(model)(**batch)
    for row, (S, T) in enumerate(lengths):
        alone = LRP(model)(input_ids=batch["input_ids"][row, None, :S], labels=batch["labels"][row, None, :T])
        for name in ("source", "prefix", "start", "log_probs"):
            actual, expected = getattr(together, name)[row, :T], getattr(alone, name)[0]
            actual = actual[:, : expected.shape[-1]] if expected.ndim == 2 else actual
            torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


@every_family
def test_any_attention_implementation(family):
    eager, sdpa = (tiny_model(family, attn_implementation=name) for name in ("eager", "sdpa"))
    for model, name in ((eager, "eager"), (sdpa, "sdpa")):
        assert {m.config._attn_implementation for m in model.modules() if hasattr(m, "config")} == {name}
    batch = random_batch(eager, [(6, 5), (3, 2)])
    torch.testing.assert_close(LRP(sdpa)(**batch).source, LRP(eager)(**batch).source, atol=1e-5, rtol=0)


@every_family
def test_a_tiny_memory_budget_changes_nothing(family):
    model = model_of(family)
    batch = random_batch(model, [(3, 5)])
    whole, heads = LRP(model)(**batch), LRP(model).head_relevance([batch])
    for budget in (1, 2 * 6 * 5 * 24 * 4):  # one step at a time, two at a time
        cut = LRP(model, max_memory=budget)
        scores = cut(**batch)
        for name in ("source", "prefix", "start"):
            torch.testing.assert_close(getattr(scores, name), getattr(whole, name), atol=1e-6, rtol=0)
    torch.testing.assert_close(cut.head_relevance([batch]), heads, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["marian", "mbart"])
def test_given_decoder_input_is_used(family):
    model = model_of(family)
    batch = random_batch(model, [(4, 3)])
    start = torch.tensor([[7]])
    given = LRP(model)(**batch, decoder_input_ids=torch.cat([start, batch["labels"][:, :-1]], 1))
    own = LRP(model)(**batch)
    assert not torch.allclose(given.source, own.source)
    with torch.no_grad():
        logits = model(batch["input_ids"], decoder_input_ids=torch.cat([start, batch["labels"][:, :-1]], 1)).logits
    expected = logits.log_softmax(-1).gather(-1, batch["labels"][..., None])[..., 0]
    torch.testing.assert_close(given.log_probs, expected, atol=1e-5, rtol=0)


# ----------------------------------------------------------------------------------------------------------- the model
def state_of(model: nn.Module) -> dict:
    """Everything about a model that explaining it must not change."""
    hooks = {
        f"{name}.{kind}": list(getattr(module, kind))
        for name, module in model.named_modules()
        for kind in vars(module)
        if kind.endswith("_hooks") or kind.endswith("_hooks_with_kwargs")
    }
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "hooks": hooks,
        "config": copy.deepcopy(model.config.to_dict()),
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "training": {name: module.training for name, module in model.named_modules()},
        "requires_grad": {name: parameter.requires_grad for name, parameter in model.named_parameters()},
        "grads": {name: parameter.grad for name, parameter in model.named_parameters()},
    }


def assert_same_state(after: dict, before: dict) -> None:
    assert all(torch.equal(after["weights"][name], value) for name, value in before["weights"].items())
    assert all(after["grads"][name] is value for name, value in before["grads"].items())
    for name in ("hooks", "config", "attributes", "training", "requires_grad"):
        assert after[name] == before[name], name


def mixed_modes(family: str) -> nn.Module:
    """A model in training mode but for one layer, with one frozen weight, some gradients and a hook of its own."""
    model = tiny_model(family, **({"dropout_rate": 0.5} if family.startswith("t5") else {})).train()
    LRP(model).parts.encoder.layers[0][0].norm.eval()
    first, second, *_ = model.parameters()
    first.requires_grad_(False)
    second.grad = torch.ones_like(second)
    model.register_forward_hook(lambda *_: None)
    return model


@every_family
def test_model_is_left_as_it_was(family):
    model = mixed_modes(family)
    batch = random_batch(model, [(5, 4), (2, 3)])
    before, grad_mode = state_of(model), torch.is_grad_enabled()
    explainer = LRP(model)
    for _ in range(2):
        scores = explainer(**batch)
        explainer.head_relevance([batch])
    assert_same_state(state_of(model), before)
    assert torch.is_grad_enabled() == grad_mode
    assert not scores.source.requires_grad
    model.eval()
    torch.testing.assert_close(scores.source, LRP(model)(**batch).source)  # no dropout


@every_family
def test_model_is_left_as_it_was_after_an_error(family):
    model = mixed_modes(family)
    batch = random_batch(model, [(5, 4)])
    explainer = LRP(model)

    def fail(*_):
        raise RuntimeError("in the middle of the forward pass")

    handle = explainer.parts.decoder.layers[1][2].branch.inner.register_forward_hook(fail)
    before = state_of(model)
    for call in (lambda: explainer(**batch), lambda: explainer.head_relevance([batch])):
        with pytest.raises(RuntimeError, match="in the middle of the forward pass"):
            call()
        assert_same_state(state_of(model), before)
    handle.remove()
    assert explainer(**batch).conservation_gap < 1e-4


@every_family
def test_one_forward_pass_explains_all_steps(family):
    model = tiny_model(family)
    calls = []
    model.register_forward_hook(lambda *_: calls.append("model"))
    explainer = LRP(model, max_memory=1)
    for stack in (explainer.parts.encoder, explainer.parts.decoder):
        stack.module.register_forward_hook(lambda *_: calls.append("stack"))
    explainer(**random_batch(model, [(6, 5), (3, 4)]))
    assert sorted(calls) == ["model", "stack", "stack"]


@every_family
def test_one_source_token_and_one_step(family):
    model = model_of(family, torch.float64)
    batch = random_batch(model, [(1, 1)])
    scores = LRP(model)(**batch)
    assert scores.source.shape == (1, 1, 1)
    assert scores.prefix.shape == (1, 1, 1)
    assert_close(scores, 0, twin(model, batch["input_ids"][0], batch["labels"][0]), 1e-6)


def test_threads_that_share_a_model():
    model = tiny_model("marian", dropout=0.5).train()
    batches = [random_batch(model, [(6, 5)], seed=seed) for seed in range(2)]
    expected = [LRP(model)(**batch).source for batch in batches]
    found: dict[int, list] = {0: [], 1: []}

    def work(number: int) -> None:
        explainer = LRP(model)
        for _ in range(6):
            found[number].append(explainer(**batches[number]).source)

    threads = [threading.Thread(target=work, args=(number,)) for number in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, results in found.items():
        assert len(results) == 6
        for result in results:
            torch.testing.assert_close(result, expected[number])
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


# ------------------------------------------------------------------------------------------------- gated, pruned heads
GATED = {
    "marian": gated.GatedMarianMTModel,
    "bart": gated.GatedBartForConditionalGeneration,
    "mbart": gated.GatedMBartForConditionalGeneration,
    "m2m100": gated.GatedM2M100ForConditionalGeneration,
    "t5": gated.GatedT5ForConditionalGeneration,
    "t5_gated": gated.GatedT5ForConditionalGeneration,
}
KEPT = {"encoder": [[1], [0, 1]], "decoder": [[], [0]], "cross": [[0, 1], []]}


def gated_model(family: str, plain: nn.Module) -> nn.Module:
    """The plain model with a gate on every head, some of them closed."""
    config_class = GATED[family].config_class
    model = GATED[family](config_class(**plain.config.to_dict())).to(plain.dtype).eval()
    missing, unexpected = model.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected
    assert all("log_alpha" in name for name in missing)
    model.set_kept_heads(KEPT)
    return model


@pytest.mark.parametrize("family", GATED)
def test_closed_and_pruned_heads(family):
    """Without output biases a closed head is one whose values are 0, and the twin can explain that."""
    plain = tiny_model(family, torch.float64)
    attentions = {kind: LRP(plain).parts.attentions(kind) for kind in KEPT}
    for attention in (a for layers in attentions.values() for a in layers):
        if attention.output.bias is not None:
            nn.init.zeros_(attention.output.bias)
    model = gated_model(family, plain)
    for kind, layers in attentions.items():
        for attention, kept in zip(layers, KEPT[kind], strict=True):
            for head in {0, 1} - set(kept):
                units = slice(head * attention.head_size, (head + 1) * attention.head_size)
                for values in attention.value.parameters():
                    nn.init.zeros_(values[units])
    batch = random_batch(plain, [(4, 3)])
    expected = twin(plain, batch["input_ids"][0], batch["labels"][0])
    for explained in (model, model.prune()):
        explainer = LRP(explained)
        scores = explainer(**batch)
        assert_close(scores, 0, expected, 1e-6)
        heads = explainer.head_relevance([batch])
        for kind, layers in KEPT.items():
            shares = expected["heads"][kind] / expected["heads"][kind].sum(-1, keepdim=True)
            torch.testing.assert_close(heads[kind], shares.nan_to_num(0).mean(0), atol=1e-6, rtol=0)
            for layer, kept in enumerate(layers):
                assert heads[kind][layer].nonzero().flatten().tolist() == kept


@pytest.mark.parametrize("family", GATED)
@pytest.mark.parametrize("setting", ["alpha 1", "alpha 1/2"])
def test_gated_and_pruned_models_conserve(family, setting):
    model = gated_model(family, model_of(family))
    batch = random_batch(model, [(6, 5), (3, 2)])
    for explained in (model, model.prune()):
        scores = LRP(explained, **ALPHA_BETA[setting])(**batch)
        assert scores.conservation_gap.max() <= 1e-4
        assert min(scores.source.min(), scores.prefix.min(), scores.start.min()) >= 0


def test_gates_in_training_mode_are_those_of_test_time():
    model = gated_model("marian", model_of("marian"))
    batch = random_batch(model, [(5, 4)])
    expected = LRP(model)(**batch).source
    torch.testing.assert_close(LRP(model.train())(**batch).source, expected)


# ------------------------------------------------------------------------------------------------------ clear refusals
def test_an_unknown_family_is_named():
    model = LEDForConditionalGeneration(
        LEDConfig(vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
                  decoder_attention_heads=1, attention_window=2)
    )  # fmt: skip
    with pytest.raises(InputError, match="LEDForConditionalGeneration is not a family this library knows; it knows"):
        LRP(model)


def test_an_encoder_decoder_of_two_widths_is_refused():
    sizes = {"vocab_size": 20, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    encoder, decoder = BertConfig(hidden_size=8, **sizes), BertConfig(hidden_size=16, **sizes)
    model = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder))
    with pytest.raises(InputError, match="different width"):
        LRP(model)


def test_an_unknown_operation_is_named():
    class LowRank(nn.Module):
        def __init__(self, base: nn.Linear):
            super().__init__()
            self.base, self.weight, self.bias = base, base.weight, base.bias

        def forward(self, x):
            return 2 * self.base(x)

    model = tiny_model("marian")
    layer = model.model.encoder.layers[1]
    layer.fc1 = LowRank(layer.fc1)
    with pytest.raises(InputError, match=r"no rule for LowRank \(model.encoder.layers.1.fc1\)"):
        LRP(model)


@every_family
@pytest.mark.parametrize("where", ["weights", "branch", "stream", "activation"])
def test_what_a_model_does_between_known_operations_is_not_skipped(family, where):
    model = tiny_model(family)
    _, cross, ffn = LRP(model).parts.decoder.layers[0]
    reader, names = {
        "weights": (cross.branch.output, ["v_proj", "EncDecAttention.v", "value"]),
        "branch": (cross.norm, ["out_proj", "EncDecAttention.o", "output.dense"]),
        "stream": (ffn.branch.inner, ["fc2", "layer_norm", "output.dense"]),
        "activation": (ffn.branch.outer, ["fc1", "wi", "wi_0", "intermediate.dense"]),
    }[where]
    reader.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    with pytest.raises(InputError, match=rf"does something after \S+({'|'.join(names)}) that LRP has no rule for"):
        LRP(model)(**random_batch(model, [(4, 3)]))


def test_half_precision_is_refused():
    with pytest.raises(InputError, match=r"needs float32 or float64, not torch.bfloat16; convert it with model.float"):
        LRP(tiny_model("marian", torch.bfloat16))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "gamma"}, "rule: 'gamma' is not one of alpha_beta, epsilon"),
        ({"logit": "best"}, "logit: 'best' is not one of top1, label"),
        ({"attention": "keys"}, "attention: 'keys' is not one of full, values"),
        ({"alpha": 2.0, "beta": -1.0}, "alpha, beta: 2.0, -1.0 must be at least 0 and add up to 1"),
        ({"alpha": 0.5}, "alpha, beta: 0.5, 0.0 must be at least 0 and add up to 1"),
        ({"rule": "epsilon", "epsilon": 0.0}, "epsilon: 0.0 must be positive"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        LRP(model_of("marian"), **settings)


def test_bad_batches_are_named():
    model = model_of("marian")
    explainer, batch = LRP(model), random_batch(model, [(4, 3), (2, 2)])
    ids, labels, mask = batch["input_ids"], batch["labels"], batch["attention_mask"]
    with pytest.raises(InputError, match=r"input_ids: whole numbers of shape \[batch, length\] .* of \[4\]"):
        explainer(ids[0], labels)
    with pytest.raises(InputError, match=r"labels: whole numbers .* torch.float32"):
        explainer(ids, labels.float())
    with pytest.raises(InputError, match=r"labels: whole numbers .* \[1, 3\]"):
        explainer(ids, labels[:1])
    with pytest.raises(InputError, match="attention_mask: padding must stand at the end"):
        explainer(ids, labels, mask.flip(-1))
    with pytest.raises(InputError, match="labels: padding must stand at the end"):
        explainer(ids, labels.flip(-1), mask)
    with pytest.raises(InputError, match="labels: row 1 has no tokens"):
        explainer(ids, labels.where(torch.tensor([[True], [False]]), -100), mask)
    with pytest.raises(InputError, match="input_ids: 40 is not among the model's 40 tokens"):
        explainer(ids + 40 * (ids == ids[0, 0]) - ids[0, 0] * (ids == ids[0, 0]), labels, mask)
    with pytest.raises(InputError, match="labels: -1 is not among the model's 40 tokens"):
        explainer(ids, labels.masked_fill(labels == labels[0, 0], -1), mask)
    for family in ("marian", "bert2bert"):
        with pytest.raises(InputError, match="input_ids: 65 tokens are more than the model's 64 positions; cut them"):
            LRP(model_of(family))(torch.full((1, 65), 5), torch.full((1, 2), 5))
    with pytest.raises(InputError, match="batches: no batch was given"):
        explainer.head_relevance([])


def test_logits_that_are_not_finite():
    model = tiny_model("marian")
    nn.init.constant_(model.final_logits_bias, torch.nan)
    with pytest.raises(InputError, match="logits are not finite"):
        LRP(model)(**random_batch(model, [(3, 2)]))
