"""One alignment of two directions (Koehn et al. 2003, as in Moses); definitions: docs/methods.md, Word alignment."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.text.pharaoh import Links

# the order matters: links that are added early can exclude later ones
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # (target, source)


def _by_target(links: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(links, key=lambda link: (link[1], link[0]))


def _aligned(links: Links, i: int, j: int) -> tuple[bool, bool]:
    """Whether the source word and the target word already have a link."""
    return any(i == other for other, _ in links), any(j == other for _, other in links)


def _grow_diag(forward: Links, backward: Links) -> Links:
    """The intersection, extended by neighbouring links of the union that align a word without a link."""
    links, union = forward & backward, forward | backward
    before = -1
    while before < len(links):
        before = len(links)
        for i, j in _by_target(union):
            if (i, j) in links:
                for dj, di in NEIGHBOURS:
                    new = i + di, j + dj
                    if new in union and not all(_aligned(links, *new)):
                        links.add(new)
    return links


def _final(forward: Links, backward: Links, both: bool = False) -> Links:
    """Grow-diag, then links of each direction that align a word (`both`: two words) without a link."""
    links, settled = _grow_diag(forward, backward), any if both else all
    for new in (*_by_target(forward), *_by_target(backward)):
        if not settled(_aligned(links, *new)):
            links.add(new)
    return links


HEURISTICS: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": _grow_diag,
    "grow-diag-final": _final,
    "grow-diag-final-and": partial(_final, both=True),
}


def symmetrize(forward: Any, backward: Any, heuristic: str = "grow-diag-final") -> Any:
    """Combine the alignments of two directions; all links are (source word, target word).

    The paper's reference for free decoding is the `intersection` as sure and the `union` as possible links.

    Args:
        forward: links of the source-target translator, of one sentence pair or a list of such sets.
        backward: links of the target-source translator, swapped by `flip`.
        heuristic: `intersection`, `union`, `grow-diag`, `grow-diag-final` or `grow-diag-final-and`.

    Returns:
        A set of links, or a list of sets.

    >>> sorted(symmetrize({(0, 0), (1, 1)}, {(0, 0), (2, 1)}, "grow-diag"))
    [(0, 0), (1, 1), (2, 1)]
    """
    check_choice("heuristic", heuristic, HEURISTICS)
    forward, backward = (links if isinstance(links, set | frozenset) else list(links) for links in (forward, backward))
    if isinstance(forward, set | frozenset) or any(isinstance(link, tuple) for link in forward):
        return HEURISTICS[heuristic](set(forward), set(backward))
    if len(forward) != len(backward):
        raise InputError("backward", len(backward), f"sentence pairs, but forward has {len(forward)}")
    return [HEURISTICS[heuristic](set(f), set(b)) for f, b in zip(forward, backward, strict=True)]


def flip(links: Iterable[tuple[int, int]]) -> Links:
    """Links with their sides swapped.

    >>> flip({(0, 2)})
    {(2, 0)}
    """
    return {(j, i) for i, j in links}
