"""Attribution: which token contributed how much to each step."""

from hf_nmt_interp.attribution.alti import ALTI
from hf_nmt_interp.attribution.attention import AttentionWeights, ShiftedAttention
from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.integrated_gradients import IntegratedGradients
from hf_nmt_interp.attribution.lrp import LRP
from hf_nmt_interp.attribution.mask import MaskPerturbation
from hf_nmt_interp.attribution.norm_attention import NormAttention
from hf_nmt_interp.attribution.occlusion import Occlusion
from hf_nmt_interp.attribution.registry import METHODS
from hf_nmt_interp.attribution.result import AttributionResult
from hf_nmt_interp.attribution.rollout import Rollout
from hf_nmt_interp.attribution.saliency import Saliency, SmoothGrad
from hf_nmt_interp.attribution.smoothing import SmoothedAttention
from hf_nmt_interp.attribution.value_zeroing import ValueZeroing

__all__ = [
    "ALTI",
    "LRP",
    "METHODS",
    "AttentionWeights",
    "AttributionMethod",
    "AttributionResult",
    "IntegratedGradients",
    "MaskPerturbation",
    "NormAttention",
    "Occlusion",
    "Rollout",
    "Saliency",
    "Scores",
    "ShiftedAttention",
    "SmoothGrad",
    "SmoothedAttention",
    "ValueZeroing",
]
