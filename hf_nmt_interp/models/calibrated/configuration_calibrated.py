"""Configurations of translators with calibrated cross-attention."""

from dataclasses import dataclass
from typing import Any

from transformers import BartConfig, M2M100Config, MarianConfig, MBartConfig


@dataclass(repr=False, kw_only=True)
class CalibratedAttentionConfig:
    """Fields that a calibrated model adds to the configuration of its family.

    Args:
        fusion: how original and calibrated weights are combined, a name in `FUSIONS`: "fixed",
            "fixed_unnormalised", "anneal" or "gate".
        fusion_lambda: weight of the calibrated weights in the two fixed fusions.
        anneal_steps: time constant of "anneal", gamma(s) = exp(-s / anneal_steps).
        mask_alpha: alpha that the masks were trained with, for reports; None if they were not trained.
    """

    fusion: str = "gate"
    fusion_lambda: float = 0.1
    anneal_steps: float = 1e5
    mask_alpha: float | None = None

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs):
        """Like the family's; also accepts a plain checkpoint of the same family, without a warning.

        An alignment head is dropped: it would have to be trained again.
        """
        config, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)  # type: ignore[misc]
        if str(config.get("model_type")).removeprefix("aligned_") in (cls.__mro__[2].model_type, cls.model_type):  # type: ignore[attr-defined]
            config["model_type"] = cls.model_type  # type: ignore[attr-defined]
        return config, kwargs


def _calibrated(family: Any) -> Any:
    """The configuration of a family's calibrated models, e.g. `CalibratedBartConfig`."""
    name = f"Calibrated{family.__name__}"
    doc = f"""`{family.__name__}` with calibrated cross-attention: the fields of `CalibratedAttentionConfig` are added.

    >>> from hf_nmt_interp import {name}
    >>> {name}(fusion="anneal").anneal_steps
    100000.0
    """
    names = {"model_type": f"calibrated_{family.model_type}", "__module__": __name__, "__doc__": doc}
    return type(name, (CalibratedAttentionConfig, family), names)


CalibratedMarianConfig, CalibratedBartConfig = map(_calibrated, (MarianConfig, BartConfig))
CalibratedMBartConfig, CalibratedM2M100Config = map(_calibrated, (MBartConfig, M2M100Config))
