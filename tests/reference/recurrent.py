"""Forward passes of the LSTM and convolutional translators and of the classifier, slow and literal.

One unpadded sentence, float64, one step and one unit of attention at a time, from the papers (Luong et al. 2015 and
Snell et al. 2021, section 2; Gehring et al. 2017, section 3). The models are holders of weights only.
"""

import math

import torch
from torch import Tensor

from tests.reference.forward import double


def linear(layer, x: Tensor) -> Tensor:
    """W x + b."""
    y = double(layer.weight) @ x
    return y if layer.bias is None else y + double(layer.bias)


# --------------------------------------------------------------------------------------------------------------- LSTM
def lstm_step(layer, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of one LSTM after it has read x."""
    n = layer.hidden_size
    gates = double(layer.weight_ih_l0) @ x + double(layer.bias_ih_l0)
    gates = gates + double(layer.weight_hh_l0) @ h + double(layer.bias_hh_l0)
    i, f, o = (torch.sigmoid(gates[k * n : (k + 1) * n]) for k in (0, 1, 3))
    c = f * c + i * torch.tanh(gates[2 * n : 3 * n])
    return o * torch.tanh(c), c


def lstm(layer, xs: list[Tensor]) -> list[Tensor]:
    """States h_1 .. h_L of one LSTM that begins with h = 0 and c = 0."""
    h = c = torch.zeros(layer.hidden_size, dtype=torch.float64)
    states = []
    for x in xs:
        h, c = lstm_step(layer, x, h, c)
        states.append(h)
    return states


def encode(layers, xs: list[Tensor]) -> list[Tensor]:
    """States of the topmost layer; those of the two directions side by side."""
    for number, ahead in enumerate(layers.forwards):
        states = lstm(ahead, xs)
        if len(layers.backwards):
            back = lstm(layers.backwards[number], xs[::-1])[::-1]
            states = [torch.cat(pair) for pair in zip(states, back, strict=True)]
        xs = states
    return xs


def attend(
    logits: list[Tensor], states: list[Tensor], uniform: bool, only: int | None = None
) -> tuple[Tensor, Tensor]:
    """Context sum_l alpha_l h_l and the weights alpha [L]; all weight on `only` one position if it is given."""
    a = torch.stack(logits)
    if only is not None:
        return states[only], (torch.arange(len(states)) == only).double()
    weights = torch.full_like(a, 1 / len(states)) if uniform else torch.exp(a) / torch.exp(a).sum()
    return sum(w * h for w, h in zip(weights, states, strict=True)), weights


def attentional(model, s: Tensor, hs: list[Tensor], only: int | None) -> tuple[Tensor, Tensor]:
    """Attentional state [n] of a decoder state, and attention weights [heads, S]."""
    config, n = model.config, model.config.hidden_size
    context, rows = 0, []
    for k in range(config.attention_heads):
        # model.attention.weight holds W^(k)' in its rows k n .. (k + 1) n: a = s' W h
        W = torch.eye(n).double()
        if config.attention == "general":
            W = double(model.attention.weight.weight)[k * n : (k + 1) * n].T
        c, weights = attend([s @ W @ h for h in hs], hs, config.attention_mode == "uniform", only)
        context = context + c
        rows.append(weights)
    if config.output == "linear":
        return context + s, torch.stack(rows)
    return torch.clamp(linear(model.hidden, torch.cat([context, s])), min=0), torch.stack(rows)


def luong(model, source: Tensor, target: Tensor, only: int | None = None) -> tuple[Tensor, Tensor]:
    """Logits [T, V] and attention weights [layers, heads, T, S] from embeddings [S, d] and [T, d].

    `only` concerns the step itself: input feeding carries on what ordinary attention gave.
    """
    config, n = model.config, model.config.hidden_size
    hs = encode(model.encoder.layers, list(source))
    if config.bidirectional:
        hs = [linear(model.encoder.merge, h) for h in hs]
    zero = torch.zeros(n, dtype=torch.float64)
    memories = [(hs[-1], zero) for _ in model.decoder.layers]
    fed = zero  # the attentional state of the step before
    all_logits, all_weights = [], []
    for y in target:
        s = torch.cat([y, fed]) if config.input_feeding else y
        for number, layer in enumerate(model.decoder.layers):
            memories[number] = lstm_step(layer, s, *memories[number])
            s = memories[number][0]
        fed, _ = attentional(model, s, hs, None)
        read, weights = attentional(model, s, hs, only)
        all_logits.append(linear(model.lm_head, read))
        all_weights.append(weights)
    return torch.stack(all_logits), torch.stack(all_weights, 1)[None]


def classifier(model, source: Tensor, only: int | None = None) -> tuple[Tensor, Tensor]:
    """Logits [labels] and attention weights [S] from embeddings [S, d]."""
    hs = encode(model.encoder, list(source))
    Q, _, v = model.attention
    logits = [linear(v, torch.clamp(linear(Q, h), min=0))[0] for h in hs]
    context, weights = attend(logits, hs, model.config.attention_mode == "uniform", only)
    return torch.cat([torch.zeros(1).double(), linear(model.classifier, context)]), weights


# -------------------------------------------------------------------------------------------------------- convolutions
def gated_convolution(layer, window: list[Tensor]) -> Tensor:
    """v([A B]) = A * sigmoid(B) of one window of tokens."""
    y = linear(layer, torch.cat(window))
    half = len(y) // 2
    return y[:half] * torch.sigmoid(y[half:])


def with_positions(stack, x: Tensor) -> list[Tensor]:
    """Embeddings of tokens plus those of their positions."""
    return [one + double(stack.embed_positions.weight)[i] for i, one in enumerate(x)]


def conv(model, source: Tensor, target: Tensor, only: int | None = None) -> tuple[Tensor, Tensor]:
    """Logits [T, V] and attention weights [layers, heads, T, S] from embeddings [S, d] and [T, d]."""
    half, k = math.sqrt(0.5), model.config.kernel_size
    zero = torch.zeros(model.config.hidden_size, dtype=torch.float64)

    es = with_positions(model.encoder, source)
    xs = [linear(model.encoder.enter, e) for e in es]
    for layer in model.encoder.layers:
        padded = [zero] * (k // 2) + xs + [zero] * (k // 2)
        xs = [(gated_convolution(layer.convolution, padded[i : i + k]) + x) * half for i, x in enumerate(xs)]
    zs = [linear(model.encoder.leave, x) for x in xs]

    gs = with_positions(model.decoder, target)
    xs = [linear(model.decoder.enter, g) for g in gs]
    all_weights = []
    for layer in model.decoder.layers:
        padded, new, rows = [zero] * (k - 1) + xs, [], []
        for i, (x, g) in enumerate(zip(xs, gs, strict=True)):
            h = gated_convolution(layer.convolution, padded[i : i + k])
            d = (linear(layer.attention.query, h) + g) * half
            values = [(z + e) * half for z, e in zip(zs, es, strict=True)]
            c, weights = attend([d @ z for z in zs], values, False, only)
            m = len(zs)
            c = linear(layer.attention.output, c * (m * math.sqrt(1 / m)))
            new.append(((h + c) * half + x) * half)
            rows.append(weights)
        xs = new
        all_weights.append(torch.stack(rows)[None])
    logits = [linear(model.lm_head, linear(model.decoder.leave, x)) for x in xs]
    return torch.stack(logits), torch.stack(all_weights)


FORWARDS = {"LuongSeq2SeqForConditionalGeneration": luong, "ConvSeq2SeqForConditionalGeneration": conv}
