"""How much of a batch is explained at a time, so that a method stays within a number of bytes."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.quantised import is_quantised
from hf_nmt_interp.decoding.batch import Batch
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Parts


class Memory:
    """How much fits into a number of bytes: half for the forward pass, half for what a method makes of it.

    Attributes:
        half: bytes of each half.
        widest: units of the widest linear layer, except the output projection.
        size: bytes of a number; half precision is computed with in float32.
    """

    def __init__(self, model: PreTrainedModel, parts: Parts, limit: int) -> None:
        if limit < 1:
            raise InputError("max_memory", limit, "bytes must be more than 0", "the default is 2**30")
        found: list[Any] = [m for m in model.modules() if isinstance(m, nn.Linear) or is_quantised(m)]
        linears = [m.out_features for m in found if m is not parts.projection]
        if not linears:
            raise InputError("model", None, "it has no nn.Linear layers; it may be quantised", "load it in float32")
        linears += [8 * m.hidden_size for m in model.modules() if isinstance(m, nn.LSTM)]  # gates and their results
        self.half, self.size = limit // 2, max(4, next(model.parameters()).element_size())
        self.kept, self.widest, self.vocabulary = sum(linears), max(linears), parts.projection.out_features
        self.heads = sum(len(a.heads) for a in parts.all_attentions) if parts.has_layers else 0

    def sentences(self, batch: Batch) -> int:
        """How many fit into one forward pass: activations, attention weights, four arrays as large as the logits."""
        S, T = batch.input_ids.shape[1], batch.labels.shape[1]
        one = 2 * self.kept * (T + S) + 2 * self.heads * max(S, T) ** 2 + 4 * self.vocabulary * T
        return max(1, self.half // self.size // one)

    def parts(self, batch: Batch) -> list[Batch]:
        """The batch, in parts of as many sentences as fit into one forward pass."""
        size = self.sentences(batch)
        return [batch.take(slice(b, b + size)) for b in range(0, len(batch.labels), size)]

    @property
    def rows(self) -> int:
        """How many gradients, of a token for a step, fit into one backward pass."""
        return max(1, self.half // self.size // (8 * self.widest))
