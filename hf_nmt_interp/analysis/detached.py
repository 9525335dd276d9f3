"""Detached sources: does the source share tell a translation of the source from one of another sentence?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_nmt_interp.attribution.api import explain, make_method, translate_ids
from hf_nmt_interp.decoding.translation import Translation
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import encode_source, words_of


def auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Probability that a positive scores above a negative, ties counting one half.

    >>> auroc(np.array([3.0, 2.0]), np.array([1.0, 2.0]))
    0.875
    """
    above = positive[:, None] > negative
    return float((above + 0.5 * (positive[:, None] == negative)).mean())


@dataclass(frozen=True)
class DetachedStudy:
    """Scores of true and of detached sentence pairs, a sentence each: mean source share, mean log-probability."""

    true: dict[str, np.ndarray]
    detached: dict[str, np.ndarray]

    def table(self) -> list[dict[str, Any]]:
        """For each score its mean on true and on detached pairs, and how well it tells them apart (AUROC)."""
        return [
            {
                "score": name,
                "true": float(self.true[name].mean()),
                "detached": float(self.detached[name].mean()),
                "auroc": auroc(self.true[name], self.detached[name]),
            }
            for name in self.true
        ]


def detached_study(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    method: str = "lrp",
    batch_size: int = 16,
    seed: int = 0,
    generate: dict[str, Any] | None = None,
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
        settings: of the method.
    """
    if len(sources) < 2:
        raise InputError(f"sources: {len(sources)} given; shuffling needs at least two")
    encoded = [encode_source(tokenizer, text) for text in sources]
    translations = translate_ids(model, [e.ids for e in encoded], batch_size, **(generate or {}))
    order = np.random.default_rng(seed).permutation(len(sources))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)  # one cycle: nobody keeps its own
    explainer = make_method(model, method, **settings)
    targets = [words_of(tokenizer, t.target_ids, is_target=True) for t in translations]

    def scores(rows: Sequence[int]) -> dict[str, np.ndarray]:
        pairs = [
            Translation(encoded[i].ids, t.target_ids, t.start_id) for i, t in zip(rows, translations, strict=True)
        ]
        sides = [encoded[i].token_words for i in rows]
        results = explain(explainer, pairs, sides, targets, batch_size)
        # the first step has no prefix: its share is 1 whatever the source
        shares = [r.source_contribution[1:].mean() if len(r.start) > 1 else np.nan for r in results]
        log_probs = [r.log_probs.mean() for r in results if r.log_probs is not None]
        kept = ~np.isnan(shares)
        return {"source_share": np.array(shares)[kept], "log_probability": np.array(log_probs)[kept]}

    return DetachedStudy(true=scores(range(len(sources))), detached=scores(other.tolist()))
