"""AttnLRP, CP-LRP and the gamma rule, slow and literal: what biases, epsilon and expansions keep is given to nobody.

Achtibat et al. 2024: linear operations by the epsilon rule with the bias as one more message, products of matrices by
half of each factor's epsilon share, the softmax by its expansion at x, activations unchanged. A norm is a
linear layer once its scale is a constant. CP-LRP (Ali et al. 2022) takes attention weights as constants. The gamma
rule counts messages with the sign of their unit's sum 1 + gamma times, in linear layers.
"""

import torch
from torch import Tensor

from tests.reference.forward import Operation


class AbsorbingRule:
    """Shares of the messages to a unit; nothing is given back."""

    def __init__(self, eps: float, gamma: float = 0.0):
        self.eps, self.gamma = eps, gamma

    def stabilised(self, total: Tensor) -> Tensor:
        """total + eps sign(total), with sign(0) = 1."""
        return torch.where(total >= 0, total + self.eps, total - self.eps)

    def shares(self, z: Tensor, gamma: float = 0.0) -> Tensor:
        """z'_ij / (sum_i z'_ij + eps sign), z' = z + gamma max(z, 0) if sum_i z_ij >= 0, else z + gamma min(z, 0).

        Args:
            z: messages [inputs, units].
            gamma: 0 is the epsilon rule.
        """
        favoured = torch.where(z.sum(0) >= 0, z.clamp(min=0), z.clamp(max=0))
        counted = z + gamma * favoured
        return counted / self.stabilised(counted.sum(0))

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor, relevance: Tensor, gamma: float = 0.0) -> Tensor:
        """Relevance of the inputs x [n] of one token; the bias has the last message, and what it gets is lost."""
        z = torch.cat([weight.T * x[:, None], bias[None]])  # [n + 1, m]
        return (self.shares(z, gamma) @ relevance)[:-1]


def softmax_relevance(x: Tensor, w: Tensor, relevance: Tensor) -> Tensor:
    """R_i = x_i (R_i - w_i sum_j R_j) for scores x and weights w of one query; a score of -inf contributes nothing."""
    found = torch.zeros_like(x)
    for i in range(len(x)):
        if x[i] > -torch.inf:
            found[i] = x[i] * (relevance[i] - w[i] * relevance.sum())
    return found


def head_relevance(
    rule: AbsorbingRule, relevance: Tensor, q: Tensor, k: Tensor, v: Tensor, w: Tensor, x: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Relevance of q [P, e], k [S, e], v [S, d] of one head, from that of its outputs [P, d].

    out[t, d] = sum_s w[t, s] v[s, d], half to the weights and half to the values; then the softmax; then
    x[t, s] = sum_e scale q[t, e] k[s, e] + position bias, of which the bias keeps its part, half to either factor.
    """
    to_q, to_k, to_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for t in range(len(q)):
        to_w = torch.zeros(len(k), dtype=q.dtype)
        for d in range(v.shape[1]):
            out = (w[t] * v[:, d]).sum()
            for s in range(len(k)):
                half = w[t, s] * v[s, d] / rule.stabilised(2 * out) * relevance[t, d]
                to_w[s] += half
                to_v[s, d] += half
        to_x = softmax_relevance(x[t], w[t], to_w)
        for s in range(len(k)):
            for e in range(q.shape[1] if x[t, s] > -torch.inf else 0):
                half = scale * q[t, e] * k[s, e] / rule.stabilised(2 * x[t, s]) * to_x[s]
                to_q[t, e] += half
                to_k[s, e] += half
    return to_q, to_k, to_v


def values_relevance(rule: AbsorbingRule, relevance: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Relevance of v [S, d] of one head whose weights are constants."""
    to_v = torch.zeros_like(v)
    for t in range(len(w)):
        for d in range(v.shape[1]):
            to_v[:, d] += rule.shares((w[t] * v[:, d])[:, None])[:, 0] * relevance[t, d]
    return to_v


def carry_back(operation: Operation, rule: AbsorbingRule, values_only: bool, norm: str) -> None:
    """Divide the relevance of an operation's output among its inputs."""
    kind, inputs, constants = operation.kind, operation.inputs, operation.constants
    relevance = operation.output.relevance
    if kind == "unchanged" or (kind in ("layer_norm", "rms_norm") and norm == "scale"):
        inputs[0].relevance += relevance
    elif kind == "product":
        for factor in inputs:
            factor.relevance += relevance / 2
    elif kind == "attention":
        _carry_back_attention(operation, rule, values_only)
    elif kind == "add":
        for t in range(len(relevance)):
            passed = rule.shares(torch.stack([summand.x[t] for summand in inputs]))  # [2, d]
            for summand, share in zip(inputs, passed, strict=True):
                summand.relevance[t] += share * relevance[t]
    else:
        for t in range(len(relevance)):
            x, n = inputs[0].x[t], inputs[0].x.shape[-1]
            weight, gamma = constants["weight"], 0.0
            if kind == "linear":
                bias, gamma = constants["bias"], rule.gamma
            elif kind == "layer_norm":  # y_j = w_j s (x_j - sum_i x_i / n) + b_j
                weight = (weight * constants["s"][t])[:, None] * (torch.eye(n) - 1 / n)
                bias = constants["bias"]
            else:  # y_j = w_j r x_j
                weight, bias = torch.diag(weight * constants["r"][t]), torch.zeros_like(x)
            inputs[0].relevance[t] += rule.linear(x, weight, bias, relevance[t], gamma)


def _carry_back_attention(operation: Operation, rule: AbsorbingRule, values_only: bool) -> None:
    constants = operation.constants
    heads = len(constants["weights"])
    for h in range(heads):
        q, k, v = (value.x.chunk(heads, dim=-1)[h] for value in operation.inputs)
        relevance = operation.output.relevance.chunk(heads, dim=-1)[h]  # [P, d]
        w = constants["weights"][h]
        if values_only or constants["values_only"]:
            passed = torch.zeros_like(q), torch.zeros_like(k), values_relevance(rule, relevance, v, w)
        else:
            passed = head_relevance(rule, relevance, q, k, v, w, constants["scores"][h], constants["scale"])
        for value, part in zip(operation.inputs, passed, strict=True):
            value.relevance.chunk(heads, dim=-1)[h].add_(part)  # chunk is a view
