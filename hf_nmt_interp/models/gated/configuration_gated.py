"""Configurations of translators with gated or pruned attention heads."""

from dataclasses import dataclass
from typing import Any

from transformers import BartConfig, M2M100Config, MarianConfig, MBartConfig, MT5Config, T5Config

KINDS = ("encoder", "decoder", "cross")


def kinds_of(gated_attentions: str | list[str]) -> list[str]:
    """The kinds of attention in a value of `gated_attentions`.

    >>> kinds_of("all"), kinds_of("cross")
    (['encoder', 'decoder', 'cross'], ['cross'])
    """
    named = [gated_attentions] if isinstance(gated_attentions, str) else list(gated_attentions)
    if unknown := [name for name in named if name not in (*KINDS, "all")]:
        raise ValueError(f"gated_attentions={gated_attentions!r}: {unknown} not among 'all', {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in named or "all" in named]


@dataclass(repr=False, kw_only=True)
class GatedHeadsConfig:
    """Fields that a gated model adds to the configuration of its family.

    Args:
        gated_attentions: kinds with gates: "encoder" and "decoder" (self-attention), "cross", or "all".
        gate_temperature: temperature of the Hard Concrete distribution.
        gate_stretch: its (low, high) before clipping to [0, 1].
        gate_init: initial log_alpha of new gates. 3.0 opens them: at test time they are 1; a draw in training is
            1 with probability 0.90, 0 with probability 0.02, 0.95 on average. Gates closer to 0 close sooner.
        kept_heads: the heads of each layer, by kind, numbered as before pruning; kinds that are missing have all
            their heads.
    """

    gated_attentions: str | list[str] = "all"
    gate_temperature: float = 0.33
    gate_stretch: tuple[float, float] | list[float] = (-0.1, 1.1)
    gate_init: float = 3.0
    kept_heads: dict[str, list[list[int]]] | None = None

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs):
        """Like the family's; also accepts a plain checkpoint of the same family, without a warning.

        An alignment head is dropped: it would have to be trained again.
        """
        config, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)  # type: ignore[misc]
        if str(config.get("model_type")).removeprefix("aligned_") in (cls.__mro__[2].model_type, cls.model_type):  # type: ignore[attr-defined]
            config["model_type"] = cls.model_type  # type: ignore[attr-defined]
        return config, kwargs


def _gated(family: Any) -> Any:
    """The configuration of a family's gated models, e.g. `GatedBartConfig`."""
    name = f"Gated{family.__name__}"
    doc = f"""`{family.__name__}` with gates on attention heads: the fields of `GatedHeadsConfig` are added.

    >>> from hf_nmt_interp import {name}
    >>> {name}(gated_attentions="encoder").gate_init
    3.0
    """
    names = {"model_type": f"gated_{family.model_type}", "__module__": __name__, "__doc__": doc}
    return type(name, (GatedHeadsConfig, family), names)


GatedMarianConfig, GatedBartConfig, GatedMBartConfig = map(_gated, (MarianConfig, BartConfig, MBartConfig))
GatedM2M100Config, GatedT5Config, GatedMT5Config = map(_gated, (M2M100Config, T5Config, MT5Config))
