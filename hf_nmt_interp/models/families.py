"""Where each Hugging Face encoder-decoder family keeps its embeddings, attentions, norms and feed-forward layers."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.kinds import KINDS


@dataclass(frozen=True)
class Attention:
    """Multi-head attention: four projections; `core` is the module that multiplies weights and values.

    `heads` are the indices of its heads among the `all_heads` that it had before pruning; a layer without heads adds a
    constant. The weights of a `calibrated` attention are those that `core` returns, not a softmax.
    """

    kind: str  # "encoder", "decoder" or "cross"
    core: nn.Module
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    head_size: int
    scale: float
    heads: list[int]
    all_heads: int
    calibrated: bool = False

    @property
    def ends(self) -> tuple[nn.Linear, nn.Linear]:
        """The modules that read the branch's input and compute its output."""
        return self.query, self.output

    @property
    def linears(self) -> list[nn.Linear]:
        """The linear layers in order; none if all heads were pruned."""
        return [self.query, self.key, self.value, self.output] if self.heads else []

    @property
    def recorded(self) -> list[nn.Module]:
        """Modules to record in a forward pass to get its weights."""
        return [self.core, self.query, self.key]


@dataclass(frozen=True)
class WeightedSum:
    """Cross-attention of a translator that is not a Transformer: `core` returns output and weights [B, H, T, S]."""

    core: nn.Module
    heads: list[int]

    @property
    def recorded(self) -> list[nn.Module]:
        """Modules to record in a forward pass to get its weights."""
        return [self.core]


@dataclass(frozen=True)
class FeedForward:
    """`outer(activation(inner(x)))`, or with a gate `outer(activation(inner(x)) * gate(x))`."""

    inner: nn.Linear
    outer: nn.Linear
    activation: Callable
    gate: nn.Linear | None = None

    @property
    def ends(self) -> tuple[nn.Linear, nn.Linear]:
        """The modules that read the branch's input and compute its output."""
        return self.inner, self.outer

    @property
    def linears(self) -> list[nn.Linear]:
        """Its linear layers in order."""
        return [self.inner, *([] if self.gate is None else [self.gate]), self.outer]


@dataclass(frozen=True)
class Sublayer:
    """A branch with its residual addition and its norm, before the branch or after the addition."""

    branch: Attention | FeedForward
    norm: nn.Module
    norm_first: bool


@dataclass(frozen=True)
class Stack:
    """Encoder or decoder: embeddings, an optional embedding norm, layers of sublayers, an optional final norm.

    The embedding vector of a token is `embedding(id) * scale` (BART and similar models scale inside `embedding`); the
    output of `positions` is added to it.
    """

    module: nn.Module
    embedding: nn.Module
    scale: float
    embedding_norm: nn.Module | None
    layers: list[list[Sublayer]]
    final_norm: nn.Module | None
    positions: list[nn.Module] = field(default_factory=list)

    @property
    def sublayers(self) -> list[Sublayer]:
        """All sublayers, starting at the embeddings."""
        return [sub for layer in self.layers for sub in layer]

    @property
    def operations(self) -> list[Any]:
        """Every norm and linear layer, starting at the embeddings; the last one returns the stack's output."""
        found: list[Any] = [self.embedding_norm]
        for sub in self.sublayers:
            found += [sub.norm, *sub.branch.linears] if sub.norm_first else [*sub.branch.linears, sub.norm]
        return [module for module in [*found, self.final_norm] if module is not None]

    def attentions(self, kind: str) -> list[Attention]:
        """The attentions of one kind, one per layer."""
        branches = [sub.branch for sub in self.sublayers]
        return [b for b in branches if isinstance(b, Attention) and b.kind == kind]


@dataclass(frozen=True)
class OutputHead:
    """`norm(activation(dense(x)))`."""

    dense: nn.Linear
    activation: Callable
    norm: nn.Module


@dataclass(frozen=True)
class Parts:
    """The parts of a translator; logits are `projection(output_head(decoder's output * output_scale)) + logits_bias`.

    A translator that is not a Transformer has `weighted_sums`, one per decoder layer, and no other layers. A
    translator of an unknown family has neither.
    """

    encoder: Stack
    decoder: Stack
    projection: nn.Linear
    output_head: OutputHead | None = None
    logits_bias: Tensor | None = None
    output_scale: float = 1.0
    weighted_sums: list[WeightedSum] = field(default_factory=list)

    @property
    def has_layers(self) -> bool:
        """Whether the layers of a Transformer were found."""
        return bool(self.decoder.layers)

    @property
    def cross(self) -> Sequence[Attention | WeightedSum]:
        """Cross-attentions, one per layer."""
        return self.weighted_sums or self.attentions("cross")

    @property
    def operations(self) -> list[Any]:
        """The path through the model: every norm and linear layer from the embeddings to the logits."""
        head = [self.output_head.dense, self.output_head.norm] if self.output_head else []
        return [*self.encoder.operations, *self.decoder.operations, *head, self.projection]

    @property
    def all_attentions(self) -> list[Attention]:
        """The attentions of all kinds that have heads."""
        return [a for kind in KINDS for a in self.attentions(kind) if a.heads]

    def attentions(self, kind: str) -> list[Attention]:
        """The attentions of a kind: "encoder" or "decoder" (self-attention) or "cross", one per layer."""
        return (self.encoder if kind == "encoder" else self.decoder).attentions(kind)


def parts(model: Any) -> Parts:
    """The parts of a translator of one of the families in `_BUILDERS`, or a subclass of these."""
    for base in type(model).__mro__:
        if base.__name__ in _BUILDERS:
            return _BUILDERS[base.__name__](model)
    check_translator(model)
    problem = f"the layers of {type(model).__name__} are not known"
    remedy = f"supported are {', '.join(_BUILDERS)} and their subclasses; use saliency or attention"
    raise InputError("model", None, problem, remedy)


def families_with_layers() -> list[str]:
    """Classes of the Transformers whose parts are known."""
    return [name for name, build in _BUILDERS.items() if build is not _not_a_transformer]


def any_parts(model: Any) -> Parts:
    """`parts`; for other encoder-decoders only embeddings and output projection, from transformers' interface."""
    try:
        return parts(model)
    except InputError:
        check_translator(model)
    both = model.get_encoder(), model.get_decoder()
    encoder, decoder = (Stack(stack, _embedding(stack), 1.0, None, [], None) for stack in both)
    projection = model.get_output_embeddings()
    if not isinstance(projection, nn.Linear):  # FSMT
        sizes = getattr(decoder.embedding, "num_embeddings", None)
        linears = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == sizes]
        projection = linears[-1]
    return Parts(encoder, decoder, projection)


def check_translator(model: Any) -> None:
    """Raise unless the model is an encoder-decoder that reads text."""
    if isinstance(model, str | os.PathLike):
        raise InputError("model", str(model), "is a name", "load it first, with hf_nmt_interp.load")
    name, reads = type(model).__name__, getattr(model, "main_input_name", "input_ids")
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False) or not hasattr(model, "get_encoder"):
        raise InputError("model", None, f"only encoder-decoder models are supported, {name} is not one")
    if reads != "input_ids":  # speech or image features
        raise InputError("model", None, f"only models that read text are supported, {name} reads {reads}")


def check_devices(model: Any) -> None:
    """Raise unless all weights have values and are on one device: methods read weights outside of forward passes."""
    devices = {weight.device: name for name, weight in reversed([*model.named_parameters()])}
    if empty := next((name for device, name in devices.items() if device.type == "meta"), None):
        problem = f"{empty} is on the meta device and has no values"
        raise InputError("model", None, problem, "load the weights without offloading")
    if len(devices) > 1:
        problem = f"its weights are on several devices, {' and '.join(sorted(map(str, devices)))}"
        raise InputError("model", None, problem, "load it on one, e.g. with device_map={'': 'cuda:0'}")


def positions(stack: Any, side: str = "") -> int | None:
    """How many tokens an encoder or decoder has positions for; None if there is no limit."""
    config = getattr(stack, "config", None)  # FSMT has none, and creates positions on demand
    names = f"max_{'encoder' if side == 'source' else 'decoder'}_position_embeddings", "max_position_embeddings"
    limit = next((getattr(config, name) for name in names if getattr(config, name, None)), None)
    embeddings = getattr(getattr(stack, "base_model", stack), "embeddings", None)
    first = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return limit if limit is None or first is None else limit - first - 1  # RoBERTa counts from its padding id


def capacity(model: Any, side: str) -> tuple[int, int | None]:
    """How many tokens one side ("source" or "target") has embeddings for, and positions (None: no limit)."""
    stack = model.get_encoder() if side == "source" else model.get_decoder()
    return _embedding(stack).num_embeddings, positions(stack, side)


def _embedding(stack: Any) -> Any:
    """The module that looks up the embeddings of a stack."""
    return stack.get_input_embeddings() if hasattr(stack, "get_input_embeddings") else stack.embed_tokens


def _bart_like(model: Any, norm_first: bool) -> Parts:
    def attention(core: Any, kind: str) -> Attention:
        projections = core.q_proj, core.k_proj, core.v_proj, core.out_proj
        before = getattr(model.config, f"{'encoder' if kind == 'encoder' else 'decoder'}_attention_heads")
        sizes = core.head_dim, core.scaling, _heads(core, before), before
        return Attention(kind, core, *projections, *sizes, calibrated=hasattr(core, "fusion"))

    def sublayers(layer: Any, decoder: bool) -> Iterator[Sublayer]:
        own = attention(layer.self_attn, "decoder" if decoder else "encoder")
        yield Sublayer(own, layer.self_attn_layer_norm, norm_first)
        if decoder:
            cross = "encoder_attn" if hasattr(layer, "encoder_attn") else "cross_attention"
            norm = getattr(layer, f"{cross}_layer_norm")
            yield Sublayer(attention(getattr(layer, cross), "cross"), norm, norm_first)
        yield Sublayer(*feed_forward(layer), norm_first)

    def feed_forward(layer: Any) -> tuple[FeedForward, nn.Module]:
        if hasattr(layer, "fc1"):
            return FeedForward(layer.fc1, layer.fc2, layer.activation_fn), layer.final_layer_norm
        ffn, norm = layer.ffn, getattr(layer, "ff_layer_norm", None) or layer.ffn_layer_norm
        if not hasattr(ffn, "fc1"):
            problem = (
                f"{type(model).__name__} has mixture-of-experts layers ({type(ffn).__name__}), which are not supported"
            )
            raise InputError("model", None, problem, "use saliency or attention")
        return FeedForward(ffn.fc1, ffn.fc2, ffn.act), norm

    def stack(module: Any, decoder: bool) -> Stack:
        layers = [list(sublayers(layer, decoder)) for layer in module.layers]
        scale = float(getattr(module, "embed_scale", 1.0))
        first, last = getattr(module, "layernorm_embedding", None), getattr(module, "layer_norm", None)
        return Stack(module, module.embed_tokens, scale, first, layers, last, [module.embed_positions])

    stacks = stack(model.get_encoder(), decoder=False), stack(model.get_decoder(), decoder=True)
    return Parts(*stacks, model.lm_head, logits_bias=getattr(model, "final_logits_bias", None))


def _heads(core: Any, before: int) -> list[int]:
    """Indices of an attention's heads: pruned models of this project list the heads they kept."""
    return getattr(core, "kept_heads", list(range(before)))


def _t5(model: Any, scaled: bool | None = None) -> Parts:
    def attention(core: Any, kind: str) -> Attention:
        before = model.config.num_heads
        sizes = core.key_value_proj_dim, core.scaling, _heads(core, before), before
        return Attention(kind, core, core.q, core.k, core.v, core.o, *sizes)

    def feed_forward(ffn: Any) -> FeedForward:
        gated = hasattr(ffn, "wi_0")
        return FeedForward(ffn.wi_0 if gated else ffn.wi, ffn.wo, ffn.act, ffn.wi_1 if gated else None)

    def sublayers(block: Any, decoder: bool) -> Iterator[Sublayer]:
        own, *cross, ffn = block.layer
        yield Sublayer(attention(own.SelfAttention, "decoder" if decoder else "encoder"), own.layer_norm, True)
        for sub in cross:
            yield Sublayer(attention(sub.EncDecAttention, "cross"), sub.layer_norm, True)
        yield Sublayer(feed_forward(ffn.DenseReluDense), ffn.layer_norm, True)

    def stack(module: Any, decoder: bool) -> Stack:
        layers = [list(sublayers(block, decoder)) for block in module.block]
        return Stack(module, module.embed_tokens, 1.0, None, layers, module.final_layer_norm)

    scaled = getattr(model.config, "scale_decoder_outputs", False) if scaled is None else scaled
    scale = model.config.d_model**-0.5 if scaled else 1.0
    return Parts(stack(model.encoder, False), stack(model.decoder, True), model.lm_head, output_scale=scale)


def _bert2bert(model: Any) -> Parts:
    def attention(module: Any, kind: str) -> Sublayer:
        core, out = module.self, module.output
        projections = core.query, core.key, core.value, out.dense
        heads = core.num_attention_heads
        sizes = core.attention_head_size, core.scaling, _heads(core, heads), heads
        return Sublayer(Attention(kind, core, *projections, *sizes), out.LayerNorm, False)

    def sublayers(layer: Any, decoder: bool) -> Iterator[Sublayer]:
        yield attention(layer.attention, "decoder" if decoder else "encoder")
        if decoder:
            yield attention(layer.crossattention, "cross")
        inner, outer = layer.intermediate, layer.output
        yield Sublayer(FeedForward(inner.dense, outer.dense, inner.intermediate_act_fn), outer.LayerNorm, False)

    def stack(module: Any, decoder: bool) -> Stack:
        embeddings = module.embeddings
        layers = [list(sublayers(layer, decoder)) for layer in module.encoder.layer]
        added = [embeddings.position_embeddings, embeddings.token_type_embeddings]
        return Stack(module, embeddings.word_embeddings, 1.0, embeddings.LayerNorm, layers, None, added)

    encoder, decoder = model.encoder, model.decoder
    if not (hasattr(encoder, "embeddings") and hasattr(decoder, "bert")):
        problem = f"EncoderDecoderModel of {type(encoder).__name__} and {type(decoder).__name__} is not supported"
        raise InputError("model", None, problem, "use BertModel with BertLMHeadModel")
    if getattr(model, "enc_to_dec_proj", None) is not None:
        raise InputError("model", None, "encoder and decoder of different width (enc_to_dec_proj) are not supported")
    head, last = decoder.cls.predictions, decoder.cls.predictions.transform
    between = OutputHead(last.dense, last.transform_act_fn, last.LayerNorm)
    return Parts(stack(encoder, False), stack(decoder.bert, True), head.decoder, between)


def _not_a_transformer(model: Any) -> Parts:
    if hasattr(model, "attention"):  # LSTM
        sums = [WeightedSum(model.attention, list(range(model.config.attention_heads)))]
    else:
        sums = [WeightedSum(layer.attention, [0]) for layer in model.decoder.layers]
    encoder, decoder = (Stack(s, s.embed_tokens, 1.0, None, [], None) for s in (model.encoder, model.decoder))
    return Parts(encoder, decoder, model.lm_head, weighted_sums=sums)


_BUILDERS: dict[str, Callable[[Any], Parts]] = {
    "MarianMTModel": partial(_bart_like, norm_first=False),
    "BartForConditionalGeneration": partial(_bart_like, norm_first=False),
    "PLBartForConditionalGeneration": partial(_bart_like, norm_first=False),
    "BlenderbotForConditionalGeneration": partial(_bart_like, norm_first=True),
    "MBartForConditionalGeneration": partial(_bart_like, norm_first=True),
    "M2M100ForConditionalGeneration": partial(_bart_like, norm_first=True),
    "NllbMoeForConditionalGeneration": partial(_bart_like, norm_first=True),
    "PegasusForConditionalGeneration": partial(_bart_like, norm_first=True),
    "SeamlessM4TForTextToText": partial(_bart_like, norm_first=True),
    "SeamlessM4Tv2ForTextToText": partial(_bart_like, norm_first=True),
    "T5ForConditionalGeneration": _t5,
    "MT5ForConditionalGeneration": _t5,
    "UMT5ForConditionalGeneration": partial(_t5, scaled=True),
    "EncoderDecoderModel": _bert2bert,
    "LuongSeq2SeqForConditionalGeneration": _not_a_transformer,
    "ConvSeq2SeqForConditionalGeneration": _not_a_transformer,
}
