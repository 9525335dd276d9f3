"""ALTI+: a token contributes as much as its part is close to a layer's output (Ferrando et al. 2022).

Definitions: docs/methods.md, ALTI.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import Scores
from hf_nmt_interp.attribution.layered import LayeredMethod, head_vectors, roll_out
from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.attribution.recording import Recording
from hf_nmt_interp.decoding.batch import Batch, first_choices, label_log_probs
from hf_nmt_interp.models.families import Attention, Sublayer

_BLOCK = 2**21  # elements per tensor; the allocator returns larger ones to the system after each operation


class ALTI(LayeredMethod):
    """ALTI+ (arXiv 2205.11631): divides a total of 1 among source, prefix and start token at each step.

    The output of every attention block, with its residual and norm, is a sum of transformed vectors, one per token;
    a token contributes as much as its vector brings the sum closer to the output. The layers' contributions are
    multiplied through encoder and decoder. All steps come from one forward pass. The predicted token is not used:
    these are contributions to the decoder's state.

    Args:
        model: a Transformer whose layers are known.
        max_memory: approximate limit in bytes, see `Memory`; larger work is split.
    """

    name, title = "alti", "ALTI"
    shares_total = True

    def __init__(self, model: PreTrainedModel, max_memory: int = 2**30) -> None:
        super().__init__(model)
        self.memory: Memory = Memory(model, self.parts, max_memory)

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """Contributions of every token to every step of a batch."""
        recording = self.record(batch)
        blocks = [sub for sub in self.parts.encoder.sublayers if isinstance(sub.branch, Attention)]
        encoder = (self._contributions(recording, sub)[0] for sub in blocks)
        like = recording.logits.new_empty(*batch.labels.shape, batch.input_ids.shape[1])
        source, decoder = roll_out(
            encoder, (self._layer(recording, *layer) for layer in self.parts.decoder.layers), like
        )
        kept = batch.labels != -100
        source, decoder = source * kept[..., None], decoder * kept[..., None]
        gap = ((source.sum(-1) + decoder.sum(-1) - 1) * kept).abs().amax(-1)
        log_probs, chosen = label_log_probs(recording.logits, batch.labels), first_choices(recording.logits, batch)
        return Scores.from_inputs(source, decoder, log_probs, conservation_gap=gap, chosen=chosen)

    def _layer(
        self, recording: Recording, own: Sublayer, cross: Sublayer, _: Sublayer
    ) -> tuple[Tensor, Tensor, Tensor]:
        """C, c_src and c_r of a decoder layer, for `roll_out`; feed-forward layers do not mix tokens."""
        return self._contributions(recording, own)[0], *self._contributions(recording, cross)

    def _contributions(self, recording: Recording, sub: Sublayer) -> tuple[Tensor, Tensor]:
        """Contributions [B, P, S] of the tokens an attention reads, and [B, P, 1] of the residual stream.

        For self-attention, where both are the same tokens, the first contains both, and the second is 0.
        """
        attention: Attention = sub.branch  # type: ignore[assignment]
        first, last = attention.ends
        stream = recording.input(sub.norm if sub.norm_first else first)  # [B, P, d]
        output = stream + recording.output(last) if sub.norm_first else recording.output(sub.norm)
        is_cross = attention.kind == "cross"
        keys = recording.memory.shape[1] if is_cross else stream.shape[1]
        if not attention.heads:  # the attention is a constant: only the stream contributes
            own = stream.new_zeros(*stream.shape[:2], keys)
            return (
                (own, own.new_ones(*stream.shape[:2], 1))
                if is_cross
                else (own + torch.eye(keys, device=own.device), own[..., :1])
            )
        vectors = head_vectors(recording, attention, bias=False)  # [B, S, H, d]
        weights = recording.weights[attention.core].permute(0, 3, 2, 1)  # [B, S, P, H]
        if not sub.norm_first:
            scale = _deviation(sub.norm, recording.input(sub.norm)).reciprocal()  # [B, P, 1]
            vectors, stream = _linear(sub.norm, vectors), _linear(sub.norm, stream) * scale
            weights = weights * scale[:, None]
        one = stream.shape[0] * keys * stream.shape[-1]  # elements of one query's vectors [B, S, d]
        # beside the heads' vectors, less than three tensors of a block's vectors are alive
        fitting = (self.memory.half - vectors.nbytes) // (3 * one * stream.element_size())
        block = max(1, min(fitting, _BLOCK // one))
        found = [
            self._closer(weights[:, :, start : start + block] @ vectors, stream, output, start, is_cross)
            for start in range(0, stream.shape[1], block)
        ]
        to_keys, to_stream = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        total = to_keys.sum(-1, keepdim=True) + to_stream  # [B, P, 1]
        if is_cross:
            to_stream = to_stream.masked_fill(total == 0, 1)
        else:
            to_keys = torch.where(total == 0, torch.eye(keys, device=to_keys.device).to(to_keys), to_keys)
        total = total.masked_fill(total == 0, 1)
        return to_keys / total, to_stream / total

    @staticmethod
    def _closer(parts: Tensor, stream: Tensor, output: Tensor, start: int, is_cross: bool) -> tuple[Tensor, Tensor]:
        """max(0, |y|_1 - |y - part|_1) of some queries, for keys' parts [B, S, p, d] and the stream [B, P, d]."""
        queries = torch.arange(start, start + parts.shape[2], device=parts.device)
        own, y = stream[:, queries], output[:, queries]

        def closer(part: Tensor, y: Tensor) -> Tensor:
            rest = (y - part).abs_()  # as large as the parts, so changed in place
            return rest.neg_().add_(y.abs()).sum(-1).clamp_(min=0)

        if is_cross:
            return closer(parts, y[:, None]).transpose(1, 2), closer(own, y)[..., None]
        parts[:, queries, queries - start] += own
        found = closer(parts, y[:, None]).transpose(1, 2)
        return found, torch.zeros_like(found[..., :1])


def _deviation(norm: Any, x: Tensor) -> Tensor:
    """The divisor [..., 1] of a norm with the input x [..., d]."""
    if isinstance(norm, nn.LayerNorm):
        return (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    return (x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()


def _linear(norm: Any, vectors: Tensor) -> Tensor:
    """A norm without its division: gain times centred vectors [..., d]; an RMS norm does not centre."""
    centred = vectors - vectors.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else vectors
    return centred * norm.weight
