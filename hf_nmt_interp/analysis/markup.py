"""Mark-up transfer: inline tags and placeholders of the source are carried to the target words by word alignment.

Pairs like `<b>...</b>` become elements, which cover words; `<br/>`, `<x id="1"/>`, `{0}` or `%s` become points, which
stand between words. An element gets one span of target words, inside its parent's and apart from its siblings', so
the result has the same tags, each once, nested as before.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

from hf_nmt_interp.analysis.alignment import WordAlignment, align_words
from hf_nmt_interp.decoding.translators import translator
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.pharaoh import Links
from hf_nmt_interp.text.tokens import as_sentences

_ATTRIBUTES = r"""(?:\s(?:"[^"]*"|'[^']*'|[^<>"'])*)?"""
_ITEM = re.compile(
    rf"""<(?P<close>/)?(?:(?P<name>[A-Za-z][\w:.-]*){_ATTRIBUTES}|(?P<number>\d+))/?>  # a tag: <b>, <a href="#">, <0>
      | <!--.*?-->
      | \{{\{{[^{{}}]*\}}\}} | \$?\{{[\w.:-]*\}}  # {{{{name}}}}, ${{name}}, {{0}}
      | (?!(?<=\d)%[sd]\w)%(?:\(\w+\)|\d+\$)?[sd]  # %s, %1$s, %(name)s, but not in 50%discount
    """,
    re.VERBOSE | re.DOTALL,
)
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_BREAK = re.compile(r"<(?:br|hr)\s*/?>(?=\S)", re.IGNORECASE)  # separates words without a space
_CLOSING = tuple(".,;:!?)]}»”…%")  # marks that follow a word without a space
_DEEPEST = 100  # nested tags
_POINT = "\0"  # stands for a point while whitespace is tidied

Span = tuple[int, int]


@dataclass
class Node:
    """An element (`close` is not empty) or a point; positions count the characters of the text but whitespace."""

    open: str
    start: int
    close: str = ""
    end: int = 0
    children: list["Node"] = field(default_factory=list)
    spaces: tuple[bool, bool] = (False, False)  # whether whitespace or the text's end stands before and after
    text: str = ""  # of the root, without whitespace

    @property
    def is_point(self) -> bool:
        return not self.close


def parse(text: str) -> tuple[Node, str]:
    """The tree of a marked-up text, its root being an element without tags, and the text without mark-up."""
    open_nodes, plain, at = [Node("", 0, "root")], "", 0
    for match in _ITEM.finditer(text):
        plain += text[at : match.start()]
        at, item, name = match.end(), match[0], match["name"] or match["number"]
        size = len("".join(plain.replace(_POINT, "").split()))
        if match["close"]:
            node = open_nodes.pop()
            if not open_nodes or _name(node.open) != name:
                raise InputError("source", None, f"{item} at {match.start()} closes no open tag; tags must be nested")
            node.close, node.end = item, size
        elif name is None or item.endswith("/>") or (name.lower() in _VOID and not re.search(rf"</{name}[\s>]", text)):
            spaces = not plain or plain[-1].isspace(), at == len(text) or text[at].isspace()
            open_nodes[-1].children.append(Node(item, size, end=size, spaces=spaces))
            plain += _POINT
        else:
            node = Node(item, size, close="?")
            open_nodes[-1].children.append(node)
            open_nodes.append(node)
            if len(open_nodes) > _DEEPEST:
                where = f"{item} at {match.start()}"
                raise InputError("source", None, f"{where} is inside {_DEEPEST - 1} others", "nest fewer tags")
    if len(open_nodes) > 1:
        raise InputError("source", None, f"{open_nodes[-1].open} is not closed", "write &lt; for < that is not a tag")
    plain += text[at:]
    root = open_nodes[0]
    root.text = "".join(plain.replace(_POINT, "").split())
    root.end = len(root.text)
    return root, _tidy(plain)


def strip_markup(text: str) -> str:
    """The text without tags and placeholders, and without the whitespace that only they needed.

    >>> strip_markup('You have <b>{0} new</b> messages, <i>%s</i>.')
    'You have new messages,.'
    """
    return parse(text)[1]


def _tidy(text: str) -> str:
    """Drop points: with whitespace around they become one space, or none at the ends and before punctuation marks."""

    def space(match: re.Match) -> str:
        run, after = match[0], text[match.end() :]
        if match.start() == 0 or not after or not re.search(r"\s", run):
            return ""
        return "" if after.startswith(_CLOSING) and not run[-1].isspace() else " "

    return re.sub(rf"\s*(?:{_POINT}\s*)+", space, text)


def _name(tag: str) -> str:
    match = _ITEM.match(tag)
    return match["name"] or match["number"] if match else ""


def transfer_markup(
    source: Any,
    model: Any = None,
    tokenizer: Any = None,
    translation: Any = None,
    links: Any = None,
    method: str | None = None,
    **settings: Any,
) -> Any:
    """Translate a text with inline tags and placeholders, and carry them over.

    Tags must be well-formed in the source and are so in the result: the same tags, each as often, nested as before,
    and `strip_markup(result)` is the translation. Text, with entities like `&amp;`, is given to the model as it is.

    Args:
        source: one text with mark-up, or a list.
        model: a translator or its name, not needed with `links`.
        tokenizer: its tokenizer; None with a name.
        translation: of the source without mark-up, or a list; None lets the model translate.
        links: (source word, target word) between the words, which stand between whitespace, of `strip_markup(source)`
            and of the translation; None lets the model align.
        method: that aligns, as for `align`.
        settings: of `align` and of the method.

    Returns:
        The translation with mark-up, its words separated by single spaces; or a list.

    >>> transfer_markup("A <b>red</b> car", translation="Une voiture rouge", links={(0, 0), (1, 2), (2, 1)})
    'Une voiture <b>rouge</b>'
    """
    if isinstance(source, str):
        translation, links = (None if value is None else [value] for value in (translation, links))
        return transfer_markup([source], model, tokenizer, translation, links, method, **settings)[0]
    source = as_sentences("source", source)
    if wrong := [text for text in source if not isinstance(text, str)]:
        raise InputError("source", None, f"{wrong[0]!r} is not text")
    trees = [parse(_BREAK.sub(r"\g<0> ", text) if links is None else text) for text in source]
    plain = [text for _, text in trees]
    if links is not None and translation is None:
        raise InputError("translation", None, "needed if links are given")
    for name, given in (("translation", translation), ("links", links)):
        if given is not None and len(given) != len(plain):
            raise InputError(name, len(given), f"given for {len(plain)} sources", "give one each")
    if links is None:
        model, tokenizer = translator(model, tokenizer)
        if model is None or tokenizer is None:
            raise InputError("model", None, "needed with its tokenizer to align, unless links are given")
        found = align_words(model, tokenizer, plain, translation, method, **{"punctuation": "separate"} | settings)
        pairs = [(a.source_words, a.target_words, a.target_text, _complete(a)) for a in found]
    else:
        pairs = [(p.split(), t.split(), t, set(n)) for p, t, n in zip(plain, translation, links, strict=True)]
    return [_transfer(tree, *pair) for (tree, _), pair in zip(trees, pairs, strict=True)]


def _complete(alignment: WordAlignment) -> Links:
    """The links, and for each source word without one the link to its best target word."""
    linked, soft = {i for i, _ in alignment.links}, alignment.soft
    best = {i: int(soft[:, i].argmax()) for i in range(soft.shape[1]) if soft[:, i].any() and i not in linked}
    return alignment.links | set(best.items())


def _transfer(root: Node, source_words: list[str], target_words: list[str], translation: str, links: Links) -> str:
    chunks = translation.split()
    if "".join(target_words) != "".join(chunks):
        raise InputError("translation", translation, "has special tokens", "leave them out")
    n, starts = len(target_words), [0, *accumulate(map(len, target_words))]
    breaks = set(accumulate(map(len, chunks)))
    marks: list[list[_Mark]] = [[] for _ in range(n + 1)]
    for gap, mark in _Placing(_locate(source_words, root), n, links).marks(root, (0, n)):
        marks[gap].append(mark)
    spaced = [gap not in (0, n) and starts[gap] in breaks for gap in range(n + 1)]
    words = [*target_words, ""]
    parts = (_render(marks[gap], gap == 0, spaced[gap], words[gap]) + words[gap] for gap in range(n + 1))
    return "".join(parts).strip()


def _locate(words: list[str], root: Node) -> list[Span]:
    """Where words stand in the text, counting its characters but whitespace; some may be no words of it."""
    spans, at = [], 0
    for word in words:
        at = root.text.find(word, at)
        if at < 0:
            raise InputError("source", None, f"the word {word!r} is not where it should be in {root.text!r}")
        spans.append((at, at + len(word)))
        at += len(word)
    return spans


class _Mark(NamedTuple):
    """A tag or placeholder in a gap between target words."""

    text: str
    closes: bool = False  # an element that covers words
    spaces: tuple[bool, bool] | None = None  # of a point


def _render(marks: list[_Mark], first: bool, spaced: bool, next_word: str) -> str:
    """The marks of a gap with its space; points get spaces as in the source where `_tidy` drops them again."""
    before_punctuation = next_word.startswith(_CLOSING) or not next_word
    if spaced:  # closing tags and points that follow a word stand before the space
        cut = 1 + max((n for n, mark in enumerate(marks) if mark.closes), default=-1)
        while cut < len(marks) and marks[cut].spaces == (False, True):
            cut += 1
    elif first:
        cut = 0
    elif before_punctuation:
        cut = len(marks)
    else:
        return "".join(mark.text for mark in marks)
    left = [" " * (mark.spaces is not None and mark.spaces[0]) + mark.text for mark in marks[:cut]]
    wide = spaced and before_punctuation
    right = [mark.text + " " * (mark.spaces is not None and (mark.spaces[1] or wide)) for mark in marks[cut:]]
    return "".join([*left, " " * spaced, *right])


class _Placing:
    """Finds a span of the `size` target words for each element and a gap for each point."""

    def __init__(self, words: list[Span], size: int, links: Links) -> None:
        self.words = words
        self.linked: list[set[int]] = [set() for _ in range(size)]  # source words of each target word
        for i, j in links:
            if not (0 <= i < len(words) and 0 <= j < size):
                sizes = f"{len(words)} source and {size} target words"
                raise InputError("links", None, f"{i}-{j} is out of range for {sizes}")
            self.linked[j].add(i)

    def marks(self, parent: Node, span: Span) -> Iterator[tuple[int, _Mark]]:
        """Tags and placeholders inside an element that got a span, in their order, and the gap that each goes to."""
        spans = self._spans(parent, span)
        for n, child in enumerate(parent.children):
            if n not in spans:
                gap = self._gap(child, parent, span, [taken for taken in spans.values() if taken[0] < taken[1]])
                spans[n] = (gap, gap)
        for n, (start, end) in sorted(spans.items(), key=lambda item: (*item[1], item[0])):
            child = parent.children[n]
            yield start, _Mark(child.open, spaces=child.spaces if child.is_point else None)
            if not child.is_point:
                yield from self.marks(child, (start, end))
                yield end, _Mark(child.close, closes=start < end)

    def _inside(self, node: Node) -> set[int]:
        """Source words of which a node covers a part."""
        return {k for k, (start, end) in enumerate(self.words) if max(start, node.start) < min(end, node.end)}

    def _spans(self, parent: Node, span: Span) -> dict[int, Span]:
        """Spans of the child elements inside the parent's, the best of the element that has fewest choices first: a
        word linked to the element counts 2, one that is linked elsewhere -1. Elements without one are left out.
        """
        waiting = {n: self._inside(child) for n, child in enumerate(parent.children) if not child.is_point}
        if whole := [n for n, words in waiting.items() if words and words == self._inside(parent)]:
            return {whole[0]: span}
        found: dict[int, Span] = {}
        while True:
            left = {n: list(self._options(waiting[n], span, found.values())) for n in waiting if n not in found}
            options = {n: free for n, free in left.items() if free}
            if not options:
                return found
            n = max(options, key=lambda n: (-len(options[n]), max(options[n])))
            _, length, start = max(options[n])
            found[n] = (-start, length - start)

    def _options(self, words: set[int], span: Span, taken: Iterable[Span]) -> Iterator[tuple[int, int, int]]:
        """Score, length and -start of spans beside `taken` that begin and end with a word linked to the given ones."""
        weights = [2 if linked & words else -1 if linked else 0 for linked in self.linked]
        total, own = [0, *accumulate(weights)], [j for j in range(*span) if weights[j] == 2]
        for n, start in enumerate(own):
            for end in (last + 1 for last in own[n:]):
                if all(end <= a or b <= start for a, b in taken):
                    yield total[end] - total[start], end - start, -start

    def _gap(self, node: Node, parent: Node, span: Span, taken: list[Span]) -> int:
        """The gap for a point or an empty element: at the target of the nearest source word, outside of `taken`."""
        inside = sorted(self._inside(parent))
        before = [(k, 1) for k in inside if self.words[k][0] < node.start][::-1]
        after = [(k, 0) for k in inside if self.words[k][0] >= node.start]
        sides = (before, after) if node.spaces == (False, True) else (after, before)
        gap = span[1] if before else span[0]
        for k, is_before in (near for pair in zip_longest(*sides) for near in pair if near):
            if targets := [j for j in range(*span) if k in self.linked[j]]:
                gap = max(targets) + 1 if is_before else min(targets)
                break
        for start, end in taken:
            if start < gap < end:
                gap = start if gap - start <= end - gap else end
        return gap
