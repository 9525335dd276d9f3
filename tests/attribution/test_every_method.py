"""What holds for every attribution method: an untouched model, causality, padding, sentences by themselves."""

import pytest
import torch

from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.decoding.batch import make_batch
from tests.attribution.leaks import check_model_is_left, check_model_is_left_after_an_error, mixed_modes
from tests.fitting import fitting
from tests.tiny_models import random_batch, tiny_model

LENGTHS = [(5, 4), (3, 6), (2, 1)]
FEW = {"smoothgrad": {"smoothgrad": 2}, "smoothed_attention": {"smoothgrad": 2}, "integrated_gradients": {"steps": 3}}
every_method = pytest.mark.parametrize("name", METHODS)


def make(name, model):
    return METHODS[name](fitting(name, model), **FEW.get(name, {}))


@every_method
@pytest.mark.parametrize("family", ["marian", "t5_gated"])
def test_a_sentence_is_explained_by_itself(name, family):
    if name == "mask" and family != "marian":
        pytest.skip("there are no calibrated T5 models")
    method = make(name, tiny_model(family, seed=1))
    batch = random_batch(method.model, LENGTHS)
    together = method(**batch)
    for row, (S, T) in enumerate(LENGTHS):
        sizes = {"input_ids": S, "attention_mask": S, "labels": T}
        alone = method(**{part: batch[part][row : row + 1, :size] for part, size in sizes.items()})
        for part, inside in (("source", (T, S)), ("prefix", (T, T)), ("start", (T,))):
            found, expected = getattr(together, part)[row].clone(), getattr(alone, part)[0]
            where = tuple(slice(n) for n in inside)
            largest = max(1.0, expected.abs().max().item())
            torch.testing.assert_close(found[where], expected, atol=1e-5 * largest, rtol=0)
            found[where] = 0
            assert not found.any(), part  # padding


@every_method
def test_soft_links_are_the_source_scores(name):
    method = make(name, tiny_model("marian"))
    batch = make_batch(method.model, **random_batch(method.model, LENGTHS))
    torch.testing.assert_close(method.soft_links(batch), method.run(batch).source, atol=1e-6, rtol=0)


@every_method
def test_no_step_knows_later_tokens(name):
    method = make(name, tiny_model("marian"))
    batch = random_batch(method.model, [(4, 5)])
    scores = method(**batch)
    assert not scores.prefix.triu().any()
    batch["labels"][0, 3] = 9 if batch["labels"][0, 3] != 9 else 10
    changed = method(**batch)
    steps = 3 if not getattr(method, "shifted", False) else 2
    torch.testing.assert_close(changed.source[0, :steps], scores.source[0, :steps])
    torch.testing.assert_close(changed.prefix[0, :3], scores.prefix[0, :3])


@every_method
def test_the_number_of_forward_passes_does_not_depend_on_the_steps(name):
    """One, except for methods that also run changed copies of the sentence."""
    method = make(name, tiny_model("marian"))
    passes = []
    for lengths in [(4, 1)], [(4, 7)], LENGTHS:
        calls = []
        hook = method.parts.decoder.module.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        method(**random_batch(method.model, lengths))
        hook.remove()
        passes.append(len(calls))
    copies = {"smoothgrad": 2, "smoothed_attention": 2, "integrated_gradients": 4, "occlusion": 3}
    assert passes == [copies.get(name, 1)] * 3


@every_method
def test_the_model_is_left_as_it_was(name):
    model = fitting(name, mixed_modes("marian"))
    method, batch = METHODS[name](model, **FEW.get(name, {})), random_batch(model, LENGTHS)
    check_model_is_left(model, lambda: method(**batch))
    check_model_is_left_after_an_error(model, lambda: method(**batch), method.parts.decoder.layers[1][0].norm)


@every_method
def test_a_contrast_is_explained_or_refused(name):
    method = make(name, tiny_model("marian", torch.float64))
    batch = random_batch(method.model, LENGTHS)
    contrast = torch.full_like(batch["labels"], -100)
    contrast[0, 1], contrast[1, 3], contrast[2, 0] = 11, 12, batch["labels"][2, 0]  # the last one does not differ
    if not method.contrasts:
        with pytest.raises(ValueError, match=f"contrast: method '{name}' does not explain a score of the label"):
            method(**batch, contrast=contrast)
        return
    scores = method(**batch, contrast=contrast)
    explained = (scores.source.abs().sum(-1) + scores.prefix.abs().sum(-1)) > 0
    assert explained.nonzero().tolist() == [[0, 1], [1, 3]]
