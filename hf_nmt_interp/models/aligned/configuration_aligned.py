"""Configurations of translators with an alignment head."""

from dataclasses import dataclass
from typing import Any

from transformers import BartConfig, M2M100Config, MarianConfig, MBartConfig, MT5Config, T5Config


@dataclass(repr=False, kw_only=True)
class AlignmentHeadConfig:
    """Fields that a model with an alignment head adds to the configuration of its family.

    Args:
        alignment_layer: decoder layer whose output states the head reads, -1 for the last; None for the middle one.
        alignment_heads: number of heads whose attention weights are averaged; divides the width of the model. None for
            as many as the decoder's attention has, or their greatest common divisor with the width.
    """

    alignment_layer: int | None = None
    alignment_heads: int | None = None

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs):
        """Like the family's; also accepts a plain checkpoint of the same family, without a warning."""
        config, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)  # type: ignore[misc]
        if config.get("model_type") == cls.__mro__[2].model_type:  # type: ignore[attr-defined]
            config["model_type"] = cls.model_type  # type: ignore[attr-defined]
        return config, kwargs


def aligned_config(family: Any, module: str = __name__) -> Any:
    """The configuration of a family's models with an alignment head, e.g. `AlignedBartConfig`."""
    name = f"Aligned{family.__name__}"
    doc = f"""`{family.__name__}` with an alignment head: the fields of `AlignmentHeadConfig` are added."""
    example = f"""

    >>> from hf_nmt_interp import {name}
    >>> {name}(alignment_layer=3).alignment_layer
    3
    """
    doc += example if module == __name__ else ""  # others are not public
    names = {"model_type": f"aligned_{family.model_type}", "__module__": module, "__doc__": doc}
    return type(name, (AlignmentHeadConfig, family), names)


AlignedMarianConfig, AlignedBartConfig, AlignedMBartConfig = map(
    aligned_config, (MarianConfig, BartConfig, MBartConfig)
)
AlignedM2M100Config, AlignedT5Config, AlignedMT5Config = map(aligned_config, (M2M100Config, T5Config, MT5Config))
