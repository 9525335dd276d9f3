"""Sentence pairs: encoded and checked once, force-decoded or translated, batched."""

import sys

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import METHODS, AttentionWeights
from hf_nmt_interp.cli.main import main
from hf_nmt_interp.decoding import batch as batch_module
from hf_nmt_interp.decoding import pairs as module
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.decoding.generation import record_generation
from hf_nmt_interp.decoding.pairs import Checked, Pairs, encode_sources
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.faithfulness import compare
from hf_nmt_interp.models import families
from hf_nmt_interp.studies.detached import detached_study
from hf_nmt_interp.text.tokens import encode_source, encode_target
from tests.calibrated_models import calibrated_copy
from tests.fitting import fitting

SOURCES = ["The old dog sleeps under the table.", "The dog old sleeps under the table."]  # of one length
TARGETS = ["Der alte Hund schläft.", "Der Hund alte schläft."]
TARGET_WORDS = [word for target in TARGETS for word in ("--target", target)]


def test_force_has_the_ids_and_words_of_both_sides(any_translator):
    model, tokenizer = any_translator
    pairs = Pairs.force(model, tokenizer, SOURCES, TARGETS)
    for pair, source, target in zip(pairs, SOURCES, TARGETS, strict=True):
        one, other = encode_source(tokenizer, source), encode_target(tokenizer, target)
        assert pair.ids == Translation(one.ids, other.ids)
        assert (pair.source, pair.target, pair.origin) == (one.token_words, other.token_words, "given")


def test_translate_has_what_generate_returns(any_translator):
    model, tokenizer = any_translator
    pairs = Pairs.translate(model, tokenizer, SOURCES, batch_size=2, generate={"num_beams": 2})
    assert {pair.origin for pair in pairs} == {"translated"}
    for pair, source in zip(pairs, SOURCES, strict=True):
        ids = torch.tensor([encode_source(tokenizer, source).ids])
        with record_generation(model) as caught:
            model.generate(ids, num_beams=2)
        assert [pair.ids] == caught
        again = Pairs.caught(model, tokenizer, caught)[0]
        assert (again.source, again.target, again.origin) == (pair.source, pair.target, "caught")


def test_batches_are_of_similar_length_and_know_their_rows(translator_of, monkeypatch):
    model, tokenizer = translator_of("marian")
    pairs = Pairs.force(model, tokenizer, SOURCES, TARGETS)
    seen, tracked = {}, []
    track = lambda items, label: tracked.append((label, len(items))) or items  # noqa: E731
    monkeypatch.setattr("hf_nmt_interp.decoding.pairs.track", track)
    for rows, batch in pairs.batches(2, "Looking"):
        sizes = [pairs[row].ids.size for row in rows]
        assert sizes == sorted(sizes, reverse=True)
        for row, source, labels in zip(rows, batch.input_ids.tolist(), batch.labels.tolist(), strict=True):
            ids = pairs[row].ids
            seen[row] = source[: len(ids.source_ids)], [label for label in labels if label != -100]
            assert seen[row] == (ids.source_ids, ids.target_ids)
    assert sorted(seen) == [0, 1]
    assert tracked == [("Looking", 1)]


def test_slices_and_chosen_rows_are_pairs(translator_of):
    pairs = Pairs.force(*translator_of("marian"), SOURCES, TARGETS)
    assert isinstance(pairs[1:], Pairs)
    assert list(pairs[1:]) == list(pairs)[1:]
    assert list(pairs.pick([1, 0])) == [pairs[1], pairs[0]]
    assert list(pairs[:0].batches()) == []


def test_what_was_encoded_is_not_encoded_again(translator_of, monkeypatch):
    model, tokenizer = translator_of("marian")
    encoded = encode_sources(model, tokenizer, SOURCES)
    assert all(isinstance(one, Checked) for one in encoded)
    monkeypatch.setattr(module, "encode_source", lambda *_: pytest.fail("encoded again"))
    monkeypatch.setattr(module, "_check", lambda *_: pytest.fail("checked again"))
    assert encode_sources(model, tokenizer, encoded) == encoded
    monkeypatch.undo()
    assert list(Pairs.force(model, tokenizer, encoded, TARGETS)) == list(
        Pairs.force(model, tokenizer, SOURCES, TARGETS)
    )


def test_what_was_checked_for_one_model_is_checked_for_another(translator_of):
    model, tokenizer = translator_of("marian")
    encoded = encode_sources(model, tokenizer, ["dog " * 8])
    other = type(model)(type(model.config)(**model.config.to_dict() | {"max_position_embeddings": 8}))
    with pytest.raises(InputError, match=r"sources\[0\]: \d+ tokens, but the model has 8 positions; split the sent"):
        encode_sources(other, tokenizer, encoded)


def test_wrong_pairs_are_named(translator_of):
    model, tokenizer = translator_of("marian")
    with pytest.raises(InputError, match="targets: 1 targets for 2 sources; give one each"):
        Pairs.force(model, tokenizer, SOURCES, TARGETS[:1])
    with pytest.raises(InputError, match=r"targets\[1\]: \d+ tokens, but the model has 64 positions; split"):
        Pairs.force(model, tokenizer, SOURCES, [TARGETS[0], "Auto " * 70])
    with pytest.raises(InputError, match=r"sources\[0\]: 99999 is not among the model's \d+ tokens; use"):
        Pairs.caught(model, tokenizer, [Translation([99999, 0], [0])])
    with pytest.raises(InputError, match="sources: 'A car!' is not a list of sentences"):
        Pairs.translate(model, tokenizer, "A car!")


# ------------------------------------------------------------------------------------------ one of each in the hallway
EVERYTHING = [getattr(hni, name) for name in hni.__all__]  # a module that is imported later would keep what is counted


@pytest.fixture
def counts(monkeypatch):
    """How often texts are tokenised, ids are checked, tokenizers are checked and models are taken apart."""
    found = {"tokenised": [], "checked": [], "parts": [], "tokenizer": []}

    def count(function, kind, key):
        counted = lambda *a, **k: found[kind].append(key(*a, **k)) or function(*a, **k)  # noqa: E731
        for place in [place for name, place in sys.modules.items() if name.startswith("hf_nmt_interp")]:
            if vars(place).get(function.__name__) is function:
                monkeypatch.setattr(place, function.__name__, counted)

    count(batch_module.check_ids, "checked", lambda name, ids, model, side, row=None, longest=None: (name, row))
    count(module.check_tokenizer, "tokenizer", lambda *_: None)
    count(families.parts, "parts", lambda model: None)
    return found


def count_calls(tokenizer, found):
    """A tokenizer that counts the sentences it is called with."""
    kind = type(tokenizer)

    class Counting(kind):
        def __call__(self, text=None, text_target=None, **more):
            found["tokenised"].append(text if text_target is None else text_target)
            return super().__call__(text, text_target=text_target, **more)

    tokenizer.__class__ = Counting
    return kind


def run_verb(model, tokenizer, *words, then=SOURCES):
    """A verb with a model that is loaded already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_nmt_interp.cli.loading.load", lambda *_: (model, tokenizer))
        assert main([*words, *then]) == 0


CALLS = {
    "attribute": lambda m, t: hni.attribute(m, t, SOURCES, TARGETS, method="attention"),
    "attribute, translated": lambda m, t: hni.attribute(m, t, SOURCES, method="attention"),
    "align": lambda m, t: hni.align(m, t, SOURCES, TARGETS, method="attention"),
    "align, translated": lambda m, t: hni.align(m, t, SOURCES, method="attention"),
    "heads": lambda m, t: hni.head_report(m, t, SOURCES, TARGETS),
    "heads, translated": lambda m, t: hni.head_report(m, t, SOURCES, relevance_sentences=0),
    "contributions": lambda m, t: hni.contribution_study(
        m, t, SOURCES, TARGETS, prefixes=["reference", "random"], method="attention"
    ),
    "best attention": lambda m, t: hni.best_attention(m, t, SOURCES, TARGETS, [{(0, 0)}] * 2),
    "calibration": lambda m, t: hni.calibration_report(m, t, SOURCES, TARGETS),
    "faithfulness, translated": lambda m, t: compare(m, t, SOURCES, {"attention": AttentionWeights(m)}, batch_size=1),
    "detached, translated": lambda m, t: detached_study(m, t, SOURCES, generate={"max_length": 6}),
    "verb attribute": lambda m, t: run_verb(
        m, t, "attribute", "--format=json", "--method", "attention", *TARGET_WORDS
    ),
    "verb attribute, translated": lambda m, t: run_verb(
        m, t, "attribute", "--format=json", "--method", "attention", "--batch-size", "1"
    ),
    "verb contributions, translated": lambda m, t: run_verb(m, t, "contributions", "--method", "attention"),
    "verb translate, translated": lambda m, t: run_verb(m, t, "translate"),
    "verb heads, translated": lambda m, t: run_verb(m, t, "heads"),
}


@pytest.mark.parametrize("call", CALLS)
def test_one_tokenisation_one_check_one_look_at_the_model(translator_of, counts, call):
    model, tokenizer = translator_of("marian")
    model = calibrated_copy(model) if call == "calibration" else model
    kind = count_calls(tokenizer, counts)
    try:
        CALLS[call](model, tokenizer)
    finally:
        tokenizer.__class__ = kind
    assert sorted(counts["tokenised"]) == sorted([*SOURCES, *([] if "translated" in call else TARGETS)])
    checked = [check for check in counts["checked"] if check[0] != "decoder_input_ids"]  # the start token of a batch
    assert {name for name, _ in checked} == {"sources", "targets"}
    assert len(checked) == 2 * len(SOURCES)
    assert len(counts["tokenizer"]) == 1
    assert len(counts["parts"]) == (0 if "translate" in call.split(",")[0] else 1)


def test_a_corpus_run_tokenises_and_checks_each_line_once(translator_of, counts, tmp_path):
    model, tokenizer = translator_of("marian")
    for name, lines in (("en", SOURCES), ("de", TARGETS)):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    kind = count_calls(tokenizer, counts)
    files = "--input", str(tmp_path / "en"), "--target-file", str(tmp_path / "de")
    try:
        run_verb(
            model, tokenizer, "attribute", "--method=attention", *files, "--shards", str(tmp_path / "run"), then=[]
        )
    finally:
        tokenizer.__class__ = kind
    assert sorted(counts["tokenised"]) == sorted([*SOURCES, *TARGETS])
    assert len([check for check in counts["checked"] if check[0] != "decoder_input_ids"]) == 2 * len(SOURCES)


def test_one_look_for_every_method(translator_of, counts):
    for name in METHODS:
        model, tokenizer = translator_of("marian")
        model = fitting(name, model)
        counts["parts"].clear()
        counts["checked"].clear()
        result = hni.attribute(model, tokenizer, SOURCES[0], TARGETS[0], method=name)
        assert np.isfinite(result.source).all()
        assert len(counts["parts"]) == 1, name
        checked = [check for check in counts["checked"] if check[0] != "decoder_input_ids"]
        assert sorted(checked) == [("sources", 0), ("targets", 0)], name


def test_generation_is_checked_once(translator_of, counts):
    model, tokenizer = translator_of("marian")
    with hni.explain_generation(model, tokenizer, method="attention") as explained:
        model.generate(**tokenizer(SOURCES, padding=True, return_tensors="pt"))
    assert len(explained.results) == len(explained.results) == 2
    checked = [check for check in counts["checked"] if check[0] != "decoder_input_ids"]
    assert sorted(checked) == [(side, row) for side in ("sources", "targets") for row in range(2)]
    assert len(counts["parts"]) == 1


def test_what_has_no_tokens_or_no_start_is_named(translator_of):
    model, tokenizer = translator_of("marian")
    with pytest.raises(InputError, match=r"targets\[1\]: has no tokens; leave it out"):
        Pairs.caught(model, tokenizer, [Translation([5, 0], [7, 0]), Translation([5, 0], [])])
    with pytest.raises(InputError, match=r"decoder_input_ids: 99999 is not among the model's \d+ tokens"):
        list(Pairs.caught(model, tokenizer, [Translation([5, 0], [7, 0], 99999)]).batches())


def test_rows_of_a_study_are_those_of_the_arguments(translator_of):
    model, tokenizer = translator_of("marian")
    sources = ["A car!", *["dog " * 70] * 2]
    with pytest.raises(InputError, match=r"sources\[1\]: \d+ tokens, but the model has 64 positions"):
        hni.contribution_study(model, tokenizer, sources, ["Ein Auto!", "Hund", "Hund"], method="attention")
