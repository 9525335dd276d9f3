"""Detached sources: does the source share separate translations of the source from those of another sentence?

Definitions: docs/methods.md, Faithfulness and detached sources.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hf_nmt_interp.analysis.reports import Report
from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.registry import make_method
from hf_nmt_interp.decoding.pairs import Pairs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics.detection import auroc
from hf_nmt_interp.text.progress import estimate


@dataclass(frozen=True)
class DetachedStudy(Report):
    """Scores of each true and each detached sentence pair: mean source share and mean log-probability."""

    title: ClassVar = "study of detached sources"
    true: dict[str, np.ndarray]
    detached: dict[str, np.ndarray]

    def table(self) -> list[dict[str, Any]]:
        """For each score, its mean on true and on detached pairs, and how well it separates them (AUROC)."""
        pairs = {name: (np.asarray(self.true[name]), np.asarray(self.detached[name])) for name in self.true}
        return [
            {"score": name, "true": float(true.mean()), "detached": float(other.mean()), "auroc": auroc(true, other)}
            for name, (true, other) in pairs.items()
        ]


def detached_study(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],  # at least two
    method: str = "lrp",  # must have a source share
    batch_size: int = 16,
    seed: int = 0,  # for shuffling; no sentence keeps its own source
    generate: dict[str, Any] | None = None,  # arguments of `generate()`
    **settings: Any,  # of the method
) -> DetachedStudy:
    """Explain the model's translations with their own sources and with sources shuffled between sentences."""
    if len(sources) < 2:
        raise InputError("sources", len(sources), "given", "shuffling needs at least two")
    order = np.random.default_rng(seed).permutation(len(sources))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)  # one cycle: no sentence keeps its own source
    if any(sources[i] == sources[j] for i, j in enumerate(other)):
        raise InputError("sources", None, "a duplicate sentence was paired with itself", "remove duplicates")
    explainer = make_method(model, method, **settings)
    if not explainer.shares_total:
        raise InputError("method", method, "has no source share", "use lrp")
    if explainer.signed:
        raise InputError(
            "method", method, "returns signed scores with these settings", "use lrp with rule='alpha_beta'"
        )
    true = Pairs.translate(model, tokenizer, sources, batch_size, generate)
    moved = zip(true.pick(other.tolist()), true, strict=True)
    items = [replace(y, ids=replace(y.ids, source_ids=x.ids.source_ids), source=x.source) for x, y in moved]
    detached = replace(true, items=items)
    found: dict[str, list[tuple[float, float]]] = {}
    estimate(method, lambda: explain(explainer, true.typical(), batch_size), 2 * len(true))
    for kind, pairs in (("true", true), ("detached", detached)):
        # the first step has no prefix: its share is 1 whatever the source
        found[kind] = [
            (r.source_contribution[1:].mean(), r.log_probs.mean())
            for r in explain(explainer, pairs, batch_size)
            if len(r.start) > 1 and r.log_probs is not None
        ]
    if not found["true"]:
        raise InputError("sources", None, "no translation has words", "the first step has no source share")
    names = "source_share", "log_probability"
    return DetachedStudy(**{kind: dict(zip(names, np.array(x).T, strict=True)) for kind, x in found.items()})
