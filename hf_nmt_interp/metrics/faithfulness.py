"""Faithfulness by erasure: do the source words a method ranks first matter to the model? (DeYoung et al. 2020)"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hf_nmt_interp.attribution.api import batches_of
from hf_nmt_interp.attribution.base import evaluating, label_log_probs, make_batch
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.decoding.translation import Translation, collate
from hf_nmt_interp.errors import InputError

FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Faithfulness:
    """Mean change of the probability of a generated word when source words are erased.

    Attributes:
        comprehensiveness: p(all) - p(without the best words) for each fraction erased; higher is better.
        sufficiency: p(all) - p(the best words only); lower is better.
        fractions: of the source words, at least one word.
    """

    comprehensiveness: np.ndarray
    sufficiency: np.ndarray
    fractions: tuple[float, ...]

    @property
    def area(self) -> dict[str, float]:
        """Areas over the perturbation curve: the means over the fractions."""
        return {
            "comprehensiveness": float(self.comprehensiveness.mean()),
            "sufficiency": float(self.sufficiency.mean()),
        }


def faithfulness(
    model: Any,
    results: Sequence[AttributionResult],
    fractions: Iterable[float] = FRACTIONS,
    batch_size: int = 64,
    scores: Callable[[AttributionResult], np.ndarray] | None = None,
) -> Faithfulness:
    """Erase source words in the order a method ranks them for each target word, and see what that word loses.

    A word is erased by deleting all its subwords; special tokens stay. A target word's probability is that of its
    subwords after the original prefix.

    Args:
        model: the translator that was explained.
        results: explanations at token level, with ids.
        fractions: of the source words to erase, or to keep.
        batch_size: sentences scored at a time.
        scores: makes word-level scores [target words, source words] of a result; None takes the result's own.
    """
    fractions = tuple(fractions)
    if any(result.translation is None or result.level != "token" for result in results):
        raise InputError("results: token-level results with ids are needed, as attribute() returns them")
    plans = [list(_plan(r, fractions, scores or _word_scores)) for r in results]
    needed = {(i, kept) for i, plan in enumerate(plans) for _, kept, *_ in plan}
    needed |= {(i, None) for i in range(len(results))}
    found = _score(model, results, sorted(needed, key=str), batch_size)
    losses: dict[tuple[str, int], list[float]] = {}
    for i, plan in enumerate(plans):
        for subwords, kept, mode, level in plan:
            before, after = (math.exp(found[i, kept_words][subwords].sum()) for kept_words in (None, kept))
            losses.setdefault((mode, level), []).append(before - after)
    curves = [[np.mean(losses[mode, level]) for level in range(len(fractions))] for mode in ("erase", "keep")]
    return Faithfulness(np.array(curves[0]), np.array(curves[1]), fractions)


def random_scores(seed: int = 0) -> Callable[[AttributionResult], np.ndarray]:
    """Scores for `faithfulness` that rank the source words at random: the baseline."""
    generator = np.random.default_rng(seed)

    def scores(result: AttributionResult) -> np.ndarray:
        return generator.random((len(result.target_side.words), len(result.source_side.words)))

    return scores


def _word_scores(result: AttributionResult) -> np.ndarray:
    words = result.to_words()
    rows, columns = (~np.array(side.special, dtype=bool) for side in (words.target_side, words.source_side))
    return words.source[rows][:, columns]


def _plan(result: AttributionResult, fractions: tuple[float, ...], scores: Callable[[AttributionResult], np.ndarray]):
    """For each target word and fraction: its subwords, the source words kept, the mode and the level."""
    table = scores(result)
    everything = frozenset(range(table.shape[1]))
    for subwords, row in zip(filter(None, result.target_side.positions), table, strict=True):
        order = np.argsort(-row, kind="stable")
        for level, fraction in enumerate(fractions):
            best = frozenset(order[: max(1, round(fraction * len(order)))].tolist())
            yield subwords, everything - best, "erase", level
            yield subwords, best, "keep", level


@torch.no_grad()
def _score(model: Any, results: Sequence[AttributionResult], needed: list, batch_size: int) -> dict:
    """Log-probabilities [T] of each target under sources that keep some words only (None: all)."""
    variants = []
    for i, kept in needed:
        result, pair = results[i], results[i].translation
        assert pair is not None  # checked by the caller
        ids = [
            token
            for token, word in zip(pair.source_ids, result.source_side.word_ids, strict=True)
            if word is None or kept is None or word in kept
        ]
        variants.append(Translation(ids, pair.target_ids, pair.start_id))
    found = {}
    with evaluating(model):
        for rows in batches_of([v.size for v in variants], batch_size):
            batch = make_batch(model, **collate([variants[r] for r in rows], model.config.pad_token_id, model.device))
            log_probs = label_log_probs(model(**batch.inputs()).logits, batch.labels).double().cpu().numpy()
            for row, line in zip(rows, log_probs, strict=True):
                found[needed[row]] = line[: len(variants[row].target_ids)]
    return found
