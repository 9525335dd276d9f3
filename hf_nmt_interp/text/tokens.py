"""Subwords and words: which subword belongs to which word, for every kind of tokenizer the models use.

All three functions locate each subword in a text (the given one, or the one decoded from ids) and assign it to the
word it ends in; a subword that is only whitespace belongs to the next word, or to the last one.
"""

import codecs
import re
import threading
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.text.byte_level import show_byte_level, spell_byte_level
from hf_nmt_interp.text.word_end import Span, marks_word_ends, place_pieces

Punctuation = Literal["attached", "separate"]
Segmenter = Callable[[str], Iterable[str]]  # from a text to its words, in order
Words = Literal["pieces", "spaces"] | Segmenter

_ENCODING = threading.Lock()
# scripts without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, Han; punctuation of the last two
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\u2e80-\u2fdf\u3001-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f"
    "\U00020000-\U000323af]"
)
_STACKING = ("\u1039", "\u17d2")  # Myanmar, Khmer: the next letter is written below the last one
_SPACES = ("▁", "Ġ")  # before the first subword of a word
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class TokenWords:
    """Subwords of one sentence and the words they belong to."""

    tokens: list[str]  # the subwords, e.g. `▁cat`, `s`, `</s>`
    words: list[str]  # a given word that the tokenizer drops (a lone control character) has no subword
    word_ids: list[int | None]  # index of each subword's word, ascending; None for special tokens
    special: list[bool]  # EOS, padding, a language code, a part of the source prefix; `<unk>` is not special

    @property
    def positions(self) -> list[list[int]]:
        """The positions of each word's subwords.

        >>> TokenWords(["▁c", "at", "▁.", "</s>"], ["cat", "."], [0, 0, 1, None], [False] * 3 + [True]).positions
        [[0, 1], [2]]
        """
        positions: list[list[int]] = [[] for _ in self.words]
        for position, word in enumerate(self.word_ids):
            if word is not None:
                positions[word].append(position)
        return positions

    @property
    def text(self) -> str:
        """The sentence: its words, with spaces where the subwords have them.

        Without such marks (WordPiece, results at word level) all words are separated by spaces.

        >>> TokenWords(["▁c", "at", ".", "</s>"], ["cat", "."], [0, 0, 1, None], [False] * 3 + [True]).text
        'cat.'
        """
        return self.cut(0, len(self.words))

    def cut(self, first: int, end: int) -> str:
        """The text of the words [first, end).

        >>> TokenWords(["▁a", "▁c", "at", "."], ["a", "cat", "."], [0, 1, 1, 2], [False] * 4).cut(1, 3)
        'cat.'
        """
        if not any(token[:1] in _SPACES for token in self.tokens):
            return " ".join(self.words[first:end])
        starts = [own and self.tokens[own[0]][:1] not in _SPACES for own in self.positions]
        both = list(zip(self.words, starts, strict=True))[first:end]
        return "".join(word if joined else f" {word}" for word, joined in both).strip()


@dataclass(frozen=True)
class Encoded:
    """Ids of one sentence from the tokenizer (with EOS and language tokens), and their words."""

    ids: list[int]
    token_words: TokenWords


def encode_source(
    tokenizer: Any,
    text: str | Sequence[str],
    punctuation: Punctuation = "attached",
    spans: Sequence[Span] | None = None,
    words: Words = "pieces",
) -> Encoded:
    """Encode a source sentence, with the word of each subword.

    Args:
        tokenizer: a Hugging Face tokenizer (SentencePiece, byte-level BPE or WordPiece).
        text: the sentence; or its words, which are kept unchanged and encoded as if joined by single spaces.
            Special tokens in a sentence, and a language code before its words, are not words.
        punctuation: `attached`: marks belong to the word they touch, so word indices agree with `text.split()`;
            `separate`: marks at the ends of such a word are separate words where the tokenizer splits them off.
        spans: positions of the words in the sentence, (start, end) in ascending order, instead of these rules.
        words: what a word of a sentence is. `spaces`: split at whitespace. `pieces`: the same, but text
            without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) is split into the tokenizer's
            pieces. A function from text to words, e.g. `jieba.lcut`: its words, joined where no subword starts.
    """
    return _encode(tokenizer, text, False, punctuation, words, spans)


def encode_target(
    tokenizer: Any,
    text: str | Sequence[str],
    punctuation: Punctuation = "attached",
    words: Words = "pieces",
    spans: Sequence[Span] | None = None,
) -> Encoded:
    """Encode a target sentence (`text_target=`), with the word of each subword; see `encode_source`."""
    if getattr(tokenizer, "tgt_lang", "") is None:  # mBART and NLLB would silently use the source language
        name = type(tokenizer).__name__
        raise InputError("tokenizer", None, f"{name} has no target language", "set it, e.g. tokenizer.tgt_lang = ...")
    return _encode(tokenizer, text, True, punctuation, words, spans)


def words_of(
    tokenizer: Any,
    ids: Iterable[int],
    is_target: bool = False,
    punctuation: Punctuation = "attached",
    words: Words = "pieces",
) -> TokenWords:
    """Words decoded from ids without label padding, e.g. generated ones; nothing is encoded again.

    The words joined are `tokenizer.decode(ids, skip_special_tokens=True)` up to whitespace, but always with `<unk>`
    and without language codes. `is_target` is for tokenizers with two vocabularies; for the definition of a word see
    `encode_source`.
    """
    ids = [int(i) for i in ids]
    pieces = _pieces(tokenizer, ids, is_target)
    special = _special(tokenizer, pieces)
    text, spans = _spell(tokenizer, pieces, special, is_target)
    prefix = _prefix(tokenizer, is_target).strip()
    if prefix and text.lstrip().startswith(prefix):
        edge = len(text) - len(text.lstrip()) + len(prefix)
        special, text = _hide(special, spans, edge), " " * edge + text[edge:]
    return _group(tokenizer, pieces, special, spans, text, _word_spans(text, spans, punctuation, words))


def _spell(tokenizer: Any, pieces: list[str], special: list[bool], is_target: bool) -> tuple[str, list[Span]]:
    """The text of the subwords, and the position of each in it."""
    if _kind(tokenizer) == "</w>":
        shown = [piece for piece, is_special in zip(pieces, special, strict=True) if not is_special]
        text = tokenizer.convert_tokens_to_string(shown)
        return text, place_pieces(pieces, special, text)
    spell = _speller(tokenizer, is_target)
    # a character may be split over several subwords: it belongs to all of them, from its first byte on
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, spans = "", []
    for piece, is_special in zip(pieces, special, strict=True):
        start, text = len(text), text + ("" if is_special else decoder.decode(spell(piece)))
        spans.append((start, len(text)))
    return text + decoder.decode(b"", final=True), spans


def _encode(
    tokenizer: Any,
    text: str | Sequence[str],
    is_target: bool,
    punctuation: Punctuation,
    rule: Words,
    given: Sequence[Span] | None = None,
) -> Encoded:
    sentence, words = (text, []) if isinstance(text, str) else join_words(text)
    check_text("text", sentence)
    prefix = _prefix(tokenizer, is_target)
    ids, spans = _locate(tokenizer, prefix + sentence, is_target)
    if is_target and ids[2:] and ids[0] == ids[-1] == tokenizer.eos_token_id and spans[0][0] == spans[0][1]:
        ids, spans = ids[1:], spans[1:]  # SeamlessM4T includes the decoder's start token
    pieces = _pieces(tokenizer, ids, is_target)
    special = _hide(_special(tokenizer, pieces), spans, len(prefix.rstrip()))
    words, given = _shift(words, len(prefix)), None if given is None else _shift(given, len(prefix))
    sentence = " " * len(prefix) + sentence
    hidden = [span for span, is_special in zip(spans, special, strict=True) if is_special and span[0] < span[1]]
    if isinstance(text, str):
        for start, end in hidden:
            sentence = sentence[:start] + " " * (end - start) + sentence[end:]
        words = _word_spans(sentence, spans, punctuation, rule) if given is None else given
    elif words and words[0] in hidden:  # a language code before the words
        words = words[1:]
    return Encoded(ids, _group(tokenizer, pieces, special, spans, sentence, words))


def _prefix(tokenizer: Any, is_target: bool) -> str:
    """Text that the model reads before every source, e.g. T5's "translate English to German: "; see `load`."""
    return "" if is_target else getattr(tokenizer, "source_prefix", None) or ""


def _hide(special: list[bool], spans: list[Span], edge: int) -> list[bool]:
    """Mark the subwords of a prefix, which ends at `edge`, as special."""
    return [is_special or 0 < end <= edge for is_special, (_, end) in zip(special, spans, strict=True)]


def _shift(spans: Sequence[Span], by: int) -> list[Span]:
    return [(start + by, end + by) for start, end in spans]


def check_text(name: str, text: str) -> None:
    """Raise for text that is not valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        near = text[max(0, error.start - 20) : error.start + 20]
        raise InputError(name, near, f"has a lone surrogate at {error.start}", "read it as UTF-8") from error


def as_sentences(name: str, given: Any) -> list[Any]:
    """Check that this is a list of sentences; each is checked when it is encoded."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InputError(name, str(given)[:40], "is not a list of sentences")
    return list(given)


def join_words(words: Sequence[str]) -> tuple[str, list[Span]]:
    """Words joined by single spaces, and the position of each; empty words are skipped."""
    if isinstance(words, bytes | Mapping) or not isinstance(words, Sequence):
        kind = type(words).__name__
        raise InputError("text", str(words)[:40], f"is {kind}, not a sentence or a list of its words")
    if wrong := [word for word in words if not isinstance(word, str)]:
        raise InputError("text", None, f"{wrong[0]!r} among the words is not a string; give a sentence or its words")
    text, spans = "", []
    for word in words:
        text += " " if text and word else ""
        spans.append((len(text), len(text) + len(word)))
        text += word
    return text, spans


def find_words(text: str, words: Iterable[str]) -> list[Span]:
    """Positions of the words of a text, given in order.

    >>> find_words("a cat, a dog", ["a", "cat", ",", "a"])
    [(0, 1), (2, 5), (5, 6), (7, 8)]
    """
    spans: list[Span] = []
    for word in words:
        start = text.index(word, spans[-1][1] if spans else 0)
        spans.append((start, start + len(word)))
    return spans


def _group(
    tokenizer: Any, pieces: list[str], special: list[bool], spans: list[Span], text: str, words: list[Span]
) -> TokenWords:
    """Assign each subword to the word of its last character that is not a space."""
    if not words and not all(special):
        words = [(0, 0)]  # only whitespace: its subwords form one empty word
    ends = [end for _, end in words]

    def word_at(start: int, end: int) -> int:
        end = start + len(text[start:end].rstrip())
        # a subword without a character of its own belongs to the word there, or to the next
        word = bisect_left(ends, end) if end > start else bisect_right(ends, start)
        return min(word, len(ends) - 1)

    word_ids = [None if is_special else word_at(*span) for span, is_special in zip(spans, special, strict=True)]
    shown = [show_byte_level(piece) for piece in pieces] if _kind(tokenizer) == "ByteLevel" else pieces
    return TokenWords(shown, [text[start:end] for start, end in words], word_ids, special)


def _word_spans(text: str, subwords: list[Span], punctuation: Punctuation, words: Words) -> list[Span]:
    check_choice("punctuation", punctuation, get_args(Punctuation))
    cuts = {start for start, _ in subwords} - {i for start, end in subwords for i in range(start + 1, end)}
    if callable(words):
        borders = _segment(text, words)
    else:
        check_choice("words", words, get_args(get_args(Words)[0]))
        borders = {i for i in cuts if 0 < i < len(text) and _is_border(text, i)} if words == "pieces" else set()
    spans: list[Span] = []
    read = {i for start, end in subwords for i in range(start, end)}  # a tokenizer may drop control characters
    for match in re.finditer(r"\S+", text):
        first = min(read & {*range(*match.span())}, default=match.end())
        inner = (i for i in range(first + 1, match.end()) if i in borders and i in cuts)
        spans += pairwise([match.start(), *inner, match.end()])
    if punctuation == "attached":
        return spans
    return [part for start, end in spans for part in _cut_marks(text, start, end, cuts)]


def _is_border(text: str, at: int) -> bool:
    """Whether a word may start there: next to a character of a script without spaces, but not inside a letter."""
    beside = UNSPACED.match(text[at - 1]) or UNSPACED.match(text[at])
    inside = unicodedata.category(text[at]) in ("Mn", "Mc", "Me", "Lm") or text[at - 1] in _STACKING
    return bool(beside) and not inside


def _segment(text: str, segmenter: Segmenter) -> set[int]:
    """Start positions of the words of a segmenter."""
    starts, at = set(), 0
    for word in segmenter(text):
        if not isinstance(word, str) or (found := text.find(word.strip(), at)) < 0 or text[at:found].strip():
            problem = f"is not what follows in {text[at : at + 40]!r}"
            raise InputError(
                "words", str(word)[:40], problem, "a segmenter must return the words of the text in order"
            )
        starts.add(found)
        at = found + len(word.strip())
    if text[at:].strip():
        raise InputError("words", text[at:][:40], "is left over after segmentation", "it must return the whole text")
    return starts


def _cut_marks(text: str, start: int, end: int, cuts: Container[int]) -> list[Span]:
    """Split punctuation off both ends of a word, where a subword starts; `...` and `--` are not split."""
    marks = [unicodedata.category(character)[0] == "P" for character in text[start:end]]
    first = start + (marks.index(False) if False in marks else len(marks))
    last = end - (marks[::-1].index(False) if False in marks else 0)
    inner = (i for i in range(start + 1, end) if i in cuts and not first < i < last and text[i - 1] != text[i])
    return list(pairwise([start, *inner, end]))


def separate_punctuation(text: str) -> str:
    """Split punctuation off the ends of words, as in gold alignments and treebanks.

    >>> separate_punctuation('He said: "No, wait..."')
    'He said : " No , wait ... "'
    """
    spans = (match.span() for match in re.finditer(r"\S+", text))
    parts = (part for start, end in spans for part in _cut_marks(text, start, end, range(start, end)))
    return " ".join(text[start:end] for start, end in parts)


def _locate(tokenizer: Any, text: str, is_target: bool) -> tuple[list[int], list[Span]]:
    """Ids of a text and the span of each; an empty span for tokens that are not part of the text."""
    _kind(tokenizer)  # raises early for an unsupported tokenizer
    side = {"text_target" if is_target else "text": text}
    with _ENCODING:  # for a target, tokenizers are switched to its language and back
        encoding = tokenizer(**side, **{"return_offsets_mapping": True} if tokenizer.is_fast else {})
    ids = encoding["input_ids"]
    if tokenizer.is_fast:
        return ids, encoding["offset_mapping"]
    if _kind(tokenizer) == "</w>":
        if is_target and _pieces(tokenizer, ids, True) != _pieces(tokenizer, ids, False):
            problem = f"{type(tokenizer).__name__} has two vocabularies, and encodes targets with that of the source"
            raise InputError("tokenizer", None, problem, "let the model translate")
        pieces = _pieces(tokenizer, ids, is_target)
        return ids, place_pieces(pieces, _special(tokenizer, pieces), text)
    spans = _sentencepiece_spans(tokenizer, text, is_target)
    front = len(getattr(tokenizer, "prefix_tokens", ()))
    back = len(tokenizer.build_inputs_with_special_tokens([])) - front
    if front + len(spans) + back != len(ids):
        problem = f"{type(tokenizer).__name__} splits {text!r} differently from its SentencePiece model"
        raise InputError("tokenizer", None, problem, "subword sampling must be off")
    return ids, [(0, 0)] * front + spans + [(len(text), len(text))] * back


def _sentencepiece_spans(tokenizer: Any, text: str, is_target: bool) -> list[Span]:
    """Spans of the subwords of a slow tokenizer: added tokens, Marian's language code, SentencePiece's offsets."""
    spm, spans, at = _spm(tokenizer, is_target), [], 0
    for part in tokenizer.tokens_trie.split(text):
        if part in tokenizer.added_tokens_encoder:
            spans.append((at, at + len(part)))
        elif part:
            codes, rest = tokenizer.remove_language_code(part) if hasattr(tokenizer, "spm_source") else ([], part)
            spans += [(at, at + len(code)) for code in codes]
            shift = at + len(part) - len(rest)
            spans += [(shift + start, shift + end) for start, end in spm.encode_as_offset_mapping(rest)["offsets"]]
        at += len(part)
    return spans


def _special(tokenizer: Any, pieces: list[str]) -> list[bool]:
    # Marian's and M2M100's language codes, and tokens added by users, are not among the tokenizer's special tokens
    codes = [*getattr(tokenizer, "supported_language_codes", ()), *getattr(tokenizer, "lang_token_to_id", ())]
    codes += [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    names = {*tokenizer.all_special_tokens, *codes}
    if tokenizer.unk_token not in (tokenizer.eos_token, tokenizer.bos_token, tokenizer.pad_token):
        names.discard(tokenizer.unk_token)
    return [piece in names for piece in pieces]


def _pieces(tokenizer: Any, ids: list[int], is_target: bool) -> list[str]:
    if wrong := [i for i in ids if i < 0]:
        raise InputError("ids", wrong[0], "is not a token id", "leave out label padding")
    # Marian's look-up confuses its two vocabularies, and FSMT's uses that of the target
    if getattr(tokenizer, "separate_vocabs", False) or hasattr(tokenizer, "tgt_vocab_file"):
        pieces = tokenizer.decoder if is_target else {i: piece for piece, i in tokenizer.encoder.items()}
        return [pieces.get(i, tokenizer.unk_token) for i in ids]
    # an embedding matrix may have more rows than the tokenizer has tokens
    return [tokenizer.unk_token if piece is None else piece for piece in tokenizer.convert_ids_to_tokens(ids)]


def _spm(tokenizer: Any, is_target: bool) -> Any:
    """SentencePiece model of a slow tokenizer: Marian has one for each side."""
    side = "spm_target" if is_target else "spm_source"
    return getattr(tokenizer, side, None) or getattr(tokenizer, "sp_model", None)


def _kind(tokenizer: Any) -> str:
    """The kind of a tokenizer: `▁` for SentencePiece, `</w>` for slow BPE, otherwise the name of its decoder."""
    is_fast = getattr(tokenizer, "is_fast", None)
    decoder = repr(tokenizer.backend_tokenizer.decoder) if is_fast else ""
    kinds = [kind for kind in ("ByteLevel", "WordPiece", "▁") if kind in decoder]
    if kinds or (is_fast is not None and _spm(tokenizer, False)):
        return kinds[0] if kinds else "▁"
    if marks_word_ends(tokenizer):
        return "</w>"
    problem = f"{type(tokenizer).__name__} is not supported"
    raise InputError(
        "tokenizer", None, problem, "supported are SentencePiece, byte-level BPE, WordPiece, FSMT and Blenderbot-small"
    )


def _speller(tokenizer: Any, is_target: bool) -> Callable[[str], bytes]:
    """A function from a piece to its bytes, with a space if it starts a word."""
    kind, spm = _kind(tokenizer), _spm(tokenizer, is_target)
    decoder: Any = tokenizer.backend_tokenizer.decoder if tokenizer.is_fast else None
    if kind == "ByteLevel":
        return spell_byte_level
    if kind == "WordPiece":  # its decoder also joins some punctuation to the word before
        return lambda piece: decoder.decode(["x", piece])[1:].encode()

    def spell(piece: str) -> bytes:
        byte = _BYTE_PIECE.fullmatch(piece)
        if byte and (spm.is_byte(spm.piece_to_id(piece)) if spm else "ByteFallback" in repr(decoder)):
            return bytes.fromhex(byte[1])
        return piece.replace("▁", " ").encode()

    return spell
