"""Models that a method can explain."""

from typing import Any

from hf_nmt_interp.attribution import METHODS
from tests.aligned_models import aligned_copy
from tests.calibrated_models import calibrated_copy


def fitting(method: str, model: Any) -> Any:
    """The model itself if the method explains it, else a copy with an alignment head or with masks."""
    if METHODS[method].fits(model):
        return model
    return aligned_copy(model) if method == "alignment_head" else calibrated_copy(model)
