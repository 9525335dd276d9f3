"""Which checkpoints count, and their mean."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import save_file

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.checkpoints import average_checkpoints, list_checkpoints
from tests.calibrated_models import tiny_calibrated
from tests.tiny_models import tiny_model


def make_checkpoint(folder, state=b"{}", weights=True, without=(), **arguments):
    folder.mkdir(parents=True)
    if state is not None:
        (folder / "trainer_state.json").write_bytes(state)
    (folder / "training_args.json").write_text(json.dumps({"save_only_model": False} | arguments))
    if weights:
        save_file({"weight": torch.zeros(9)}, folder / "model.safetensors")
    for name in STATES:
        torch.save({"step": 1}, folder / name)
    for name in without:
        (folder / name).unlink()


STATES = ["optimizer.pt", "scheduler.pt", "rng_state.pth"]
INCOMPLETE = {
    100: {"weights": False},
    1200: {"state": None},
    1400: {"state": b'{"global_step": 14'},
    1401: {"state": bytes(50)},  # what a power cut leaves
    1402: {"state": b"\xff\xfe\x00\xd8\x00"},
}
MODELS_ONLY = {  # good for reading, not for going on
    1403: {"without": ["optimizer.pt"]},
    1404: {"without": ["scheduler.pt"]},
    1405: {"without": ["rng_state.pth"]},
    1406: {"without": [*STATES, "training_args.json"]},
}


def test_only_complete_checkpoints_are_listed_in_order_of_steps(tmp_path):
    make_checkpoint(tmp_path / "checkpoint-1000")
    make_checkpoint(tmp_path / "checkpoint-200")
    make_checkpoint(tmp_path / "checkpoint-300", without=STATES, save_only_model=True)
    make_checkpoint(tmp_path / "checkpoint-best")
    for step, settings in (INCOMPLETE | MODELS_ONLY).items():
        make_checkpoint(tmp_path / f"checkpoint-{step}", **settings)
    for step, name in ((1500, "model.safetensors"), (1600, "optimizer.pt"), (1700, "training_args.json")):
        make_checkpoint(tmp_path / f"checkpoint-{step}")
        cut = tmp_path / f"checkpoint-{step}" / name
        os.truncate(cut, cut.stat().st_size // 2)
    (tmp_path / "checkpoint-7").touch()

    def steps(**which):
        return [int(path.name.split("-")[1]) for path in list_checkpoints(tmp_path, **which)]

    assert steps(resumable=True) == [200, 300, 1000]
    assert steps() == [200, 300, 1000, *MODELS_ONLY]
    assert steps(complete=False) == sorted([200, 300, 1000, *INCOMPLETE, *MODELS_ONLY, 1500, 1600, 1700])
    assert list_checkpoints(tmp_path / "nothing") == []


@pytest.mark.parametrize("shards", [False, True])
def test_average_is_the_mean_of_the_weights(tmp_path, shards):
    models = [tiny_model("marian", seed=seed) for seed in range(3)]
    folders = [tmp_path / f"checkpoint-{i}" for i in range(3)]
    for model, folder in zip(models, folders, strict=True):
        model.save_pretrained(folder, **({"max_shard_size": "8KB"} if shards else {}))
    assert (len(list(folders[0].glob("*.safetensors"))) > 1) == shards
    mean = tiny_model("marian", seed=9)
    average_checkpoints(mean, folders)
    for name, weight in mean.state_dict().items():
        expected = torch.stack([model.state_dict()[name].double() for model in models]).mean(0).to(weight.dtype)
        torch.testing.assert_close(weight, expected, msg=name)
    assert mean.lm_head.weight is mean.model.shared.weight


def test_counts_are_not_averaged(tmp_path):
    model = tiny_calibrated(fusion="anneal")
    for step in (3, 8):
        model.fusions()[0].step.fill_(step)
        model.save_pretrained(tmp_path / f"checkpoint-{step}")
    average_checkpoints(model, list_checkpoints(tmp_path, complete=False))
    assert model.fusions()[0].step.item() == 8


def test_average_of_one_is_that_one(tmp_path):
    model, other = tiny_model("t5", seed=1), tiny_model("t5", seed=2)
    model.save_pretrained(tmp_path)
    average_checkpoints(other, [tmp_path])
    torch.testing.assert_close(other.state_dict(), model.state_dict())


def test_what_cannot_be_averaged_is_refused(tmp_path):
    model = tiny_model("marian")
    with pytest.raises(InputError, match="folders: no checkpoint to average"):
        average_checkpoints(model, [])
    with pytest.raises(InputError, match=r"empty' has no \*.safetensors file"):
        average_checkpoints(model, [tmp_path / "empty"])
    model.save_pretrained(tmp_path / "a")
    tiny_model("marian", decoder_layers=3).save_pretrained(tmp_path / "deeper")
    tiny_model("marian", decoder_ffn_dim=20).save_pretrained(tmp_path / "thinner")
    for others in (["deeper"], ["a", "deeper"], ["a", "thinner"]):
        with pytest.raises(InputError, match=r"has other weights than the model.*decoder.layers.*same run"):
            average_checkpoints(model, [tmp_path / name for name in others])
    before = tiny_model("marian").state_dict()
    torch.testing.assert_close(model.state_dict(), before)  # an error leaves the model alone
    shutil.rmtree(tmp_path / "a")
