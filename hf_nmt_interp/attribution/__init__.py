"""Attribution: which token contributed how much to each step."""

from hf_nmt_interp.attribution.attention import AttentionWeights, ShiftedAttention
from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.lrp import LRP
from hf_nmt_interp.attribution.mask import MaskPerturbation
from hf_nmt_interp.attribution.registry import METHODS
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.attribution.saliency import Saliency, SmoothGrad
from hf_nmt_interp.attribution.smoothing import SmoothedAttention

__all__ = [
    "LRP",
    "METHODS",
    "AttentionWeights",
    "AttributionMethod",
    "AttributionResult",
    "MaskPerturbation",
    "Saliency",
    "Scores",
    "ShiftedAttention",
    "SmoothGrad",
    "SmoothedAttention",
]
