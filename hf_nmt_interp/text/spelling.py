"""Old German spelling: `daß` became `dass` in 1996, and gold alignments are older than most training text."""

import re
from collections import Counter
from collections.abc import Iterable

_WORD = re.compile(r"\w+")


def new_spelling(texts: Iterable[str], training: Iterable[str]) -> list[str]:
    """Texts with ß replaced by ss in words that the training text writes more often with ss, ignoring case.

    >>> new_spelling(["Daß er groß ist, muß sein."], ["dass das groß ist", "Ich muss.", "dass", "daß"])
    ['Dass er groß ist, muss sein.']
    """
    texts = list(texts)
    old = {word for text in texts for word in _WORD.findall(text.lower()) if "ß" in word}
    if not old:
        return texts
    forms = old | {word.replace("ß", "ss") for word in old}
    count = Counter(word for text in training for word in _WORD.findall(text.lower()) if word in forms)
    changed = {word for word in old if count[word.replace("ß", "ss")] > count[word]}
    return [_WORD.sub(lambda m: m[0].replace("ß", "ss") if m[0].lower() in changed else m[0], t) for t in texts]
