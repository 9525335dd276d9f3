"""LRP, slow and literal: one forward pass per target step, all messages z_ij of an operation written out as a matrix.

Message of input i to unit j: z_ij = f_j(0) / n + (df_j/dx_i)(x) x_i. A unit divides its relevance among its inputs by
the rule's shares; what units of a group could not pass on is given back by rescaling the group's inputs to what came
in. Groups: the token for linear, norm and addition; the head (all queries together) for the attention core.

A group that received relevance but passes on a total of exactly 0 (under alpha=1, say, when no unit with relevance
has a positive message) cannot be rescaled. Its relevance is then divided evenly over its inputs (linear and norm: the
units of the token; addition: all units of both summands); in the attention core unit (t, d) gives its relevance to
v[s, d] by the attention weights w[t, s], which sum to 1 and are 0 for invisible keys. So the total is always kept.
A factor of the rescaling that is large or negative (epsilon: relevance of both signs that nearly cancels) is kept.

Norms do not change when their input is scaled, so their messages sum to little more than the bias. Under epsilon the
shares are then huge: with eps=1e-6 relevance reaches 1e12 (1e30 in T5, which has no biases). Compare relative to the
step's largest value, with eps near 1.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.reference.attnlrp import AbsorbingRule, carry_back
from tests.reference.forward import Operation, describe, run
from tests.reference.shift import shifted_right


class Rule:
    """How unit j divides its relevance: shares v_ij of its inputs from the messages z_ij."""

    def __init__(self, rule: str, alpha: float, beta: float, eps: float, stabilizer: float = 0.0):
        self.rule, self.alpha, self.beta, self.eps, self.stabilizer = rule, alpha, beta, eps, stabilizer

    def shares(self, z: Tensor, stabilizer: float = 0.0) -> Tensor:
        """alpha z+_ij / sum_i z+_ij + beta z-_ij / sum_i z-_ij, or z_ij / (sum_i z_ij + eps sign), sign(0) = 1.

        Args:
            z: messages [inputs, units].
            stabilizer: added to the absolute sum of each sign, in the attention core.

        Returns:
            shares [inputs, units]; a missing sign contributes 0.
        """
        if self.rule in ("epsilon", "ratio"):
            total = z.sum(0)
            return z / torch.where(total >= 0, total + self.eps, total - self.eps)
        shares = torch.zeros_like(z)
        for factor, part in ((self.alpha, z.clamp(min=0)), (self.beta, z.clamp(max=0))):
            total = part.sum(0)
            shares += factor * torch.where(total != 0, part / (total + stabilizer * total.sign()), 0.0)
        return shares

    def divide(self, z: Tensor, relevance: Tensor, otherwise: Tensor | None = None, stabilizer: float = 0.0) -> Tensor:
        """Relevance of a group's inputs, rescaled so that its sum is what the group received.

        Args:
            z: messages [inputs, units] of the group.
            relevance: of the units [units].
            otherwise: relevance of the inputs [inputs] if the group passes on nothing; None divides evenly.
            stabilizer: as for `shares`.
        """
        passed = self.shares(z, stabilizer) @ relevance
        if self.rule == "ratio" and otherwise is None:  # what is lost is divided evenly
            return passed + (relevance.sum() - passed.sum()) / len(z)
        if passed.sum() == 0:
            return relevance.sum().expand(len(z)) / len(z) if otherwise is None else otherwise
        return passed * (relevance.sum() / passed.sum())


def linear_messages(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """z_ij = w_ji x_i + b_j / n of one token x [n]."""
    return weight.T * x[:, None] + bias / len(x)


def layer_norm_messages(x: Tensor, weight: Tensor, bias: Tensor, s: Tensor, normalised: Tensor) -> Tensor:
    """z_ij = w_j s (delta_ij - 1/n - xh_j xh_i / n) x_i + b_j / n of one token x [n]."""
    n = len(x)
    jacobian = weight * s * (torch.eye(n) - 1 / n - torch.outer(normalised, normalised) / n)  # [i, j]
    return jacobian * x[:, None] + bias / n


def rms_norm_messages(x: Tensor, weight: Tensor, r: Tensor) -> Tensor:
    """z_ij = w_j r (delta_ij - x_j x_i r^2 / n) x_i of a token x [n]; y_j = w_j x_j r, r = 1/sqrt(mean x^2 + eps)."""
    n = len(x)
    return weight * r * (torch.eye(n) - torch.outer(x, x) * r**2 / n) * x[:, None]


def attention_messages(q: Tensor, k: Tensor, v: Tensor, w: Tensor, scale: float, values_only: bool) -> Tensor:
    """Messages of one head: from q [P, e], k [S, e], v [S, d] (in this order, flat) to out[t, d] [P, d] (flat).

    to v[s, d]: w[t, s] v[s, d]; to k[s, e]: J[t, d, s] c q[t, e] k[s, e];
    to q[t, e]: sum_s J[t, d, s] c k[s, e] q[t, e]; J[t, d, s] = w[t, s] (v[s, d] - out[t, d]).
    """
    out = w @ v
    (P, e), (S, d) = q.shape, v.shape
    to_q, to_k, to_v = (torch.zeros(*of, P, d, dtype=q.dtype) for of in ((P, e), (S, e), (S, d)))
    for t in range(P):
        for s in range(S):
            to_v[s, :, t, :] = torch.diag(w[t, s] * v[s])  # v[s, d] reaches unit d only
            if not values_only:
                through_score = torch.outer(scale * q[t] * k[s], w[t, s] * (v[s] - out[t]))  # [e, d]
                to_k[s, :, t, :] = through_score
                to_q[t, :, t, :] += through_score
    return torch.cat([part.reshape(-1, P * d) for part in (to_q, to_k, to_v)])


def ratio_through_attention(rule: Rule, relevance: Tensor, q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Relevance of q, k, v (flat) of one head by voita2019's ratios, a sum or a product at a time.

    out[t, d] = sum_s p_s, p_s = w[t, s] v[s, d]; the softmax passes relevance to the score sum_e r_e,
    r_e = q[t, e] k[s, e]. Share of a summand: itself / sum; of a factor: itself / (factor + other factor).
    """
    to_q, to_k, to_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for t in range(len(q)):
        to_w = torch.zeros(len(k), dtype=q.dtype)
        for d in range(v.shape[1]):
            to_products = rule.shares((w[t] * v[:, d])[:, None])[:, 0] * relevance[t, d]
            for s in range(len(k)):
                factors = rule.shares(torch.stack([w[t, s], v[s, d]])[:, None])[:, 0] * to_products[s]
                to_w[s] += factors[0]
                to_v[s, d] += factors[1]
        for s in range(len(k)):
            to_products = rule.shares((q[t] * k[s])[:, None])[:, 0] * to_w[s]
            for e in range(q.shape[1]):
                factors = rule.shares(torch.stack([q[t, e], k[s, e]])[:, None])[:, 0] * to_products[e]
                to_q[t, e] += factors[0]
                to_k[s, e] += factors[1]
    passed = torch.cat([to_q.flatten(), to_k.flatten(), to_v.flatten()])
    return passed * (relevance.sum() / passed.sum())


def _carry_back(operation: Operation, rule: Rule, values_only: bool, norm: str) -> None:
    """Divide the relevance of an operation's output among its inputs."""
    kind, inputs, constants = operation.kind, operation.inputs, operation.constants
    relevance = operation.output.relevance
    if kind == "unchanged" or (kind in ("layer_norm", "rms_norm") and norm == "scale"):
        inputs[0].relevance += relevance
    elif kind == "product" and rule.rule == "ratio":
        for t in range(len(relevance)):
            z = torch.cat([torch.diag(factor.x[t]) for factor in inputs])  # [2 d, d]
            for factor, part in zip(inputs, rule.divide(z, relevance[t]).chunk(2), strict=True):
                factor.relevance[t] += part
    elif kind == "product":
        for factor in inputs:
            factor.relevance += relevance / 2
    elif kind == "attention":
        _carry_back_attention(operation, rule, values_only)
    else:
        for t in range(len(relevance)):  # each token is a group
            if kind == "add":
                z = torch.cat([torch.diag(summand.x[t]) for summand in inputs])  # [2 d, d]
            elif kind == "linear":
                z = linear_messages(inputs[0].x[t], constants["weight"], constants["bias"])
            elif kind == "layer_norm":
                per_token = {name: constants[name][t] for name in ("s", "normalised")}
                z = layer_norm_messages(inputs[0].x[t], constants["weight"], constants["bias"], **per_token)
            elif kind == "rms_norm":
                z = rms_norm_messages(inputs[0].x[t], constants["weight"], constants["r"][t])
            else:
                raise ValueError(f"no rule for {kind}")
            parts = rule.divide(z, relevance[t]).chunk(len(inputs))
            for value, part in zip(inputs, parts, strict=True):
                value.relevance[t] += part


def _carry_back_attention(operation: Operation, rule: Rule, values_only: bool) -> None:
    weights, scale = operation.constants["weights"], operation.constants["scale"]
    heads = len(weights)
    for h in range(heads):  # each head is a group
        q, k, v = (value.x.chunk(heads, dim=-1)[h] for value in operation.inputs)
        relevance = operation.output.relevance.chunk(heads, dim=-1)[h]  # [P, d]
        constant = values_only or operation.constants["values_only"]
        z = attention_messages(q, k, v, weights[h], scale, constant)
        by_weights = torch.cat([torch.zeros(q.numel() + k.numel()), (weights[h].T @ relevance).flatten()])
        if by_weights.sum() != 0:  # calibrated weights may not sum to 1
            by_weights = by_weights * (relevance.sum() / by_weights.sum())
        if rule.rule == "ratio" and not constant:
            passed = ratio_through_attention(rule, relevance, q, k, v, weights[h])
        else:
            passed = rule.divide(z, relevance.flatten(), by_weights, rule.stabilizer)
        parts = passed.split([q.numel(), k.numel(), v.numel()])
        for value, part, like in zip(operation.inputs, parts, (q, k, v), strict=True):
            value.relevance.chunk(heads, dim=-1)[h].add_(part.view_as(like))  # chunk is a view


@torch.no_grad()
def lrp(
    model: PreTrainedModel,
    input_ids: Tensor,
    labels: Tensor,
    rule: str = "alpha_beta",
    alpha: float = 1.0,
    beta: float = 0.0,
    eps: float | None = None,
    attention: str = "full",
    logit: str = "top1",
    norm: str = "jacobian",
    stabilizer: float = 1e-5,
    gamma: float = 0.25,
) -> dict:
    """Relevance of every token for every target step of one unpadded sentence pair.

    Args:
        model: any family; its weights are used in float64.
        input_ids: source tokens [S].
        labels: target tokens [T].
        rule: "alpha_beta", "epsilon", "ratio", "attnlrp", "cp_lrp" or "gamma".
        alpha: weight of positive messages.
        beta: weight of negative messages.
        eps: of all rules but alpha_beta; None is 1e-9 for the last three rules and 1e-6 for the others.
        attention: "full", or "values" to send nothing to queries and keys.
        logit: which logit gets relevance 1: "top1" or "label".
        norm: "jacobian", or "scale" if relevance passes norms unchanged.
        stabilizer: of alpha_beta in the attention core.
        gamma: of the gamma rule.

    Returns:
        source [T, S], prefix [T, T], start [T]; log_probs [T] of the labels; heads: relevance that reaches the
        output of each head, summed over positions and units, as {"encoder" | "decoder" | "cross": [T, layers, heads]}.
    """
    S, T = len(input_ids), len(labels)
    if rule in ("attnlrp", "cp_lrp", "gamma"):
        chosen, back = AbsorbingRule(1e-9 if eps is None else eps, gamma if rule == "gamma" else 0.0), carry_back
    else:
        chosen, back = Rule(rule, alpha, beta, 1e-6 if eps is None else eps, stabilizer), _carry_back
    network = describe(model)
    decoder_input = shifted_right(model, labels[None])[0]
    found: dict = {
        "source": torch.zeros(T, S, dtype=torch.float64),
        "prefix": torch.zeros(T, T, dtype=torch.float64),
        "start": torch.zeros(T, dtype=torch.float64),
        "log_probs": torch.zeros(T, dtype=torch.float64),
        "heads": {"encoder": [], "decoder": [], "cross": []},
    }
    for t in range(T):  # step t reads the start token and labels[:t]
        done = run(network, network.encoder.embedding[input_ids], network.decoder.embedding[decoder_input[: t + 1]])
        explained = done.logits.x[t].argmax() if logit == "top1" else labels[t]
        done.logits.relevance[t, explained] = 1.0
        for operation in reversed(done.tape.operations):
            back(operation, chosen, attention == "values" or rule == "cp_lrp", norm)
        found["source"][t] = done.source.relevance.sum(-1)
        found["start"][t] = done.prefix.relevance[0].sum()
        found["prefix"][t, :t] = done.prefix.relevance[1:].sum(-1)
        found["log_probs"][t] = done.logits.x[t].log_softmax(-1)[labels[t]]
        for place, rows in found["heads"].items():
            cores = [o for o in done.tape.operations if o.kind == "attention" and o.constants["name"] == place]
            by_head = [
                [part.sum() for part in o.output.relevance.chunk(len(o.constants["weights"]), -1)] for o in cores
            ]
            rows.append(torch.tensor(by_head, dtype=torch.float64))
    found["heads"] = {place: torch.stack(rows) for place, rows in found["heads"].items()}
    return found
