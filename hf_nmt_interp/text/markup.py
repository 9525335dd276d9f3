"""Inline mark-up: tags and placeholders of a text as a tree, and the text without them, in sentences.

Pairs like `<b>...</b>`, `&lt;b&gt;...&lt;/b&gt;` and `&lt;...&gt;` are elements, which cover words. Points stand
between words: `<br/>`, `<x id="1"/>`, `{0}`, `%s`, addresses, other entities, `<b></b>`, `<code>...</code>` with its
content.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from itertools import pairwise

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.tokens import UNSPACED

_ATTRIBUTES = r"""(?:\s(?:"[^"]*"|'[^']*'|[^<>"'])*)?"""
# elements that are not translated
_KEPT_NAMES = "kbd|code|samp|var|tt|pre|script|style"
_KEPT = rf"""<(?P<kept{{0}}>{_KEPT_NAMES}){_ATTRIBUTES}>.*?</(?P=kept{{0}})\s*>"""
_ESCAPED_MORE = r"(?P<more{0}>\s(?:(?!&[lg]t;)[^<>])*?)?"
_ESCAPED_KEPT = rf"&lt;(?P<kept3>{_KEPT_NAMES}){_ESCAPED_MORE.format(3)}&gt;.*?&lt;/(?P=kept3)\s*&gt;"
_NESTED = r"[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*"  # text with braces, two deep
_ENTITY = r"&(?:[A-Za-z]\w*|\#\d+|\#[xX][0-9A-Fa-f]+);"
_ITEM = re.compile(
    rf"""(?i:{_KEPT.format(1)}(?:[-+/]{_KEPT.format(2)})*)
      | <(?P<close>/)?(?:(?P<name>[A-Za-z][\w:.-]*){_ATTRIBUTES}|(?P<number>\d+))/?>  # a tag: <b>, <a href="#">, <0>
      | <!--.*?-->
      | (?i:{_ESCAPED_KEPT})
      | &lt;(?P<end>/)?(?P<escaped>[A-Za-z][\w:.-]*){_ESCAPED_MORE.format(4)}(?P<void>/)?\s*&gt;  # &lt;b&gt;
      | (?<!\w)\w+(?:&(?:amp|\#38|\#[xX]26);\w+)+ | (?P<entity>{_ENTITY})  # AT&amp;T, &lt;
      | \b(?:(?:https?|ftp)://|www\.)[^\s<>"']*[^\s<>"'.,;:!?)\]}}]  # addresses
      | (?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+
      | \{{\s*\w+\s*,\s*(?:plural|select|selectordinal|number|date|time|ordinal|spellout|duration)\b{_NESTED}\}}  # ICU
      | [\#@]?(?:\{{\{{[^{{}}]*\}}\}} | \$?\{{[\w.:-]*\}})  # {{{{name}}}}, #{{{{id}}}}, ${{name}}, {{0}}
      | (?!(?<=\d)%[-+]?[a-z]\w)%(?:\(\w+\)|\d+\$)?(?:[-+0]?\d*(?:\.\d+)?[difgx]|[s@])  # %s, %1$s, %(name)s, %.2f
    """,
    re.VERBOSE | re.DOTALL,
)
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# names that make `&lt;name&gt;` a tag without `&lt;/name&gt;`; other names may be words
_TAGS = {
    "b",
    "br",
    "div",
    "em",
    "h1",
    "h2",
    "h3",
    "hr",
    "i",
    "img",
    "li",
    "ol",
    "p",
    "td",
    "th",
    "tr",
    "u",
    "ul",
    "wbr",
}
_BREAK = re.compile(rf"<(?:br|hr){_ATTRIBUTES}/?>", re.IGNORECASE)  # separates words without a space
_BLOCK = re.compile(  # tags at which a sentence ends
    rf"</?(?:p|div|li|ul|ol|dl|dt|dd|table|tr|td|th|h[1-6]|section|article|blockquote|option){_ATTRIBUTES}/?>",
    re.IGNORECASE,
)
SEPARATOR = "\x1e"  # marks such a tag in the text; it is whitespace
_SENTENCE = re.compile(rf"{SEPARATOR}\s*|(?<=[.!?…])[\"'”»)]*\s+(?=[\"'“«„¿¡(]*[^\W\d_a-zß-öø-ÿ])|(?<=[。！？])")
_ABBREVIATED = re.compile(  # initials, ordinal numbers, titles: not the end of a sentence
    r"(?<![^\W_])(?:\d+|[^\W\d_]|Dr|Mr|Mrs|Ms|Prof|St|Jr|Sr|No|Nr|vs|ca|bzw|usw|vgl|Hr|Fr|Abs|Art)\.\Z"
)
_IN_WORDS = "'’-\u00ad\u2010\u2011"  # marks inside words
CLOSING = tuple(".,;:!?)]}»”…%")  # marks that follow a word without a space
_OPENING = tuple("([{«„“¿¡")  # marks before a word
_PAIRS = {"<": ">", '"': '"', "“": "”", "„": "“", "«": "»", "‹": "›"}  # entities that enclose words
_DEEPEST = 100  # nested tags
_POINT, _BREAK_POINT, _SPACE_POINT = "\0", "\1", "\2"  # stand for a point while whitespace is normalised


@dataclass
class Node:
    """An element (`close` is not empty) or a point; positions count the characters of the text, without whitespace."""

    open: str
    start: int
    close: str = ""
    end: int = 0
    children: list["Node"] = field(default_factory=list)
    spaces: tuple[bool, bool] = (False, False)  # of a point, whether no word touches it: before, after
    loose: tuple[bool, bool] = (False, False)  # whether whitespace touches it, or its first tag: before, after
    close_loose: tuple[bool, bool] = (False, False)  # whether whitespace touches its last tag
    text: str = ""  # the root's text without whitespace
    is_read: bool = False  # whether the text contains a stand-in for it, which is translated

    @property
    def is_point(self) -> bool:
        return not self.close

    @property
    def is_quoted(self) -> bool:
        """Whether it is an element of entities, `&lt;...&gt;`, that are not tags."""
        return not self.is_point and unescape(self.open) in _PAIRS

    @property
    def is_word(self) -> bool:
        """Whether it is a point that needs spaces around it: an address, `AT&amp;T`."""
        return self.is_point and self.open[:1].isalnum()


def parse(text: str, ampersand: str = "") -> tuple[Node, str]:
    """The tree of a marked-up text, whose root is an element without tags, and the text without mark-up.

    `ampersand` is a character that replaces each `&amp;` between words in the text.
    """
    open_nodes, plain, at = [Node("", 0, "root")], "", 0
    begins: list[tuple[int, bool, int]] = []  # of the open elements: where their tags and texts start, space before
    for match in _items(text):
        plain += text[at : match.start()]
        at, item, name = match.end(), match[0], match["name"] or match["number"]
        size = len(_bare(plain))
        before, after = not plain or plain[-1].isspace(), at == len(text) or text[at].isspace() or text[at] in CLOSING
        loose = text[max(0, match.start() - 1) : match.start()].isspace(), text[at : at + 1].isspace()
        character = unescape(match["entity"] or "")
        if character and (character.isalnum() or character in _IN_WORDS):
            plain += character
        elif character == "&" and ampersand:
            node = Node(item, size, end=size + 1, spaces=(before, after), is_read=True)
            open_nodes[-1].children.append(node)
            plain += ampersand
        elif match["close"]:
            node = open_nodes.pop()
            if not open_nodes or _name(node.open) != name:
                raise InputError("source", None, f"{item} at {match.start()} closes no open tag; tags must be nested")
            node.close, node.end, node.close_loose = item, size, loose
            begin, before, length = begins.pop()
            if size == node.start:
                # without text inside, it is moved as one piece
                open_nodes[-1].children[-1] = Node(text[begin:at], size, end=size, spaces=(before, after))
                inside = plain[length:]
                kinds = [kind for kind in (_BREAK_POINT, _SPACE_POINT) if kind in inside]
                plain = plain[:length] + (*kinds, _POINT)[0] + SEPARATOR * (SEPARATOR in inside)
        elif name is None or item.endswith("/>") or (name.lower() in _VOID and not re.search(rf"</{name}[\s>]", text)):
            spaces = (True, True) if item[0].isalnum() else (before, after)
            open_nodes[-1].children.append(Node(item, size, end=size, spaces=spaces, loose=loose))
            plain += _BREAK_POINT if is_break(item) else _SPACE_POINT if separates(item) else _POINT
        else:
            node = Node(item, size, close="?", loose=loose)
            open_nodes[-1].children.append(node)
            open_nodes.append(node)
            begins.append((match.start(), before, len(plain)))
            if len(open_nodes) > _DEEPEST:
                where = f"{item} at {match.start()}"
                raise InputError("source", None, f"{where} is inside {_DEEPEST - 1} others", "nest fewer tags")
        plain += SEPARATOR * is_block(item)
    if len(open_nodes) > 1:
        raise InputError("source", None, f"{open_nodes[-1].open} is not closed", "write &lt; for < that is not a tag")
    plain += text[at:]
    root = open_nodes[0]
    root.children = _paired(root.children)
    root.text = _bare(plain)
    root.end = len(root.text)
    return root, _tidy(plain)


def _items(text: str) -> Iterator[re.Match]:
    """Mark-up in its order; `&lt;word&gt;` is a tag only if its name is one or `&lt;/word&gt;` is in the text."""
    closed, at = set(re.findall(r"&lt;/([\w:.-]+)\s*&gt;", text)), 0
    while match := _ITEM.search(text, at):
        name = match["escaped"]
        is_tag = match["end"] or match["void"] or "=" in (match["more4"] or "") or name in closed
        if name and not is_tag and name.lower() not in _TAGS:
            match = _ITEM.match(text, match.start(), match.start() + len("&lt;")) or match
        yield match
        at = match.end()


def strip_markup(text: str) -> str:
    """The text without tags and placeholders and the whitespace that belongs to them.

    >>> strip_markup('You have <b>{0} new</b> messages, <i>%s</i>.')
    'You have new messages,.'
    """
    return parse(text)[1].replace(SEPARATOR, " ")


def _paired(nodes: list[Node]) -> list[Node]:
    """Siblings, with `&lt;b&gt;words&lt;/b&gt;`, `&lt;word&gt;` and words in quotation marks as elements."""
    found: list[Node] = []
    opened: list[tuple[int, str]] = []  # places of those that may open an element, and what closes it
    for node in nodes:
        node.children = _paired(node.children)
        mark = unescape(node.open) if node.is_point and node.open[:1] == "&" else ""
        tag = re.fullmatch(r"<(/?)([\w:.-]+).*?(/?)>", mark, re.DOTALL)
        own = f"</{tag[2]}>" if tag else mark
        is_end = tag[1] if tag else not node.spaces[0]
        fits = [n for n, (at, close) in enumerate(opened) if close == own and found[at].start < node.start]
        if mark and is_end and fits:
            at = opened[fits[-1]][0]
            first, *inner = found[at:]
            first.close, first.end, first.children, first.close_loose = node.open, node.start, inner, node.loose
            found[at:] = [first]
            del opened[fits[-1] :]
            continue
        if tag and not tag[1] and not tag[3]:
            opened.append((len(found), own))
        elif mark in _PAIRS and not node.spaces[1]:
            opened.append((len(found), _PAIRS[mark]))
        found.append(node)
    return found


def is_break(point: str) -> bool:
    """Whether it is `<br>` or `<hr>`."""
    return bool(_BREAK.fullmatch(unescape(point)))


def is_block(tag: str) -> bool:
    """Whether a sentence ends at a tag: `<li>`, `</p>`."""
    return bool(_BLOCK.fullmatch(unescape(tag)))


def separates(point: str) -> bool:
    """Whether a point stands for a space: `<br>`, `&nbsp;`."""
    return is_break(point) or unescape(point).isspace()


def _bare(plain: str) -> str:
    """Text without points and whitespace."""
    return "".join(re.sub(f"[{_POINT}{_BREAK_POINT}{_SPACE_POINT}]", "", plain).split())


def _tidy(text: str) -> str:
    """Drop points: surrounding whitespace becomes one space, or none at the ends and before punctuation marks.

    Breaks between words and blocks also become a space (`SEPARATOR`).
    """

    def space(match: re.Match) -> str:
        run, before, after = match[0], text[: match.start()][-1:], text[match.end() : match.end() + 1]
        points = set(run) & {_POINT, _BREAK_POINT, _SPACE_POINT}
        spaces = set(run) - points - {SEPARATOR}
        if not before or not after:
            return ""
        if spaces:
            is_dropped = after in CLOSING and run.rstrip(SEPARATOR)[-1] in points
            return "" if is_dropped else SEPARATOR if SEPARATOR in run else " "
        if (after in CLOSING and after != "%") or before in _OPENING:
            return ""
        is_break = _BREAK_POINT in run and not UNSPACED.search(before + after)
        return SEPARATOR if SEPARATOR in run else " " * (is_break or _SPACE_POINT in run)

    return re.sub(rf"(?<!\s)\s*(?:[{_POINT}{_BREAK_POINT}{_SPACE_POINT}{SEPARATOR}]\s*)+", space, text)


def _name(tag: str) -> str:
    match = _ITEM.match(tag)
    return match["name"] or match["number"] if match else ""


def sentences(text: str) -> list[str]:
    """Sentences of a text, which end at `.!?` before a capital letter and at block tags; some may stay together.

    >>> sentences("It is 5 p.m. now. Dr. No left on 3. October! (He stayed.) Why?")
    ['It is 5 p.m. now.', 'Dr. No left on 3. October!', '(He stayed.)', 'Why?']
    """
    found = [m for m in _SENTENCE.finditer(text) if not _ABBREVIATED.search(text[max(0, m.start() - 8) : m.start()])]
    ends = [0, *(match.end() for match in found), len(text)]
    return [text[start:end].strip() for start, end in pairwise(ends) if start < end]
