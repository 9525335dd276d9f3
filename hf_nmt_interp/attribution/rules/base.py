"""Base class of LRP rules."""

from typing import Any, ClassVar

from torch import Tensor

from hf_nmt_interp.attribution import engine
from hf_nmt_interp.attribution.engine import Core, Steps

MAX_GAP = 1e-2  # maximum conservation gap; a larger one raises an error
FLOAT64_GAP = 1e-8  # the same for rules that need float64


class Rule(engine.Division):
    """A rule divides the relevance of a unit among the inputs of its operation.

    Most rules only define how messages are split into parts (`split`, `split_product`, `inverse`), for all operations.
    A rule that treats an operation differently overrides its method, which gets inputs and weights. Settings are the
    fields of the rule's dataclass.

    Attributes:
        signed: whether shares can be negative.
        absorbs: whether biases and similar terms keep their part, so totals are not 1. Each operation then adds the
            relevance that it keeps at each step to `absorbed` [K].
    """

    signed: ClassVar[bool] = False
    absorbs: ClassVar[bool] = False

    def needs_float64(self, norms_scale: bool) -> bool:
        """Whether scores can be wrong although totals are conserved; `norms_scale` if norms are a constant scale."""
        return False

    def max_gap(self, norms_scale: bool) -> float:
        """The largest conservation gap with which scores are correct."""
        return FLOAT64_GAP if self.needs_float64(norms_scale) else MAX_GAP

    def linear(
        self,
        relevance: Tensor,
        x: Tensor,
        z: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        steps: Steps,
        absorbed: Tensor,
    ) -> Tensor:
        """Relevance [L, K, n] of the inputs x [L, n] of a linear layer, from that of its outputs z [L, m]."""
        return engine.through_linear(self, relevance, x, weight, bias, steps)

    def norm(self, relevance: Tensor, x: Tensor, z: Tensor, norm: Any, steps: Steps, absorbed: Tensor) -> Tensor:
        """Relevance [L, K, n] of the inputs x [L, n] of a layer norm or RMS norm with outputs z [L, n]."""
        return engine.through_norm(self, relevance, x, norm, steps)

    def addition(self, relevance: Tensor, a: Tensor, b: Tensor, absorbed: Tensor) -> tuple[Tensor, Tensor]:
        """Relevance [L, K, n] of two summands a, b [L, n]."""
        return engine.through_addition(self, relevance, a, b)

    def constant(self, relevance: Tensor, to_stream: Tensor, to_constant: Tensor, absorbed: Tensor) -> Tensor:
        """Relevance [L, K, n] of the stream that a constant was added to, from the result of `addition`."""
        return engine.rescale(to_stream, relevance)

    def projection(self, x: Tensor, weight: Tensor, bias: Tensor, absorbed: Tensor) -> Tensor:
        """Relevance [K, n] of the inputs of one logit for each of K steps, which has relevance 1."""
        return engine.through_projection(self, x, weight, bias)

    def product(self, relevance: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Relevance [L, K, n] of the two factors a, b [L, n] of a product: half each."""
        return relevance / 2, relevance / 2

    def attention(
        self, relevance: Tensor, core: Core, steps: Steps, absorbed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Relevance of queries, keys and values, see `engine.through_attention`."""
        return engine.through_attention(self, relevance, core, steps)
