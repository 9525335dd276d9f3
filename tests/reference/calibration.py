"""Calibrated cross-attention, slow and literal (Lu et al. 2021, section 3): one step of one head, float64 vectors.

Differentiable, so that gradients of the losses can be asked of autograd. Padding is simply not there.
"""

import math

import torch
from torch import Tensor


def mask(state: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
    """m_i = sigmoid(q W_Q . (h_i W_K) / sqrt(d_k)) (eq. 4).

    Args:
        state: q, the decoder state that enters the cross-attention [d].
        memory: encoder output [S, d].
        w_q: [d, d_k].
        w_k: [d, d_k].
    """
    query = state @ w_q
    scores = [sum(a * b for a, b in zip(query, h @ w_k, strict=True)) / math.sqrt(len(query)) for h in memory]
    return torch.stack([1 / (1 + torch.exp(-score)) for score in scores])


def perturbed(a: Tensor, m: Tensor) -> Tensor:
    """m_i a_i + (1 - m_i) / n (eq. 3)."""
    return torch.stack([m[i] * a[i] + (1 - m[i]) / len(a) for i in range(len(a))])


def calibrated(a: Tensor, m: Tensor) -> Tensor:
    """a_i e^(1 - m_i) (eq. 7)."""
    return torch.stack([a[i] * math.e ** (1 - m[i]) for i in range(len(a))])


def gate(query: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """g = sigmoid(q_h . w_h + b_h) of the head's query [d_k]."""
    return 1 / (1 + torch.exp(-(sum(q * w for q, w in zip(query, weight, strict=True)) + bias)))


def fused(kind: str, a: Tensor, a_c: Tensor, *, weight: float = 0.1, gamma: float = 1.0, g: Tensor | None = None):
    """Equations 8 to 10; `fixed_unnormalised` is equation 8 without its softmax."""
    if kind in ("fixed", "fixed_unnormalised"):
        total = a + weight * a_c
        return total if kind == "fixed_unnormalised" else torch.exp(total) / torch.exp(total).sum()
    share = gamma if kind == "anneal" else g
    return share * a + (1 - share) * a_c


def gamma(step: int, time: float) -> float:
    """e^(-s / time)."""
    return math.e ** (-step / time)


def distance(masks: list[list[list[Tensor]]]) -> Tensor:
    """Mean over layers and heads of ||1 - m||_2, summed over steps; masks[layer][head][step] is [S] (eq. 6)."""
    norms = [torch.sqrt(((1 - m) ** 2).sum()) for layer in masks for head in layer for m in head]
    return sum(norms) / (len(masks) * len(masks[0]))


def global_distance(masks: list[list[list[Tensor]]]) -> float:
    """One l2 norm of 1 - m over everything, divided by the source length, as the authors' code has it."""
    total = sum(float((1 - x) ** 2) for layer in masks for head in layer for m in head for x in m)
    return math.sqrt(total) / len(masks[0][0][0])


def mask_loss(perturbed_nmt: Tensor, masks: list[list[list[Tensor]]], alpha: float) -> Tensor:
    """-L_NMT(a_p) + alpha L_c (eq. 5), both summed over steps."""
    return -perturbed_nmt + alpha * distance(masks)


def entropy(p: list[float]) -> float:
    """-sum p_i log p_i, 0 log 0 = 0."""
    return -sum(x * math.log(x) for x in p if x > 0)


def jensen_shannon(p: list[float], q: list[float]) -> float:
    """Equation 12."""
    mean = [(a + b) / 2 for a, b in zip(p, q, strict=True)]

    def divergence(r: list[float]) -> float:
        return sum(x * math.log(x / m) for x, m in zip(r, mean, strict=True) if x > 0)

    return divergence(p) / 2 + divergence(q) / 2


def kendall_tau(x: list[float], y: list[float]) -> float:
    """tau-b: (concordant - discordant) / sqrt(pairs that x orders * pairs that y orders)."""
    total = in_x = in_y = 0
    for i in range(len(x)):
        for j in range(i):
            a, b = (x[i] > x[j]) - (x[i] < x[j]), (y[i] > y[j]) - (y[i] < y[j])
            total, in_x, in_y = total + a * b, in_x + abs(a), in_y + abs(b)
    return total / math.sqrt(in_x * in_y) if in_x and in_y else math.nan


def weights_of(module, h: int, state: Tensor, memory: Tensor, q: Tensor, a: Tensor, perturb: bool):
    """Weights [P, S] and masks [P, S] of head h, with the parameters of a calibrated cross-attention module.

    Args:
        module: holder of parameters: q_proj.mask, k_proj.mask, fusion.
        h: the head.
        state: [P, d].
        memory: [S, d].
        q: the head's queries [P, d_k].
        a: its original weights [P, S].
        perturb: perturbed weights instead of fused ones.
    """
    size = q.shape[-1]
    own = slice(h * size, (h + 1) * size)
    w_q, w_k = (linear.mask.weight.double().T[:, own] for linear in (module.q_proj, module.k_proj))
    kind = {"FixedUnnormalised": "fixed_unnormalised"}.get(type(module.fusion).__name__)
    kind = kind or type(module.fusion).__name__.lower()
    rows, masks = [], []
    for t in range(len(state)):
        m = mask(state[t], memory, w_q, w_k)
        masks.append(m)
        if perturb:
            rows.append(perturbed(a[t], m))
            continue
        more: dict = {}
        if kind == "gate":
            more["g"] = gate(q[t], module.fusion.weight[h].double(), module.fusion.bias[h].double())
        elif kind == "anneal":
            more["gamma"] = gamma(module.fusion.step.item(), module.fusion.anneal_steps)
        else:
            more["weight"] = module.fusion.weight
        rows.append(fused(kind, a[t], calibrated(a[t], m), **more))
    return torch.stack(rows), torch.stack(masks)
