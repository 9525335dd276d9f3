"""Saliency against its twin (autograd, step by step, float64) and against finite differences.

Also for attribution/smoothing.py and attribution/gradients.py.
Also for attribution/walk.py.
"""

import copy

import pytest
import torch

from hf_nmt_interp.attribution import AttentionWeights, Saliency, SmoothedAttention, gradients
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import GatedMarianMTModel
from tests.aligned_models import CLASSES, tiny_aligned
from tests.attribution.comparing import KINDS, LENGTHS, assert_close, assert_is, pair_of
from tests.attribution.leaks import (
    check_model_is_left,
    check_model_is_left_after_an_error,
    check_threads_can_share,
    mixed_modes,
)
from tests.reference.saliency import noise_deviation, saliency
from tests.reference.shift import shifted_right
from tests.tiny_models import FAMILIES, random_batch, tiny_model

every_family = pytest.mark.parametrize("family", FAMILIES)


def model_of(family, dtype=torch.float32):
    """Of a seed whose scores float32 can hold: with seed 0, autograd itself is 2e-5 off for the gated T5."""
    return tiny_model(family, dtype, seed=1 if family == "t5_gated" else 0)


def by_autograd(model):
    """The same model with a hook that does nothing: its gradients are then taken by autograd, not by hand."""
    model = copy.deepcopy(model)
    model.register_forward_hook(lambda *_: None)
    assert not gradients.is_plain(model)
    return model


# ------------------------------------------------------------------------------------------------------------ the twin
@pytest.mark.parametrize("family", CLASSES)
def test_an_alignment_head_changes_nothing(family):
    model = tiny_aligned(family)
    assert gradients.is_plain(model)
    batch = random_batch(model, LENGTHS)
    scores, expected = Saliency(model)(**batch), Saliency(model.without_head())(**batch)
    assert torch.equal(scores.source, expected.source)
    assert torch.equal(scores.prefix, expected.prefix)

    class Changed(type(model)):
        pass

    model.__class__ = Changed  # its forward may be another one
    assert not gradients.is_plain(model)


@every_family
@pytest.mark.parametrize("score", ["log_probability", "probability", "logit"])
@pytest.mark.parametrize("aggregate", KINDS)
def test_agrees_with_the_twin(family, score, aggregate):
    model = model_of(family, torch.float64)
    assert gradients.is_plain(model)
    batch = random_batch(model, LENGTHS)
    expected = [saliency(model, *pair_of(batch, row), score, KINDS[aggregate]) for row in range(len(LENGTHS))]
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 1e-5)):
        model = model.to(dtype)
        for way in (model, by_autograd(model)):
            scores = Saliency(way, score=score, aggregate=aggregate)(**batch)
            for row in range(len(LENGTHS)):
                assert_is(scores, row, expected[row], tolerance)


@every_family
@pytest.mark.parametrize("average", ["normalised", "raw"])
@pytest.mark.parametrize("aggregate", KINDS)
def test_smoothgrad_agrees_with_the_twin(family, average, aggregate):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    method = Saliency(model, smoothgrad=3, average=average, aggregate=aggregate, seed=5)
    scores = method(**batch)
    for row in range(len(LENGTHS)):
        source, target = pair_of(batch, row)
        noise = torch.stack([method.noise(source, n) for n in range(3)])
        expected = saliency(model, source, target, kind=KINDS[aggregate], noise=noise, average=average)
        assert_is(scores, row, expected, 1e-8)
    if average == "normalised":
        sums = scores.source.sum(-1)[batch["labels"] != -100]
        assert (sums <= 1 + 1e-9).all()
    torch.testing.assert_close(scores.log_probs, Saliency(model)(**batch).log_probs)


def test_a_copy_without_positive_saliency_counts_as_nothing():
    model = tiny_model("marian", torch.float64)
    with torch.no_grad():  # the source is not read: gradients of 0
        for layer in model.model.decoder.layers:
            layer.encoder_attn.out_proj.weight.zero_()
    scores = Saliency(model, smoothgrad=2)(**random_batch(model, [(3, 3)]))
    assert not scores.source.any()
    assert not scores.prefix.any()


@every_family
def test_agrees_with_finite_differences(family):
    model = tiny_model(family, torch.float64, seed=1)
    batch = random_batch(model, [(4, 3)])
    decoder_input = shifted_right(model, batch["labels"])
    stacks = Saliency(model).parts
    scores = Saliency(model)(**batch)
    found = {"encoder": scores.source[0], "decoder": torch.cat([scores.start[0, :, None], scores.prefix[0]], 1)}
    # T5's norm is rounded to float32 in every model, which a large step bears better; M2M100's relu has kinks
    step, tolerance = (3e-3, 1e-4) if family.startswith("t5") else (1e-5, 1e-7)

    @torch.no_grad()
    def log_probs(stack, ids, position, factor):
        def scale(module, args, output):
            if torch.equal(args[0], ids):
                output = output.clone()
                output[0, position] *= factor
            return output

        handle = stack.embedding.register_forward_hook(scale)
        logits = model(batch["input_ids"], decoder_input_ids=decoder_input, use_cache=False).logits
        handle.remove()
        return logits.log_softmax(-1)[0].gather(-1, batch["labels"][0, :, None])[:, 0]

    def slope(stack, ids, position, h):
        return (log_probs(stack, ids, position, 1 + h) - log_probs(stack, ids, position, 1 - h)) / (2 * h)

    for name, ids in (("encoder", batch["input_ids"]), ("decoder", decoder_input)):
        for position in range(ids.shape[1]):
            near, far = (slope(getattr(stacks, name), ids, position, h) for h in (step, 2 * step))
            assert_close(found[name][:, position], (4 * near - far) / 3, tolerance)


def test_repeated_words_have_scores_of_their_own():
    model = tiny_model("marian", torch.float64)
    source, target = torch.tensor([7, 8, 7, 7, 0]), torch.tensor([9, 9, 9, 0])
    scores = Saliency(model)(source[None], target[None])
    assert_is(scores, 0, saliency(model, source, target), 1e-8)
    assert len(set(scores.source[0, 1, [0, 2, 3]].tolist())) == 3
    assert len(set(scores.prefix[0, 3, :3].tolist())) == 3


def test_stacks_that_share_one_embedding_module():
    model = tiny_model("marian", torch.float64)
    model.resize_token_embeddings(41)
    assert model.model.encoder.embed_tokens is model.model.decoder.embed_tokens
    batch = random_batch(model, LENGTHS)
    method = Saliency(model, smoothgrad=2, average="raw")
    for way in (model, by_autograd(model)):
        plain, smooth = Saliency(way)(**batch), Saliency(way, smoothgrad=2, average="raw")(**batch)
        for row in range(len(LENGTHS)):
            pair = pair_of(batch, row)
            noise = torch.stack([method.noise(pair[0], n) for n in range(2)])
            assert_is(plain, row, saliency(model, *pair), 1e-8)
            assert_is(smooth, row, saliency(model, *pair, noise=noise, average="raw"), 1e-8)


# ----------------------------------------------------------------------------------------------------------- the noise
@every_family
def test_noise_has_the_deviation_asked_for(family):
    model = tiny_model(family, torch.float64)
    ids = random_batch(model, [(6, 2)])["input_ids"][0]
    noise = torch.stack([Saliency(model, smoothgrad=400, sigma=0.3).noise(ids, n) for n in range(400)])
    assert noise.std().item() == pytest.approx(noise_deviation(model, ids, 0.3), rel=0.02)
    assert abs(noise.mean().item()) < 0.02 * noise.std().item()


@pytest.mark.parametrize(
    ("method", "settings"), [(Saliency, {"smoothgrad": 4}), (SmoothedAttention, {"smoothgrad": 4})]
)
def test_same_seed_same_result_whatever_the_batch(method, settings):
    model = tiny_model("marian", torch.float64)
    batch = random_batch(model, LENGTHS)
    scores = method(model, **settings)(**batch)
    order = [2, 0, 1, 0]
    again = method(model, **settings)(**{name: x[order] for name, x in batch.items()})
    assert_close(again.source, scores.source[order], 1e-8)
    for row, (S, T) in enumerate(LENGTHS):
        source, target = pair_of(batch, row)
        alone = method(model, **settings)(source[None], target[None])
        assert_close(alone.source[0], scores.source[row, :T, :S], 1e-8)
        assert_close(alone.prefix[0], scores.prefix[row, :T, :T], 1e-8)
        assert_close(alone.start[0], scores.start[row, :T], 1e-8)
    other = method(model, **settings, seed=1)(**batch)
    assert not torch.allclose(other.source, scores.source, atol=1e-4)


def test_a_copy_does_not_depend_on_how_many_there_are():
    model = tiny_model("marian")
    ids = torch.tensor([5, 6, 0])
    torch.testing.assert_close(
        Saliency(model, smoothgrad=2).noise(ids, 1), Saliency(model, smoothgrad=9).noise(ids, 1)
    )
    assert not torch.equal(Saliency(model, smoothgrad=2).noise(ids, 0), Saliency(model, smoothgrad=2).noise(ids, 1))


@every_family
def test_smoothed_attention_is_the_mean_over_noisy_copies(family):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    method = SmoothedAttention(model, layer=0, head=1, smoothgrad=3)
    scores = method(**batch)
    for row, (S, T) in enumerate(LENGTHS):
        source, target = (ids[None] for ids in pair_of(batch, row))
        expected = 0
        for n in range(3):
            noise = method.noise(source[0], n) / method.parts.encoder.scale

            def add(module, args, output, ids=source, noise=noise):
                return output + noise if torch.equal(args[0], ids) else output

            handle = method.parts.encoder.embedding.register_forward_hook(add)
            expected = expected + AttentionWeights(model, layer=0, head=1)(source, target).source[0] / 3
            handle.remove()
        torch.testing.assert_close(scores.source[row, :T, :S], expected, atol=1e-10, rtol=0)
        torch.testing.assert_close(scores.source[row, :T].sum(-1), torch.ones(T).double())


# ----------------------------------------------------------------------------------------------------------- the batch
@every_family
@pytest.mark.parametrize("settings", [{}, {"smoothgrad": 2, "aggregate": "li2016"}])
def test_a_tiny_memory_budget_changes_nothing(family, settings):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, LENGTHS)
    for way in (model, by_autograd(model)):
        whole = Saliency(way, **settings)(**batch)
        pieces = Saliency(way, **settings, max_memory=1)(**batch)
        for name in ("source", "prefix", "start", "log_probs"):
            assert_close(getattr(pieces, name), getattr(whole, name), 1e-8)


@every_family
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_result_does_not_depend_on_the_batch(family, dtype, tolerance):
    model = model_of(family, dtype)
    batch = random_batch(model, LENGTHS)
    for way in (model, by_autograd(model)):
        scores = Saliency(way)(**batch)
        for row, (S, T) in enumerate(LENGTHS):
            source, target = pair_of(batch, row)
            alone = Saliency(way)(source[None], target[None])
            assert_close(scores.source[row, :T, :S], alone.source[0], tolerance)
            assert_close(scores.prefix[row, :T, :T], alone.prefix[0], tolerance)
            assert_close(scores.start[row, :T], alone.start[0], tolerance)
        for t in range(scores.prefix.shape[1]):
            assert not scores.prefix[:, t, t:].any()


@every_family
def test_any_attention_implementation(family):
    models = [tiny_model(family, seed=1, attn_implementation=name) for name in ("eager", "sdpa")]
    batch = random_batch(models[0], LENGTHS)
    eager, sdpa, autograd = (Saliency(m)(**batch).source for m in (*models, by_autograd(models[1])))
    assert_close(eager, sdpa)
    assert_close(eager, autograd)


def test_given_decoder_input_is_used():
    model = tiny_model("marian")
    batch = random_batch(model, [(4, 3)])
    given = torch.cat([torch.tensor([[7]]), batch["labels"][:, :-1]], 1)
    scores = Saliency(model)(**batch, decoder_input_ids=given)
    with torch.no_grad():
        logits = model(batch["input_ids"], decoder_input_ids=given).logits
    expected = logits.log_softmax(-1).gather(-1, batch["labels"][..., None])[..., 0]
    assert_close(scores.log_probs, expected)


# ----------------------------------------------------------------------------------------------------------- the model
METHODS = [(Saliency, {}), (Saliency, {"smoothgrad": 2}), (SmoothedAttention, {"smoothgrad": 2})]


@every_family
@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_model_is_left_as_it_was(family, method, settings):
    for model in (mixed_modes(family), tiny_model(family)):
        batch = random_batch(model, [(5, 4), (2, 3)])
        check_model_is_left(model, lambda: method(model, **settings)(**batch))  # noqa: B023  (called at once)


@every_family
@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_model_is_left_as_it_was_after_an_error(family, method, settings):
    model = mixed_modes(family)
    batch = random_batch(model, [(5, 4)])
    explainer = method(model, **settings)
    for stack in (explainer.parts.encoder, explainer.parts.decoder):
        check_model_is_left_after_an_error(model, lambda: explainer(**batch), stack.layers[1][-1].branch.inner)
    assert torch.nn.functional.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"
    assert explainer(**batch).source.any()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("smoothgrad", [0, 2])
def test_inside_modes_without_gradients(mode, smoothgrad):
    model = tiny_model("marian").requires_grad_(False)
    expected = Saliency(model, smoothgrad=smoothgrad)(**random_batch(model, LENGTHS))
    for way in (model, by_autograd(model), model.requires_grad_(True)):
        with mode():
            found = Saliency(way, smoothgrad=smoothgrad)(**random_batch(model, LENGTHS))
        assert_close(found.source, expected.source)


def test_threads_that_share_a_model():
    model = tiny_model("marian")
    model.resize_token_embeddings(41)
    batches = [random_batch(model, [(6, 5)], seed=seed) for seed in range(2)]
    check_threads_can_share(model, lambda batch: Saliency(model, smoothgrad=2)(**batch).source, batches)


def test_closed_and_pruned_heads():
    plain = tiny_model("marian")
    gated = GatedMarianMTModel(GatedMarianMTModel.config_class(**plain.config.to_dict())).eval()
    gated.load_state_dict(plain.state_dict(), strict=False)
    batch = random_batch(plain, LENGTHS)
    assert_close(Saliency(gated)(**batch).source, Saliency(plain)(**batch).source)
    gated.set_kept_heads({"encoder": [[0], []], "decoder": [[], [1]], "cross": [[1], [0, 1]]})
    closed, pruned = (Saliency(m, smoothgrad=2)(**batch) for m in (gated, gated.prune()))
    for name in ("source", "prefix", "start"):
        assert_close(getattr(pruned, name), getattr(closed, name))


# ------------------------------------------------------------------------------------------------------------ mistakes
@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (Saliency, {"score": "loss"}, "score: 'loss' is not one of log_probability, probability, logit"),
        (Saliency, {"average": "mean"}, "average: 'mean' is not one of normalised, raw"),
        (Saliency, {"aggregate": "sum"}, "aggregate: 'sum' is not one of product, abs_product, li2016"),
        (Saliency, {"smoothgrad": -1}, "smoothgrad: -1 is not a number of noisy copies"),
        (Saliency, {"smoothgrad": 2.5}, "smoothgrad: 2.5 is not a number of noisy copies"),
        (Saliency, {"smoothgrad": 30, "sigma": 0}, "sigma: 0 must be above 0"),
        (Saliency, {"max_memory": 0}, "max_memory: 0 bytes"),
        (SmoothedAttention, {"smoothgrad": 0}, "smoothgrad: 0 leaves nothing to smooth"),
        (SmoothedAttention, {"layer": 7}, "layer: 7 is out of range"),
    ],
)
def test_bad_settings_are_named(method, settings, message):
    with pytest.raises(InputError, match=message):
        method(tiny_model("marian"), **settings)


def test_bad_input_is_named():
    model = tiny_model("marian")
    batch = random_batch(model, LENGTHS)
    with pytest.raises(InputError, match="labels: padding must be at the end"):
        Saliency(model)(batch["input_ids"], batch["labels"].flip(1), batch["attention_mask"])
    with torch.no_grad():
        model.lm_head.weight[3] = torch.nan
    with pytest.raises(InputError, match="its logits are not finite"):
        Saliency(model)(**batch)


def test_registry():
    model = tiny_model("marian")
    assert isinstance(make_method(model, "saliency", smoothgrad=30), Saliency)
    assert isinstance(make_method(model, "smoothed_attention"), SmoothedAttention)
    with pytest.raises(InputError, match="samples: method 'saliency' has no such setting; it has score"):
        make_method(model, "saliency", samples=3)
