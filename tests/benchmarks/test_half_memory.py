"""LRP and ALTI on models in half precision: no float32 copy of the weights."""

import ctypes
import gc

import pytest
import torch

from hf_nmt_interp.attribution import ALTI, LRP
from hf_nmt_interp.studies.methods_compared import measured
from tests.benchmarks.base_size import base_model
from tests.benchmarks.test_lrp_speed import sentence

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("method", [LRP, ALTI])
def test_weights_are_widened_one_layer_at_a_time(method):
    """A bfloat16 model needs at most 0.3 times its weights beside the relevance of one sentence, 40 MB."""
    half, inputs = base_model().to(torch.bfloat16), sentence(20, 23)
    weights = sum(p.nbytes for p in half.parameters()) / 2**20
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # else what building the model has left would be used again
    needed = measured(lambda: method(half)(**inputs), "cpu", 1)[1]["MB"]
    print(f"\n{method.__name__}: weights {weights:.0f} MB in bfloat16, needed beyond them: {needed:.0f} MB")
    assert needed <= 0.3 * weights + 40
