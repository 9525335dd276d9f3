"""Word alignment while `generate()` runs.

Attention weights are available when a token is generated, so an alignment head, `attention` and `shifted_attention`
align step by step. All other methods need the whole sentence and are computed when `generate()` returns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel

from hf_nmt_interp.analysis.alignment import WordAlignment, extract_links, make_aligner, normalise, word_scores
from hf_nmt_interp.attribution.alignment_head import AlignmentHeadMethod
from hf_nmt_interp.attribution.api import explain
from hf_nmt_interp.attribution.base import AttributionMethod
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.decoding.batch import Translation
from hf_nmt_interp.decoding.generation import record_generation
from hf_nmt_interp.decoding.pairs import SHOWN, Pairs
from hf_nmt_interp.text.pharaoh import Links
from hf_nmt_interp.text.tokens import TokenWords, words_of


@dataclass(frozen=True)
class AlignedToken:
    """A target token and its source word.

    Attributes:
        sequence: index among all returned sequences, in the order of the calls and of their outputs.
        step: index of the token in its sequence, from 0.
        token: the subword.
        source: index of the source word, None if no source word has a positive score.
        word: the source word, "" if there is none.
        score: p(source word | token).
        final: False for the newest token of the hypothesis that leads a beam search, which may still lose.
    """

    sequence: int
    step: int
    token: str
    source: int | None
    word: str
    score: float
    final: bool


@contextmanager
def align_generation(
    model: PreTrainedModel,
    tokenizer: Any = None,
    callback: Callable[[AlignedToken], Any] | None = None,
    method: str | None = None,
    **settings,
) -> Iterator["AlignedGeneration"]:
    """Context that aligns the output of any `model.generate()` call inside, while it is generated.

    Greedy search and sampling: the callback gets each token, with `final=True`, as soon as the next forward pass
    is done. Beam search: at each step the newest token of the leading hypothesis, with `final=False`, and at the end
    all tokens of the sequences that are returned, with `final=True`. Special tokens are left out. With methods other
    than `alignment_head`, `attention` and `shifted_attention`, the callback is only called at the end.

    Args:
        model: any supported translator, whose `generate()` is called inside; not a name.
        tokenizer: its tokenizer.
        callback: called with each `AlignedToken`.
        method: name of an attribution method; None for the alignment head, or `attention` if the model has none.
        settings: settings of the method, e.g. `layer`, `head`, `shifted`.

    Yields:
        An object whose `links` and `alignments` have one entry per returned sequence, equal to `align` of its ids.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> with hni.align_generation(model, tokenizer) as aligned:
    ...     ids = model.generate(**tokenizer("I like tea.", return_tensors="pt"))
    >>> sorted(aligned.links[0])
    [(0, 0), (1, 1), (2, 2), (3, 3)]
    """
    if method is None:
        method = AlignmentHeadMethod.name if AlignmentHeadMethod.fits(model) and not settings else "attention"
    aligned = AlignedGeneration(make_aligner(model, method, **settings), tokenizer, callback)
    with aligned.tape, record_generation(model, aligned):
        yield aligned


class AlignedGeneration(LogitsProcessor):
    """Alignments of the sequences that `generate()` has returned so far; it does not change the logits.

    The weights of each decoded prefix are stored by its tokens, so the order of beams does not matter.
    """

    def __init__(
        self, explainer: AttributionMethod, tokenizer: Any, callback: Callable[[AlignedToken], Any] | None
    ) -> None:
        self.alignments: list[WordAlignment] = []
        self._explainer, self._tokenizer, self._callback = explainer, tokenizer, callback
        attention: Any = explainer if explainer.aligns_online and explainer.parts.cross else None
        self._attention = attention
        # a token's scores depend on the tokens before it, and possibly on itself
        self._shift = 1 if attention and not attention.shifted else 2
        self.tape = Tape([module for cross in attention.cross for module in cross.recorded] if attention else [])

    @property
    def links(self) -> list[Links]:
        """Links (source word, target word) of each returned sequence."""
        return [alignment.links for alignment in self.alignments]

    def start(self, sources: list[list[int]], setting: Callable[[str], set[int]]) -> list[LogitsProcessor]:
        """Called when `generate()` starts."""
        self._sources = [words_of(self._tokenizer, ids, **SHOWN) for ids in sources]
        self._stops = setting("eos_token_id")
        self._beams, self._returned = (max(setting(n), default=1) for n in ("num_beams", "num_return_sequences"))
        self._kept: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}  # (sentence, prefix) -> [S]
        self._emitted: dict[int, int] = {}  # sequence -> number of tokens that were final
        return [self] if self._attention else []

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Store the weights of the decoded prefixes [B * beams, n] of a step, and call back for the newest token."""
        each = len(input_ids) // len(self._sources)  # beams or samples of a sentence
        all_weights = self._weights([len(source.tokens) for source in self._sources for _ in range(each)])
        for row, (ids, weights) in enumerate(zip(input_ids.tolist(), all_weights, strict=True)):
            if self._stops.intersection(ids[1:]):
                continue  # ended earlier, padding follows
            sentence, new = row // each, len(ids) - 1
            for back in range(len(weights)):  # one position; more for a prompt and without a cache
                self._kept.setdefault((sentence, tuple(ids[: len(ids) - back])), weights[-1 - back])
            if self._beams == 1:
                sequence = len(self.alignments) + row
                self._emit(sequence, sentence, ids, range(self._emitted.get(sequence, 0), new), final=True)
                self._emitted[sequence] = new
            elif row % each == 0 and new:
                sequence = len(self.alignments) + sentence * self._returned
                self._emit(sequence, sentence, ids, range(new - 1, new), final=False)
        return scores

    def end(self, translations: list[Translation]) -> None:
        """Called when `generate()` has returned."""
        pairs = Pairs.caught(self._explainer.model, self._tokenizer, translations, splitting=SHOWN)
        ids = [[pair.ids.start_id or 0, *pair.ids.target_ids] for pair in pairs]
        self._complete(pairs, ids)
        for n, pair in enumerate(pairs):
            sequence, steps = len(self.alignments), range(len(pair.target.tokens))
            self._emit(sequence, n // self._returned, ids[n], steps[self._emitted.get(sequence, 0) :], final=True)
            rows = [self._scores(n // self._returned, ids[n], step) for step in steps]
            nothing = np.zeros(len(pair.source.tokens), np.float32)  # of a special token that was never decoded
            scores = word_scores(np.stack([nothing if row is None else row for row in rows]), pair.source, pair.target)
            words = pair.source.words, pair.target.words, pair.target.text
            self.alignments.append(WordAlignment(*words, scores, extract_links(scores)))
        self._kept.clear()

    def _complete(self, pairs: Pairs, ids: list[list[int]]) -> None:
        """Explain sequences with missing scores: those of other methods, or with a last token without EOS."""

        def known(n: int, step: int) -> bool:
            return self._scores(n // self._returned, ids[n], step) is not None

        sides = [pair.target.special for pair in pairs]
        late = [n for n, side in enumerate(sides) if not all(x or known(n, step) for step, x in enumerate(side))]
        for n, result in zip(late, explain(self._explainer, pairs.pick(late)), strict=True):
            for step, row in enumerate(result.source):
                self._kept[n // self._returned, tuple(ids[n][: self._shift + step])] = row

    def _weights(self, lengths: list[int]) -> list[np.ndarray]:
        """[positions, S] of the last forward pass, for each row."""
        mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).to(self._attention.model.device)
        weights = self._attention.weights(self.tape, self._attention.cross, mask).float().cpu().numpy()
        return [row[:, :length] for row, length in zip(weights, lengths, strict=True)]

    def _scores(self, sentence: int, ids: list[int], step: int) -> np.ndarray | None:
        """[S] of the token generated at a step; ids begin with the start token."""
        return self._kept.get((sentence, tuple(ids[: self._shift + step])))

    def _emit(self, sequence: int, sentence: int, ids: list[int], steps: range, final: bool) -> None:
        source = self._sources[sentence]
        for step in steps:
            side = words_of(self._tokenizer, [ids[step + 1]], is_target=True)
            scores = self._scores(sentence, ids, step)
            if self._callback is None or side.special[0] or scores is None:
                continue
            one = TokenWords(side.tokens, side.tokens, [0], [False])
            p = normalise(word_scores(scores[None], source, one))[0]
            best = int(p.argmax()) if p.any() else None
            word, score = ("", 0.0) if best is None else (source.words[best], float(p[best]))
            self._callback(AlignedToken(sequence, step, side.tokens[0], best, word, score, final))
