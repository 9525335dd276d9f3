"""How well signals detect bad translations in labelled lines, and the combination of signals fitted to them.

Definitions: docs/methods.md, Checking a translation.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_nmt_interp.analysis.checking import OMITTED_CLAUSE, clause_maximum, source_coverage, target_information
from hf_nmt_interp.analysis.combination import Combination, Detector, Threshold
from hf_nmt_interp.analysis.signals import SIGNALS, chosen_signals
from hf_nmt_interp.analysis.signals.reading import Reading, read
from hf_nmt_interp.decoding.pairs import SHOWN, Pair, Pairs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.detection import auroc, bootstrap, calibration_error, precision_at_recall

Labels = dict[str, np.ndarray]
# kinds of errors, and the label columns that mark them
KINDS = {
    "detached": ("detached", "strong-unsupport", "full-unsupport"),
    "omission": ("omission",),
    "repetition": ("repetition", "repetitions"),
}
GROUPS = {
    "fully detached": ("full-unsupport",),
    "strongly detached": ("strong-unsupport",),
    "detached": KINDS["detached"],
    "any hallucination": (*KINDS["detached"], *KINDS["repetition"]),
    "repetition": KINDS["repetition"],
    "omission": KINDS["omission"],
}
L2 = 0.01  # of the weights of standardised signals
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Labelled:
    """Translations with human labels, read by a translator.

    Attributes:
        readings: of the lines that the model can process.
        labels: one array [lines] for each label column of the file.
        refused: number of lines that the model cannot process.
    """

    readings: list[Reading]
    labels: Labels
    refused: int

    def group(self, columns: Sequence[str]) -> np.ndarray | None:
        """[lines] whether one of these columns is true; None if the file has none of them."""
        known = [self.labels[name] for name in columns if name in self.labels]
        return np.any(known, 0) if known else None

    @property
    def good(self) -> np.ndarray:
        """[lines] whether no column is true."""
        return ~np.any(list(self.labels.values()), 0)


def read_labels(path: str | Path) -> tuple[list[str], list[str], Labels]:
    """Sources, translations and labels from a CSV file with columns src, mt and labels of 0 or 1 (see `GROUPS`)."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), None, f"cannot be read as CSV ({type(error).__name__})") from error
    columns = list(rows[0]) if rows else []
    known = [name for name in dict.fromkeys(sum(GROUPS.values(), ())) if name in columns]
    if not {"src", "mt"} <= set(columns) or not known:
        names = ", ".join(dict.fromkeys(sum(KINDS.values(), ())))
        raise InputError(str(path), None, "needs columns src, mt and labels", f"labels are {names}")
    for number, row in enumerate(rows, 2):
        for name in known:
            if row[name] not in ("0", "1"):
                raise InputError(f"{path}, line {number}", row[name], f"in column {name}", "labels are 0 or 1")
    labels = {name: np.array([row[name] == "1" for row in rows]) for name in known}
    return [row["src"] for row in rows], [row["mt"] for row in rows], labels


def read_labelled(
    model: Any, tokenizer: Any, path: str | Path, signals: Sequence[str], batch_size: int = 16
) -> Labelled:
    """Force-decode the translations of a labelled file with all passes that the signals need."""
    sources, targets, labels = read_labels(path)
    pairs: dict[int, Pair] = {}
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        try:
            pairs[row] = Pairs.force(model, tokenizer, [source], [target], SHOWN)[0]
        except InputError as error:
            if error.row is None:
                raise
    passes = [name for signal in signals for name in SIGNALS[signal].passes]
    readings = read(model, Pairs(model, list(pairs.values())), passes, batch_size)
    kept = list(pairs)
    return Labelled(readings, {name: own[kept] for name, own in labels.items()}, len(sources) - len(kept))


def signal_values(readings: Sequence[Reading], names: Sequence[str]) -> np.ndarray:
    """[lines, signals]."""
    return np.array([[SIGNALS[name].score(reading) for name in names] for reading in readings])


def fit_logistic(x: np.ndarray, y: np.ndarray, l2: float = L2) -> np.ndarray:
    """Bias and weights [1 + F] that minimise mean log-loss of sigmoid(bias + x weights) + l2 / 2 |weights|^2.

    Args:
        x: [N, F].
        y: [N], 0 or 1.
        l2: strength of the penalty.
    """
    design = np.column_stack([np.ones(len(x)), x])
    penalty = l2 * np.eye(design.shape[1])
    penalty[0, 0] = 1e-9  # of the bias: only makes the matrix invertible
    beta = np.zeros(design.shape[1])

    def loss(beta: np.ndarray) -> float:
        total = design @ beta
        return float(np.mean(np.logaddexp(0, total) - y * total) + beta @ penalty @ beta / 2)

    for _ in range(100):  # Newton steps, halved if the loss would rise
        p = 1 / (1 + np.exp(-design @ beta))
        gradient = design.T @ (p - y) / len(y) + penalty @ beta
        hessian = (design * (p * (1 - p))[:, None]).T @ design / len(y) + penalty
        step = np.linalg.solve(hessian, gradient)
        while loss(beta - step) > loss(beta) and np.abs(step).max() > 1e-12:
            step = step / 2
        beta = beta - step
        if np.abs(step).max() < 1e-10:
            break
    return beta


def folds_of(readings: Sequence[Reading], folds: int = FOLDS, seed: int = 0) -> np.ndarray:
    """[lines] fold of each line; equal translations are in the same fold."""
    texts = [tuple(reading.pair.ids.target_ids) for reading in readings]
    numbers = {text: n for n, text in enumerate(dict.fromkeys(texts))}
    order = np.random.default_rng(seed).permutation(len(numbers)) % folds
    return order[[numbers[text] for text in texts]]


def _probabilities(x: np.ndarray, y: np.ndarray, others: np.ndarray) -> np.ndarray:
    """P of other lines, by a model fitted on x and y."""
    mean, deviation = x.mean(0), _deviation(x)
    beta = fit_logistic((x - mean) / deviation, y)
    return 1 / (1 + np.exp(-(beta[0] + (others - mean) / deviation @ beta[1:])))


def _deviation(x: np.ndarray) -> np.ndarray:
    """Standard deviations; 1 for a constant."""
    found = x.std(0)
    return np.where(found > 0, found, 1)


def cross_validated(x: np.ndarray, y: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """[N] P of each line, by a model fitted on the other folds."""
    found = np.zeros(len(y))
    for fold in np.unique(folds):
        found[folds == fold] = _probabilities(x[folds != fold], y[folds != fold], x[folds == fold])
    return found


def threshold_of(bad: np.ndarray, good: np.ndarray, false_alarms: float, above: bool) -> Threshold:
    """The threshold above (or below) which that share of the good values lies, and its measured rates."""
    limit = float(np.quantile(good, 1 - false_alarms if above else false_alarms))
    alarms, found = (float((values > limit if above else values < limit).mean()) for values in (good, bad))
    return Threshold(limit, alarms, found, len(good), len(bad))


def fit_detector(x: np.ndarray, y: np.ndarray, names: Sequence[str], p: np.ndarray, false_alarms: float) -> Detector:
    """A detector fitted on all lines, whose threshold comes from cross-validated probabilities p [N]."""
    mean, deviation = x.mean(0), _deviation(x)
    beta = fit_logistic((x - mean) / deviation, y)
    weights, means, deviations = (dict(zip(names, x.tolist(), strict=True)) for x in (beta[1:], mean, deviation))
    limit = threshold_of(p[y], p[~y], false_alarms, above=True)
    return Detector(weights, means, deviations, float(beta[0]), limit)


def fit_combination(
    labelled: Labelled, about: Mapping[str, Any], names: Sequence[str] | None = None, false_alarms: float = 0.05
) -> Combination:
    """Detectors of all kinds that the labels contain, and thresholds for words.

    Words of fully detached lines (target) and of lines with omissions (source) count as bad, words of lines without
    any label as good; in fact not every word of a bad line is bad.
    """
    names = chosen_signals(names)
    x, folds, detectors = signal_values(labelled.readings, names), folds_of(labelled.readings), {}
    for kind, columns in KINDS.items():
        y = labelled.group(columns)
        if y is not None and FOLDS <= y.sum() <= len(y) - FOLDS:
            detectors[kind] = fit_detector(x, y, names, cross_validated(x, y, folds), false_alarms)
    if not detectors:
        raise InputError("labels", None, f"no kind of error has at least {FOLDS} lines with and without it")

    def words(measure: Callable[[Reading], np.ndarray], columns: Sequence[str]) -> Threshold:
        bad = labelled.group(columns)
        bad = np.zeros(len(x), bool) if bad is None else bad
        good, wrong = (
            _words(measure, [r for r, own in zip(labelled.readings, rows, strict=True) if own])
            for rows in (labelled.good, bad)
        )
        return threshold_of(wrong if len(wrong) else good, good, false_alarms, above=False)

    coverage = words(source_coverage, KINDS["omission"])
    detached = GROUPS["fully detached"] if "full-unsupport" in labelled.labels else KINDS["detached"]
    about = {**about, "lines": len(x), "refused": labelled.refused, "l2": L2, "folds": FOLDS}
    clause = clause_threshold(labelled, false_alarms)
    return Combination(about, detectors, coverage, words(target_information, detached), clause)


def clause_threshold(labelled: Labelled, false_alarms: float) -> Threshold:
    """The threshold of `clause_maximum` on lines with and without omissions."""
    values = np.array([clause_maximum(reading) for reading in labelled.readings])
    bad = labelled.group(KINDS["omission"])
    good = values if bad is None else values[~bad]
    return threshold_of(good if bad is None or not bad.any() else values[bad], good, false_alarms, above=False)


def _words(measure: Callable[[Reading], np.ndarray], readings: Sequence[Reading]) -> np.ndarray:
    """Measures of all words, without punctuation marks."""
    found = np.concatenate([measure(reading) for reading in readings] or [np.zeros(0)])
    return found[~np.isnan(found)]


@dataclass(frozen=True, eq=False)
class CheckTable:
    """AUROC and precision at 90 % recall by signal and group of labels, in percent, with intervals.

    Attributes:
        counts: lines of each group.
        lines: number of lines.
        rows: one row for each signal and group.
        calibration: cross-validated calibration error of the combination of each group.
    """

    counts: dict[str, int]
    lines: int
    rows: list[dict[str, Any]]
    calibration: dict[str, float]

    def markdown(self) -> str:
        """Two tables, and the calibration errors."""
        texts = []
        for figure, title in (("auroc", "AUROC"), ("precision", "Precision at 90 % recall")):
            texts += [f"{title}, per cent, with 95 % intervals:", "", self._table(figure), ""]
        found = ", ".join(f"{group} {value:.3f}" for group, value in self.calibration.items())
        return "\n".join([*texts, f"Calibration error of the combination, cross-validated: {found}"])

    def _table(self, figure: str) -> str:
        signals = list(dict.fromkeys(row["signal"] for row in self.rows))
        cells = {(row["signal"], row["group"]): row for row in self.rows}
        head = [f"{group} ({count:,} of {self.lines:,})" for group, count in self.counts.items()]
        lines = ["| " + " | ".join(["signal", *head]) + " |", "|---" * (1 + len(head)) + "|"]
        for signal in signals:
            found = [cells[signal, group] for group in self.counts]
            texts = [f"{c[figure]:.1f} ({c[f'{figure}_low']:.1f} to {c[f'{figure}_high']:.1f})" for c in found]
            lines.append("| " + " | ".join([signal, *texts]) + " |")
        return "\n".join(lines)


def check_table(labelled: Labelled, names: Sequence[str] | None = None) -> CheckTable:
    """Every signal and the cross-validated combination of the default ones against each group of labels."""
    names = chosen_signals(names)
    default = [name for name in names if not SIGNALS[name].on_request]
    x, folds = signal_values(labelled.readings, names), folds_of(labelled.readings)
    signs = np.array([1 if SIGNALS[name].rises else -1 for name in names])
    counts, rows, calibration = {}, [], {}
    for group, columns in GROUPS.items():
        y = labelled.group(columns)
        if y is None or not FOLDS <= y.sum() <= len(y) - FOLDS:
            continue
        scores = {name: x[:, n] * signs[n] for n, name in enumerate(names)}
        for title, own in {"combination": default, "combination with those on request": names}.items():
            if own and (own is default or len(names) > len(default)):
                scores[title] = cross_validated(x[:, [names.index(name) for name in own]], y, folds)
        counts[group], calibration[group] = int(y.sum()), calibration_error(scores["combination"], y)
        rows += [{"signal": name, "group": group} | _figures(values[y], values[~y]) for name, values in scores.items()]
    return CheckTable(counts, len(x), rows, calibration)


def _figures(positive: np.ndarray, negative: np.ndarray) -> dict[str, float]:
    """Percentages with intervals."""
    found: dict[str, float] = {}
    for name, figure in (("auroc", auroc), ("precision", precision_at_recall)):
        low, high = bootstrap(figure, positive, negative)
        values = {name: figure(positive, negative), f"{name}_low": low, f"{name}_high": high}
        found |= {key: 100 * value for key, value in values.items()}
    return found


def limits_table(fitted: Combination) -> str:
    """Markdown table of the threshold of every kind of error, for lines and words, with its measured rates."""
    rows = {f"lines: {kind}": one.limit for kind, one in fitted.detectors.items()}
    rows |= {f"lines: {OMITTED_CLAUSE}": fitted.clause} if fitted.clause else {}
    rows |= {"source words: untranslated": fitted.coverage, "target words: unsupported": fitted.information}
    lines = ["| what | threshold | false alarms, % | found, % | good | bad |", "|---" * 6 + "|"]
    for name, limit in rows.items():
        rates = f"{100 * limit.false_alarms:.1f} | {100 * limit.found:.1f}"
        lines.append(f"| {name} | {limit.threshold:.3f} | {rates} | {limit.good:,} | {limit.bad:,} |")
    return "\n".join(lines)
