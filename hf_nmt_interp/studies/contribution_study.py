"""Contributions of several models on sentences of one length, with several kinds of prefixes (voita2021).

Definitions: docs/methods.md, Contribution statistics.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from hf_nmt_interp.analysis.contributions import STATISTICS, mean_curve
from hf_nmt_interp.analysis.reports import Report
from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.decoding.batch import evaluating, run_model
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.studies.prefixes import PREFIXES, LengthSet
from hf_nmt_interp.text.progress import estimate, track
from hf_nmt_interp.text.tokens import encode_source, encode_target

ACCURACY, KL = "accuracy", "kl_to_final"
STUDIED = (*STATISTICS, ACCURACY, KL)
WITH_PREFIX = (
    "source_contribution",
    "source_part",
    "prefix_entropy",
)  # meaningless at the first step, which has no prefix
_POOL = 5  # sources translated per requested one: not all translations have the right length
_LEAST = 1e-12  # lower bound of the final model's influences in the KL divergence

_KEYS = ("model", "prefix", "source_tokens", "target_tokens", "statistic")

Row = dict[str, Any]
Lengths = tuple[int | None, int | None]


def is_shown(row: Row) -> bool:
    """Whether a row belongs in means and figures: all except the first step of statistics of the prefix."""
    return row["position"] > 0 or row["statistic"] not in WITH_PREFIX


@dataclass(frozen=True)
class ContributionStudy(Report):
    """Mean by position of each statistic, for each model, prefix and pair of lengths.

    Attributes:
        rows: model, prefix, source_tokens, target_tokens, statistic, position (from 0), mean, low, high (95 %
            confidence interval, None for one sentence), sentences.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> study = hni.contribution_study(model, tokenizer, ["I like tea."], ["Ich mag Tee."])
    >>> [round(row["mean"], 2) for row in study.select(statistic="source_contribution")]
    [1.0, 0.8, 0.82, 0.63, 0.64]
    """

    columns: ClassVar = (*_KEYS, "position", "mean", "low", "high", "sentences")
    rows: list[Row]

    def select(self, **fields: Any) -> list[Row]:
        """Rows with these values, e.g. `select(model="mrt", prefix="random", statistic="source_contribution")`."""
        return [row for row in self.rows if all(row[name] == value for name, value in fields.items())]

    def names(self, field: str) -> list[Any]:
        """Values of a field in the order of their first appearance, e.g. `names("model")`."""
        return list(dict.fromkeys(row[field] for row in self.rows))

    def means(self) -> list[Row]:
        """Means over target positions and sentences (figure 9); for `WITH_PREFIX` without the first position."""
        groups: dict[tuple, list[Row]] = {}
        for row in self.rows:
            if row["statistic"] != "position_influence" and is_shown(row):  # whose mean is always 1
                groups.setdefault(tuple(row[name] for name in _KEYS), []).append(row)
        return [
            dict(zip(_KEYS, key, strict=True))
            | {"mean": float(np.average([r["mean"] for r in rows], weights=[r["sentences"] for r in rows]))}
            for key, rows in groups.items()
        ]

    def table(self) -> list[Row]:
        """All rows."""
        return self.rows

    @classmethod
    def load(cls, path: str | Path) -> "ContributionStudy":
        """Read what `save` wrote as CSV."""
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows: list[Row] = list(csv.DictReader(file))
        if rows and set(rows[0]) != set(cls.columns):
            found = ", ".join(rows[0])
            raise InputError("path", str(path), "is not a contribution study", f"its columns are {found}")
        whole, real = ("source_tokens", "target_tokens", "position", "sentences"), ("mean", "low", "high")
        for row in rows:
            row |= {name: int(row[name]) for name in whole}
            row |= {name: float(row[name]) if row[name] else None for name in real}
        return cls(rows)


@takes_names
def contribution_study(
    models: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    prefixes: Sequence[str] = ("reference",),
    lengths: Sequence[Lengths] | None = None,
    within: int = 0,
    limit: int = 1000,
    final: str | None = None,
    method: str = "lrp",
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    seed: int = 0,
    **settings: Any,
) -> ContributionStudy:
    """Source contribution, position influence, entropies, accuracy and distance to a final model, by position.

    Accuracy, the share of labels that are the model's first choice, is measured for reference prefixes only. KL is
    D(model || final) of the influences of source and prefix tokens, for prefixes that all models share.

    Args:
        models: a model, or a name that is passed to `load` (further arguments of `load` are then accepted too); or a
            dict from labels to models or to functions that load one (only one is in memory at a time).
        tokenizer: the tokenizer of all models; None with a name.
        sources: sentences.
        targets: their translations, one each.
        prefixes: kinds of `PREFIXES` in studies/prefixes.py.
        lengths: (source, target) tokens of each set, including EOS; None, for one side or all, uses the most frequent.
        within: by how many tokens a side may be shorter or longer.
        limit: maximum number of sentences in a set.
        final: name of the model that the others are compared with.
        method: name of an attribution method.
        batch_size: sentences explained at a time.
        generate: arguments of `model.generate()` for model prefixes.
        seed: seed for shuffling.
        settings: settings of the method.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> sources, targets = ["I like tea.", "I like milk."], ["Ich mag Tee.", "Ich mag Milch."]
    >>> row = hni.contribution_study(model, tokenizer, sources, targets).rows[0]
    >>> row["statistic"], row["position"], round(row["mean"], 3), row["sentences"]
    ('source_contribution', 0, 1.0, 2)
    """
    named = models if isinstance(models, Mapping) else {"model": models}
    _check(named, prefixes, final, sources, targets)
    sets = _sets(tokenizer, sources, targets, lengths or [(None, None)], limit, within)
    order = sorted(named, key=lambda name: name != final)  # the final model first: the others need its influences
    rows: list[Row] = []
    goals: dict[tuple, list[AttributionResult]] = {}
    _estimate(named[order[0]], tokenizer, sets, len(named) * len(prefixes), batch_size, method, settings)
    for name in track(order, "Studying"):
        model = _loaded(named[name])
        explainer = make_method(model, method, **settings)
        checked = [bucket.checked(model, tokenizer) for bucket in sets]
        for bucket, (prefix, kind) in product(checked, ((prefix, PREFIXES[prefix]) for prefix in prefixes)):
            pairs = kind.pairs(bucket, model, tokenizer, seed, batch_size=batch_size, generate=generate)
            results = explain(explainer, pairs, batch_size, settings)
            curves = {stat: [compute(r) for r in results] for stat, compute in STATISTICS.items()}
            if kind.is_reference:
                curves[ACCURACY] = _accuracy(model, pairs, batch_size)
            if final is not None and kind.is_shared:
                goal = goals.setdefault((bucket.lengths, prefix), results)
                curves[KL] = [influence_kl(r, other) for r, other in zip(results, goal, strict=True)]
            rows += _rows(curves, dict(zip(_KEYS, (name, prefix, *bucket.lengths), strict=False)))
        del model, explainer
    return ContributionStudy(sorted(rows, key=lambda row: list(named).index(row["model"])))


def _loaded(model: Any) -> Any:
    return model if hasattr(model, "config") else model()


def _estimate(
    model: Any,
    tokenizer: Any,
    sets: list[LengthSet],
    runs: int,
    batch_size: int,
    method: str,
    settings: dict[str, Any],
) -> None:
    """Print how long a slow method will take on all sets, measured on a pair of the first one."""

    @cache
    def prepared() -> tuple[Any, Pairs]:
        loaded = _loaded(model)
        pairs = PREFIXES["reference"].pairs(sets[0].checked(loaded, tokenizer), loaded, tokenizer, seed=0)
        return make_method(loaded, method, **settings), pairs.typical()

    estimate(method, lambda: explain(*prepared(), batch_size, settings), runs * sum(len(s.sources) for s in sets))


def _check(models: Mapping, prefixes: Sequence[str], final: str | None, sources: Sequence, targets: Sequence) -> None:
    if not models:
        raise InputError("models", None, "none given", "a study needs at least one")
    for prefix in prefixes:
        check_choice("prefixes", prefix, PREFIXES)
    if final is not None and final not in models:
        raise InputError("final", final, f"is not one of the models {', '.join(models)}")
    if len(sources) != len(targets):
        raise InputError("targets", len(targets), f"targets for {len(sources)} sources", "give one each")


def influence_kl(result: AttributionResult, final: AttributionResult) -> np.ndarray:
    """[T], D(p || q) of the token influences (R_t(x_1), ..., R_t(x_S), R_t(y_1), ..., R_t(y_t-1)), scaled to sum 1.

    p belongs to a model in training, q to the final model, both on the same sentence pair.
    """
    p, q = (np.concatenate([r.source, r.prefix], axis=1, dtype=np.float64) for r in (result, final))
    if min(p.min(), q.min()) < 0:
        raise InputError("result", None, "some contributions are negative", "KL needs a method without signs: lrp")
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    ratio = np.where(p > 0, p, 1) / np.where(p > 0, np.maximum(q, _LEAST), 1)
    return (p * np.log(ratio)).sum(-1)


def length_buckets(sizes: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    """Indices of the pairs of each (source, target) length, the most frequent lengths first.

    >>> length_buckets([(4, 5), (3, 3), (3, 3)])
    {(3, 3): [1, 2], (4, 5): [0]}
    """
    found: dict[tuple[int, int], list[int]] = {}
    for number, size in enumerate(sizes):
        found.setdefault(size, []).append(number)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _sets(
    tokenizer: Any, sources: Sequence[str], targets: Sequence[str], lengths: Sequence[Lengths], limit: int, within: int
) -> list[LengthSet]:
    if within < 0:
        raise InputError("within", within, "must be at least 0")
    pairs = zip(sources, targets, strict=True)
    encoded = [(encode_source(tokenizer, source), encode_target(tokenizer, target)) for source, target in pairs]
    sizes = [(len(s.ids), len(t.ids)) for s, t in encoded]
    buckets = length_buckets(sizes)
    found = []
    for wanted in lengths:
        fits = [size for size in buckets if all(w in (None, n) for w, n in zip(wanted, size, strict=True))]
        if not fits:
            frequent = ", ".join(f"{size} ({len(rows)})" for size, rows in list(buckets.items())[:5]) or "none"
            raise InputError("lengths", None, f"no pair has {wanted} tokens", f"the most frequent are {frequent}")
        source, target = fits[0]
        near = [n for n, size in enumerate(sizes) if abs(size[0] - source) <= within]
        rows = [n for n in near if abs(sizes[n][1] - target) <= within][:limit]
        pool = near[: _POOL * limit]
        sides = [encoded[i][0] for i in rows], [encoded[i][1] for i in rows], [encoded[i][0] for i in pool]
        found.append(LengthSet(fits[0], *sides, rows, pool, within))
    return found


@torch.no_grad()
def _accuracy(model: Any, pairs: Pairs, batch_size: int) -> list[np.ndarray]:
    """[T] of each pair: 1 where the label is the model's first choice."""
    found: list[np.ndarray] = [np.empty(0)] * len(pairs)
    with evaluating(model):
        for rows, batch in pairs.batches(batch_size, "Predicting"):
            hits = (run_model(model, batch.inputs()).logits.argmax(-1) == batch.labels).cpu().double().numpy()
            for row, line in zip(rows, hits, strict=True):
                found[row] = line[: len(pairs[row].ids.target_ids)]
    return found


def _rows(curves: dict[str, list[np.ndarray]], fields: Row) -> list[Row]:
    rows = []
    for statistic, values in curves.items():
        curve = mean_curve(values)
        for position, count in enumerate(curve.count.tolist()):
            if count:
                found = {name: float(getattr(curve, name)[position]) for name in ("mean", "low", "high")}
                ends = {name: None if np.isnan(value) else round(value, 6) for name, value in found.items()}
                rows.append(fields | {"statistic": statistic, "position": position, **ends, "sentences": count})
    return rows
