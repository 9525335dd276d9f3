"""Hard Concrete gates (Louizos et al. 2018) that switch attention heads off (Voita et al. 2019, section 6).

Definitions: docs/methods.md of hf_nmt_interp, Gated heads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MIDPOINTS = 1000  # for the integral in `HardConcreteGate.expectation`; error below 1e-6 with the default stretch


class HardConcreteGate(nn.Module):
    """One random gate in [0, 1] per head, with mass on exactly 0 and exactly 1.

    s = sigmoid((logit(u) + log_alpha) / temperature) with u uniform, g = clip(low + (high - low) s, 0, 1), hence
    P(low + (high - low) s > t) = sigmoid(log_alpha - temperature log((t - low) / (high - t))), from which
    everything below follows. Parameters and draws are float32 for any model dtype.

    Args:
        heads: number of gates.
        temperature: temperature of the Concrete distribution.
        stretch: (low, high), low < 0 and high > 1.
        init: initial value of `log_alpha`.

    >>> gate = HardConcreteGate(4)
    >>> [round(p[0].item(), 3) for p in (gate.p_zero(), gate.p_one(), gate.expectation())]
    [0.022, 0.901, 0.949]
    """

    def __init__(self, heads: int, temperature: float = 0.33, stretch=(-0.1, 1.1), init: float = 3.0):
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature={temperature} of a Hard Concrete gate must be positive, e.g. 0.33")
        if len(stretch) != 2 or stretch[0] >= 0 or stretch[1] <= 1:
            raise ValueError(f"stretch={stretch} of a Hard Concrete gate must be (low < 0, high > 1): (-0.1, 1.1)")
        self.temperature, self.init = temperature, init
        self.low, self.high = stretch
        self.log_alpha = nn.Parameter(torch.full((heads,), init, dtype=torch.float32))

    def _logit_above(self, t: float, log_alpha: Tensor | None = None) -> Tensor:
        """Logit of the probability that the stretched variable exceeds t, before clipping."""
        log_alpha = self.log_alpha if log_alpha is None else log_alpha
        return log_alpha.float() - self.temperature * math.log((t - self.low) / (self.high - t))

    def sample(self) -> Tensor:
        """One draw per head [H], differentiable in `log_alpha` where it is strictly between 0 and 1."""
        noise = torch.rand(self.log_alpha.shape, device=self.log_alpha.device).logit(eps=1e-6)
        concrete = torch.sigmoid((noise + self.log_alpha.float()) / self.temperature)
        return (self.low + (self.high - self.low) * concrete).clamp(0, 1)

    def test_value(self) -> Tensor:
        """0 or 1 per head [H], whichever of P(g = 0), P(g = 1) is larger."""
        return (self._logit_above(1) >= -self._logit_above(0)).float()

    def p_zero(self) -> Tensor:
        """P(g = 0) of each head [H]."""
        return torch.sigmoid(-self._logit_above(0))

    def p_one(self) -> Tensor:
        """P(g = 1) of each head [H]."""
        return torch.sigmoid(self._logit_above(1))

    def penalty(self, log_alpha: Tensor | None = None) -> Tensor:
        """Expected number of open heads, L_C = sum(1 - P(g = 0)); `log_alpha` defaults to that of the gate."""
        return torch.sigmoid(self._logit_above(0, log_alpha)).sum()

    def expectation(self) -> Tensor:
        """E[g] of each head [H], the integral of P(g > t) over [0, 1] by the midpoint rule (no closed form exists)."""
        t = (torch.arange(MIDPOINTS, dtype=torch.float64, device=self.log_alpha.device) + 0.5) / MIDPOINTS
        shift = self.temperature * torch.log((t - self.low) / (self.high - t))
        return torch.sigmoid(self.log_alpha[:, None] - shift).mean(-1).float()  # [H, MIDPOINTS] -> [H]

    def forward(self, heads: Tensor) -> Tensor:
        """Concat(g_i head_i), from [..., H * head_size]: one draw for all tokens in training, else the test value."""
        gate = (self.sample() if self.training else self.test_value()).to(heads.dtype)
        return heads * gate.repeat_interleave(heads.shape[-1] // len(gate))  # [H] -> [H * head_size]


class GatedLinear(nn.Linear):
    """An attention's output projection with a gate before it, which works with every attention implementation."""

    gate: HardConcreteGate

    def forward(self, input: Tensor) -> Tensor:
        """Concat(g_i head_i) W_o; in training as Concat(head_i) (g W_o): W_o is smaller than a batch of tokens."""
        if not self.training:
            return F.linear(self.gate(input), self.weight, self.bias)
        return F.linear(input, self.gate(self.weight), self.bias)  # [d, H * head_size], one draw for all rows
