"""BPE tokenizers without a fast version: FSMT marks word ends (`dog</w>`), Blenderbot-small continuations (`do@@`).

They normalise text before splitting (Moses, lower case), so their subwords are searched for in the text.
"""

from collections.abc import Sequence
from typing import Any

Span = tuple[int, int]


def marks_word_ends(tokenizer: Any) -> bool:
    """Whether a tokenizer is of this kind."""
    return hasattr(tokenizer, "bpe_ranks") and not getattr(tokenizer, "is_fast", True)


def place_pieces(pieces: Sequence[str], special: Sequence[bool], text: str) -> list[Span]:
    """Position of each subword in a text; a subword with a different spelling takes as many of the next characters.

    >>> place_pieces(["the</w>", "do", "gs</w>", ".</w>", "</s>"], [False] * 4 + [True], "The dogs.")
    [(0, 3), (4, 6), (6, 8), (8, 9), (9, 9)]
    """
    lower = "".join(character.lower()[:1] for character in text)
    spans, at = [], 0
    for piece, is_special in zip(pieces, special, strict=True):
        bare = "" if is_special else piece.removesuffix("</w>").removesuffix("@@").lower()
        start = at + len(text[at:]) - len(text[at:].lstrip()) if bare else at
        if not lower.startswith(bare, start):
            bare = bare[: len((text[start:].split() or [""])[0])]
        at = start + len(bare)
        spans.append((start, at))
    return spans
