"""Alignment heads for gated, pruned and calibrated translators.

Models of a single kind can be shared with their code; these combine two kinds, so loading them needs this package.
"""

from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM

# from their files: the packages may just be importing transformers, which imports this module
from hf_nmt_interp.models.aligned.configuration_aligned import aligned_config
from hf_nmt_interp.models.aligned.modeling_aligned import aligned_model
from hf_nmt_interp.models.calibrated.modeling_calibrated import CalibratedAttentionMixin
from hf_nmt_interp.models.gated.modeling_gated import GatedHeadsMixin


def _combine(kind: Any) -> Any:
    """A kind's models with an alignment head, e.g. `AlignedGatedMarianMTModel`, registered with the Auto classes."""
    config = aligned_config(kind.config_class, __name__)
    model = aligned_model(kind, config, __name__)
    config._auto_class = model._auto_class = None  # save_pretrained would save only half of the code with the weights
    AutoConfig.register(config.model_type, config)
    AutoModelForSeq2SeqLM.register(config, model)
    return model


KINDS = [*GatedHeadsMixin.__subclasses__(), *CalibratedAttentionMixin.__subclasses__()]
COMBINED = {model.__name__: model for model in map(_combine, KINDS)}
globals().update(COMBINED)
