"""Which checkpoints are looked up on the Hub, fingerprints of weights; tests/robustness has broken folders."""

import httpx2
import huggingface_hub
import pytest
import torch

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.loading import _find, weights_fingerprint
from tests.tiny_models import tiny_model


@pytest.fixture
def looked_up(monkeypatch):
    found = []

    def refuse(url):
        found.append(url)
        raise httpx2.ConnectError("no network")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse)
    return found


def test_only_names_on_the_hub_are_looked_up_once(looked_up, tmp_path):
    for name in ("demo:en-de", "no name on the Hub"):
        _find(name, "--model")
    for name in (str(tmp_path), "./nowhere"):
        with pytest.raises(InputError, match=r"has no config.json|does not exist"):
            _find(name, "--model")
    assert looked_up == []
    with pytest.raises(InputError, match="--tokenizer: 'me/mine' cannot be loaded: no connection to the Hub, and not"):
        _find("me/mine", "--tokenizer")
    assert looked_up == [huggingface_hub.hf_hub_url("me/mine", "config.json")]


def test_a_model_in_the_cache_needs_no_connection(looked_up, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: f"/cache/{name}/{file}")
    _find("me/mine", "--model")
    assert looked_up == []


def test_answers_of_the_hub_are_left_to_the_loading(monkeypatch):
    def offline(url):
        raise huggingface_hub.errors.OfflineModeIsEnabled

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", offline)
    _find("me/mine", "--model")


def test_a_fingerprint_is_that_of_all_weights_but_those_left_out():
    model, same, other = tiny_model("marian"), tiny_model("marian"), tiny_model("marian")
    with torch.no_grad():
        other.lm_head.weight[-1, -1] += 1e-3  # a tied weight
    first = weights_fingerprint(model)
    assert first == weights_fingerprint(same) != weights_fingerprint(other)
    with torch.no_grad():
        same.model.encoder.layers[0].fc1.bias += 1
    left_out = ("model.encoder.",)
    assert weights_fingerprint(same) != first
    assert weights_fingerprint(same, left_out) == weights_fingerprint(model, left_out)
