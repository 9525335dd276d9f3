"""Old German spelling: `daß` became `dass` in 1996, and gold alignments are older than most training text."""

import re
from collections import Counter
from collections.abc import Iterable

_WORD = re.compile(r"\w+")


def new_spelling(texts: Iterable[str], training: Iterable[str]) -> list[str]:
    """Texts whose words with ß are written with ss where the training text has that form more often, in any case.

    Args:
        texts: sentences of one language.
        training: sentences of the same language, read once.

    >>> new_spelling(["Daß er groß ist, muß sein."], ["dass das groß ist", "Ich muss.", "dass", "daß"])
    ['Dass er groß ist, muss sein.']
    """
    texts = list(texts)
    old = {word for text in texts for word in _WORD.findall(text.lower()) if "ß" in word}
    if not old:
        return texts
    forms = old | {_new(word) for word in old}
    count = Counter(word for text in training for word in _WORD.findall(text.lower()) if word in forms)
    changed = {word for word in old if count[_new(word)] > count[word]}
    return [_WORD.sub(lambda m: _new(m[0]) if m[0].lower() in changed else m[0], text) for text in texts]


def _new(word: str) -> str:
    return word.replace("ß", "ss")
