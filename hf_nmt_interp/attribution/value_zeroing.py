"""Value zeroing: how far a layer's outputs move without one token's value vector (Mohebbi et al. 2023).

Definitions: docs/methods.md, Value zeroing.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import Scores
from hf_nmt_interp.attribution.layered import LayeredMethod, head_vectors, roll_out
from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.attribution.recording import Recording
from hf_nmt_interp.attribution.threads import side_by_side, thread_count, workers
from hf_nmt_interp.decoding.batch import Batch, first_choices, label_log_probs
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Attention, FeedForward, Sublayer

_ROWS = 1024  # changed states at a time: enough for fast products, few enough for caches


class ValueZeroing(LayeredMethod):
    """1 - cos between a layer's output for token i and the same output without the value vector of token j.

    Rows are divided by their sum; in a decoder layer, the sum is over the tokens of self-attention and cross-attention
    together. The layers are then multiplied. The residual stream has no separate part, so the source share says
    little. One forward pass is recorded; only the parts that a zeroed vector changes are recomputed.

    Args:
        model: a Transformer whose layers are known.
        max_memory: approximate limit in bytes, see `Memory`; larger work is split.
    """

    name, title, dequantises = "value_zeroing", "value zeroing", True

    def __init__(self, model: PreTrainedModel, max_memory: int = 2**30) -> None:
        super().__init__(model)
        self.memory: Memory = Memory(model, self.parts, max_memory)
        if model.dtype not in (torch.float32, torch.float64):
            problem = f"{self.title} needs float32 or float64, not {model.dtype}"
            raise InputError(
                "model", None, problem, "convert it with model.float(), or load it without dtype (--dtype)"
            )

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """Contributions of every token to every step of a batch."""
        recording = self.record(batch)
        source = recording.logits.new_zeros(*batch.labels.shape, batch.input_ids.shape[1])
        decoder = recording.logits.new_zeros(*batch.labels.shape, batch.labels.shape[1])

        def one(b: int) -> None:
            sentence = _Sentence(self, recording, b, limit)
            T, S = sentence.T, sentence.S
            source[b, :T, :S], decoder[b, :T, :T] = sentence.contributions()

        with workers(self.model.device):
            limit = self.memory.half // min(thread_count(), len(batch.labels))
            side_by_side(one, range(len(batch.labels)))
        log_probs, chosen = label_log_probs(recording.logits, batch.labels), first_choices(recording.logits, batch)
        return Scores.from_inputs(source, decoder, log_probs, chosen=chosen)


class _Sentence:
    """One sentence pair of a recorded batch, without padding, and the bytes for its changed states."""

    def __init__(self, method: ValueZeroing, recording: Recording, b: int, limit: int) -> None:
        self.method, self.recording, self.b, self.limit = method, recording, b, limit
        self.S, self.T = (lengths[b] for lengths in (recording.batch.source_lengths, recording.batch.target_lengths))

    def contributions(self) -> tuple[Tensor, Tensor]:
        """[T, S] of the source tokens and [T, T] of the decoder's inputs."""
        parts = self.method.parts
        encoder = [_normalised(self._distances(layer, 0))[None] for layer in parts.encoder.layers]
        decoder = []
        for layer in parts.decoder.layers:
            both = _normalised(torch.cat([self._distances(layer, 0), self._distances(layer, 1)], 1))
            decoder.append((both[None, :, : self.T], both[None, :, self.T :], 1.0))
        source, target = roll_out(encoder, decoder, decoder[0][1])
        return source[0], target[0]

    def _distances(self, layer: Sequence[Sublayer], place: int) -> Tensor:
        """1 - cos [P, S] for every token that the attention at a place of a layer reads."""
        sub, rest = layer[place], layer[place + 1 :]
        attention: Attention = sub.branch  # type: ignore[assignment]
        P, S = self.S if attention.kind == "encoder" else self.T, self.T if attention.kind == "decoder" else self.S
        first, last = attention.ends
        stream = self.recording.input(sub.norm if sub.norm_first else first)[self.b, :P]
        if not attention.heads:
            return stream.new_zeros(P, S)
        stream = stream + self.recording.output(last)[self.b, :P]
        weights = self.recording.weights[attention.core][self.b, :, :P, :S]  # [H, P, S]
        vectors = head_vectors(self.recording, attention, True, slice(self.b, self.b + 1))[0, :S]  # [S, H, d]
        clean = self._finish(stream, sub, rest)
        at = torch.arange(P * S, device=stream.device)
        causal = attention.kind == "decoder"
        query, key = torch.tril_indices(P, S, device=stream.device) if causal else (at // S, at % S)
        found = stream.new_zeros(P, S)
        # about four states of the widest layer are alive, or the vectors of all heads and a copy of them
        one = max(4 * self.method.memory.widest, 2 * vectors[0].numel()) * stream.element_size()
        rows = max(1, min(_ROWS, (self.limit - vectors.nbytes) // one))
        for i, j in zip(query.split(rows), key.split(rows), strict=True):
            zeroed = stream[i] - torch.einsum("hn,nhd->nd", weights[:, i, j], vectors[j])
            found[i, j] = (self._finish(zeroed, sub, rest) - clean[i]).pow(2).sum(-1) / 2  # 1 - cos of unit vectors
        rounding = (64 * torch.finfo(found.dtype).eps) ** 2  # a vector that changes nothing, e.g. of a closed head
        return found.masked_fill(found < rounding, 0)

    def _finish(self, x: Tensor, sub: Sublayer, rest: Sequence[Sublayer]) -> Tensor:
        """Rows of the stream [n, d] after a residual addition, at the end of the layer, as unit vectors."""
        x = x if sub.norm_first else sub.norm(x)
        for later in rest:
            branch: Any = self._feed_forward if isinstance(later.branch, FeedForward) else self._cross
            x = x + branch(later.norm(x) if later.norm_first else x, later.branch)
            x = x if later.norm_first else later.norm(x)
        return F.normalize(x, dim=-1)

    def _feed_forward(self, x: Tensor, ffn: FeedForward) -> Tensor:
        hidden = ffn.activation(ffn.inner(x))
        return ffn.outer(hidden if ffn.gate is None else hidden * ffn.gate(x))

    def _cross(self, x: Tensor, attention: Attention) -> Tensor:
        """Cross-attention of other queries [n, d] to the same source."""
        memory = self.recording.memory[self.b, : self.S]
        if attention.calibrated or not attention.heads:  # mask networks read the stream; a constant reads nothing
            return attention.core(x[None], key_value_states=memory[None])[0][0]

        def heads(x: Tensor) -> Tensor:  # [L, H * D] -> [H, L, D]
            return x.unflatten(-1, (-1, attention.head_size)).transpose(0, 1)

        k, v = (heads(self.recording.output(module)[self.b, : self.S]) for module in (attention.key, attention.value))
        weights = (attention.scale * heads(attention.query(x)) @ k.transpose(-1, -2)).softmax(-1)
        return attention.output((weights @ v).transpose(0, 1).flatten(-2))


def _normalised(distances: Tensor) -> Tensor:
    """Rows [P, S] divided by their sum; a row of zeros stays with its own token, which is among the first P."""
    total = distances.sum(-1, keepdim=True)
    own = torch.eye(*distances.shape, dtype=distances.dtype, device=distances.device)
    return torch.where(total == 0, own, distances / total.masked_fill(total == 0, 1))
