"""Signals against their literal twins, on readings made up and of a tiny translator.

For analysis/signals/base.py, analysis/signals/reading.py, analysis/signals/likelihood.py,
analysis/signals/information.py, analysis/signals/shares.py, analysis/signals/coverage.py,
analysis/signals/contrastive.py, analysis/signals/repetition.py and analysis/signals/length.py.
"""

import math

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.signals import SIGNALS, chosen_signals
from hf_nmt_interp.analysis.signals.reading import (
    PASSES,
    Reading,
    aligner,
    by_word,
    clauses,
    is_mark,
    read,
    smoothed,
    without,
)
from hf_nmt_interp.decoding.pairs import SHOWN, Pairs
from hf_nmt_interp.errors import InputError
from tests.reference import checking as twin
from tests.tiny_models import tiny_model

SOURCES = ["the cat sleeps on the sofa, it is raining.", "a dog sleeps"]
TARGETS = ["a cat a cat a cat sleeps", "my house is the house."]


@pytest.fixture(scope="module")
def pairs(tokenizer_of) -> Pairs:
    tokenizer = tokenizer_of("marian")
    return Pairs.force(tiny_model("marian", vocab_size=len(tokenizer)), tokenizer, SOURCES, TARGETS, SHOWN)


@pytest.fixture(scope="module")
def readings(pairs) -> list[Reading]:
    return read(pairs.model, pairs, PASSES, batch_size=2)


def score(name: str, reading: Reading) -> float:
    return SIGNALS[name].score(reading)


@torch.no_grad()
def plain_log_probs(model, source_ids: list[int], target_ids: list[int]) -> list[float]:
    """Of each label, from an unpadded forward pass."""
    logits = model(input_ids=torch.tensor([source_ids]), labels=torch.tensor([target_ids])).logits[0].double()
    return [float(row.log_softmax(-1)[y]) for row, y in zip(logits, target_ids, strict=True)]


def test_likelihood_and_information(pairs, readings) -> None:
    for pair, reading in zip(pairs, readings, strict=True):
        whole = plain_log_probs(pairs.model, pair.ids.source_ids, pair.ids.target_ids)
        special = [n for n, is_special in zip(pair.ids.source_ids, pair.source.special, strict=True) if is_special]
        empty = plain_log_probs(pairs.model, special, pair.ids.target_ids)
        gain = twin.information(whole, empty)
        words = [sum(gain[n] for n in own) for own in pair.target.positions]
        expected = {
            "log_probability": sum(whole) / len(whole),
            "lowest_log_probability": min(sum(whole[n] for n in own) for own in pair.target.positions),
            "ending": whole[-1],
            "information": sum(gain),
            "mean_information": sum(gain) / len(gain),
            "source_information": sum(gain) / len(pair.ids.source_ids),
            "information_share": twin.information_share(whole, empty),
            "lowest_information": min(0, *words),
            "uninformed_words": sum(word < 0.5 for word in words) / len(words),
        }
        for name, value in expected.items():
            assert score(name, reading) == pytest.approx(value, abs=1e-4), name


def test_shares_are_those_of_the_methods(pairs, readings, tokenizer_of) -> None:
    for method in ("alti", "lrp"):
        results = hni.attribute(pairs.model, tokenizer_of("marian"), SOURCES, TARGETS, method=method)
        for pair, reading, result in zip(pairs, readings, results, strict=True):
            shares = getattr(reading, method)
            assert shares == pytest.approx(result.source_contribution, abs=1e-5)
            assert shares[0] == pytest.approx(1)
            assert score(f"{method}_share", reading) == pytest.approx(sum(shares[1:]) / (len(shares) - 1))
            own = [[shares[n] for n in places if n] for places in pair.target.positions]
            assert score(f"{method}_minimum", reading) == pytest.approx(min(sum(x) / len(x) for x in own if x))


def test_coverage(pairs, readings) -> None:
    for pair, reading in zip(pairs, readings, strict=True):
        words = [n for n, word in enumerate(pair.source.words) if not is_mark(word)]
        links, attention = reading.links.tolist(), reading.attention.tolist()
        assert np.sum(links, 1) == pytest.approx(1)
        best = [twin.best_link(links, i) for i in range(len(pair.source.words))]
        clipped = [twin.clipped_coverage(attention, i) for i in range(len(pair.source.words))]
        spans = [[i for i in words if first <= i < end] for first, end in clauses(pair.source.words)]
        expected = {
            "alignment_coverage": np.mean([best[i] for i in words]),
            "attention_coverage": np.mean([clipped[i] for i in words]),
            "clause_coverage": min(np.mean([best[i] for i in span]) for span in spans),
            "lowest_coverage": min(twin.smoothed(clipped, span, i) for span in spans for i in span),
            "alignment_confidence": np.mean([max(row) for row in links]),
        }
        for name, value in expected.items():
            assert score(name, reading) == pytest.approx(value), name


def test_contrastive_conditioning_leaves_out_words_and_clauses(pairs, readings) -> None:
    pair, reading = pairs[0], readings[0]
    spans = [(part.first, part.end) for part in reading.parts]
    assert spans[-2:] == clauses(pair.source.words)
    whole = sum(plain_log_probs(pairs.model, pair.ids.source_ids, pair.ids.target_ids))
    for part in reading.parts:
        gone = {n for word in range(part.first, part.end) for n in pair.source.positions[word]}
        source = [token for n, token in enumerate(pair.ids.source_ids) if n not in gone]
        gain = sum(plain_log_probs(pairs.model, source, pair.ids.target_ids)) - whole
        assert part.gain == pytest.approx(gain, abs=1e-4)
    assert score("contrastive_conditioning", reading) == max(part.gain for part in reading.parts)


def test_repetition_and_length(pairs, readings) -> None:
    for pair, reading in zip(pairs, readings, strict=True):
        sides = [[word for word in side.words if not is_mark(word)] for side in (pair.source, pair.target)]
        assert score("repeated_ngrams", reading) == pytest.approx(twin.repeated_ngrams(*sides))
        assert score("top_ngram", reading) == twin.top_ngram(*sides)
        ratio = len(pair.ids.target_ids) / len(pair.ids.source_ids)
        assert score("length_ratio", reading) == pytest.approx(math.log(ratio))
        characters = (len(pair.target.text) + 1) / (len(pair.source.text) + 1)
        assert score("character_ratio", reading) == pytest.approx(math.log(characters))
    assert score("repeated_ngrams", readings[0]) > 0 > score("repeated_ngrams", readings[1]) - 0.5


def test_an_empty_translation_has_all_signals(pairs, tokenizer_of) -> None:
    nothing = Pairs.force(pairs.model, tokenizer_of("marian"), SOURCES, ["", TARGETS[1]], SHOWN)
    for name in SIGNALS:
        own = read(nothing.model, nothing, SIGNALS[name].passes, choice=None)
        assert np.isfinite(score(name, own[0])), name
    assert score("attention_coverage", read(nothing.model, nothing, ["cross"])[0]) == 0


def test_default_signals_need_three_forward_passes(pairs) -> None:
    passes = {name for signal in chosen_signals() for name in SIGNALS[signal].passes}
    choice, calls = aligner(pairs.model, pairs), []
    hook = pairs.model.register_forward_hook(lambda *_: calls.append(1))
    read(pairs.model, pairs, passes, batch_size=2, choice=choice)
    hook.remove()
    assert len(calls) == 3


def test_without_keeps_special_tokens(pairs) -> None:
    pair = pairs[0]
    assert without(pair, range(len(pair.source.words))).ids.source_ids == [pair.ids.source_ids[-1]]
    assert by_word(np.ones(len(pair.source.tokens)), pair.source).sum() == len(pair.source.tokens) - 1


def test_smoothing_stays_inside_clauses() -> None:
    words = ["a", "b", "c", "d", ".", "e"]
    values = np.arange(6.0)
    found = smoothed(values, words)
    assert found[[0, 1, 2, 3, 5]] == pytest.approx(
        [*(twin.smoothed(values.tolist(), [0, 1, 2, 3], n) for n in range(4)), 5]
    )
    assert np.isnan(found[4])


def test_unknown_signals_list_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"signals: 'x' is not one of log_probability, .*, default, all"):
        chosen_signals(["x"])
    assert chosen_signals(["all"]) == list(SIGNALS)
