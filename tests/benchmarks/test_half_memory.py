"""LRP and ALTI on models in half precision: no float32 copy of the weights."""

import copy

import pytest
import torch

from hf_nmt_interp.attribution import ALTI, LRP
from hf_nmt_interp.studies.methods_compared import measured
from tests.benchmarks.base_size import base_model
from tests.benchmarks.test_lrp_speed import sentence

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("method", [LRP, ALTI])
def test_weights_are_widened_one_layer_at_a_time(method):
    """A bfloat16 model needs at most 0.3 times its weights more than a float32 model of the same size needs."""
    model, inputs = base_model(), sentence(20, 23)
    half = copy.deepcopy(model).to(torch.bfloat16)
    weights = sum(p.nbytes for p in half.parameters()) / 2**20
    needed = {}
    for name, explained in {"float32": model, "bfloat16": half}.items():
        explainer = method(explained)
        explainer(**inputs)  # what is allocated once
        needed[name] = measured(lambda explainer=explainer: explainer(**inputs), "cpu", 1)[1]["MB"]
    print(f"\n{method.__name__}: weights {weights:.0f} MB in bfloat16, needed beyond them: {needed}")
    assert needed["bfloat16"] <= needed["float32"] + 0.3 * weights
