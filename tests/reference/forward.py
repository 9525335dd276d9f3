"""Each family's forward pass by hand: one unpadded sentence, float64, every operation written on a tape.

The models are holders of weights only. The pass is plain differentiable torch, so that the LRP twin can walk the
tape back and the saliency twin can ask autograd.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tests.reference.calibration import weights_of

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "swish": lambda x: x * torch.sigmoid(x),
}


def double(weight: Tensor) -> Tensor:
    """A weight as a float64 constant."""
    return weight.detach().double()


def mean_square(x: Tensor) -> Tensor:
    """The mean square [..., 1] that T5's norm divides by: T5 takes it in float32, even in a float64 model."""
    return (x.float() ** 2).mean(-1, keepdim=True)


# ---------------------------------------------------------------------------------------------------------- the tape
@dataclass
class Value:
    """Activations x [positions, units] and, on the way back, their relevance of the same shape."""

    x: Tensor
    relevance: Tensor = field(init=False)

    def __post_init__(self):
        self.relevance = torch.zeros_like(self.x)


@dataclass
class Operation:
    """One operation of the network: its kind, what it took, what it gave, and its constants."""

    kind: str
    inputs: tuple[Value, ...]
    output: Value
    constants: dict


class Tape:
    """Computes operations and remembers them in order; calibrated attention takes fused or perturbed weights.

    Cross-attention sees all source positions, or `only` one. The value vector of one token may be `zeroed`, given as
    the name of the attentions and the token's position.
    """

    def __init__(self, perturbed: bool = False, only: int | None = None, zeroed: tuple[str, int] | None = None):
        self.operations: list[Operation] = []
        self.perturbed, self.only, self.zeroed = perturbed, only, zeroed

    def _record(self, kind: str, x: Tensor, *inputs: Value, **constants) -> Value:
        output = Value(x)
        self.operations.append(Operation(kind, inputs, output, constants))
        return output

    def linear(self, x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
        """y_j = sum_i w_ji x_i + b_j for each token."""
        weight = double(weight)
        bias = torch.zeros(len(weight), dtype=torch.float64) if bias is None else double(bias)
        return self._record("linear", x.x @ weight.T + bias, x, weight=weight, bias=bias)

    def add(self, a: Value, b: Value) -> Value:
        """The residual addition."""
        return self._record("add", a.x + b.x, a, b)

    def product(self, a: Value, b: Value) -> Value:
        """Unit by unit, as in the gated FFN."""
        return self._record("product", a.x * b.x, a, b)

    def unchanged(self, x: Value, function: Callable[[Tensor], Tensor]) -> Value:
        """An activation or a scaling by a constant: relevance passes unchanged."""
        return self._record("unchanged", function(x.x), x)

    def norm(self, x: Value, module: nn.Module) -> Value:
        """Layer norm, or T5's RMS norm, over the units of each token."""
        weight = double(module.weight)
        if not isinstance(module, nn.LayerNorm):
            y = weight * (x.x * torch.rsqrt(mean_square(x.x) + module.variance_epsilon))
            r = ((x.x**2).mean(-1, keepdim=True) + module.variance_epsilon) ** -0.5  # [P, 1], not rounded
            return self._record("rms_norm", y, x, weight=weight, r=r)
        centred = x.x - x.x.mean(-1, keepdim=True)
        s = ((centred**2).mean(-1, keepdim=True) + module.eps) ** -0.5  # [P, 1]
        bias = double(module.bias)
        y = weight * centred * s + bias
        return self._record("layer_norm", y, x, weight=weight, bias=bias, s=s, normalised=centred * s)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        heads: int,
        scale: float,
        score_bias: Tensor,
        name: str,
        fuse: Callable[[int, Tensor, Tensor], Tensor] | None = None,
    ) -> Value:
        """The attention core: out[t, d] = sum_s w[t, s] v[s, d], w = softmax_s(scale q[t].k[s] + score_bias[t, s]).

        Args:
            q: queries [P, heads * e].
            k: keys [S, heads * e].
            v: values [S, heads * d].
            heads: number of heads; units of one head stand together.
            scale: of the scores.
            score_bias: [heads, P, S], -inf where a key is not visible.
            name: "encoder", "decoder" or "cross".
            fuse: makes other weights [P, S] of a head's number, queries and weights (calibrated cross-attention).
        """
        scores, weights, outputs = [], [], []
        for h in range(heads):
            qh, kh, vh = (part.x.chunk(heads, dim=-1)[h] for part in (q, k, v))
            if self.zeroed is not None and self.zeroed[0] == name:
                vh = vh.index_fill(0, torch.tensor(self.zeroed[1]), 0)
            scores.append(scale * qh @ kh.T + score_bias[h])  # [P, S]
            weights.append(torch.softmax(scores[h], dim=-1))
            if fuse is not None:
                weights[h] = fuse(h, qh, weights[h])
            outputs.append(weights[h] @ vh)
        constants = {"scores": scores, "weights": weights, "scale": scale, "name": name}
        constants["values_only"] = fuse is not None
        return self._record("attention", torch.cat(outputs, -1), q, k, v, **constants)


# -------------------------------------------------------------------------------------------------- the descriptions
@dataclass
class Attention:
    """Self-attention, or cross-attention when `cross`."""

    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    out: nn.Linear
    heads: int
    scale: float
    cross: bool = False
    calibrated: nn.Module | None = None  # the module, if its weights are calibrated
    masks: list[Tensor] = field(default_factory=list)  # of its last pass, [P, S] of each head


@dataclass
class FeedForward:
    """down(act(up(x))), or down(act(up(x)) * gate(x))."""

    up: nn.Linear
    down: nn.Linear
    activation: str
    gate: nn.Linear | None = None


@dataclass
class Stack:
    """An encoder or a decoder: tokens and positions, and its sublayers, each with the norm that belongs to it."""

    embedding: Tensor  # [V, d], times the scale
    positions: Tensor  # [n, d], added to token n (with BERT's type embedding)
    sublayers: list[tuple[Attention | FeedForward, nn.Module]]
    pre_norm: bool
    embedding_norm: nn.Module | None = None
    final_norm: nn.Module | None = None
    score_bias: Callable[[int], Tensor] | None = None  # T5's position bias [heads, n, n] of n tokens
    projection: nn.Linear | None = None  # of the finished encoder states, where the decoder is of another size


@dataclass
class Network:
    """A translator: two stacks and what stands between the decoder and its logits."""

    encoder: Stack
    decoder: Stack
    head: Callable[[Tape, Value], Value]
    output_weight: Tensor  # [V, d]
    output_bias: Tensor | None  # [V]


def describe(model: PreTrainedModel) -> Network:
    """Where each family keeps its weights and in which order it uses them."""
    kinds = {"t5": _t5, "encoder-decoder": _bert2bert}
    kinds |= dict.fromkeys(["marian", "bart", "mbart", "m2m_100"], _bart_like)
    return kinds[_family(model)](model)


def _family(model: PreTrainedModel) -> str:
    return model.config.model_type.removeprefix("calibrated_")


def _bart_like(model: PreTrainedModel) -> Network:
    config, stacks, family = model.config, [], _family(model)
    scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    for stack in (model.model.encoder, model.model.decoder):
        if family == "m2m_100":  # counts from the padding id + 1
            positions = stack.embed_positions.weights[config.pad_token_id + 1 :]
        else:
            positions = stack.embed_positions.weight[0 if family == "marian" else 2 :]
        sublayers = []
        for layer in stack.layers:
            attentions = [(layer.self_attn, layer.self_attn_layer_norm, False)]
            if stack is model.model.decoder:
                attentions.append((layer.encoder_attn, layer.encoder_attn_layer_norm, True))
            for a, norm, cross in attentions:
                projections = (a.q_proj, a.k_proj, a.v_proj, a.out_proj)
                calibrated = a if hasattr(a, "fusion") else None
                attention = Attention(*projections, a.num_heads, a.head_dim**-0.5, cross, calibrated)
                sublayers.append((attention, norm))
            sublayers.append((FeedForward(layer.fc1, layer.fc2, config.activation_function), layer.final_layer_norm))
        stacks.append(
            Stack(
                embedding=double(stack.embed_tokens.weight) * scale,
                positions=double(positions),
                sublayers=sublayers,
                pre_norm=family in ("mbart", "m2m_100"),
                embedding_norm=getattr(stack, "layernorm_embedding", None),
                final_norm=getattr(stack, "layer_norm", None),
            )
        )
    bias = model.final_logits_bias[0] if hasattr(model, "final_logits_bias") else None
    return Network(*stacks, lambda tape, x: x, model.lm_head.weight, bias)


def _t5(model: PreTrainedModel) -> Network:
    config, stacks = model.config, []
    for stack in (model.encoder, model.decoder):
        sublayers = []
        for block in stack.block:
            for layer in block.layer:
                if hasattr(layer, "DenseReluDense"):
                    ffn = layer.DenseReluDense
                    up, gate = (ffn.wi_0, ffn.wi_1) if config.is_gated_act else (ffn.wi, None)
                    sublayers.append((FeedForward(up, ffn.wo, config.dense_act_fn, gate), layer.layer_norm))
                else:
                    cross = hasattr(layer, "EncDecAttention")
                    a = layer.EncDecAttention if cross else layer.SelfAttention
                    sublayers.append((Attention(a.q, a.k, a.v, a.o, config.num_heads, 1.0, cross), layer.layer_norm))
        table = double(stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight)  # [buckets, heads]
        stacks.append(
            Stack(
                embedding=double(stack.embed_tokens.weight),
                positions=torch.zeros(10_000, config.d_model, dtype=torch.float64),
                sublayers=sublayers,
                pre_norm=True,
                final_norm=stack.final_layer_norm,
                score_bias=_t5_score_bias(table, config.relative_attention_max_distance, stack is model.encoder),
            )
        )
    scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
    return Network(*stacks, lambda tape, x: tape.unchanged(x, lambda h: scale * h), model.lm_head.weight, None)


def _t5_score_bias(table: Tensor, max_distance: int, both_sides: bool) -> Callable[[int], Tensor]:
    """T5's learned score of relative distance, shared by the layers of a stack: n -> [heads, n, n]."""

    def bucket(distance: int) -> int:  # key position minus query position
        buckets = len(table) // 2 if both_sides else len(table)
        first = buckets if both_sides and distance > 0 else 0
        distance = abs(distance) if both_sides else max(-distance, 0)
        exact = buckets // 2
        if distance < exact:
            return first + distance
        far = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
        return first + min(exact + int(far), buckets - 1)

    def bias(n: int) -> Tensor:
        return torch.stack([torch.stack([table[bucket(s - t)] for s in range(n)]) for t in range(n)]).permute(2, 0, 1)

    return bias


def _bert2bert(model: PreTrainedModel) -> Network:
    stacks = []
    for bert in (model.encoder, model.decoder.bert):
        config = bert.config
        sublayers = []
        for layer in bert.encoder.layer:
            for name in ["attention", "crossattention"] if hasattr(layer, "crossattention") else ["attention"]:
                a = getattr(layer, name)
                projections = (a.self.query, a.self.key, a.self.value, a.output.dense)
                scale = (config.hidden_size // config.num_attention_heads) ** -0.5
                attention = Attention(*projections, config.num_attention_heads, scale, name == "crossattention")
                sublayers.append((attention, a.output.LayerNorm))
            ffn = FeedForward(layer.intermediate.dense, layer.output.dense, config.hidden_act)
            sublayers.append((ffn, layer.output.LayerNorm))
        e = bert.embeddings
        stacks.append(
            Stack(
                embedding=double(e.word_embeddings.weight),
                positions=double(e.position_embeddings.weight) + double(e.token_type_embeddings.weight[0]),
                sublayers=sublayers,
                pre_norm=False,
                embedding_norm=e.LayerNorm,
                projection=getattr(model, "enc_to_dec_proj", None) if bert is model.encoder else None,
            )
        )
    predictions = model.decoder.cls.predictions

    def head(tape: Tape, x: Value) -> Value:
        x = tape.linear(x, predictions.transform.dense.weight, predictions.transform.dense.bias)
        x = tape.unchanged(x, ACTIVATIONS[model.decoder.config.hidden_act])
        return tape.norm(x, predictions.transform.LayerNorm)

    return Network(*stacks, head, predictions.decoder.weight, predictions.decoder.bias)


# ---------------------------------------------------------------------------------------------------------- the pass
def _sublayer(
    tape: Tape, x: Value, memory: Value, part: Attention | FeedForward, self_bias: Tensor, name: str
) -> Value:
    def linear(x: Value, module: nn.Linear) -> Value:
        return tape.linear(x, module.weight, module.bias)

    if isinstance(part, FeedForward):
        inner = tape.unchanged(linear(x, part.up), ACTIVATIONS[part.activation])
        if part.gate is not None:
            inner = tape.product(inner, linear(x, part.gate))
        return linear(inner, part.down)
    keys = memory if part.cross else x
    bias = torch.zeros(part.heads, len(x.x), len(keys.x)) if part.cross else self_bias.expand(part.heads, -1, -1)
    if part.cross and tape.only is not None:
        bias = bias.masked_fill(torch.arange(len(keys.x)) != tape.only, -math.inf)
    q, k, v = linear(x, part.q), linear(keys, part.k), linear(keys, part.v)
    part.masks.clear()

    def fuse(h: int, queries: Tensor, weights: Tensor) -> Tensor:
        made, masks = weights_of(part.calibrated, h, x.x, keys.x, queries, weights, tape.perturbed)
        part.masks.append(masks)
        return made

    place = "cross" if part.cross else name
    core = tape.attention(q, k, v, part.heads, part.scale, bias, place, fuse if part.calibrated else None)
    return linear(core, part.out)


def run_sublayers(tape: Tape, stack: Stack, some: Sequence[tuple], x: Value, memory: Value | None, name: str) -> Value:
    """Some of a stack's sublayers, one after the other."""
    n = len(x.x)
    self_bias = stack.score_bias(n) if stack.score_bias else torch.zeros(1, n, n, dtype=torch.float64)
    if memory is not None:  # a decoder: no query sees later keys
        self_bias = self_bias.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
    for part, norm in some:
        if stack.pre_norm:
            x = tape.add(x, _sublayer(tape, tape.norm(x, norm), memory, part, self_bias, name))
        else:
            x = tape.norm(tape.add(x, _sublayer(tape, x, memory, part, self_bias, name)), norm)
    return x


def _run_stack(tape: Tape, stack: Stack, tokens: Value, memory: Value | None, name: str) -> Value:
    x = tokens if stack.embedding_norm is None else tape.norm(tokens, stack.embedding_norm)
    x = run_sublayers(tape, stack, stack.sublayers, x, memory, name)
    if stack.final_norm is not None:
        x = tape.norm(x, stack.final_norm)
    return x if stack.projection is None else tape.linear(x, stack.projection.weight, stack.projection.bias)


@dataclass
class Pass:
    """A finished forward pass: its tape, the tokens it began with and the logits [P, V] it ended with."""

    tape: Tape
    source: Value  # [S, d]: scaled embedding + position
    prefix: Value  # [P, d]
    logits: Value


def run(network: Network, source: Tensor, prefix: Tensor, perturbed: bool = False, only: int | None = None) -> Pass:
    """The whole translator from scaled embeddings (before positions) to logits.

    Args:
        network: from `describe`.
        source: embeddings of the source tokens [S, d].
        prefix: embeddings of the decoder's input tokens [P, d], the start token first.
        perturbed: calibrated cross-attention takes its perturbed weights.
        only: the one source position that cross-attention sees.
    """
    tape = Tape(perturbed, only)
    sources = Value(source + network.encoder.positions[: len(source)])
    prefixes = Value(prefix + network.decoder.positions[: len(prefix)])
    memory = _run_stack(tape, network.encoder, sources, None, "encoder")
    states = network.head(tape, _run_stack(tape, network.decoder, prefixes, memory, "decoder"))
    return Pass(tape, sources, prefixes, tape.linear(states, network.output_weight, network.output_bias))
