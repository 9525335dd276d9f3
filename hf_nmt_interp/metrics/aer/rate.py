"""Alignment error rate (Och and Ney 2003; ding2019, 5); definitions: docs/methods.md, Word alignment."""

from collections.abc import Iterable, Sequence

from hf_nmt_interp.errors import InputError

Pairs = Iterable[tuple[int, int]]
primary, greater_is_better = "aer", False


def alignment_error_rate(
    hypotheses: Sequence[Pairs], sure: Sequence[Pairs], possible: Sequence[Pairs] | None = None
) -> dict[str, float]:
    """Error rate (lower is better), precision and recall of links A, over the whole corpus.

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|), precision = |A and P| / |A|, recall = |A and S| / |S|, with sure
    links S and possible links P, which include S. If a denominator is 0, precision and recall are 1 and the error is
    0.

    Args:
        hypotheses: links of each sentence pair.
        sure: sure gold links of each pair.
        possible: possible gold links of each pair; None if all are sure.

    >>> alignment_error_rate([{(0, 0), (1, 1)}], sure=[{(0, 0), (2, 1)}], possible=[{(1, 1)}])
    {'aer': 0.25, 'precision': 1.0, 'recall': 0.5}
    """
    possible = sure if possible is None else possible
    for name, gold in (("sure", sure), ("possible", possible)):
        if len(gold) != len(hypotheses):
            raise InputError(name, None, f"{len(gold)} sentence pairs, but hypotheses has {len(hypotheses)}")
    links, certain, right, found = 0, 0, 0, 0
    for number, given in enumerate(zip(hypotheses, sure, possible, strict=True)):
        sides = [*map(list, given)]
        if wrong := [link for side in sides for link in side if not (isinstance(link, tuple) and len(link) == 2)]:
            raise InputError("links", wrong[0], "is not a pair (source word, target word)", row=number)
        A, S, P = map(set, sides)
        links, certain = links + len(A), certain + len(S)
        right, found = right + len(A & (P | S)), found + len(A & S)

    def share(part: int, whole: int) -> float:
        return part / whole if whole else 1.0

    error = 1 - share(found + right, links + certain)
    return {"aer": error, "precision": share(right, links), "recall": share(found, certain)}


def error_margin(
    hypotheses: Sequence[Pairs], sure: Sequence[Pairs], possible: Sequence[Pairs] | None = None, samples: int = 1000
) -> float | None:
    """Half the 95 % interval of the error rate over bootstrap samples of the sentence pairs (seed 0).

    The arguments are those of `alignment_error_rate`, and the number of samples. None for fewer than two pairs.

    >>> error_margin([{(0, 0)}, {(1, 1)}], sure=[{(0, 0)}, {(0, 1)}])
    0.5
    """
    import numpy as np  # the command line imports this module for its help

    from hf_nmt_interp.analysis.distributions import bootstrap_sums, half_interval

    given = zip(hypotheses, sure, sure if possible is None else possible, strict=True)
    counts = [(len(A & S) + len(A & (P | S)), len(A) + len(S)) for A, S, P in (map(set, row) for row in given)]
    if len(counts) < 2:
        return None
    right, whole = bootstrap_sums(np.array(counts), samples).T
    return half_interval(np.where(whole, 1 - right / np.maximum(whole, 1), 0))
