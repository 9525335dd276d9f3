"""Links that teach an alignment head: from the translator itself, or from a file (Chen et al. 2020).

With a translator for the other direction, both align the same words and the links they agree on are used; without one,
a link must be the best for both of its words. Links of words become links of all their subwords.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np
from transformers import AutoModelForSeq2SeqLM

from hf_nmt_interp.analysis.alignment import combined_scores, joint_links, make_aligners, own_aligner, token_scores
from hf_nmt_interp.analysis.links import check_extraction, extract_links, word_scores
from hf_nmt_interp.analysis.symmetrization import symmetrize
from hf_nmt_interp.attribution.attention import AttentionWeights
from hf_nmt_interp.attribution.base import AttributionMethod
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.decoding.languages import set_languages
from hf_nmt_interp.decoding.pairs import SHOWN, Pair, Pairs
from hf_nmt_interp.decoding.precision import NarrowProducts
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import any_parts, positions
from hf_nmt_interp.models.loading import load_config, load_model, load_tokenizer
from hf_nmt_interp.text.corpus import Example
from hf_nmt_interp.text.pharaoh import Links, read_links
from hf_nmt_interp.text.tokens import words_of
from hf_nmt_interp.training.arguments import open_split
from hf_nmt_interp.training.data import encode_examples

CHOSEN_ON = 300  # pairs used to choose the attention
_CHUNK = 5000  # examples aligned at a time


class Teacher(Protocol):
    """Returns the links (source token, target token) of examples, in order."""

    def __call__(self, examples: Sequence[Example]) -> list[Links]: ...


@dataclass
class OwnLinks:
    """Links of a translator, with those of the other direction if there is one.

    Args:
        translator: a model and its tokenizer.
        reverse: those of the other direction, or None.
        method: how the translator aligns, see `align`; None for its alignment head, if it has one, or its best
            attention.
        reverse_method: the same for the other direction.
        extraction: how links are extracted without the other direction, see `extract_links`.
        heuristic: how both directions are combined, see `joint_links`.
        least: see `joint_links`.
        batch_size: pairs aligned at a time.
    """

    translator: tuple[Any, Any]
    reverse: tuple[Any, Any] | None = None
    method: str | None = None
    reverse_method: str | None = None
    extraction: str = "mutual"
    heuristic: str = "grow-diag"
    least: float = 0.2
    batch_size: int = 64
    _aligners: dict[int, list[AttributionMethod]] = field(default_factory=dict)

    def __call__(self, examples: Sequence[Example]) -> list[Links]:
        """Links of tokens."""
        model, tokenizer = self.translator
        ids = [Translation(example["input_ids"], example["labels"]) for example in examples]
        pairs = Pairs.caught(model, tokenizer, ids, splitting=SHOWN)
        full = [n for n, pair in enumerate(pairs) if pair.source.words and pair.target.words]
        found: list[Links] = [set() for _ in pairs]
        for n, links in zip(full, self.word_links(pairs.pick(full)), strict=True):
            found[n] = token_links(links, pairs[n])
        return found

    def word_links(self, pairs: Pairs) -> list[Links]:
        """Links of words."""
        ours = self._scores(0, self.method, pairs)
        if self.reverse is None:
            return [extract_links(scores, self.extraction) for scores in ours]
        theirs = self._scores(1, self.reverse_method, self._turned(pairs))
        return [joint_links(a, b, self.heuristic, least=self.least) for a, b in zip(ours, theirs, strict=True)]

    def _turned(self, pairs: Pairs) -> Pairs:
        """The same words for the other translator: as text, unless it would split the text into other words."""
        assert self.reverse is not None  # word_links asks
        sides = [pair.target for pair in pairs], [pair.source for pair in pairs]
        sources, targets = ([side.text for side in some] for some in sides)
        turned = Pairs.force(*self.reverse, sources, targets, SHOWN)
        words = [(one.words, other.words) for one, other in zip(*sides, strict=True)]
        other = [n for n, pair in enumerate(turned) if (pair.source.words, pair.target.words) != words[n]]
        kept = Pairs.force(*self.reverse, [words[n][0] for n in other], [words[n][1] for n in other])
        items = dict(enumerate(turned)) | dict(zip(other, kept, strict=True))
        return Pairs(turned.model, [items[n] for n in range(len(pairs))])

    def layer_read(self, examples: Iterable[Example]) -> int | None:
        """The layer whose states the translator's attention reads; None for other methods.

        Also None if the attention aligns the token that a step predicts: a head aligns the one that it reads.
        """
        model, tokenizer = self.translator
        ids = [Translation(example["input_ids"], example["labels"]) for example in islice(examples, CHOSEN_ON)]
        if not ids:
            return None
        aligner = self._methods(0, self.method, Pairs.caught(model, tokenizer, ids, splitting=SHOWN))[0]
        if not isinstance(aligner, AttentionWeights) or not aligner.shifted or not isinstance(aligner.layer, int):
            return None
        layer = aligner.layer % len(any_parts(model).cross) - 1
        return layer if layer >= 0 else None

    def _methods(self, side: int, method: str | None, pairs: Pairs) -> list[AttributionMethod]:
        """How a side aligns; its own attention is chosen on the first pairs."""
        if side not in self._aligners:
            known = make_aligners(pairs.model, method) if method else [own_aligner(pairs.model, pairs[:CHOSEN_ON])]
            self._aligners[side] = known
        return self._aligners[side]

    def _scores(self, side: int, method: str | None, pairs: Pairs) -> list[np.ndarray]:
        """Scores of words [target, source] of each pair."""
        if not pairs:
            return []
        each = token_scores(self._methods(side, method, pairs), pairs, self.batch_size)
        return [
            combined_scores([word_scores(one, pair.source, pair.target) for one in scores])
            for pair, scores in zip(pairs, each, strict=True)
        ]


@dataclass
class GivenLinks:
    """Links of space-separated words, e.g. from a Pharaoh file, one set per example.

    Args:
        tokenizer: tokenizer of the translator.
        links: links of each example, in order.
    """

    tokenizer: Any
    links: Iterator[Links]
    _row: int = 0

    def __call__(self, examples: Sequence[Example]) -> list[Links]:
        """Links of tokens; each call continues where the last one ended."""
        found: list[Links] = []
        for example, links in zip(examples, islice(self.links, len(examples)), strict=False):
            ids = Translation(example["input_ids"], example["labels"])
            source, target = (words_of(self.tokenizer, *side, words="spaces") for side in _sides(ids))
            pair = Pair(ids, source, target)
            sizes = len(pair.source.words), len(pair.target.words)
            if outside := [link for link in links if link[0] >= sizes[0] or link[1] >= sizes[1]]:
                problem = f"has link {outside[0][0]}-{outside[0][1]}, but its words are {sizes[0]} and {sizes[1]}"
                raise InputError(
                    "links", None, problem, "words are separated by spaces and counted from 0", self._row + len(found)
                )
            found.append(token_links(links, pair))
        self._row += len(found)
        if len(found) < len(examples):
            raise InputError("links", self._row, "lines, but there are more pairs", "give one line per pair")
        return found


def _sides(ids: Translation) -> tuple[tuple[list[int], bool], tuple[list[int], bool]]:
    """Ids of each side, and whether it is the target."""
    return (ids.source_ids, False), (ids.target_ids, True)


def token_links(links: Links, pair: Pair) -> Links:
    """Links between all tokens of linked words.

    Links are (source position, target position), for tokens as for words.
    """
    source, target = pair.source.positions, pair.target.positions
    return {(s, t) for i, j in links for s in source[i] for t in target[j]}


def teach(teacher: Teacher, examples: Iterator[Example], bf16_products: bool = False) -> Iterator[Example]:
    """Examples with `links` of tokens, flattened: source, target, source, target, ...

    With `bf16_products` the teacher multiplies in bfloat16, too.
    """
    examples = iter(examples)
    while chunk := list(islice(examples, _CHUNK)):
        with NarrowProducts() if bf16_products else nullcontext():  # not while the caller has the examples
            found = teacher(chunk)
        for example, links in zip(chunk, found, strict=True):
            yield with_links(example, links)


def with_links(example: Example, links: Links) -> Example:
    """An example with its links.

    >>> with_links({"input_ids": [5, 0], "labels": [7, 0]}, {(1, 0), (0, 0)})["links"]
    [0, 0, 1, 0]
    """
    return example | {"links": [position for link in sorted(links) for position in link]}


def make_teacher(arguments: Any, data: Any, config: Any, model: Any, tokenizer: Any) -> tuple[Teacher, Any]:
    """The teacher for the arguments of `train_alignment.py`, and the reverse model, if there is one."""
    reverse = None
    room = min(filter(None, map(positions, (model.get_encoder(), model.get_decoder()))), default=10**9)
    encode = partial(encode_examples, tokenizer, max_length=min(arguments.max_length, room))
    if arguments.reverse_model is not None:
        other = load_model(AutoModelForSeq2SeqLM, arguments.reverse_model, "--reverse_model")
        reverse = other.to(config.device), load_tokenizer(arguments.reverse_model, "--reverse_model")
        set_languages(*reverse, *reversed(data.codes))
        if config.agreement and reverse[1].get_vocab() != tokenizer.get_vocab():
            raise InputError("--agreement", config.agreement, "needs a reverse model with the same vocabulary")
    if arguments.links is not None:
        if arguments.teacher or data.streaming:
            name = "--teacher" if arguments.teacher else "--streaming"
            raise InputError(name, None, "cannot be combined with --links", "leave one out")
        both = zip(open_split(data, "train"), read_links(arguments.links), strict=False)
        kept = (links for pair, links in both if any(encode([pair])))  # because training drops pairs
        return GivenLinks(tokenizer, kept), reverse and reverse[0]
    check_extraction(arguments.extraction)
    symmetrize(set(), set(), arguments.heuristic)  # wrong names are reported early
    is_new = hasattr(model, "alignment_head") and not hasattr(load_config(arguments.model), "alignment_heads")
    translator = (model.without_head() if is_new else model).to(config.device)  # a new head cannot teach
    how = {name: getattr(arguments, name) for name in ("extraction", "heuristic", "least")}
    methods = arguments.teacher, arguments.reverse_teacher
    teacher = OwnLinks((translator, tokenizer), reverse, *methods, **how)
    if is_new and arguments.alignment_layer is None:
        with config.main_process_first(desc="layer"):  # the others read its choice
            layer = teacher.layer_read(encode(open_split(data, "train")))
        if layer is not None:
            model.read_layer(layer)
    return teacher, reverse and reverse[0]
