"""The alignment head as a method, in `align`, and while `generate()` runs."""

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.alignment import add_links, align_words, make_aligner, own_method
from hf_nmt_interp.attribution.alignment_head import AlignmentHeadMethod
from hf_nmt_interp.decoding.batch import make_batch
from hf_nmt_interp.errors import InputError
from tests.aligned_models import CLASSES, aligned_copy, tiny_aligned
from tests.tiny_models import random_batch, tiny_model

SOURCES = ["Two children are looking for shells.", "The dog sleeps."]
TARGETS = ["Zwei Kinder suchen Muscheln.", "Der Hund schläft."]


@pytest.fixture
def translator(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    return aligned_copy(tiny_model("marian", vocab_size=len(tokenizer))), tokenizer


@pytest.mark.parametrize("family", CLASSES)
def test_scores_are_the_rows_of_the_steps_that_read_the_labels(family):
    model = tiny_aligned(family).double()  # scores that are not scaled, such as T5's, amplify rounding of states
    batch = random_batch(model, [(5, 4), (3, 2)])
    method = AlignmentHeadMethod(model)
    scores = method(**batch)
    labels, starts = batch["labels"], make_batch(model, **batch).decoder_input_ids[:, :1]
    for row, (S, T) in enumerate([(5, 4), (3, 2)]):
        read = torch.cat([starts[row], labels[row, :T]])[None]
        alone = model(batch["input_ids"][row : row + 1, :S], decoder_input_ids=read, output_alignment=True)
        expected = alone.alignment[0, 1:].double()
        torch.testing.assert_close(scores.source[row, :T, :S], expected, atol=1e-6, rtol=0)
    assert not scores.prefix.any()
    assert not scores.start.any()
    links = method.soft_links(make_batch(model, **batch))
    torch.testing.assert_close(links, scores.source, atol=1e-6, rtol=0)


@pytest.mark.parametrize("shifted", [False, True])
def test_links_of_attention_need_no_logits(shifted, monkeypatch):
    model = tiny_model("marian")
    method = make_aligner(model, "attention", layer=0, shifted=shifted)
    batch = make_batch(model, **random_batch(model, [(5, 4), (3, 2)]))
    expected = method.run(batch).source
    monkeypatch.setattr(model, "lm_head", None)
    torch.testing.assert_close(method.soft_links(batch), expected, atol=1e-6, rtol=0)


def test_a_model_without_a_head_is_refused():
    with pytest.raises(InputError, match="MarianMTModel has no alignment head; train one with"):
        AlignmentHeadMethod(tiny_model("marian"))


def _same_kind(result, source: int, target: int) -> bool:
    """Whether both words are marks, or none is: others are not linked where links are shown."""
    return (result.source_side.words[source] in ".,!?") == (result.target_side.words[target] in ".,!?")


def test_align_marks_and_pages_use_the_head(translator):
    model, tokenizer = translator
    assert own_method(model, None) == ("alignment_head", {})
    found = align_words(model, tokenizer, SOURCES, TARGETS)
    named = align_words(model, tokenizer, SOURCES, TARGETS, method="alignment_head")
    assert [a.links for a in found] == [a.links for a in named]
    assert all(np.array_equal(a.scores, b.scores) for a, b in zip(found, named, strict=True))
    results = add_links(model, hni.attribute(model, tokenizer, SOURCES, TARGETS, method="saliency"))
    separate = align_words(model, tokenizer, SOURCES, TARGETS, punctuation="separate")
    for result, found in zip(results, separate, strict=True):
        assert result.links == {link for link in found.links if _same_kind(result, *link)}


@pytest.mark.parametrize("settings", [{"num_beams": 1}, {"num_beams": 3, "num_return_sequences": 2}], ids=str)
@pytest.mark.parametrize("layer", [0, 1])
def test_generation_is_aligned_on_the_way_as_afterwards(translator, settings, layer):
    plain, tokenizer = translator[0].without_head(), translator[1]
    model = aligned_copy(plain, alignment_layer=layer)
    inputs = tokenizer(SOURCES, return_tensors="pt", padding=True)
    seen = []
    with hni.align_generation(model, tokenizer, seen.append) as aligned:
        ids = model.generate(**inputs, max_new_tokens=7, **settings)
    assert torch.equal(ids, plain.generate(**inputs, max_new_tokens=7, **settings))
    with hni.explain_generation(model, tokenizer, method="alignment_head") as explained:
        model.generate(**inputs, max_new_tokens=7, **settings)
    for alignment, result in zip(aligned.alignments, explained.results, strict=True):
        soft = hni.soft_alignment(result)
        np.testing.assert_allclose(alignment.soft, soft, atol=1e-5)
    assert any(token.final for token in seen)


def test_without_a_head_generation_is_aligned_by_attention(translator):
    model, tokenizer = translator[0].without_head(), translator[1]
    inputs = tokenizer(SOURCES[:1], return_tensors="pt")
    with (
        hni.align_generation(model, tokenizer) as ours,
        hni.align_generation(translator[0], tokenizer, layer=-1) as other,
    ):
        for some in (model, translator[0]):
            some.generate(**inputs, max_new_tokens=5)
    np.testing.assert_allclose(ours.alignments[0].scores, other.alignments[0].scores, atol=1e-6)
