"""Tables of signals on labels, and fitted combinations. Also for studies/removed_clauses.py."""

import numpy as np
import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.analysis.signals import chosen_signals
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.detection import calibration_error
from hf_nmt_interp.studies.check_table import (
    check_table,
    cross_validated,
    fit_combination,
    fit_logistic,
    folds_of,
    limits_table,
    read_labelled,
    read_labels,
    threshold_of,
)
from hf_nmt_interp.studies.removed_clauses import removed_clauses
from tests.reference import checking as twin
from tests.tiny_tokenizers import ENGLISH, GERMAN


def made_up(lines: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Signals and labels of a logistic model."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(lines, 3))
    return x, generator.random(lines) < 1 / (1 + np.exp(-(x @ [2.0, -1.0, 0.0] - 2)))


def test_the_fit_is_a_minimum_of_the_literal_loss() -> None:
    x, y = made_up(60)
    beta, l2 = fit_logistic(x, y, 0.02), 0.02
    least = twin.log_loss(beta.tolist(), x.tolist(), y.tolist(), l2)
    for n in range(4):
        for step in (-1e-3, 1e-3):
            moved = beta.copy()
            moved[n] += step
            assert twin.log_loss(moved.tolist(), x.tolist(), y.tolist(), l2) > least


def test_the_fit_converges_on_lines_that_can_be_separated() -> None:
    x = np.array([[-1.0], [-0.9], [0.9], [1.0]])
    assert fit_logistic(x, np.array([0, 0, 1, 1]))[1] == pytest.approx(fit_logistic(-x, np.array([1, 1, 0, 0]))[1])


def test_cross_validated_probabilities_are_calibrated_and_do_not_see_their_label() -> None:
    x, y = made_up()
    folds = np.arange(len(y)) % 5
    p = cross_validated(x, y, folds)
    assert calibration_error(p, y) < 0.03
    assert calibration_error(np.minimum(1, 2 * p), y) > 0.1  # what wrong ones would show
    flipped = y.copy()
    flipped[folds == 0] = ~flipped[folds == 0]
    assert (cross_validated(x, flipped, folds)[folds == 0] == p[folds == 0]).all()


def test_a_threshold_has_its_rates() -> None:
    good, bad = np.arange(100.0), np.array([10.0, 95.5, 200.0, 300.0])
    above = threshold_of(bad, good, 0.05, above=True)
    assert (above.false_alarms, above.found, above.good, above.bad) == (0.05, 0.75, 100, 4)
    below = threshold_of(-bad, -good, 0.05, above=False)
    assert (below.threshold, below.false_alarms) == (-above.threshold, 0.05)


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Good lines, and others with the translation of another sentence."""
    path = tmp_path_factory.mktemp("labels") / "labels.csv"
    rows = [f'"{s}","{t}",0' for s, t in zip(ENGLISH, GERMAN, strict=True)]
    rows += [f'"{s}","{t}",1' for s, t in zip(ENGLISH, [*GERMAN[1:], GERMAN[0]], strict=True)]
    path.write_text("\n".join(["src,mt,detached", *rows, f'"{"dog " * 400}","Hund",0', ""]), encoding="utf-8")
    return path


def test_signals_find_translations_of_other_sentences(labels) -> None:
    labelled = read_labelled(*hni.load_demo("en-de"), labels, chosen_signals())
    assert (labelled.refused, labelled.good.sum()) == (1, len(ENGLISH))
    folds = folds_of(labelled.readings)
    assert (folds[: len(ENGLISH)] == np.roll(folds[len(ENGLISH) :], 1)).all()  # equal translations
    table = check_table(labelled)
    assert table.counts == {"detached": len(ENGLISH), "any hallucination": len(ENGLISH)}
    auroc = {row["signal"]: row["auroc"] for row in table.rows if row["group"] == "detached"}
    assert auroc["information"] > 90
    assert auroc["combination"] > 80
    assert "| information | " in table.markdown()
    fitted = fit_combination(labelled, {"model": "x"})
    assert fitted.about["refused"] == 1
    assert "| lines: detached | " in limits_table(fitted)


def test_labels_that_are_refused(tmp_path) -> None:
    path = tmp_path / "labels.csv"
    for text, message in (
        ("src,mt\na,b\n", "needs columns src, mt and labels; labels are detached, strong-unsupport"),
        ("src,mt,omission\na,b,yes\n", "line 2: 'yes' in column omission; labels are 0 or 1"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_labels(path)
    with pytest.raises(InputError, match=r"none: cannot be read as CSV \(FileNotFoundError\)"):
        read_labels(tmp_path / "none")


def test_source_words_of_removed_clauses_are_flagged() -> None:
    pairs = [
        ("I like tea, but she drinks coffee.", "Ich mag Tee, aber sie trinkt Kaffee."),
        ("He was tired, so he went home.", "Er war müde, also ging er nach Hause."),
        ("I like tea.", "Ich mag Tee."),
    ]
    found = removed_clauses(*hni.load_demo("en-de"), pairs)
    assert found.sentences == 2
    assert found.words >= 4
    assert found.found > 0.5 > found.false_alarms
    assert "| removed source words | " in found.markdown()
    with pytest.raises(InputError, match="no translation has a clause that can be removed"):
        removed_clauses(*hni.load_demo("en-de"), pairs[2:])
