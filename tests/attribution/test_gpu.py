"""What would go wrong on a GPU, found without one."""

import json
import subprocess
import sys

import pytest

from tests.attribution.pretend_gpu import CASES, OF_FAMILIES
from tests.tiny_models import FAMILIES, RECURRENT


@pytest.fixture(scope="module")
def found():
    """What `pretend_gpu` prints; its device would be the accelerator of every other test of this process."""
    command = [sys.executable, "-m", "tests.attribution.pretend_gpu"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def check(result):
    assert "error" not in result, result["error"]
    assert result["off"] <= 1e-5
    assert result["device"] == "gpu:0"


@pytest.mark.parametrize("method", CASES)
def test_no_tensor_is_on_the_wrong_device(found, method):
    check(found["small"][method])
    check(found["large"][method])


@pytest.mark.parametrize("method", CASES)
def test_waits_for_the_gpu_do_not_grow_with_layers_tokens_and_copies(found, method):
    assert 0 < found["small"][method]["waits"] == found["large"][method]["waits"] <= 60


def test_families(found):
    for result in found["families"].values():
        check(result)
    without_rules = {f"{family} {method}" for family in RECURRENT for method in ("lrp", "alti")}
    cases = {f"{family} {method}" for family in FAMILIES + RECURRENT for method in OF_FAMILIES}
    assert set(found["families"]) == cases - without_rules


def test_translating_explaining_aligning_and_checking(found):
    result = found["end to end"]
    assert "error" not in result, result["error"]
    assert result["off"] <= 1e-4
    assert result["links"][0] == result["links"][1] == [[0, 0], [1, 1], [2, 2]]


def test_a_model_on_several_devices_is_refused(found):
    expected = "model: its weights are on several devices, cpu and gpu:0; load it on one, e.g. with device_map={'': "
    assert found["split"] == expected + "'cuda:0'}"


def test_a_tensor_on_the_wrong_device_is_found(found):
    assert "aten.mul.Tensor got tensors of two devices, of shapes [[1, 3, 4], [4]]" in found["wrong"]["error"]
