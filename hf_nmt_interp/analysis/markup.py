"""Mark-up transfer: inline tags and placeholders of the source are carried to the target words by word alignment.

text/markup.py reads them as elements, which cover words, and points, which stand between words. An element gets one
span of target words, inside its parent's and apart from its siblings', so the result has the same tags, each once,
nested as before.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, zip_longest
from typing import Any, NamedTuple, overload

from hf_nmt_interp.analysis.alignment import WordAlignment, align_words
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.markup import CLOSING, SEPARATOR, Node, is_block, parse, sentences, separates, strip_markup
from hf_nmt_interp.text.pharaoh import Links
from hf_nmt_interp.text.tokens import as_sentences, separate_punctuation

__all__ = ["strip_markup", "transfer_markup"]

Span = tuple[int, int]


class Words(NamedTuple):
    """Words of both sides, and the links between them."""

    source: list[str]
    target: list[str]
    translation: str
    links: Links
    more: Links  # of source words that have none, for elements that find no place by the others
    sentences: list[tuple[Span, Span]]  # first and last word of each, on both sides


@overload
def transfer_markup(
    source: str,
    model: Any = None,
    tokenizer: Any = None,
    targets: str | None = None,
    links: Links | None = None,
    method: str | None = None,
    **settings: Any,
) -> str: ...
@overload
def transfer_markup(
    source: Iterable[str],
    model: Any = None,
    tokenizer: Any = None,
    targets: Sequence[str] | None = None,
    links: Sequence[Links] | None = None,
    method: str | None = None,
    **settings: Any,
) -> list[str]: ...
@takes_names
def transfer_markup(
    source: Any,
    model: Any = None,
    tokenizer: Any = None,
    targets: Any = None,
    links: Any = None,
    method: str | None = None,
    **settings: Any,
) -> Any:
    """Translate a text with inline tags and placeholders, and carry them over.

    Tags must be well-formed in the source and are so in the result: the same tags, each as often, nested as before,
    and `strip_markup(result)` is the translation. Placeholders, addresses, entities (except letters) and what stands
    in `<code>` or `<kbd>` are not translated. The model reads `&amp;` between words, as a comma if its tokenizer does
    not know `&`, and `&amp;` replaces what it makes of it. A text is translated sentence by sentence.

    Args:
        source: one text with mark-up, or a list.
        model: a translator, or its name, which is loaded (`load`, whose further arguments are then taken too); not
            needed with `links`.
        tokenizer: its tokenizer; None with a name.
        targets: its translation without mark-up, or a list; None lets the model translate.
        links: (source word, target word) between the words, which stand between whitespace, of `strip_markup(source)`
            and of the target; None lets the model align.
        method: that aligns, as for `align`.
        settings: of `align` and of the method.

    Returns:
        The translation with mark-up, its words separated by single spaces; or a list.

    >>> transfer_markup("A <b>red</b> car", targets="Une voiture rouge", links={(0, 0), (1, 2), (2, 1)})
    'Une voiture <b>rouge</b>'
    """
    if isinstance(source, str):
        targets, links = (None if value is None else [value] for value in (targets, links))
        return transfer_markup([source], model, tokenizer, targets, links, method, **settings)[0]
    source = as_sentences("source", source)
    if wrong := [text for text in source if not isinstance(text, str)]:
        raise InputError("source", None, f"{wrong[0]!r} is not text")
    trees = [parse(text) if links is not None else _parse(text, _ampersand(tokenizer)) for text in source]
    plain = [text for _, text in trees]
    if links is not None and targets is None:
        raise InputError("targets", None, "needed if links are given")
    for name, given in (("targets", targets), ("links", links)):
        if given is not None and len(given) != len(plain):
            raise InputError(name, len(given), f"given for {len(plain)} sources", "give one each")
    if links is None:
        if model is None or tokenizer is None:
            raise InputError("model", None, "needed with its tokenizer to align, unless links are given")
        pairs: Iterable[Words] = _align(
            model, tokenizer, plain, targets, method, {"punctuation": "separate"} | settings
        )
    else:
        pairs = [_cut_marks(p, t, n) for p, t, n in zip(plain, targets, links, strict=True)]
    return [_transfer(tree, pair) for (tree, _), pair in zip(trees, pairs, strict=True)]


def _align(
    model: Any, tokenizer: Any, plain: list[str], translation: Any, method: str | None, settings: dict[str, Any]
) -> Iterator[Words]:
    """Words and links of each text; a text that the model translates is aligned sentence by sentence."""
    parts = [[text.replace(SEPARATOR, " ")] for text in plain]
    if translation is None:
        parts = [sentences(text) or [""] for text in plain]
    found = iter(align_words(model, tokenizer, list(chain(*parts)), translation, method, **settings))
    for number in map(len, parts):
        whole = Words([], [], "", set(), set(), [])
        for one in islice(found, number):
            i, j = len(whole.source), len(whole.target)
            links, more = ({(i + a, j + b) for a, b in x} for x in (one.links, _completed(one)))
            text = f"{whole.translation} {one.target_text}".strip()
            words = whole.source + one.source_words, whole.target + one.target_words
            sentence = (i, len(words[0])), (j, len(words[1]))
            whole = Words(*words, text, whole.links | links, whole.more | more, [*whole.sentences, sentence])
        yield whole


def _parse(text: str, ampersand: str) -> tuple[Node, str]:
    """`parse`, with a stand-in for `&amp;` if there are words beside it."""
    root, plain = parse(text, ampersand)
    return (root, plain) if any(map(str.isalnum, plain)) else parse(text)


def _ampersand(tokenizer: Any) -> str:
    """What the model reads for `&amp;`."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    return "," if tokenizer is not None and unknown in tokenizer("a & b").input_ids else "&"


def _completed(alignment: WordAlignment) -> Links:
    """For each source word without a link the one to its best target word."""
    linked, soft = {i for i, _ in alignment.links}, alignment.soft
    return {(i, int(soft[:, i].argmax())) for i in range(soft.shape[1]) if soft[:, i].any() and i not in linked}


def _cut_marks(source: str, translation: str, links: Links) -> Words:
    """Words and links in which punctuation at the ends of the given words is apart: marks belong to marks."""
    cut = [[separate_punctuation(word).split() for word in text.split()] for text in (source, translation)]
    words = [list(chain(*side)) for side in cut]
    starts = [[0, *accumulate(map(len, side))] for side in cut]
    found: Links = set()
    for i, j in links:
        if not (0 <= i < len(cut[0]) and 0 <= j < len(cut[1])):
            sizes = f"{len(cut[0])} source and {len(cut[1])} target words"
            raise InputError("links", None, f"{i}-{j} is out of range for {sizes}")
        parts = range(starts[0][i], starts[0][i + 1]), range(starts[1][j], starts[1][j + 1])
        both = {(a, b) for a in parts[0] for b in parts[1]}
        found |= {(a, b) for a, b in both if _is_mark(words[0][a]) == _is_mark(words[1][b])} or both
    return Words(words[0], words[1], translation, found, set(), [])


def _is_mark(word: str) -> bool:
    return not any(map(str.isalnum, word))


def _transfer(root: Node, words: Words) -> str:
    source_words, target_words, translation = words[:3]
    chunks = translation.split()
    if "".join(target_words) != "".join(chunks):
        raise InputError("translation", translation, "has special tokens", "leave them out")
    n, starts = len(target_words), [0, *accumulate(map(len, target_words))]
    breaks = set(accumulate(map(len, chunks)))
    marks: list[list[_Mark]] = [[] for _ in range(n + 1)]
    # a punctuation mark does not translate a word
    links, more = (
        {(i, j) for i, j in found if _is_mark(source_words[i]) or not _is_mark(target_words[j])}
        for found in (words.links, words.more)
    )
    spaced = [gap not in (0, n) and starts[gap] in breaks for gap in range(n + 1)]
    after = [*target_words, ""]
    wide = [gap in (0, n) or spaced[gap] for gap in range(n + 1)]
    placing = _Placing(_locate(source_words, root), wide, links, more, words.sentences, target_words)
    placing.set_read_apart(root)
    for gap, mark in placing.marks(root, (0, n)):
        marks[gap].append(mark)
    for j, node in placing.read.items():
        after[j] = node.open
        spaced[j], spaced[j + 1] = (
            spaced[j] or (node.spaces[0] and j > 0),
            spaced[j + 1] or (node.spaces[1] and j + 1 < n),
        )
    parts = (_render(marks[gap], gap == 0, spaced[gap], after[gap]) + after[gap] for gap in range(n + 1))
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
    spaces: tuple[bool, bool] | None = None  # of a point, or of an element without words
    loose: tuple[bool, bool] = (False, False)  # whether whitespace touches it in the source: before, after

    @property
    def is_dropped(self) -> bool:
        """Whether `_tidy` drops the space before it: a point, a tag of entities."""
        return self.spaces is not None or self.text[:1] == "&"


def _render(marks: list[_Mark], first: bool, spaced: bool, next_word: str) -> str:
    """The marks of a gap with its space; points get spaces as in the source where `_tidy` drops them again."""
    before_punctuation = next_word.startswith(CLOSING) or not next_word
    separators = [mark for mark in marks if separates(mark.text) or is_block(mark.text)]
    is_space = bool(separators) and not any(any(mark.loose) for mark in separators)
    if spaced and is_space and (not before_punctuation or next_word.startswith("%")):
        return _as_in_source(marks)  # `&nbsp;`, `<br>` or `</li><li>` is the space
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
    right = [
        mark.text + " " * ((mark.spaces is not None and mark.spaces[1]) or (wide and mark.is_dropped))
        for mark in marks[cut:]
    ]
    return "".join([*left, " " * spaced, *right])


def _as_in_source(marks: list[_Mark]) -> str:
    """Marks with the whitespace that touches them in the source."""
    gaps = [False, *(mark.loose[1] for mark in marks)], [*(mark.loose[0] for mark in marks), False]
    spaces = [" " * (after or before) for after, before in zip(*gaps, strict=True)]
    return "".join(chain(*zip(spaces, (*(mark.text for mark in marks), ""), strict=True)))


class _Placing:
    """Finds a span of target words for each element and a gap for each point; `wide` gaps may take a space."""

    def __init__(
        self,
        words: list[Span],
        wide: list[bool],
        links: Links,
        more: Links,
        sentences: list[tuple[Span, Span]],
        target_words: list[str],
    ) -> None:
        self.words, self.wide, self.sentences, self.target_words = words, wide, sentences, target_words
        self.read: dict[int, Node] = {}  # points that were translated, by the target words that they replace
        size = len(wide) - 1
        self.linked = [{i for i, j in links if j == target} for target in range(size)]  # source words of each target
        self.more = [own | {i for i, j in more if j == target} for target, own in enumerate(self.linked)]

    def marks(self, parent: Node, span: Span) -> Iterator[tuple[int, _Mark]]:
        """Tags and placeholders inside an element that got a span, in their order, and the gap that each goes to."""
        spans = self._spans(parent, span)
        for n, child in enumerate(parent.children):
            if n not in spans:
                taken = [own for own in spans.values() if own[0] < own[1]]
                gap = self._gap(child, parent, span, taken)
                spans[n] = self._replaced(child, span, taken) or (gap, gap)
        for n, (start, end) in sorted(spans.items(), key=lambda item: (*item[1], item[0])):
            child = parent.children[n]
            if child.is_read and start < end:
                self.read[start] = child
                continue
            yield start, _Mark(child.open, False, child.spaces if child.is_point else None, child.loose)
            if not child.is_point:
                yield from self.marks(child, (start, end))
                spaces = None if start < end else (False, False)
                yield end, _Mark(child.close, start < end, spaces, child.close_loose)

    def set_read_apart(self, node: Node) -> None:
        """Keep the links of words that stand for points: they say nothing about elements."""
        self.all_linked = self.linked

        def read(node: Node) -> set[int]:
            return self._inside(node) if node.is_read else set().union(*map(read, node.children))

        apart = read(node)
        self.linked, self.more = ([own - apart for own in side] for side in (self.linked, self.more))

    def _replaced(self, node: Node, span: Span, taken: list[Span]) -> Span | None:
        """The word that the model made of a point that it read: a mark like it, or a word linked to nothing else."""
        if not node.is_read:
            return None
        own = self._inside(node)
        free = [j for j in range(*span) if self.all_linked[j] & own and not any(a <= j < b for a, b in taken)]
        marks = [j for j in free if self.target_words[j] in ("&", ",")]
        words = [j for j in free if self.all_linked[j] == own and self.target_words[j].islower()]
        return next(((j, j + 1) for j in (*marks, *words)), None)

    def _inside(self, node: Node) -> set[int]:
        """Source words of which a node covers a part."""
        return {k for k, (start, end) in enumerate(self.words) if max(start, node.start) < min(end, node.end)}

    def _spans(self, parent: Node, span: Span) -> dict[int, Span]:
        """Spans of the child elements inside the parent's, the longest of the element that has fewest choices first.

        Elements that find none by the links look again by those of words that had none; others are left out.
        """
        waiting = {n: self._inside(child) for n, child in enumerate(parent.children) if not child.is_point}
        if whole := [n for n, words in waiting.items() if words and words == self._inside(parent)]:
            return {whole[0]: span}
        found = {n: own for n, words in waiting.items() if (own := self._whole_sentences(words, span))}
        for n in (n for n in waiting if n not in found and parent.children[n].is_quoted):
            if own := self._hull(waiting[n], span, found.values()):
                found[n] = own
        for linked in (self.linked, self.more):
            while True:
                left = {n: list(_options(waiting[n], linked, span, found.values())) for n in waiting if n not in found}
                options = {n: free for n, free in left.items() if free}
                if not options:
                    break
                n = max(options, key=lambda n: (-len(options[n]), max(options[n])))
                _, length, start = max(options[n])
                found[n] = (-start, length - start)
        return found

    def _hull(self, words: set[int], span: Span, taken: Iterable[Span]) -> Span | None:
        """From the first to the last target word of these, if most of the words between them are theirs, too."""
        own = [j for j in range(*span) if self.linked[j] & words]
        start, end = (own[0], own[-1] + 1) if own else (0, 0)
        is_free = 2 * len(own) > end - start and not any(a < end and start < b for a, b in taken)
        return (start, end) if is_free else None

    def _whole_sentences(self, words: set[int], span: Span) -> Span | None:
        """The target words of the sentences that these are the words of, if they are whole."""
        own = [(theirs, size[1] - size[0]) for size, theirs in self.sentences if {*range(*size)} & words]
        if sum(size for _, size in own) != len(words) or not own:
            return None
        (start, _), (_, end) = own[0][0], own[-1][0]
        return (start, end) if span[0] <= start < end <= span[1] else None

    def _gap(self, node: Node, parent: Node, span: Span, taken: list[Span]) -> int:
        """The gap for a point or an empty element: at the target of the nearest source word, outside of `taken`."""
        inside = sorted(self._inside(parent))
        before = [(k, 1) for k in inside if self.words[k][0] < node.start][::-1]
        after = [(k, 0) for k in inside if self.words[k][0] >= node.start]
        sides = (before, after) if node.spaces == (False, True) else (after, before)
        gap = span[1] if before else span[0]
        for k, is_before in (near for pair in zip_longest(*sides) for near in pair if near):
            if targets := [j for j in range(*span) if k in self.linked[j]]:
                targets = [j for j in targets if not any(a <= j < b for a, b in taken)] or targets
                gap = max(targets) + 1 if is_before else min(targets)
                break
        for start, end in taken:
            if start < gap < end:
                gap = start if gap - start <= end - gap else end
        if not node.is_word and not separates(node.open):
            return gap
        inner = {n for start, end in taken for n in range(start + 1, end)}
        words = [*self.target_words, ""]
        near = [
            n
            for n in range(span[0], span[1] + 1)
            if n not in inner and (self.wide[n] or (node.is_word and words[n].startswith(CLOSING)))
        ]
        ends = () if node.is_word or not (before and after) else (0, len(self.wide) - 1)  # no place between words
        return min(near, key=lambda n: (n in ends, abs(n - gap), n < gap), default=gap)


def _options(
    words: set[int], linked: list[set[int]], span: Span, taken: Iterable[Span]
) -> Iterator[tuple[int, int, int]]:
    """Linked words, length and -start of spans beside `taken`: from one word linked to the given ones to another,
    with none between them that is linked to others only.
    """
    for start in range(*span):
        count = 0
        for j in range(start, span[1]):
            if (linked[j] and not linked[j] & words) or any(a <= j < b for a, b in taken):
                break
            if linked[j]:
                count += 1
                yield count, j + 1 - start, -start
            elif j == start:
                break
