"""Detached sources: does the source share tell a translation of the source from one of another sentence?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hf_nmt_interp.analysis.reports import Report
from hf_nmt_interp.attribution.api import Track, batches_of, explain, make_method, translate
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import encode_source


def auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Probability that a positive scores above a negative, ties counting one half.

    >>> auroc(np.array([3.0, 2.0]), np.array([1.0, 2.0]))
    0.875
    """
    above = positive[:, None] > negative
    return float((above + 0.5 * (positive[:, None] == negative)).mean())


@dataclass(frozen=True)
class DetachedStudy(Report):
    """Scores of true and of detached sentence pairs, a sentence each: mean source share, mean log-probability."""

    title: ClassVar = "study of detached sources"
    true: dict[str, np.ndarray]
    detached: dict[str, np.ndarray]

    def table(self) -> list[dict[str, Any]]:
        """For each score its mean on true and on detached pairs, and how well it tells them apart (AUROC)."""
        pairs = {name: (np.asarray(self.true[name]), np.asarray(self.detached[name])) for name in self.true}
        return [
            {"score": name, "true": float(true.mean()), "detached": float(other.mean()), "auroc": auroc(true, other)}
            for name, (true, other) in pairs.items()
        ]


def detached_study(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    method: str = "lrp",
    batch_size: int = 16,
    seed: int = 0,
    generate: dict[str, Any] | None = None,
    track: Track = iter,
    **settings: Any,
) -> DetachedStudy:
    """Explain the model's translations with their own sources and with sources shuffled between sentences.

    Args:
        model: any supported translator.
        tokenizer: its tokenizer.
        sources: at least two sentences.
        method: name of an attribution method that has a source share.
        batch_size: sentences at a time.
        seed: of the shuffling; no sentence keeps its own source.
        generate: arguments of `generate()`.
        track: what the batches pass through, e.g. a progress bar.
        settings: of the method.
    """
    if len(sources) < 2:
        raise InputError(f"sources: {len(sources)} given; shuffling needs at least two")
    encoded = [encode_source(tokenizer, text) for text in sources]
    order = np.random.default_rng(seed).permutation(len(sources))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)  # one cycle: nobody keeps its own
    if any(sources[i] == sources[j] for i, j in enumerate(other)):
        raise InputError("sources: a sentence given twice was paired with itself; leave repeated sentences out")
    explainer = make_method(model, method, **settings)
    found: dict[str, list[tuple[float, float]]] = {"true": [], "detached": []}
    for rows in track(list(batches_of([len(e.ids) for e in encoded], batch_size))):
        translations, _, targets = translate(model, tokenizer, [sources[i] for i in rows], batch_size, generate)
        for kind, used in (("true", rows), ("detached", other[rows].tolist())):
            pairs = [replace(t, source_ids=encoded[i].ids) for i, t in zip(used, translations, strict=True)]
            results = explain(explainer, pairs, [encoded[i].token_words for i in used], targets, batch_size)
            if any(r.conservation_gap is None or (r.source < 0).any() or (r.prefix < 0).any() for r in results):
                raise InputError(f"method: {method!r} shares out no total: it has no source share; use lrp")
            # the first step has no prefix: its share is 1 whatever the source
            found[kind] += [
                (r.source_contribution[1:].mean(), r.log_probs.mean())
                for r in results
                if len(r.start) > 1 and r.log_probs is not None
            ]
    if not found["true"]:
        raise InputError("sources: no translation has words; the source share is that of steps after the first")
    names = "source_share", "log_probability"
    return DetachedStudy(**{kind: dict(zip(names, np.array(x).T, strict=True)) for kind, x in found.items()})
