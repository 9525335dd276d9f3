"""Sentence pairs: the one place where they are encoded, force decoded or translated, checked and batched."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import torch

from hf_nmt_interp.decoding.batch import Batch, Translation, batch_of, check_ids, pad, similar_sizes
from hf_nmt_interp.decoding.generation import plain_generate, translate_batch
from hf_nmt_interp.decoding.languages import check_target
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import capacity
from hf_nmt_interp.text.progress import track
from hf_nmt_interp.text.tokens import (
    Encoded,
    Span,
    TokenWords,
    as_sentences,
    encode_source,
    encode_target,
    words_of,
)

Text = str | Sequence[str] | Encoded  # a sentence, its words, or either encoded
Origin = Literal["given", "translated", "caught"]  # of a target: from the caller, `translate`, or another `generate()`
Splitting = Mapping[str, Any]  # into words: `punctuation` and `words` of `encode_source`
NO_SPLITTING: Splitting = MappingProxyType({})
SHOWN: Splitting = MappingProxyType({"punctuation": "separate"})  # for display
LONGEST = 4096  # maximum tokens for models without positions: memory grows with the square of the length


@dataclass(frozen=True)
class Checked(Encoded):
    """An encoded sentence that was checked against a model."""

    model: Any


@dataclass(frozen=True)
class Pair:
    """A sentence pair as ids and as words, the origin of its target, and the labels it is compared with."""

    ids: Translation
    source: TokenWords
    target: TokenWords
    origin: Origin = "given"
    contrast: list[int] | None = None  # one per label, -100 for none
    contrast_words: list[str | None] | None = None  # to display, where they differ: words, or other prefixes


@dataclass(frozen=True)
class Pairs(Sequence[Pair]):
    """Sentence pairs of one model, with checked ids; slices are `Pairs` too.

    Sources and targets are strings, or lists of words that are kept unchanged; `splitting` has the arguments
    `punctuation` and `words` of `encode_source`.
    """

    model: Any
    items: list[Pair]

    @classmethod
    def make(
        cls,
        model: Any,
        tokenizer: Any,
        sources: Any,
        targets: Any = None,
        splitting: Splitting = NO_SPLITTING,
        **more,
    ) -> "Pairs":
        """`force` if targets are given, otherwise `translate` with the remaining arguments."""
        if targets is None:
            return cls.translate(model, tokenizer, sources, splitting=splitting, **more)
        return cls.force(model, tokenizer, sources, targets, splitting)

    @classmethod
    def force(
        cls,
        model: Any,
        tokenizer: Any,
        sources: Sequence[Text],
        targets: Sequence[Text],
        splitting: Splitting = NO_SPLITTING,
    ) -> "Pairs":
        """Pairs of sentences and given translations, which are force decoded."""
        encoded = encode_sources(model, tokenizer, sources, splitting)
        if len(targets := as_sentences("targets", targets)) != len(encoded):
            raise InputError("targets", len(targets), f"targets for {len(encoded)} sources", "give one each")
        found = encode_targets(model, tokenizer, targets, splitting)
        both = zip(encoded, found, strict=True)
        return cls(model, [Pair(Translation(s.ids, t.ids), s.token_words, t.token_words) for s, t in both])

    @classmethod
    def translate(
        cls,
        model: Any,
        tokenizer: Any,
        sources: Sequence[Text],
        batch_size: int = 16,
        generate: Mapping[str, Any] | None = None,
        splitting: Splitting = NO_SPLITTING,
    ) -> "Pairs":
        """Pairs of sentences and the model's translations, from `generate()` with these arguments."""
        if not isinstance(generate or {}, Mapping):
            problem = "is not a dictionary of arguments of generate()"
            raise InputError("generate", generate, problem, "give one such as {'num_beams': 4}")
        check_target(model, tokenizer, generate)
        encoded = encode_sources(model, tokenizer, sources, splitting)
        found: dict[int, Translation] = {}
        plain = plain_generate(model)
        for rows in track(similar_sizes([len(e.ids) for e in encoded], batch_size), "Translating"):
            made = translate_batch(plain, model, [encoded[i].ids for i in rows], **(generate or {}))
            found |= zip(rows, made, strict=True)
        pairs = cls.caught(model, tokenizer, [found[i] for i in range(len(encoded))], encoded, splitting)
        return replace(pairs, items=[replace(pair, origin="translated") for pair in pairs])

    @classmethod
    def caught(
        cls,
        model: Any,
        tokenizer: Any,
        translations: Sequence[Translation],
        sources: Sequence[Encoded] | None = None,
        splitting: Splitting = NO_SPLITTING,
    ) -> "Pairs":
        """Pairs given as ids, e.g. from `record_generation`; without `sources`, words are decoded from ids."""
        if sources is None:
            check_tokenizer(model, tokenizer)
        # input and output of `generate()` fit the model's positions
        check_translations(model, translations, ("targets",) if sources else ("sources", "targets"), caught=True)
        words = [source.token_words for source in sources or ()]
        words = words or [words_of(tokenizer, ids.source_ids, False, **splitting) for ids in translations]
        targets = [words_of(tokenizer, ids.target_ids, True, **splitting) for ids in translations]
        both = zip(translations, words, targets, strict=True)
        return cls(model, [Pair(ids, source, target, "caught") for ids, source, target in both])

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return replace(self, items=self.items[index])
        return self.items[index]

    def pick(self, rows: Sequence[int]) -> "Pairs":
        """The pairs with these indices."""
        return replace(self, items=[self.items[row] for row in rows])

    def typical(self) -> "Pairs":
        """The pair of median size, to estimate run times."""
        order = sorted(range(len(self)), key=lambda row: self.items[row].ids.size)
        return self.pick(order[len(order) // 2 :][:1])

    def batches(self, batch_size: int = 16, label: str = "Reading") -> Iterator[tuple[list[int], Batch]]:
        """Padded batches of similar length, longest first, with the indices of their pairs."""
        for rows in track(similar_sizes([pair.ids.size for pair in self.items], batch_size), label):
            yield rows, self._batch([self.items[row] for row in rows])

    def _batch(self, pairs: Sequence[Pair]) -> Batch:
        """Their ids, words and contrasts."""
        batch = batch_of(self.model, [pair.ids for pair in pairs])
        source, target = ([_numbers(getattr(pair, side)) for pair in pairs] for side in ("source", "target"))
        contrast = None
        if any(pair.contrast is not None for pair in pairs):
            contrast = pad([pair.contrast or [-100] for pair in pairs], -100, batch.labels)
        words = pad(source, -1, batch.input_ids), pad(target, -1, batch.labels)
        return replace(batch, contrast=contrast, source_words=words[0], target_words=words[1])


def _numbers(side: TokenWords) -> list[int]:
    """Index of each token's word, -1 for special tokens."""
    return [-1 if word is None else word for word in side.word_ids]


def encode_sources(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Text],
    splitting: Splitting = NO_SPLITTING,
    spans: Sequence[Sequence[Span]] | None = None,
) -> list[Checked]:
    """Encode and check sentences; if passed as sources, they are not checked again.

    For `splitting` see `Pairs`; for `spans`, the word positions of each sentence, see `encode_source`.
    """
    texts = as_sentences("sources", sources)
    if not texts or any(getattr(text, "model", None) is not model for text in texts):  # not `Checked` for it
        check_tokenizer(model, tokenizer)
    places = iter(spans or ())
    return _encode(
        model, "sources", texts, lambda text: encode_source(tokenizer, text, spans=next(places, None), **splitting)
    )


def check_translations(
    model: Any,
    translations: Sequence[Translation],
    names: Sequence[str] = ("sources", "targets"),
    caught: bool = False,
) -> None:
    """Raise for translations with ids outside the vocabulary, too many (unless `caught` from the model), or none."""
    for row, ids in enumerate(translations):
        for name in names:
            _check(model, name, row, ids.source_ids if name == "sources" else ids.target_ids, caught)


def encode_targets(model: Any, tokenizer: Any, targets: Any, splitting: Splitting = NO_SPLITTING) -> list[Checked]:
    """`encode_sources` for targets."""
    texts = as_sentences("targets", targets)
    return _encode(model, "targets", texts, lambda text: encode_target(tokenizer, text, **splitting))


def check_tokenizer(model: Any, tokenizer: Any) -> None:
    """Raise if a tokenizer does not match the model: it has more tokens, or another EOS."""
    size, _ = capacity(model, "source")
    if tokenizer is not None and len(tokenizer) > size:
        raise InputError("tokenizer", len(tokenizer), f"tokens, but the model has {size}", "use the model's own")
    ends = getattr(tokenizer, "eos_token_id", None), model.config.eos_token_id
    if all(isinstance(end, int) for end in ends) and ends[0] != ends[1]:
        problem = f"its sentences end with token {ends[0]}, the model's with {ends[1]}"
        raise InputError("tokenizer", None, problem, "use the model's own")


def _encode(model: Any, name: str, texts: Sequence[Any], encode: Callable[[Any], Encoded]) -> list[Checked]:
    """Encode and check one side of sentence pairs, unless that was done before."""
    found: list[Checked] = []
    for row, text in enumerate(texts):
        if getattr(text, "model", None) is not model:
            text = text if isinstance(text, Encoded) else encode(text)
            _check(model, name, row, text.ids)
        found.append(Checked(text.ids, text.token_words, model))
    return found


def _check(model: Any, name: str, row: int, ids: Sequence[int], caught: bool = False) -> None:
    """Check that the ids are in the vocabulary and fit the model, unless that was done before."""
    if not ids:
        raise InputError(name, None, "has no tokens", "leave it out", row)
    tokens = torch.tensor(ids, dtype=torch.long)
    if caught and len(ids) <= LONGEST:
        tokens = tokens[:, None]  # one by one
    check_ids(name, tokens, model, name.removesuffix("s"), row, LONGEST)
