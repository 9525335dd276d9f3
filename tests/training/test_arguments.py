"""Which checkpoints are looked up on the Hub before training; data arguments are tested in tests/trainer_scripts."""

import httpx2
import huggingface_hub
import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.arguments import check_reachable


@pytest.fixture
def looked_up(monkeypatch):
    found = []

    def refuse(url):
        found.append(url)
        raise httpx2.ConnectError("no network")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse)
    return found


def test_only_names_on_the_hub_are_looked_up_once(looked_up, tmp_path):
    for name in (None, "demo:en-de", str(tmp_path), "./nowhere", "no name on the Hub"):
        check_reachable(name, "--model")
    assert looked_up == []
    with pytest.raises(InputError, match="--tokenizer: 'me/mine' cannot be loaded: no connection to the Hub, and not"):
        check_reachable("me/mine", "--tokenizer")
    assert looked_up == [huggingface_hub.hf_hub_url("me/mine", "config.json")]


def test_a_model_in_the_cache_needs_no_connection(looked_up, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: f"/cache/{name}/{file}")
    check_reachable("me/mine", "--model")
    assert looked_up == []


def test_answers_of_the_hub_are_left_to_the_loading(monkeypatch):
    def offline(url):
        raise huggingface_hub.errors.OfflineModeIsEnabled

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", offline)
    check_reachable("me/mine", "--model")
