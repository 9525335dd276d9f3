"""LRP against its literal twin, and everything it promises about totals, batches and the model it explains.

Also for attribution/engine.py, attribution/rules/base.py, attribution/rules/alpha_beta.py,
attribution/rules/epsilon.py and attribution/rules/ratio.py.
"""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hf_nmt_interp.attribution import LRP
from hf_nmt_interp.attribution.engine import _differences
from hf_nmt_interp.attribution.recording import Recording
from hf_nmt_interp.attribution.rules import RULES
from hf_nmt_interp.attribution.rules.base import MAX_GAP
from hf_nmt_interp.decoding.batch import make_batch
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models import gated
from hf_nmt_interp.models.families import parts
from tests.attribution.comparing import assert_relevance
from tests.attribution.leaks import (
    check_model_is_left,
    check_model_is_left_after_an_error,
    check_threads_can_share,
    mixed_modes,
    unchanged,
)
from tests.reference.lrp import lrp as twin
from tests.tiny_models import FAMILIES, random_batch, tiny_model

SETTINGS = {
    "alpha 1": {},
    "alpha 1/2": {"alpha": 0.5, "beta": 0.5},
    # eps=1 and, for T5 whose norms have no bias, a large eps of the norm: norms do not change when their input is
    # scaled, so their messages nearly cancel; shares with a smaller eps reach 1e30 and rounding is all that is left
    "epsilon": {"rule": "epsilon", "epsilon": 1.0},
    "ratio": {"rule": "ratio", "epsilon": 1.0, "norm": "scale"},
    "ratio, values": {"rule": "ratio", "epsilon": 0.1, "norm": "scale", "attention": "values"},
    "attnlrp": {"rule": "attnlrp"},
    "attnlrp, epsilon": {"rule": "attnlrp", "epsilon": 0.1},
    "attnlrp, values": {"rule": "attnlrp", "attention": "values"},
    "attnlrp, scale": {"rule": "attnlrp", "norm": "scale"},
    "cp_lrp": {"rule": "cp_lrp"},
    "gamma": {"rule": "gamma", "logit": "label"},
    "gamma 2": {"rule": "gamma", "gamma": 2.0, "epsilon": 0.1},
    "values": {"attention": "values"},
    "scale": {"norm": "scale"},
    "stabilizer": {"stabilizer": 0.01},
    "label": {"logit": "label"},
}
ALPHA_BETA = {name: setting for name, setting in SETTINGS.items() if "rule" not in setting}
LENGTHS = [(4, 3), (2, 2)]
every_family = pytest.mark.parametrize("family", FAMILIES)
USABLE = {name: {"rule": name} for name in RULES}
USABLE["epsilon"] |= {"epsilon": 1.0, "norm": "scale"}
USABLE["ratio"] |= {"norm": "scale"}
every_rule = pytest.mark.parametrize("rule", USABLE)
LARGE = ["epsilon", "ratio"]  # rules whose relevance of both signs is too large for 1e-5 in float32


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


# ------------------------------------------------------------------------------------------------------------ the twin
@every_family
@pytest.mark.parametrize("setting", SETTINGS)
def test_agrees_with_the_twin(family, setting):
    model, batch, expected = twins_of(family, setting)
    scores = LRP(model, **SETTINGS[setting])(**batch)
    for row, sentence in enumerate(expected):
        assert_relevance(scores, row, sentence, 1e-6)
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
    model = model_of("marian")  # ratios make large relevances of both signs, so rounding in float32 shows
    scores = LRP(model, rule="ratio", epsilon=0.05, norm="scale")(**random_batch(model, [(5, 4)]))
    total = scores.source.double().sum(-1) + scores.prefix.double().sum(-1) + scores.start.double()
    gap = (1 - total).abs().max()
    assert 1e-6 < gap < MAX_GAP
    assert scores.conservation_gap[0] == pytest.approx(gap.item(), rel=0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", [{"rule": "epsilon"}, {"rule": "epsilon", "norm": "scale"}, {"rule": "ratio"}])
def test_rules_that_need_float64_refuse_other_models(settings, dtype):
    message = rf"rule: '{settings['rule']}' needs a float64 model, this one is {dtype}: .*; load it with hni.load"
    with pytest.raises(InputError, match=message):
        LRP(tiny_model("marian").to(dtype), **settings)


def test_a_large_gap_is_an_error():
    model = tiny_model("t5", torch.float64, num_layers=6)
    explainer, batch = LRP(model, rule="epsilon"), random_batch(model, [(5, 4)])
    message = r"Epsilon\(epsilon=1e-06\) has a conservation gap of \S+ in torch.float64, above 1e-08; use rule="
    for explain in (lambda: explainer(**batch), lambda: explainer.head_relevance([batch])):
        with pytest.raises(InputError, match=message):
            explain()


@pytest.mark.parametrize(
    ("dtype", "layers", "settings", "remedy"),
    [
        (torch.float32, 2, {}, "rule='alpha_beta', attention='values' or a float64 model"),
        (torch.float32, 2, {"attention": "values"}, "rule='alpha_beta' or a float64 model"),
        (torch.float64, 6, {}, "rule='alpha_beta' or attention='values'"),
    ],
)
def test_a_gap_above_a_hundredth_is_an_error_that_names_what_is_not_in_use(dtype, layers, settings, remedy):
    model = tiny_model("marian", dtype, encoder_layers=layers, decoder_layers=layers)
    explainer = LRP(model, rule="ratio", epsilon=1e-6, norm="scale", **settings)
    message = rf"Ratio\(epsilon=1e-06\) has a conservation gap of \S+ in {dtype}, above 0.01; use {remedy}$"
    with pytest.raises(InputError, match=message):
        explainer(**random_batch(model, [(5, 4)]))


def walk_with(total: float):
    """A finished walk of one step whose relevance adds up to a total."""
    return SimpleNamespace(source=torch.tensor([[total]]), prefix=torch.zeros(1, 1), absorbed=torch.zeros(1))


@pytest.mark.parametrize(
    ("settings", "dtype", "remedy"),
    [
        ({}, torch.float32, "; use norm='scale', attention='values' or a float64 model"),
        ({"norm": "scale", "attention": "values"}, torch.float32, "; use a float64 model"),
        ({"norm": "scale", "attention": "values"}, torch.float64, ""),
        ({"rule": "attnlrp"}, torch.float32, "; use rule='alpha_beta', attention='values' or a float64 model"),
        ({"rule": "gamma", "norm": "scale"}, torch.float64, "; use rule='alpha_beta', norm='jacobian' or attention="),
    ],
)
def test_the_limit_of_the_gap_is_a_hundredth(settings, dtype, remedy):
    explainer = LRP(model_of("marian", dtype), **settings)
    explainer._check_gap(walk_with(1.0099))
    for total, gap in ((1.0101, "1.0e-02"), (0.9, "1.0e-01"), (torch.nan, "nan")):
        with pytest.raises(InputError, match=rf"conservation gap of {gap} in {dtype}, above 0.01{remedy}"):
            explainer._check_gap(walk_with(total))
    with pytest.raises(InputError, match="above 0.01" + remedy) as error:
        explainer._check_gap(walk_with(2))
    assert bool(error.value.remedy) == bool(remedy)


@every_family
def test_saturated_attention_in_float32_and_float64(family):
    """Half of the largest weights and more are above 0.999, so that units have only tiny messages of a sign."""
    model = tiny_model(family)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(part in name for part in ("q_proj", ".q.", "query")):
                weight.mul_(10 if family.startswith("t5") else 30)  # T5 does not scale its scores down
    batch = random_batch(model, [(7, 6), (4, 5)])
    largest = [
        w.amax(-1).flatten()
        for w in Recording(model, parts(model), make_batch(model, **batch), "LRP").weights.values()
    ]
    assert (torch.cat(largest) > 0.999).float().mean() > 0.5
    single, double = LRP(model)(**batch), LRP(model.double())(**batch)
    for name in ("source", "prefix", "start"):
        torch.testing.assert_close(getattr(single, name).double(), getattr(double, name), atol=1e-3, rtol=0)


def test_values_of_a_repeated_token_are_not_lost_in_rounding():
    """Two keys with equal values share almost all attention, so values minus output are as small as the rest."""
    first, other = torch.randn(2, 8, generator=torch.Generator().manual_seed(0)).double()
    v = torch.stack([first, first, other])[None]
    w = torch.tensor([0.6, 0.4 - 1e-7, 1e-7], dtype=torch.float64)[None, None]
    expected = v[0] - w[0] @ v[0]  # [S, D]
    for values, weights in ((v, w), (v.float(), w.float())):
        found = _differences(weights, values)[0, 0].T
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-12)


# --------------------------------------------------------------------------------------------------------- the batches
@every_rule
@every_family
def test_prefix_is_causal_and_padding_is_exactly_zero(family, rule):
    model = model_of(family, torch.float64)
    lengths = [(7, 6), (3, 4), (5, 2)]
    scores = LRP(model, **USABLE[rule])(**random_batch(model, lengths))
    assert torch.equal(scores.prefix, scores.prefix.tril(-1))
    for row, (S, T) in enumerate(lengths):
        assert (scores.prefix[row, 1:T, 0] != 0).all()
        assert (scores.start[row, :T] != 0).all()
        for padding in (
            scores.source[row, :, S:],
            scores.source[row, T:],
            scores.prefix[row, T:],
            scores.prefix[row, :, T:],
            scores.start[row, T:],
            scores.log_probs[row, T:],
        ):
            assert not padding.any()


@every_rule
@every_family
def test_result_does_not_depend_on_the_batch(family, rule):
    model = model_of(family, torch.float64 if rule in LARGE else torch.float32)
    lengths = [(6, 4), (2, 5), (4, 1)]
    batch = random_batch(model, lengths)
    explainer = LRP(model, **USABLE[rule])
    together = explainer(**batch)
    for row, (S, T) in enumerate(lengths):
        alone = explainer(input_ids=batch["input_ids"][row, None, :S], labels=batch["labels"][row, None, :T])
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


@every_rule
@every_family
def test_a_tiny_memory_budget_changes_nothing(family, rule):
    # shares of heads with relevance of both signs are divided by sums that may nearly cancel
    model = model_of(family, torch.float32 if rule == "alpha_beta" else torch.float64)
    batch = random_batch(model, [(3, 5)])
    settings = USABLE[rule]
    whole, heads = LRP(model, **settings)(**batch), LRP(model, **settings).head_relevance([batch])
    for budget in (1, 2 * 2 * 10 * 5 * 24 * model.dtype.itemsize):  # one step at a time, two at a time
        cut = LRP(model, max_memory=budget, **settings)
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
@every_family
def test_model_is_left_as_it_was(family):
    model = mixed_modes(family)
    batch = random_batch(model, [(5, 4), (2, 3)])
    explainer = LRP(model)
    with unchanged(model):
        explainer.head_relevance([batch])
    check_model_is_left(model, lambda: explainer(**batch))


@every_family
def test_model_is_left_as_it_was_after_an_error(family):
    model = mixed_modes(family)
    batch = random_batch(model, [(5, 4)])
    explainer = LRP(model)
    broken = explainer.parts.decoder.layers[1][2].branch.inner
    for explain in (lambda: explainer(**batch), lambda: explainer.head_relevance([batch])):
        check_model_is_left_after_an_error(model, explain, broken)
    assert explainer(**batch).conservation_gap < 1e-4


@every_family
def test_one_forward_pass_explains_all_steps(family):
    model = tiny_model(family)
    calls = []
    model.register_forward_hook(lambda *_: calls.append("model"))
    explainer = LRP(model, max_memory=1)
    for stack in (explainer.parts.encoder, explainer.parts.decoder):
        stack.module.register_forward_hook(lambda *_: calls.append("stack"))
    explainer(**random_batch(model, [(6, 5)]))
    assert sorted(calls) == ["model", "stack", "stack"]
    calls.clear()
    LRP(model)(**random_batch(model, [(6, 5), (3, 4)]))
    assert sorted(calls) == ["model", "stack", "stack"]


@every_family
def test_one_source_token_and_one_step(family):
    model = model_of(family, torch.float64)
    batch = random_batch(model, [(1, 1)])
    scores = LRP(model)(**batch)
    assert scores.source.shape == (1, 1, 1)
    assert scores.prefix.shape == (1, 1, 1)
    assert_relevance(scores, 0, twin(model, batch["input_ids"][0], batch["labels"][0]), 1e-6)


def test_threads_that_share_a_model():
    model = tiny_model("marian", dropout=0.5).train()
    batches = [random_batch(model, [(6, 5)], seed=seed) for seed in range(2)]
    check_threads_can_share(model, lambda batch: LRP(model)(**batch).source, batches)


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
        assert_relevance(scores, 0, expected, 1e-6)
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
