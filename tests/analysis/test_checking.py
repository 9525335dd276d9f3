"""`check`: verdicts, words and what it refuses. Also for analysis/combination.py."""

import json
from dataclasses import replace

import numpy as np
import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.checking import clause_maximum, source_coverage
from hf_nmt_interp.analysis.combination import SHIPPED, Combination, Detector, Threshold, shipped
from hf_nmt_interp.analysis.signals import chosen_signals
from hf_nmt_interp.analysis.signals.reading import clauses, read
from hf_nmt_interp.decoding.pairs import SHOWN, Pairs
from hf_nmt_interp.errors import InputError
from tests.reference import checking as twin

SOURCE, TARGET = "The cat is sleeping on the sofa. It is raining.", "Die Katze schläft auf dem Sofa."
NO_LIMIT = Threshold(0.5, 0.05, 0.5, 10, 10)


@pytest.fixture(scope="module")
def box():
    return hni.load_demo("en-de")


def test_an_omitted_sentence_and_an_added_one_are_named(box) -> None:
    whole, omitted, added, nothing = hni.check(
        *box,
        [SOURCE[:32], SOURCE, SOURCE[:32], SOURCE[:32]],
        [TARGET, TARGET, f"{TARGET} Die Regierung hat gestern neue Gesetze beschlossen.", ""],
    )
    assert (whole.untranslated_text, whole.unsupported_text, whole.found) == ([], [], [])
    assert omitted.untranslated_text == ["It is raining."]
    assert omitted.found == ["omitted_clause"]
    assert [omitted.source[n] for n in omitted.untranslated] == ["It", "is", "raining", "."]
    assert omitted.verdicts["omission"].score > 10 * whole.verdicts["omission"].score
    assert any("Regierung" in text for text in added.unsupported_text)
    assert added.verdicts["detached"].score > 10 * whole.verdicts["detached"].score
    assert nothing.untranslated == list(range(len(nothing.source)))
    for check in (whole, omitted, added, nothing):
        assert all(0 < verdict.false_alarms < 0.1 for verdict in check.verdicts.values())
        json.dumps(check.to_dict(), allow_nan=False)


def test_a_clause_is_omitted_if_none_of_its_words_is_covered(box) -> None:
    pairs = Pairs.force(*box, [SOURCE, ""], [TARGET, ""], SHOWN)
    reading, nothing = read(box[0], pairs, ["cross"])
    coverage = [None if np.isnan(value) else value for value in source_coverage(reading).tolist()]
    spans = [list(range(first, end)) for first, end in clauses(reading.pair.source.words)]
    assert clause_maximum(reading) == pytest.approx(twin.clause_maximum(coverage, spans))
    assert clause_maximum(nothing) == 1
    verdict = hni.check(*box, SOURCE, TARGET).verdicts["omitted_clause"]
    assert verdict.score == pytest.approx(1 - clause_maximum(reading), abs=1e-5)
    assert verdict.false_alarms == shipped().clause.false_alarms


def test_weights_without_a_threshold_of_clauses_give_no_such_verdict(box) -> None:
    assert "omitted_clause" not in hni.check(*box, SOURCE, TARGET, weights=replace(shipped(), clause=None)).verdicts


def test_a_line_does_not_depend_on_its_batch(box) -> None:
    alone = hni.check(*box, SOURCE, TARGET)
    _, other = hni.check(*box, ["I like tea.", SOURCE], ["Ich mag Tee.", TARGET])
    assert other.signals == pytest.approx(alone.signals, abs=1e-4)
    assert other.untranslated == alone.untranslated


def test_some_signals_only_and_contrastive_conditioning(box) -> None:
    found = hni.check(*box, SOURCE, TARGET, signals=["contrastive_conditioning", "repeated_ngrams"])
    assert (found.verdicts, found.untranslated, list(found.signals)[1]) == ({}, [], "repeated_ngrams")
    assert found.omitted["It is raining ."] == found.signals["contrastive_conditioning"] > 0


def test_without_a_target_the_model_translates(box) -> None:
    assert hni.check(*box, SOURCE[:32], generate={"num_beams": 1}).target_text == TARGET


def test_the_score_is_the_logistic_function_of_standardised_signals() -> None:
    detector = Detector({"a": 2.0}, {"a": 1.0}, {"a": 4.0}, -1.0, NO_LIMIT)
    assert detector.score({"a": 3.0}) == 0.5  # -1 + 2 (3 - 1) / 4
    assert detector.score({"a": 1e9}) == 1


def test_the_shipped_weights_are_of_default_signals_and_have_measured_rates(tmp_path) -> None:
    found = shipped()
    assert list(found.detectors) == ["detached", "omission", "repetition"]
    for detector in found.detectors.values():
        assert set(detector.weights) == set(chosen_signals())
        assert detector.limit.false_alarms == pytest.approx(0.05, abs=0.01)
        assert detector.limit.good > detector.limit.bad > 0
    found.save(tmp_path / "weights.json")
    assert Combination.load(tmp_path / "weights.json") == found
    assert (tmp_path / "weights.json").read_text() == SHIPPED.read_text()


def test_what_is_refused(box, tmp_path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(SHIPPED.read_text().replace('"length_ratio"', '"length"'))
    with pytest.raises(
        InputError, match=r"weights: .* is not a file of fitted weights \(ValueError: unknown signal length"
    ):
        hni.check(*box, SOURCE, TARGET, weights=bad)
    bad.write_text("[]")
    with pytest.raises(InputError, match=r"is not a file of fitted weights .*; check-table --save writes one"):
        hni.check(*box, SOURCE, TARGET, weights=bad)
    with pytest.raises(InputError, match=r"signals: 'ending' is not a list of names; give \['ending'\]"):
        hni.check(*box, SOURCE, TARGET, signals="ending")
    with pytest.raises(InputError, match=r"targets: .* is one sentence for a list of sources"):
        hni.check(*box, [SOURCE], TARGET)
