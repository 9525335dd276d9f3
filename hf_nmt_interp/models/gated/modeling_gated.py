"""Translators whose attention heads can be gated and pruned (Voita et al. 2019, section 6)."""

import copy
from itertools import chain
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel
from transformers import initialization as init

from .configuration_gated import (
    KINDS,
    GatedBartConfig,
    GatedM2M100Config,
    GatedMarianConfig,
    GatedMBartConfig,
    GatedMT5Config,
    GatedT5Config,
    kinds_of,
)
from .gates import HardConcreteGate
from .heads import Attention, gate_of, keep_heads, names_of, set_gate


class GatedHeadsMixin(PreTrainedModel):
    """Gates on the heads of a translator: MultiHead = Concat(g_i head_i) W_o, and pruned heads.

    Heads are always numbered as before pruning. In training mode every forward pass samples its gates; in eval
    mode they are 0 or 1. Train with cross entropy + lambda * `l0_penalty()`.
    """

    _keep_in_fp32_modules_strict = ["log_alpha"]  # noqa: RUF012
    _keys_to_ignore_on_load_unexpected = [r"^alignment_head\."]  # noqa: RUF012

    def __init__(self, config):
        if not hasattr(config, "kept_heads"):  # not isinstance: with remote code this class may exist twice
            name = type(config).__name__
            raise ValueError(f"config is a {name}; use Gated{name}(**config.to_dict())")
        super().__init__(config)
        for attention in chain(*self.attentions().values()):
            attention.kept_heads = list(range(getattr(attention, names_of(attention).heads)))
        self._remove_heads(config.kept_heads or {})
        self.add_gates(config.gated_attentions)

    def attentions(self) -> dict[str, list[Attention]]:
        """The attention module of each layer, for each kind."""
        encoder, decoder = self.get_encoder(), self.get_decoder()
        if hasattr(encoder, "block"):  # T5
            own = [[block.layer[0].SelfAttention for block in stack.block] for stack in (encoder, decoder)]
            cross = [block.layer[1].EncDecAttention for block in decoder.block]
        else:
            own = [[layer.self_attn for layer in stack.layers] for stack in (encoder, decoder)]
            cross = [layer.encoder_attn for layer in decoder.layers]
        return dict(zip(KINDS, (*own, cross), strict=True))

    def gates(self) -> dict[str, list[HardConcreteGate | None]]:
        """The gate of each layer, for each kind; None for layers without a gate."""
        return {kind: [gate_of(attention) for attention in layers] for kind, layers in self.attentions().items()}

    def add_gates(self, gated_attentions: str | list[str] = "all") -> None:
        """Add open gates to some kinds of attention, unless they already have gates; changes the model in place."""
        config, kinds = self.config, kinds_of(gated_attentions)
        for kind in kinds:
            for attention in self.attentions()[kind]:
                if attention.kept_heads and gate_of(attention) is None:
                    heads = len(attention.kept_heads)
                    gate = HardConcreteGate(heads, config.gate_temperature, config.gate_stretch, config.gate_init)
                    set_gate(attention, gate)
        config.gated_attentions = [kind for kind in KINDS if kind in kinds or any(self.gates()[kind])]

    def l0_penalty(self) -> Tensor:
        """L_C = sum over all gates of 1 - P(g = 0), a differentiable scalar."""
        gates = list(filter(None, chain(*self.gates().values())))
        if not gates:
            return torch.zeros((), device=self.device)
        return gates[0].penalty(torch.cat([gate.log_alpha for gate in gates]))  # they have the same settings

    def expected_heads(self) -> dict[str, list[float]]:
        """Expected number of heads whose gate is not 0, for each kind and layer; heads without a gate count as 1."""

        def expected(attention: Attention) -> float:
            gate = gate_of(attention)
            return float(len(attention.kept_heads)) if gate is None else gate.penalty().item()

        return {kind: list(map(expected, attentions)) for kind, attentions in self.attentions().items()}

    def kept_heads(self) -> dict[str, list[list[int]]]:
        """Heads that are active at test time, for each kind and layer; head j of `attentions[l]` is `kept[l][j]`."""
        return {kind: [_open_heads(attention) for attention in layers] for kind, layers in self.attentions().items()}

    def set_kept_heads(self, kept: dict[str, list[list[int]]]) -> None:
        """Set the gates: open those of some heads and close all others (log_alpha 10 and -10).

        Args:
            kept: the heads to keep in each layer, by kind; missing kinds are not changed.
        """
        for attention, heads in list(self._layers(kept)):  # everything is checked before the first change
            if (gate := gate_of(attention)) is None:
                if heads != attention.kept_heads:
                    raise ValueError(
                        f"kept={heads}: a layer without gates keeps {attention.kept_heads}; call add_gates() first"
                    )
                continue
            sign = torch.tensor([1.0 if head in heads else -1.0 for head in attention.kept_heads])
            gate.log_alpha.data.copy_(10 * sign)

    def prune(self):
        """A copy without closed heads and without gates, with the same outputs as this model in eval mode.

        Its configuration stores the kept heads, which loading needs; `add_gates` allows further pruning.
        """
        small, kept = copy.deepcopy(self), self.kept_heads()
        for attention in chain(*small.attentions().values()):
            if gate_of(attention) is not None:
                set_gate(attention, None)
        small._remove_heads(kept)
        small.config.kept_heads, small.config.gated_attentions = kept, []
        return small

    def _remove_heads(self, kept: dict[str, list[list[int]]]) -> None:
        for attention, heads in self._layers(kept):
            keep_heads(attention, [attention.kept_heads.index(head) for head in heads])

    def _layers(self, kept: dict[str, list[list[int]]]):
        """Checked pairs of an attention and its heads in `kept`."""
        for kind, layers in kept.items():
            if kind not in KINDS:
                raise ValueError(f"kept_heads has {kind!r}, which is not one of {', '.join(KINDS)}")
            attentions = self.attentions()[kind]
            if len(layers) != len(attentions):
                raise ValueError(f"kept_heads[{kind!r}] has {len(layers)} layers, but the model has {len(attentions)}")
            for attention, heads in zip(attentions, layers, strict=True):
                if sorted(set(heads) & set(attention.kept_heads)) != list(heads):
                    own = attention.kept_heads
                    raise ValueError(f"kept_heads[{kind!r}] has {heads}, which is not an ascending subset of {own}")
                yield attention, heads

    def initialize_weights(self):
        super().initialize_weights()
        for gate in filter(None, chain(*self.gates().values())):
            init.constant_(gate.log_alpha, gate.init)  # loaded values are kept

    def _adjust_missing_and_unexpected_keys(self, loading_info) -> None:
        """Does not report missing gates: a plain checkpoint gets new ones."""
        super()._adjust_missing_and_unexpected_keys(loading_info)
        names = {parameter: name for name, parameter in self.named_parameters()}
        for gates in self.gates().values():
            keys = {names[gate.log_alpha] for gate in gates if gate is not None}
            if keys <= loading_info.missing_keys:
                loading_info.missing_keys -= keys


def _open_heads(attention: Attention) -> list[int]:
    gate = gate_of(attention)
    values = [1.0] * len(attention.kept_heads) if gate is None else gate.test_value().tolist()
    return [head for head, value in zip(attention.kept_heads, values, strict=True) if value]


def _gated(family: Any, config: Any) -> Any:
    """A family's models with gates, e.g. `GatedBartForConditionalGeneration`."""
    name = f"Gated{family.__name__}"
    layers = "num_layers=2, num_heads=4, d_kv=4" if "T5" in name else "encoder_layers=2, decoder_layers=2"
    doc = f"""`{family.__name__}` whose attention heads can be gated and pruned: see `GatedHeadsMixin`.

    `{name}.from_pretrained` also loads a plain checkpoint of the family, with open gates.

    >>> from hf_nmt_interp import {config.__name__}, {name}
    >>> config = {config.__name__}(vocab_size=20, pad_token_id=1, d_model=16, {layers})
    >>> model = {name}(config)
    >>> model.set_kept_heads({{"encoder": [[0, 2], [3]]}})
    >>> model.prune().kept_heads()["encoder"]
    [[0, 2], [3]]
    """
    names = {"config_class": config, "__module__": __name__, "__doc__": doc}
    return type(name, (GatedHeadsMixin, family), names)


GatedMarianMTModel = _gated(transformers.MarianMTModel, GatedMarianConfig)
GatedBartForConditionalGeneration = _gated(transformers.BartForConditionalGeneration, GatedBartConfig)
GatedMBartForConditionalGeneration = _gated(transformers.MBartForConditionalGeneration, GatedMBartConfig)
GatedM2M100ForConditionalGeneration = _gated(transformers.M2M100ForConditionalGeneration, GatedM2M100Config)
GatedMT5ForConditionalGeneration = _gated(transformers.MT5ForConditionalGeneration, GatedMT5Config)
GatedT5ForConditionalGeneration = _gated(transformers.T5ForConditionalGeneration, GatedT5Config)
