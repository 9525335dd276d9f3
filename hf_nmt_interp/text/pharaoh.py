"""Word alignments in the Pharaoh format: a line of links `i-j` (source word, target word) for each sentence pair.

Gold files may count from 1 and mark possible links as `ipj` or `i?j`.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import read_lines

Links = set[tuple[int, int]]

_LINK = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})")


def parse_links(line: str, base: int = 0, where: str = "line") -> tuple[Links, Links]:
    """Sure links of a line, and its possible links, which include them, counted from 0; the line counts from `base`.

    >>> sure, possible = parse_links("0-0 1p2")
    >>> sorted(sure), sorted(possible)
    ([(0, 0)], [(0, 0), (1, 2)])
    """
    sure, possible = set(), set()
    for item in line.split():
        match = _LINK.fullmatch(item)
        if not match:
            raise InputError(where, item[:40], "is not a link like 3-4, 3p4 or 3?4")
        link = (int(match[1]) - base, int(match[3]) - base)
        if min(link) < 0:
            raise InputError(where, None, f"link {item!r} is invalid: words are counted from {base}")
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return sure, possible


def format_links(sure: Iterable[tuple[int, int]], possible: Iterable[tuple[int, int]] = (), base: int = 0) -> str:
    """A line of sorted links; links that are only possible are written as `ipj`.

    >>> format_links({(1, 0), (0, 2)}, possible={(0, 1), (1, 0)})
    '0p1 0-2 1-0'
    """
    sure = set(sure)
    return " ".join(f"{i + base}{'-' if (i, j) in sure else 'p'}{j + base}" for i, j in sorted(sure | set(possible)))


def read_gold(
    path: str | Path, base: int = 0, pairs: Sequence[tuple[str, str]] | None = None
) -> tuple[list[Links], list[Links]]:
    """Sure and possible links of each sentence pair of a gold file, as arguments for `alignment_error_rate`.

    The file counts from `base`, 0 or 1; links must be between space-separated words of `pairs`.
    """
    lines = [parse_links(line, base, f"{path}, line {number}") for number, line in enumerate(read_lines(path), 1)]
    if pairs is not None and len(pairs) != len(lines):
        problem = f"lines, but there are {len(pairs)} sentence pairs"
        raise InputError(str(path), len(lines), problem, "give one per pair")
    for number, (source, target) in enumerate(pairs or [], 1):
        sizes = len(source.split()), len(target.split())
        if outside := sorted(link for link in lines[number - 1][1] if link[0] >= sizes[0] or link[1] >= sizes[1]):
            problem = f"link {format_links(outside[:1], base=base)} is out of range"
            words = f"the pair has {sizes[0]} and {sizes[1]} words, counted from {base}"
            raise InputError(f"{path}, line {number}", None, problem, words)
    return [sure for sure, _ in lines], [possible for _, possible in lines]


def read_links(path: str | Path, base: int = 0) -> list[Links]:
    """All links of each sentence pair, sure or possible."""
    return read_gold(path, base)[1]


def write_links(
    path: str | Path, sure: Sequence[Links], possible: Sequence[Links] | None = None, base: int = 0
) -> None:
    """Write a line for each sentence pair."""
    possible = possible if possible is not None else [set()] * len(sure)
    if len(sure) != len(possible):
        raise InputError("possible", len(possible), f"sentence pairs, but sure has {len(sure)}")
    text = "".join(f"{format_links(s, p, base)}\n" for s, p in zip(sure, possible, strict=True))
    Path(path).write_text(text, encoding="utf-8", newline="\n")
