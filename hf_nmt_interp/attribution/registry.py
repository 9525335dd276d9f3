"""The attribution methods by name. To add one, write its file and add its class to `METHODS`."""

import re
from typing import Any

from transformers import PreTrainedModel

from hf_nmt_interp.attribution.alignment_head import AlignmentHeadMethod
from hf_nmt_interp.attribution.alti import ALTI
from hf_nmt_interp.attribution.attention import AttentionWeights, ShiftedAttention
from hf_nmt_interp.attribution.base import AttributionMethod
from hf_nmt_interp.attribution.integrated_gradients import IntegratedGradients
from hf_nmt_interp.attribution.lrp import LRP
from hf_nmt_interp.attribution.mask import MaskPerturbation
from hf_nmt_interp.attribution.norm_attention import NormAttention
from hf_nmt_interp.attribution.occlusion import Occlusion
from hf_nmt_interp.attribution.parsing import Named, Parameters, check_settings, parse_named, parse_settings
from hf_nmt_interp.attribution.rollout import Rollout
from hf_nmt_interp.attribution.saliency import Saliency, SmoothGrad
from hf_nmt_interp.attribution.smoothing import SmoothedAttention
from hf_nmt_interp.attribution.value_zeroing import ValueZeroing
from hf_nmt_interp.errors import check_choice

METHODS: dict[str, type[AttributionMethod]] = {
    method.name: method
    for method in (
        LRP, ALTI, Saliency, SmoothGrad, IntegratedGradients, Occlusion, ValueZeroing, AttentionWeights,
        SmoothedAttention, ShiftedAttention, NormAttention, Rollout, MaskPerturbation,
        AlignmentHeadMethod,
    )
}  # fmt: skip


def method_settings(method: str) -> Parameters:
    """Settings of the method with this name."""
    check_choice("method", method, METHODS)
    return METHODS[method].settings()


def models_of_methods() -> dict[str, str]:
    """Which models each method supports; a list that equals an earlier method's refers to that method."""
    found: dict[str, str] = {}
    for name, method in METHODS.items():
        models = ", ".join(method.models())
        same = next((other for other, text in found.items() if models and text == models), None)
        found[name] = f"those of `{same}`" if same else models or "any encoder-decoder of text"
    return found


def methods_of_models() -> dict[str, list[str]]:
    """For each model class that some methods require, the names of the methods that support it."""
    named = {name: [m for m in method.models() if m.isidentifier()] for name, method in METHODS.items()}
    classes = dict.fromkeys(model for models in named.values() for model in models)
    # a calibrated or aligned model also belongs to its plain class
    return {c: [name for name, models in named.items() if c.endswith(tuple(models))] for c in classes}


def word_settings(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with which a method explains the words of the target, unless the given settings override them."""
    own = METHODS[method].word_settings if isinstance(method, str) and method in METHODS else {}
    return {**own, **settings}


def default_settings(method: str) -> dict[str, Any]:
    """The method's defaults for settings in `word_settings`, to explain the model's choices."""
    known = method_settings(method)
    return {name: known[name].default for name in METHODS[method].word_settings}


def make_method(model: PreTrainedModel, method: str, **settings: Any) -> AttributionMethod:
    """The attribution method with this name for a model."""
    check_settings(f"method {method!r}", settings, method_settings(method))
    return METHODS[method](model, **settings)


def parse_method(text: str, argument: str = "--method") -> Named:
    """Name and settings of `NAME` or `NAME:SETTING=VALUE,...`.

    >>> parse_method("attention:layer=2,head=null")
    ('attention', {'layer': 2, 'head': None})
    """
    return parse_named(text, argument, METHODS, method_settings)


def parse_methods(text: str, argument: str = "--method") -> list[Named]:
    """`parse_method` of each part of `NAME+NAME:SETTING=VALUE+...`.

    >>> parse_methods("attention+smoothgrad:sigma=1e+0")
    [('attention', {}), ('smoothgrad', {'sigma': 1.0})]
    """
    return [parse_method(part, argument) for part in re.split(r"\+(?!\d)", text)]


def parse_method_settings(method: str, given: list[str], argument: str = "--set") -> dict[str, Any]:
    """Settings of a method from `name=value`, values as in JSON.

    >>> parse_method_settings("attention", ["layer=2", "head=null"])
    {'layer': 2, 'head': None}
    """
    check_choice("--method", method, METHODS)
    return parse_settings(f"method {method!r}", given, method_settings(method), argument)
