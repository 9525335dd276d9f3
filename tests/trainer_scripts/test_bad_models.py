"""Models that cannot be trained, arguments that are wrong, disks that are full: one line from every script."""

import json
import re
import resource
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.calibration import load_calibrated
from hf_nmt_interp.training.checkpoints import list_checkpoints
from hf_nmt_interp.training.l0 import load_gated
from hf_nmt_interp.training.launch import run_script
from hf_nmt_interp.training.translation import TranslationTrainer
from tests.trainer_scripts.every_trainer import RUNS, command_line, options_of

OFFLINE = "nobody/never-downloaded"


def damaged(folder, tmp_path, kind):
    """The name of a model with something wrong."""
    if kind == "no network":
        return OFFLINE
    if kind == "no folder":
        return str(tmp_path / "nowhere")
    copy = shutil.copytree(folder, tmp_path / "damaged")
    weights, config = copy / "model.safetensors", copy / "config.json"
    if kind == "cut weights":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif kind == "no weights":
        weights.unlink()
    elif kind == "other kind":
        config.write_text(json.dumps({"model_type": "martian"}))
    elif kind == "more layers":
        config.write_text(json.dumps(json.loads(config.read_text()) | {"encoder_layers": 5}))
    elif kind == "other sizes":
        config.write_text(json.dumps(json.loads(config.read_text()) | {"encoder_ffn_dim": 12}))
    elif kind == "NaN":
        found = load_file(weights)
        found["model.encoder.layers.0.fc1.bias"][0] = torch.nan
        save_file(found, weights, {"format": "pt"})
    else:
        (copy / "vocab.json").unlink()
    return str(copy)


EVERYWHERE = {
    "no folder": "folder '.*nowhere' does not exist",
    "cut weights": "damaged' cannot be loaded: ",
    "no network": "no connection to the Hub, and not in the cache; give a local folder or demo:en-de",
}
MESSAGES = EVERYWHERE | {
    "no weights": "damaged' cannot be loaded: Error no file named model.safetensors",
    "other kind": "damaged' cannot be loaded: The checkpoint you are trying to load has model type `martian`",
    "more layers": r"has no weights for model.encoder.layers.2.* and \d+ others",
    "other sizes": r"has model.encoder.layers.* but its config.json needs \[12",
    "NaN": "has NaN or inf in model.encoder.layers.0.fc1.bias; use an earlier checkpoint",
    "no tokenizer": "damaged' has no tokenizer that can be loaded; save it in the same folder as the weights",
}


def run(monkeypatch, name, tmp_path, **options):
    options = {"output_dir": tmp_path / "out", "max_steps": 2} | options
    words = command_line(name, options_of(name, None) | options)
    monkeypatch.setattr(sys, "argv", words)
    RUNS[name][0].main()


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in RUNS for kind in (MESSAGES if name == "translation" else EVERYWHERE)],
)
def test_models_that_cannot_be_trained(start, tmp_path, monkeypatch, name, kind):
    folder, data = start
    model = damaged(folder, tmp_path, kind)
    with pytest.raises(InputError, match=f"(--model|name): .*{MESSAGES[kind]}"):
        run(monkeypatch, name, tmp_path, model=model, train=data["train"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("load", [load_gated, load_calibrated])
@pytest.mark.parametrize("kind", ["more layers", "other sizes", "NaN"])
def test_gates_and_masks_are_not_put_on_random_weights(start, tmp_path, load, kind):
    with pytest.raises(InputError, match=f"name: .*{MESSAGES[kind]}"):
        load(damaged(start[0], tmp_path, kind))


WRONG = [
    ({"tokenizer": OFFLINE}, f"--tokenizer: '{OFFLINE}' cannot be loaded: no connection to the Hub"),
    ({"heads": "nowhere"}, "--heads: 'nowhere' is neither a number nor a folder with a config.json"),
    ({"heads": 3}, "--d_model, --layers, --heads, --ffn_dim: embed_dim must be divisible by num_heads .*; choose"),
    ({"heads": 0}, "--d_model, --layers, --heads, --ffn_dim: .*; choose other values"),
    ({"learning_rate": "nan"}, "--learning_rate: nan must be finite, e.g. 5e-5"),
    ({"hub_tok": "hf_x"}, r"--hub_tok: is not a known argument; see --help; abbreviations"),
    ({"load_best_model_at_end": True}, "load_best_model_at_end requires the save and eval strategy to match"),
    ({"output_dir": "/dev/null/out"}, "--output_dir: '/dev/null/out' cannot be created or written to; choose another"),
    ({"resume_from_checkpoint": "nowhere"}, "--resume_from_checkpoint: 'nowhere' is not a folder; leave it out"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_wrong_arguments(start, tmp_path, monkeypatch, options, message):
    with pytest.raises(InputError, match=message):
        run(monkeypatch, "translation", tmp_path, train=start[1]["train"], **options)


BAD_TEXT = [
    ("translation", {"train": b"A\n\xff\n"}, r"train, line 2: byte 1 \(0xff\) is not UTF-8; convert the file first"),
    ("mrt", {"train": b"A\nB\n\n"}, "target, line 3: missing; the parallel .*train has more lines"),
    ("mrt", {"valid": b""}, "valid, line 1: missing"),
    ("mrt", {"test": b"A\n\0\n"}, "test, line 2: NUL character; is this a text file?"),
]


@pytest.mark.parametrize(("name", "texts", "message"), BAD_TEXT, ids=range(len(BAD_TEXT)))
def test_bad_text_is_found_before_the_training(start, tmp_path, monkeypatch, name, texts, message):
    folder, data = start
    options = {"train": data["train"]} | ({"model": folder} if name == "mrt" else {})
    (tmp_path / "target").write_bytes(b"A\nB\n")
    for split, content in texts.items():
        (tmp_path / split).write_bytes(content)
        options[split] = [tmp_path / split, tmp_path / "target"]
    monkeypatch.setattr(TranslationTrainer, "train", lambda *_, **__: pytest.fail("it trains"))
    with pytest.raises(InputError, match=message):
        run(monkeypatch, name, tmp_path, **options)


def test_sets_without_pairs_are_refused(start, tmp_path, monkeypatch):
    (tmp_path / "none").touch()
    for split in ("valid", "test"):
        options = {"train": start[1]["train"], "model": start[0], split: [tmp_path / "none"] * 2}
        with pytest.raises(InputError, match=rf"--{split}: \['.*none', '.*none'\] has no pairs; leave it out"):
            run(monkeypatch, "translation", tmp_path, **options)


def test_lines_beyond_the_positions_are_dropped_or_cut(start, tmp_path, monkeypatch, capsys):
    """Also where --max_length would let them through; the card leaves them out."""
    folder, data = start
    long = "A dog.\n" + "dog " * 10_000 + "\n"
    (tmp_path / "test").write_text(long)
    for side, path in zip(("en", "de"), data["train"], strict=True):
        (tmp_path / side).write_text(Path(path).read_text() + long)
    options = {"train": [tmp_path / "en", tmp_path / "de"], "test": 2 * [tmp_path / "test"], "max_length": 100_000}
    run(monkeypatch, "translation", tmp_path, model=folder, **options)
    assert re.search(
        r"--max_length: 100000 is more than the model's (\d+) positions, using \1", capsys.readouterr().out
    )
    assert json.loads((tmp_path / "out" / "results.json").read_text())["train_steps"] == 2
    assert (tmp_path / "out" / "README.md").exists()


def test_a_training_that_ends_in_nan_says_so(start, tmp_path, monkeypatch):
    options = {"train": start[1]["train"], "model": start[0]}
    with pytest.raises(InputError, match=r"training: produced NaN or inf in .*; train in another --output_dir, with"):
        run(monkeypatch, "translation", tmp_path, **options, learning_rate=1e30, max_steps=6)
    assert not (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize("limit", [20_000, 60_000], ids=["weights", "optimizer"])
def test_a_full_disk_is_one_line_and_leaves_whole_checkpoints(start, tmp_path, monkeypatch, capsys, limit):
    folder, data = start
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def fill():
        if list_checkpoints(tmp_path / "out"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # as a full disk, writing fails in the middle

    before = TranslationTrainer._save_checkpoint
    monkeypatch.setattr(TranslationTrainer, "_save_checkpoint", lambda self, *args: (fill(), before(self, *args)))
    options = {"train": data["train"], "save_steps": 1, "model": folder, "tokens_per_batch": 100}
    try:
        with pytest.raises(SystemExit) as ended:
            run_script(lambda: run(monkeypatch, "translation", tmp_path, **options))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert ended.value.code == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("train_translation.py: cannot write: ")
    assert "free space and run the same command again to resume from the last checkpoint" in err
    assert [path.name for path in list_checkpoints(tmp_path / "out", complete=False)] == ["checkpoint-1"]
    monkeypatch.undo()
    run(monkeypatch, "translation", tmp_path, **options)
    out = capsys.readouterr().out
    assert f"{tmp_path / 'out' / 'unfinished' / 'checkpoint-2'} is incomplete" in out
    assert f"Resuming from {tmp_path / 'out' / 'checkpoint-1'}" in out
    assert not (tmp_path / "out" / "unfinished").exists()


@pytest.mark.parametrize("kept", [0, 1])
def test_an_interrupt_is_one_line_that_names_what_is_kept(start, tmp_path, monkeypatch, capsys, kept):
    folder, data = start
    before = TranslationTrainer.training_step

    def step(self, *args, **options):
        if self.state.global_step == kept:
            raise KeyboardInterrupt
        return before(self, *args, **options)

    monkeypatch.setattr(TranslationTrainer, "training_step", step)
    options = {"train": data["train"], "save_steps": 1, "model": folder, "tokens_per_batch": 100, "max_steps": 2}
    with pytest.raises(SystemExit) as ended:
        run_script(lambda: run(monkeypatch, "translation", tmp_path, **options))
    assert ended.value.code == 130
    last = tmp_path / "out" / "checkpoint-1"
    texts = [
        "no checkpoint was saved yet; the same command starts over",
        f"{last} is kept; run the same command again to resume from it",
    ]
    assert capsys.readouterr().err.splitlines()[-1] == f"train_translation.py: interrupted; {texts[kept]}"
    monkeypatch.setattr(TranslationTrainer, "training_step", before)
    run(monkeypatch, "translation", tmp_path, **options)
    assert (f"Resuming from {last}" in capsys.readouterr().out) == bool(kept)
