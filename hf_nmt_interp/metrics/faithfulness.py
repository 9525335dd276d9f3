"""Faithfulness by erasure (DeYoung et al. 2020); definitions: docs/methods.md, Faithfulness and detached sources."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.base import AttributionMethod
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.decoding.batch import Translation, batch_of, evaluating, label_log_probs, run_model, similar_sizes
from hf_nmt_interp.decoding.pairs import Pairs, check_translations
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.progress import estimate, track

primary, greater_is_better = "comprehensiveness", True
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5)
MEASURES = ("comprehensiveness", "sufficiency")
WordScores = Callable[[AttributionResult], np.ndarray]  # -> [target words, source words]
Pair = tuple[tuple[int, ...], tuple[int, ...], int | None]  # ids of a source and a target, and the start token
Scored = dict[Pair, np.ndarray]  # log-probabilities of the target's tokens
Kept = Callable[[str, Callable[[], Any]], Any]  # (name, function) -> the function's result, computed or saved


@dataclass(frozen=True)
class Faithfulness:
    """Change of the probability of generated words when source words are erased."""

    losses: list[np.ndarray]  # [2, fractions, words] each: p(all) - p(without the best), p(all) - p(the best only)
    fractions: tuple[float, ...]  # of the source words, at least one word

    def __post_init__(self) -> None:
        if not any(table.size for table in self.losses):
            raise InputError("results", None, "no sentence has words on both sides", "there is nothing to erase")

    @property
    def comprehensiveness(self) -> np.ndarray:
        """Mean loss without the top words for each fraction erased; higher is better."""
        return np.concatenate(self.losses, -1)[0].mean(-1)

    @property
    def sufficiency(self) -> np.ndarray:
        """Mean loss with only the top words for each fraction kept; lower is better."""
        return np.concatenate(self.losses, -1)[1].mean(-1)

    @property
    def area(self) -> dict[str, float]:
        """Areas over the perturbation curve: the means over the fractions."""
        return {name: float(getattr(self, name).mean()) for name in MEASURES}

    def margin(self, other: "Faithfulness") -> dict[str, float]:
        """Half the 95 % confidence interval of the difference of two methods' areas on the same translations.

        The difference is taken word by word; words of one sentence depend on each other, so the standard error is that
        of sums over sentences. NaN for a single sentence.
        """
        pairs = zip(self.losses, other.losses, strict=True)
        differences = [(own - others).mean(1) for own, others in pairs if own.size]  # [2, words] each
        mean = np.concatenate(differences, -1).mean(-1, keepdims=True)
        sums = np.stack([(difference - mean).sum(-1) for difference in differences])  # [n, 2]
        n, words = len(sums), sum(difference.shape[1] for difference in differences)
        error = np.sqrt((sums**2).sum(0) * n / (n - 1)) / words if n > 1 else np.full(2, np.nan)
        return dict(zip(MEASURES, (1.96 * error).tolist(), strict=True))


def faithfulness(
    model: Any,
    results: Sequence[AttributionResult],
    fractions: Iterable[float] = FRACTIONS,
    batch_size: int = 64,
    scores: WordScores | None = None,
) -> Faithfulness:
    """Erase source words in the order a method ranks them for each target word, and measure the loss of that word.

    A word is erased with all its subwords; special tokens and the prefix before a target word are kept.

    Args:
        model: the translator that was explained.
        results: explanations at token level, with ids.
        fractions: fractions of the source words to erase, or to keep.
        batch_size: sentences scored at a time.
        scores: computes word-level scores [target words, source words] from a result; None uses the result's own.
    """
    if any(result.translation is None or result.level != "token" for result in results):
        raise InputError("results", None, "expected token-level results with ids", "give those of attribute()")
    check_translations(model, [result.translation for result in results if result.translation])
    fractions = tuple(fractions)
    return Faithfulness(_losses(model, results, scores or _word_scores, {}, fractions, batch_size), fractions)


def compare(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    methods: Mapping[str, AttributionMethod],
    batch_size: int = 16,
    generate: dict[str, Any] | None = None,
    kept: Kept = lambda name, compute: compute(),
) -> dict[str, Faithfulness]:
    """Faithfulness of several methods on the same translations, and of a random order (`random`) as the baseline.

    Args:
        model: the translator.
        tokenizer: its tokenizer.
        sources: sentences; the model translates them.
        methods: at least one, by any names, e.g. `{"lrp": LRP(model), "attention": AttentionWeights(model)}`.
        batch_size: sentences translated and explained at a time.
        generate: arguments of `generate()`.
        kept: called with each method's name and a function that computes its losses; returns them, computed or saved.
    """
    if not methods:
        raise InputError("methods", None, "none given", "name at least one, e.g. {'lrp': LRP(model)}")
    translated = Pairs.translate(model, tokenizer, sources, batch_size, generate)
    scored: Scored = {}  # pairs that several methods need are scored once

    def losses(method: AttributionMethod | None, some: Pairs, scored: Scored) -> list[Any]:
        if method is None:
            sides = [SimpleNamespace(source_side=p.source, target_side=p.target, translation=p.ids) for p in some]
            tables = _losses(model, sides, random_scores(), scored)
        else:
            tables = _losses(model, explain(method, some, batch_size), _word_scores, scored)
        return [table.tolist() for table in tables]

    middle = translated.typical()
    estimate(", ".join(methods), lambda: [losses(m, middle, {}) for m in methods.values()], len(translated))
    found = {
        name: kept(name, partial(losses, method, translated, scored))
        for name, method in track(list({**methods, "random": None}.items()), "Comparing")
    }
    return {
        name: Faithfulness([np.array(table).reshape(2, len(FRACTIONS), -1) for table in tables], FRACTIONS)
        for name, tables in found.items()
    }


def ranked_rows(found: Mapping[str, Faithfulness]) -> list[dict[str, Any]]:
    """A row for each method of `compare`, the most comprehensive first: its areas, and `margin`s to the row above."""
    ranked = sorted(found, key=lambda name: -found[name].area["comprehensiveness"])
    rows = []
    for name, above in zip(ranked, [None, *ranked], strict=False):
        margin = found[name].margin(found[above]) if above else {}
        row: dict[str, Any] = {"method": name}
        for measure, area in found[name].area.items():
            row |= {measure: area, f"{measure[0]}_margin": margin.get(measure)}
        rows.append(row)
    return rows


def random_scores(seed: int = 0) -> WordScores:
    """Scores for `faithfulness` that rank the source words at random: the baseline."""
    generator = np.random.default_rng(seed)

    def scores(result: AttributionResult) -> np.ndarray:
        sides = result.target_side, result.source_side
        return generator.random([len(list(filter(None, side.positions))) for side in sides])

    return scores


def _word_scores(result: AttributionResult) -> np.ndarray:
    words = result.to_words()
    rows, columns = (~np.array(side.special, dtype=bool) for side in (words.target_side, words.source_side))
    return words.source[rows][:, columns]


def _losses(
    model: Any,
    results: Sequence[Any],
    scores: WordScores,
    scored: Scored,
    fractions: tuple[float, ...] = FRACTIONS,
    batch_size: int = 64,
) -> list[np.ndarray]:
    """Losses [2, fractions, words] of each sentence; `scored` caches the model's scores."""
    plans = [list(_plan(r, fractions, scores)) for r in results]
    needed = {pair: None for plan in plans for _, *pairs in plan for pair in pairs if pair not in scored}
    _score(model, list(needed), batch_size, scored)
    found = []
    for plan in plans:
        p = [[math.exp(scored[pair][subwords].sum()) for pair in pairs] for subwords, *pairs in plan]
        table = np.array(p).reshape(len(plan), 1 + 2 * len(fractions))
        losses = table[:, :1] - table[:, 1:]
        found.append(losses.T.reshape(2, len(fractions), len(plan)))
    return found


def _plan(result: Any, fractions: tuple[float, ...], scores: WordScores) -> Iterator[tuple]:
    """For each target word: its subwords, the full pair, and the pairs without and with only the top words."""
    table, pair = scores(result), result.translation
    assert pair is not None  # checked by the caller
    numbers = [number for number, subwords in enumerate(result.source_side.positions) if subwords]
    everything = frozenset(numbers)
    target = tuple(pair.target_ids), pair.start_id

    def keep(words: frozenset[int]) -> Pair:
        tokens = zip(pair.source_ids, result.source_side.word_ids, strict=True)
        return tuple(token for token, word in tokens if word is None or word in words), *target

    for subwords, row in zip(filter(None, result.target_side.positions), table, strict=True):
        order = [numbers[column] for column in np.argsort(-row, kind="stable")]
        best = [frozenset(order[: max(1, round(fraction * len(order)))]) for fraction in fractions if order]
        if best:
            yield subwords, *map(keep, (everything, *(everything - words for words in best), *best))


@torch.no_grad()
def _score(model: Any, pairs: Sequence[Pair], batch_size: int, scored: Scored) -> None:
    """Add log-probabilities [T] of the targets of some pairs to `scored`."""
    translations = [Translation(list(source), list(target), start) for source, target, start in pairs]
    with evaluating(model):
        for rows in similar_sizes([t.size for t in translations], batch_size):
            batch = batch_of(model, [translations[row] for row in rows])
            log_probs = label_log_probs(run_model(model, batch.inputs()).logits, batch.labels).cpu().double().numpy()
            for row, line in zip(rows, log_probs, strict=True):
                scored[pairs[row]] = line[: len(pairs[row][1])]
