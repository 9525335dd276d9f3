"""What would go wrong on a GPU, found without one."""

import json
import subprocess
import sys

import pytest

from hf_nmt_interp.attribution import METHODS


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


@pytest.mark.parametrize("method", METHODS)
def test_no_tensor_is_on_the_wrong_device(found, method):
    check(found["small"][method])
    check(found["large"][method])


@pytest.mark.parametrize("method", METHODS)
def test_waits_for_the_gpu_do_not_grow_with_layers_tokens_and_copies(found, method):
    assert 0 < found["small"][method]["waits"] == found["large"][method]["waits"] <= 60


def test_families(found):
    for result in found["families"].values():
        check(result)


def test_translating_explaining_aligning_and_checking(found):
    assert found["end to end"] == {"same": True}


def test_a_tensor_on_the_wrong_device_is_found(found):
    assert "aten.mul.Tensor got tensors of two devices, of shapes [[1, 3, 4], [4]]" in found["wrong"]["error"]
