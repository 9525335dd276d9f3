"""Base of the methods that follow a Transformer layer by layer."""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import AttributionMethod
from hf_nmt_interp.attribution.quantised import is_quantised, weight_and_bias
from hf_nmt_interp.attribution.recording import Recording
from hf_nmt_interp.attribution.tape import Tape, widened
from hf_nmt_interp.decoding.batch import Batch
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Attention, any_parts, families_with_layers, parts


class LayeredMethod(AttributionMethod):
    """A method that needs the parts of a Transformer: linear layers and norms of known kinds, in a known order."""

    title: ClassVar[str]  # its name in messages
    dequantises: ClassVar[bool] = False  # whether it explains quantised linear layers

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        if self.parts.weighted_sums:
            problem = f"{self.title} has no rules for {type(model).__name__}, only for Transformers"
            raise InputError("model", None, problem, "use saliency or attention")
        if not self.parts.has_layers:
            parts(model)  # says what is missing
        names = {module: name for name, module in model.named_modules()}
        for module in self.parts.operations:
            has_rule = isinstance(module, (nn.Linear, nn.LayerNorm)) or hasattr(module, "variance_epsilon")
            if is_quantised(module):
                if not self.dequantises:
                    remedy = "load it without quantisation, e.g. in bfloat16, or use attention or norm_attention"
                    problem = f"{self.title} does not explain quantised layers ({names[module]})"
                    raise InputError("model", None, problem, remedy)
            elif not has_rule:
                kind = f"{type(module).__name__} ({names[module]})"
                problem = f"{self.title} has no rule for {kind}, only for Linear, LayerNorm and T5's RMS norm"
                raise InputError("model", None, problem, "merge adapters into the weights")

    @classmethod
    def fits(cls, model: PreTrainedModel) -> bool:
        """Whether the model's layers are known: those of LSTMs, convolutions and other families are not."""
        return any_parts(model).has_layers

    @classmethod
    def models(cls) -> list[str]:
        """Classes of the models whose layers are known."""
        return families_with_layers()

    def record(self, batch: Batch) -> Recording:
        """A forward pass, checked to consist of the known operations."""
        recording = Recording(self.model, self.parts, batch, self.title)
        recording.verify(batch.labels.clamp(min=0))
        return recording


def head_vectors(tape: Tape | Recording, attention: Attention, bias: bool, rows: slice = slice(None)) -> Tensor:
    """W_O^h v^h_s [B, S, H, d]: what each head adds to a query that gives all its weight to token s.

    Args:
        tape: a tape that recorded the values.
        attention: which one.
        bias: whether the bias of the value projection is part of v.
        rows: sentences of the batch.
    """
    values = widened(tape.output(attention.value)[rows, :, : attention.value.out_features])
    if not bias and (constant := weight_and_bias(attention.value)[1]) is not None:
        values = values - constant
    gate: Any = getattr(attention.output, "gate", None)  # of heads
    values = (values if gate is None else gate(values)).unflatten(-1, (-1, attention.head_size))  # [B, S, H, D]
    weight = weight_and_bias(attention.output)[0].unflatten(-1, (-1, attention.head_size))  # [d, H, D]
    return torch.einsum("bshe,dhe->bshd", values, weight)


def roll_out(
    encoder: Iterable[Tensor], decoder: Iterable[tuple[Tensor, Tensor, Tensor | float]], like: Tensor
) -> tuple[Tensor, Tensor]:
    """Contributions of single layers, multiplied up to those of source tokens and of the decoder's inputs.

    R_enc is the product of the encoder's matrices. In the decoder, R_src <- c_src R_enc + c_r C R_src and
    R_tgt <- c_r C R_tgt, from R_src = 0 and R_tgt = 1 (Ferrando et al. 2022).

    Args:
        encoder: of each layer, contributions [B, S, S] of its inputs to its outputs.
        decoder: of each layer, those C [B, T, T] of its self-attention, then c_src [B, T, S] of the encoder's states
            and c_r [B, T, 1] of the residual stream in its cross-attention.
        like: [B, T, S], a tensor with the dtype and device of the results.

    Returns:
        [B, T, S] and [B, T, T].
    """
    B, T, S = like.shape
    read = torch.eye(S, dtype=like.dtype, device=like.device).expand(B, S, S)
    for matrix in encoder:
        read = matrix @ read
    source, target = torch.zeros_like(like), torch.eye(T, dtype=like.dtype, device=like.device).expand(B, T, T)
    for own, cross, kept in decoder:
        source, target = cross @ read + kept * (own @ source), kept * (own @ target)
    return source, target
