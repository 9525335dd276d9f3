"""Risks Delta(y, reference), lower is better. Definitions: docs/methods.md, Minimum risk training and word dropout."""

from collections.abc import Callable, Sequence
from typing import Any

from hf_nmt_interp.errors import check_choice
from hf_nmt_interp.metrics.sentence_bleu.score import SentenceBLEU

primary, greater_is_better = "risk", False
Risk = Callable[[Sequence[str], str], Sequence[float]]  # (candidates, reference) -> risk of each candidate


def bleu(tokenize: str = "13a") -> Risk:
    """-BLEU / 100 with sacrebleu's tokenization into words (voita2021, appendix B)."""
    score = SentenceBLEU(tokenize)
    return lambda candidates, reference: [-0.01 * found for found in score(candidates, reference)]


def subword_bleu() -> Risk:
    """-BLEU / 100 of the model's own subwords, given as text with spaces between them."""
    return bleu("none")


def chrf() -> Risk:
    """-chrF / 100."""
    from sacrebleu.metrics.chrf import CHRF

    score = CHRF().sentence_score
    return lambda candidates, reference: [-0.01 * score(c, [reference]).score for c in candidates]


def ter() -> Risk:
    """TER / 100."""
    from sacrebleu.metrics.ter import TER

    score = TER().sentence_score
    return lambda candidates, reference: [0.01 * score(c, [reference]).score for c in candidates]


RISKS: dict[str, Callable[[], Risk]] = {"bleu": bleu, "subword_bleu": subword_bleu, "chrf": chrf, "ter": ter}


def make_risk(name: str) -> Risk:
    """The risk with this name.

    >>> [round(risk, 3) for risk in make_risk("bleu")(["the cat sat here", "a cat sat here"], "the cat sat here")]
    [-1.0, -0.595]
    """
    check_choice("risk", name, RISKS, "pass other risks to the trainer as functions")
    return RISKS[name]()


def metric_risk(metric: Any, key: str, factor: float = -1.0) -> Risk:
    """A risk from an `evaluate` metric, which scores each candidate separately.

    Args:
        metric: a metric from `evaluate.load`.
        key: name of one of its scores.
        factor: negative for a metric where higher is better.
    """

    def risk(candidates: Sequence[str], reference: str) -> list[float]:
        found = [metric.compute(predictions=[candidate], references=[reference]) for candidate in candidates]
        for figures in found:
            check_choice("key", key, figures, "these are the scores of the metric")
        return [factor * float(figures[key]) for figures in found]

    return risk
