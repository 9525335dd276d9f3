"""Named ways to split text into words: the tokenizer's pieces, spaces, or a segmenter of another package."""

from collections.abc import Callable
from importlib import import_module

from hf_nmt_interp.errors import InputError, check_choice, install
from hf_nmt_interp.text.tokens import Segmenter, Words


def _jieba() -> Segmenter:
    try:
        package = import_module("jieba")
    except ImportError as error:
        raise InputError("words", "jieba", "is not installed", install("words")) from error
    package.setLogLevel("WARNING")  # it logs when it loads its dictionary
    return package.lcut


SEGMENTERS: dict[str, Callable[[], Segmenter]] = {"jieba": _jieba}
WORDS = ("pieces", "spaces", *SEGMENTERS)


def word_rule(name: str) -> Words:
    """The argument `words` of `encode_source` for a name of `WORDS`.

    >>> word_rule("spaces")
    'spaces'
    """
    check_choice("words", name, WORDS)
    return SEGMENTERS[name]() if name in SEGMENTERS else name  # type: ignore[return-value]
