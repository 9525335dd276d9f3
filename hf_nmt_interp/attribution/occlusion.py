"""Occlusion: how much a step's score falls when a token or a word is removed (Zeiler and Fergus 2014).

Definitions: docs/methods.md, Occlusion.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.baselines import baseline_vector
from hf_nmt_interp.attribution.gradients import embeddings
from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.attribution.scores import Scoring, make_score
from hf_nmt_interp.decoding.batch import Batch, label_log_probs, run_model
from hf_nmt_interp.errors import InputError, check_choice


class Occlusion(AttributionMethod):
    """Score of a step minus its score without a token or a word, for source and decoder input.

    All steps come from one forward pass per removed token or word.

    Args:
        model: any supported translator.
        score: the score to explain, as in `Saliency`.
        how: "mask" replaces an embedding by the baseline's vector, "delete" removes the token, and later tokens move
            up.
        unit: "token", or "word": subwords are removed together, and the score is divided evenly among them.
        baseline: for masks, "zero", "pad" (the embedding of the padding token), or the id of another token.
        max_memory: approximate limit in bytes.
    """

    name = "occlusion"
    contrasts = True

    def __init__(
        self,
        model: PreTrainedModel,
        score: str = "log_probability",
        how: str = "mask",
        unit: str = "token",
        baseline: str | int = "zero",
        max_memory: int = 2**30,
    ) -> None:
        super().__init__(model)
        check_choice("how", how, ["mask", "delete"])
        check_choice("unit", unit, ["token", "word"])
        self.score, self.deletes, self.by_word = make_score(model, score), how == "delete", unit == "word"
        self.vectors = [baseline_vector(model, stack, baseline) for stack in (self.parts.encoder, self.parts.decoder)]
        self.memory: Memory = Memory(model, self.parts, max_memory)

    @property
    def signed(self) -> bool:
        """Contributions can be negative: a step may become more likely."""
        return True

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """Decrease of every step's score in a batch."""
        logits = run_model(self.model, batch.inputs()).logits
        whole = self.score.scoring(batch)(logits)  # [B, T]
        found = []
        for side, units in enumerate(self._units(batch)):
            falls = whole.new_zeros(*whole.shape, units.shape[1])  # [B, T, L]
            for rows, gone in self._jobs(batch, units):
                fall = whole[rows] - self._scores(batch.take(rows), gone, side)  # [n, T]
                seen = gone[:, None].expand(-1, fall.shape[1], -1).to(fall)  # [n, T, L]
                seen = seen.tril() if side else seen  # the part of a word that a step has read
                falls.index_add_(0, rows, fall[..., None] * seen / seen.sum(-1, keepdim=True).clamp(min=1))
            found.append(falls)
        source, decoder = (falls * self.score.steps(batch)[..., None] for falls in found)
        return Scores.from_inputs(source, decoder, label_log_probs(logits, batch.labels))

    def _units(self, batch: Batch) -> list[Tensor]:
        """Index of each token's unit [B, L] for each side, -1 for padding."""
        lengths = batch.attention_mask != 0, batch.labels != -100
        units = [torch.arange(real.shape[1], device=real.device).where(real, -1) for real in lengths]
        if not self.by_word:
            return units
        if batch.source_words is None or batch.target_words is None:
            raise InputError("unit", "word", "needs a tokenizer's words, not only ids", "use hf_nmt_interp.attribute")
        # the decoder's first input is the start token; special tokens are separate units
        words = (
            batch.source_words,
            torch.cat([torch.full_like(batch.labels[:, :1], -1), batch.target_words[:, :-1]], 1),
        )
        return [
            torch.where((w < 0) & (u >= 0), u + w.shape[1], w).where(u >= 0, -1)
            for w, u in zip(words, units, strict=True)
        ]

    def _jobs(self, batch: Batch, units: Tensor):
        """Rows [n] of copies and the tokens [n, L] removed from each, as many as fit into one pass."""
        numbers = enumerate(units.tolist())
        jobs = [(row, units[row] == unit) for row, own in numbers for unit in sorted({*own} - {-1})]
        size = self.memory.sentences(batch)
        for first in range(0, len(jobs), size):
            rows, gone = zip(*jobs[first : first + size], strict=True)
            yield torch.tensor(rows, device=units.device), torch.stack(gone)

    def _scores(self, batch: Batch, gone: Tensor, side: int) -> Tensor:
        """[n, T] without the removed tokens [n, L] of a side (0 for the source, 1 for the decoder's input)."""
        scoring = self.score.scoring(batch)
        if self.deletes:
            return self._deleted(batch, gone, side, scoring)
        with self.masked(gone, side):
            return scoring(run_model(self.model, batch.inputs()).logits)

    def masked(self, gone: Tensor, side: int = 0) -> AbstractContextManager[None]:
        """Context of forward passes in which tokens [n, L] of a side have the baseline's vector as embedding."""
        stack = (self.parts.encoder, self.parts.decoder)[side]
        return embeddings(stack, lambda x: torch.where(gone[..., None], self.vectors[side], x))

    def _deleted(self, batch: Batch, gone: Tensor, side: int, scoring: Scoring) -> Tensor:
        """The same with tokens deleted; a step is then predicted from the rest of its input."""
        inputs = batch.inputs()
        if side == 0:
            kept = (batch.attention_mask != 0) & ~gone
            if not kept.any(-1).all():
                raise InputError("how", "delete", "leaves nothing of a source with one token", "use how='mask'")
            order = (~kept).long().argsort(dim=-1, stable=True)
            inputs |= {"input_ids": batch.input_ids.gather(1, order), "attention_mask": kept.gather(1, order).long()}
            return scoring(run_model(self.model, inputs).logits)
        order = gone.long().argsort(dim=-1, stable=True)
        logits = run_model(self.model, inputs | {"decoder_input_ids": batch.decoder_input_ids.gather(1, order)}).logits
        last = (~gone).cumsum(-1) - 1  # [n, T], new position of a step's last input token
        moved = logits.gather(1, last.clamp(min=0)[..., None].expand_as(logits))
        # the start token of the first step: without any input there is no prediction
        whole = run_model(self.model, inputs).logits if (last < 0).any() else moved
        return scoring(torch.where(last[..., None] < 0, whole, moved))
