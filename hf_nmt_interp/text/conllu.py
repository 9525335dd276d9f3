"""Dependency trees of CoNLL-U files (https://universaldependencies.org/format.html)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import read_lines

_COLUMNS = 10


@dataclass
class Sentence:
    """A sentence with its tree; each list has one entry per syntactic word, indices start at 0."""

    words: list[str] = field(default_factory=list)  # forms of the syntactic words, e.g. `an dem Montag`
    heads: list[int | None] = field(default_factory=list)  # index of each word's head, None for the root
    deprels: list[str] = field(default_factory=list)  # relation to the head, with subtype, e.g. `nsubj:pass`
    upos: list[str] = field(default_factory=list)  # universal part of speech
    text: str = ""  # the sentence from its comment, or the tokens joined according to `SpaceAfter=No`
    tokens: list[str] = field(default_factory=list)  # on the surface: a multiword token is one, e.g. `am Montag`
    token_ids: list[int] = field(default_factory=list)  # index of the token that each word is part of

    def spans(self) -> list[tuple[int, int]]:
        """Position of each token in the text, as (start, end).

        >>> Sentence(text="I don't.", tokens=["I", "do", "n't", "."]).spans()
        [(0, 1), (2, 4), (4, 7), (7, 8)]
        """
        spans, end = [], 0
        for token in self.tokens:
            start = self.text.find(token, end)
            if start < 0 or self.text[end:start].strip():
                raise InputError("text", self.text, f"has no {token!r} at {end}; text and tokens of a tree must agree")
            end = start + len(token)
            spans.append((start, end))
        return spans


def read_conllu(path: str | Path) -> Iterator[Sentence]:
    """Sentences of a CoNLL-U file; empty nodes (`5.1`) and enhanced dependencies are left out."""
    block: list[tuple[str, str]] = []  # position of a line, and the line
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            block.append((f"{path}, line {number}", line))
        elif block:
            yield _sentence(block)
            block = []
    if block:
        yield _sentence(block)


def _sentence(block: list[tuple[str, str]]) -> Sentence:
    sentence, written, open_until = Sentence(), "", 0
    places = []  # of the words
    for where, line in block:
        if line.startswith("#"):
            if match := re.match(r"#\s*text\s*=\s*(.*)", line):
                sentence.text = match[1].strip()
            continue
        columns = line.split("\t")
        if len(columns) != _COLUMNS:
            raise InputError(where, len(columns), f"columns, not {_COLUMNS} separated by tabs")
        node, form, _, upos, _, _, head, deprel, _, misc = columns
        if re.fullmatch(r"\d+\.\d+", node):
            continue
        due = len(sentence.words) + 1
        multiword = re.fullmatch("([0-9]{1,9})-([0-9]{1,9})", node)
        if multiword and not open_until < int(multiword[1]) == due <= int(multiword[2]):
            raise InputError(where, None, f"multiword token {node} instead of word {due}")
        if not multiword and node != str(due):
            raise InputError(where, None, f"ID {node[:40]!r} instead of word {due}")
        if multiword or due > open_until:
            sentence.tokens.append(form)
            written += form if "SpaceAfter=No" in misc.split("|") else form + " "
        if multiword:
            open_until = int(multiword[2])
            continue
        if not re.fullmatch("[0-9]{1,9}", head):
            raise InputError(where, None, f"HEAD {head[:40]!r} is not a number", "the file must have trees")
        sentence.words.append(form)
        sentence.heads.append(int(head) - 1 if int(head) else None)
        sentence.deprels.append(deprel)
        sentence.upos.append(upos)
        sentence.token_ids.append(len(sentence.tokens) - 1)
        places.append(where)
    _check(sentence, open_until, places)
    sentence.text = sentence.text or written.strip()
    return sentence


def _check(sentence: Sentence, open_until: int, places: list[str]) -> None:
    count = len(sentence.words)
    for where, word, head in zip(places, range(count), sentence.heads, strict=True):
        if head is not None and (head >= count or head == word):
            raise InputError(where, None, f"HEAD {head + 1} of word {word + 1} must be another word of the sentence")
    for where, word, head in zip(places, range(count), sentence.heads, strict=True):
        steps = 0
        while head is not None and steps < count:
            head, steps = sentence.heads[head], steps + 1
        if head is not None:
            problem = f"the heads of word {word + 1} form a cycle; the file must have trees"
            raise InputError(where, None, problem)
    if open_until > count:
        where = places[-1] if places else ""
        raise InputError(where, None, f"the multiword token continues to word {open_until}")
