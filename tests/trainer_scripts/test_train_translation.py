"""The script end to end: every kind of data, evaluation, averaging, export, a kill, two processes, wrong arguments.

Also for training/job.py, training/arguments.py and training/new_models.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import MarianMTModel, MarianTokenizer

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.arguments import DataArguments
from hf_nmt_interp.training.checkpoints import list_checkpoints
from tests.made_up_corpus import made_up_pairs, write_parallel
from tests.tiny_models import tiny_model
from tests.trainer_scripts.every_trainer import launch
from trainer_scripts import train_translation

SCRIPT = str(Path(train_translation.__file__))
PAIRS = made_up_pairs(150)
SPLITS = {"train": PAIRS[:120], "validation": PAIRS[120:129], "test": PAIRS[129:]}
SMALL = {
    "vocab_size": 70,
    "d_model": 16,
    "layers": 1,
    "heads": 2,
    "ffn_dim": 16,
    "max_length": 30,
    "tokens_per_batch": 100,
    "noam_scale": 0.5,
    "warmup_steps": 10,
    "label_smoothing_factor": 0.1,
    "logging_steps": 1,
    "save_steps": 4,
    "max_steps": 8,
    "generation_num_beams": 1,
    "test_beams": 2,
    "disable_tqdm": True,
    "report_to": "none",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The same pairs as text files, JSONL, a folder of JSONL and a set that `datasets` saved."""
    import datasets

    folder = tmp_path_factory.mktemp("corpus")
    (folder / "files").mkdir()
    for split, pairs in SPLITS.items():
        write_parallel(folder, split, pairs)
        rows = [{"translation": {"en": source, "de": target}} for source, target in pairs]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text)
        (folder / "files" / f"{split}.jsonl").write_text(text)
    columns = {
        split: {"en": [en for en, _ in pairs], "de": [de for _, de in pairs]} for split, pairs in SPLITS.items()
    }
    datasets.DatasetDict({s: datasets.Dataset.from_dict(c) for s, c in columns.items()}).save_to_disk(folder / "set")
    return folder


def arguments(out, **options):
    """Of the command line; a value of None leaves a default out."""
    given = {"output_dir": out} | SMALL | options
    words = []
    for name, value in given.items():
        if value is not None:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def text_files(corpus, *splits):
    names = {"train": "train", "valid": "validation", "test": "test"}
    return {split: [corpus / f"{names[split]}.en", corpus / f"{names[split]}.de"] for split in splits}


@pytest.fixture
def run(monkeypatch):
    """Call the script within this process."""

    def call(out, **options):
        monkeypatch.setattr(sys, "argv", [SCRIPT, *arguments(out, **options)])
        train_translation.main()
        return read_log(out)

    return call


def read_log(out):
    """Log lines of the last checkpoint by step; of evaluations apart."""
    state = json.loads((list_checkpoints(out)[-1] / "trainer_state.json").read_text())
    rows = state["log_history"]
    return {r["step"]: r for r in rows if "loss" in r}, {r["step"]: r for r in rows if "eval_loss" in r}


def losses(log):
    return {step: row["loss"] for step, row in log[0].items()}


def test_text_files_to_a_float16_export(corpus, tmp_path, run, capsys):
    options = {"eval_strategy": "steps", "eval_steps": 4, "max_valid": 5, "save_total_limit": 2, "average_last": 2}
    export, run_folder = tmp_path / "export", tmp_path / "run"
    options |= text_files(corpus, "train", "valid", "test") | {"gradient_accumulation_steps": 2}
    training, evaluations = run(run_folder, export=export, **options)
    assert list(training) == list(range(1, 9))
    assert list(evaluations) == [4, 8]
    for row in evaluations.values():
        assert 0 <= row["eval_bleu"] <= 100
        assert 0 < row["eval_chrf"] <= 100
    results = json.loads((run_folder / "results.json").read_text())
    assert results["train_steps"] == 8
    assert results["train_seconds"] > 0
    assert 0 < results["test_chrf"] <= 100
    assert 0 <= results["test_bleu"] <= 100
    assert results["command"].startswith(f"python trainer_scripts/train_translation.py --output_dir {run_folder}")

    folders = export, run_folder, *list_checkpoints(run_folder)
    weights, final, first, second = (load_file(folder / "model.safetensors") for folder in folders)
    assert all(weight.dtype == torch.float16 for weight in weights.values())
    for name, weight in final.items():
        torch.testing.assert_close(weight, (first[name] + second[name]) / 2)
        torch.testing.assert_close(weights[name], weight.half())
    tokenizer = MarianTokenizer.from_pretrained(export)
    model = MarianMTModel.from_pretrained(export, dtype="float32")
    assert model.config.vocab_size == len(tokenizer) == 70
    batch = tokenizer([source for source, _ in PAIRS[:3]], return_tensors="pt", padding=True)
    assert model.generate(**batch, max_new_tokens=5).shape[0] == 3

    capsys.readouterr()
    run(run_folder, export=export, **options)  # nothing is left to be done, and it is done again
    assert "Resuming from" in capsys.readouterr().out
    again = json.loads((run_folder / "results.json").read_text())
    assert again["test_bleu"] == results["test_bleu"]
    assert again["train_seconds"] == pytest.approx(results["train_seconds"], abs=0.05)
    torch.testing.assert_close(load_file(export / "model.safetensors"), weights)


def test_beams_and_length_penalty_of_the_final_test(corpus, tmp_path, run, monkeypatch):
    seen, generate = [], MarianMTModel.generate

    def recorded(model, *given, **options):
        seen.append((options.get("num_beams"), options.get("length_penalty")))
        return generate(model, *given, **options)

    monkeypatch.setattr(MarianMTModel, "generate", recorded)
    options = text_files(corpus, "train", "test") | {"max_steps": 1, "save_steps": 1}
    run(tmp_path, **options, test_length_penalty=0.6)
    assert set(seen) == {(2, 0.6)}
    seen.clear()
    run(tmp_path, **options, test_beams=3)  # nothing is left to be trained, only tested
    assert set(seen) == {(3, None)}  # the model's own penalty


def test_every_kind_of_data_gives_the_same_training(corpus, tmp_path, run, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    kinds = {
        "text": text_files(corpus, "train", "valid"),
        "jsonl": {"train": corpus / "train.jsonl", "valid": corpus / "validation.jsonl"},
        "saved": {"dataset": corpus / "set", "train": "train", "valid": "validation"},
        "folder": {"dataset": corpus / "files", "train": "train", "valid": "validation"},
        "stream": {"dataset": corpus / "files", "train": "train", "valid": "validation", "streaming": True},
    }
    found = {}
    for name, data in kinds.items():
        log = run(tmp_path / name, **data, max_steps=3, eval_strategy="steps", eval_steps=3)
        found[name] = losses(log), log[1][3]["eval_loss"], log[1][3]["eval_chrf"]
    for name in kinds:
        assert found[name] == found["text"], name


def test_a_stream_is_passed_over_again(corpus, tmp_path, run):
    log = run(tmp_path, train=corpus / "train.jsonl", streaming=True, max_steps=40, logging_steps=10)
    assert list(losses(log)) == [10, 20, 30, 40]


def test_a_killed_run_gives_what_it_would_have_given(corpus, tmp_path, run, capsys):
    options = text_files(corpus, "train", "valid") | {"gradient_accumulation_steps": 2}
    options |= {"max_steps": 60, "save_steps": 5}
    options |= {"dropout": 0.3, "eval_strategy": "steps", "eval_steps": 25, "max_valid": 2}
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, SCRIPT, *arguments(killed, **options)], stdout=log, stderr=log)
        try:
            while process.poll() is None and len(list_checkpoints(killed)) < 2:
                time.sleep(0.005)
        finally:
            process.kill()
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    step = int(list_checkpoints(killed)[-1].name.split("-")[1])
    assert 10 <= step < 60
    half_written = killed / "checkpoint-1000"  # as if it had been killed later, in writing
    half_written.mkdir()
    (half_written / "model.safetensors").write_bytes(b"cut")
    resumed = run(killed, **options)
    out = capsys.readouterr().out
    assert f"{half_written} is incomplete" in out
    assert f"Resuming from {killed / f'checkpoint-{step}'}" in out
    uninterrupted = run(whole, **options)
    assert losses(resumed) == pytest.approx(losses(uninterrupted), rel=1e-6)
    assert list(losses(resumed)) == list(range(1, 61))
    evaluations = [{step: row["eval_chrf"] for step, row in log[1].items()} for log in (resumed, uninterrupted)]
    assert evaluations[0] == evaluations[1]
    weights, expected = (load_file(folder / "model.safetensors") for folder in (killed, whole))
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_two_processes_train_as_one_with_two_batches_a_step(corpus, tmp_path, run):
    options = text_files(corpus, "train", "valid", "test") | {"dropout": 0.0, "average_last": 2, "max_steps": 12}
    options |= {"eval_strategy": "steps", "eval_steps": 12, "tokens_per_batch": 60}  # 9 to validate, 21 to test: odd
    two, one = tmp_path / "two", tmp_path / "one"
    launch("--num_processes", 2, SCRIPT, *arguments(two, **options, export=two / "export"))
    expected = run(one, **options, gradient_accumulation_steps=2)
    found = read_log(two)
    assert (list_checkpoints(two)[-1] / "rng_state_1.pth").is_file()  # there was a second process
    assert losses(found) == pytest.approx(losses(expected), rel=1e-5)
    for metric in ("eval_bleu", "eval_chrf"):
        assert found[1][12][metric] == pytest.approx(expected[1][12][metric])
    results = [json.loads((folder / "results.json").read_text()) for folder in (two, one)]
    assert results[0]["test_chrf"] == pytest.approx(results[1]["test_chrf"])
    weights, others = (load_file(folder / "model.safetensors") for folder in (two, one))
    for name in weights:
        if not name.endswith("k_proj.bias"):  # its gradient is 0 but for rounding, which Adam scales up
            torch.testing.assert_close(weights[name], others[name], rtol=1e-4, atol=1e-5, msg=name)
    assert load_file(two / "export" / "model.safetensors")


@pytest.mark.slow
def test_two_killed_processes_go_on_exactly(corpus, tmp_path):
    options = text_files(corpus, "train") | {"dropout": 0.3, "max_steps": 60, "save_steps": 5}
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", SCRIPT]
    process = subprocess.Popen([*command, *arguments(killed, **options)], start_new_session=True)
    try:
        while process.poll() is None and len(list_checkpoints(killed)) < 2:
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert int(list_checkpoints(killed)[-1].name.split("-")[1]) < 60
    for folder in (killed, whole):
        launch("--num_processes", 2, SCRIPT, *arguments(folder, **options))
    assert losses(read_log(killed)) == pytest.approx(losses(read_log(whole)), rel=1e-6)


@pytest.mark.parametrize(("family", "codes"), [("m2m100", ("en", "de")), ("nllb", ("eng_Latn", "deu_Latn"))])
def test_goes_on_from_a_checkpoint_of_many_languages(corpus, tmp_path, run, tokenizer_of, family, codes):
    tokenizer = tokenizer_of(family)
    tokenizer.save_pretrained(tmp_path / "start")
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    vocabulary = len(tokenizer) + 200  # M2M100 counts no languages
    start = tiny_model("m2m100", vocab_size=vocabulary, decoder_start_token_id=ids["eos_token_id"], **ids)
    start.half().save_pretrained(tmp_path / "start")
    options = {"model": tmp_path / "start", "source_code": codes[0], "target_code": codes[1], "max_length": 60}
    log = run(tmp_path / "run", **text_files(corpus, "train", "test"), **options, max_steps=2, export=tmp_path / "out")
    assert len(losses(log)) == 2
    settings = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    token = tokenizer.convert_ids_to_tokens(settings["forced_bos_token_id"])
    assert codes[1] in token
    assert load_file(tmp_path / "run" / "model.safetensors")["model.shared.weight"].dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": None}, r"--train: \[\] does not name the data; give two text files or one JSONL file"),
        ({"train": ["a", "b", "c"]}, r"--train: \['a', 'b', 'c'\] does not name the data; give two text files"),
        ({"train": ["nowhere.en", "nowhere.de"]}, "nowhere.en: No such file"),
        (
            {"dataset": "somewhere", "train": ["a", "b"]},
            r"--train: \['a', 'b'\] does not name one split; with --dataset",
        ),
        ({"streaming": True, "max_steps": None}, "--streaming: a stream has no length; give --max_steps"),
        ({"eval_strategy": "steps", "eval_steps": 5}, "--eval_strategy: 'steps' needs --valid"),
        ({"vocab_size": 5000}, "vocab_size: 5000 does not fit the training text"),
        ({"max_length": 2}, "examples: fill only 0 batches"),
        ({"noam_scale": -1}, "noam_scale: -1.0 must be"),
    ],
)
def test_wrong_arguments_are_named(corpus, tmp_path, run, options, message):
    with pytest.raises(InputError, match=message):
        run(tmp_path / "run", **(text_files(corpus, "train") | options))


def test_another_vocabulary_size_in_the_same_folder_is_refused(corpus, tmp_path, run):
    run(tmp_path, **text_files(corpus, "train"), max_steps=1)
    with pytest.raises(InputError, match=r"has a run that was started with --vocab_size 70, now 60; use the same"):
        run(tmp_path, **text_files(corpus, "train"), vocab_size=60)


def test_every_argument_has_a_help_text():
    for kind in (train_translation.ModelArguments, DataArguments):
        for argument in fields(kind):
            assert argument.metadata["help"].endswith("."), argument.name
