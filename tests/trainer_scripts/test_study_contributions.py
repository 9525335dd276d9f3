"""Every study end to end on a made-up language: what it writes and prints, going on, wrong arguments.

Also for training/study_trainings.py.
"""

import json
import re
import sys
from pathlib import Path

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.contribution_study import ContributionStudy
from hf_nmt_interp.training.checkpoints import list_checkpoints
from tests.made_up_corpus import made_up_pairs, write_parallel
from trainer_scripts import study_contributions

QUIET = ["--disable_tqdm", "true", "--test_beams", "1", "--max_length", "30", "--card_sentences", "0"]
SIZES = ["--d_model", "16", "--layers", "1", "--heads", "2", "--ffn_dim", "16"]


@pytest.fixture
def run(start, tmp_path, monkeypatch, capsys):
    """Run a study; its words are completed by data and folders. Returns the table that it printed."""
    monkeypatch.syspath_prepend(Path(study_contributions.__file__).parent)
    model, data = start
    held = write_parallel(tmp_path, "held", made_up_pairs(40, seed=1))

    def call(study, *words, files=held):
        own = ["--output_dir", tmp_path / "out", "--held", *files]
        own += [] if study == "stages" else ["--model", model]
        own += [] if study == "box" else ["--train", *data["train"], "--test", *data["test"], *QUIET]
        monkeypatch.setattr(sys, "argv", ["study_contributions.py", study, *map(str, [*own, *words])])
        study_contributions.main()
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
        return [dict(zip(head, row, strict=True)) for row in rows]

    return call


def trained(monkeypatch):
    """Names of the folders that are trained from now on."""
    from hf_nmt_interp.training.job import Job

    found, complete = [], Job.complete
    monkeypatch.setattr(
        Job, "complete", lambda job, *a: found.append(Path(job.trainer.args.output_dir).name) or complete(job, *a)
    )
    return found


def test_box(run, tmp_path):
    table = run("box", "--prefix", "reference", "random", "--pairs", 3)
    assert [(row["model"], row["prefix"]) for row in table] == [("box", "reference"), ("box", "random")]
    assert 0 < float(table[1]["source contribution"]) < 1
    assert "minutes" not in table[0]  # nothing was trained
    study = ContributionStudy.load(tmp_path / "out" / "box.csv")
    mean = next(
        row for row in study.means() if row["prefix"] == "random" and row["statistic"] == "source_contribution"
    )
    assert float(table[1]["source contribution"]) == pytest.approx(mean["mean"], abs=6e-4)
    written = json.loads((tmp_path / "out" / "box.json").read_text())
    assert written["sentences"] == 3
    assert written["command"].startswith("python study_contributions.py box --output_dir")
    assert written["table"][1]["source contribution"] == pytest.approx(mean["mean"])
    assert (tmp_path / "out" / "box.svg").exists()


def test_both_signs_of_relevance_and_several_lengths(run, tmp_path):
    one = run("box", "--prefix", "reference")[0]
    study = ContributionStudy.load(tmp_path / "out" / "box.csv")
    lengths = [study.names(f"{side}_tokens")[0] for side in ("source", "target")]
    half = run("box", "--prefix", "reference", "--set", "alpha=0.5", "beta=0.5", "--lengths", *lengths)[0]
    assert half["accuracy"] == one["accuracy"]  # of the same pairs
    assert half["source contribution"] != one["source contribution"]
    with pytest.raises(InputError, match=r"lengths: no pair has .* the most frequent are") as error:
        run("box", "--lengths", 1, 1)
    others = [tuple(map(int, size.split(", "))) for size in re.findall(r"\((\d+, \d+)\)", error.value.remedy)][:2]
    table = run("box", "--prefix", "reference", "--lengths", *others[0], *others[1])
    assert [(int(row["source tokens"]), int(row["target tokens"])) for row in table] == others
    with pytest.raises(InputError, match=r"--lengths: '7 7 9' must be pairs of numbers, e\.g\. 20 23"):
        run("box", "--lengths", 7, 7, 9)


def test_objectives_go_on_where_they_were_stopped(run, tmp_path, monkeypatch):
    words = ["--steps", 2, "--candidates", 3, "--prefix", "random", "--pairs", 4, "--tokens_per_batch", 60]
    words += ["--logging_steps", 1]
    done, out = trained(monkeypatch), tmp_path / "out"
    table = run("objectives", *words)
    ways = ["mle", "dropout", "source_dropout", "mrt"]
    assert done == ways
    assert [row["model"] for row in table] == ["box", *ways]
    assert len({row["source contribution"] for row in table}) > 1
    for row in table[1:]:
        results = json.loads((out / row["model"] / "results.json").read_text())
        assert float(row["BLEU"]) == pytest.approx(results["test_bleu"], abs=0.06)
        assert float(row["minutes"]) >= 0
    log = json.loads((out / "mrt" / "checkpoint-2" / "trainer_state.json").read_text())["log_history"]
    assert "unique_candidates" in log[0]
    for way, side in (("dropout", "target"), ("source_dropout", "source")):
        command = json.loads((out / way / "results.json").read_text())["command"]
        assert f"--{side}_word_dropout 0.1" in command

    (out / "mrt" / "results.json").unlink()  # as if it had been stopped after its last checkpoint
    assert run("objectives", *words)[:4] == table[:4]
    assert done == [*ways, "mrt"]
    with pytest.raises(InputError, match=r"mrt' was trained by .*--candidates 3.*; choose another"):
        run("objectives", *words, "--candidates", 4)


def test_amount_of_data(run, tmp_path, monkeypatch):
    done = trained(monkeypatch)
    held = [str(tmp_path / f"held.{side}") for side in ("en", "de")] * 2  # the same pairs twice
    words = ["--sizes", 20, 40, "--steps", 1, "--tokens_per_batch", 100, *SIZES]
    table = run("amount", *words, files=held)
    assert done == ["20", "40"]
    assert [row["model"] for row in table] == ["20", "40", "box"]
    assert {row["prefix"] for row in table} == {"reference"}
    assert len((tmp_path / "out" / "first-20.target").read_text().splitlines()) == 20
    assert all(row["BLEU"] for row in table)
    study = ContributionStudy.load(tmp_path / "out" / "amount.csv")
    assert max(row["sentences"] for row in study.rows) % 2 == 0


def test_stages_of_a_training(run, tmp_path):
    words = ["--steps", 3, "--every", 1, "--tokens_per_batch", 100, "--vocab_size", 70, *SIZES, "--pairs", 4]
    table = run("stages", *words, "--learning_rate", 0.05, "--warmup_steps", 0)
    assert [row["model"] for row in table[::2]] == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert [row["BLEU"] != "" for row in table] == [False] * 4 + [True] * 2  # of the model that was saved
    assert float(table[-1]["kl to final"]) == pytest.approx(0, abs=1e-6)
    assert float(table[0]["kl to final"]) > 0
    for name in ("stages", "stages-training"):
        assert "<svg" in (tmp_path / "out" / f"{name}.svg").read_text()
        assert (tmp_path / "out" / f"{name}.csv").exists()
    assert len(list_checkpoints(tmp_path / "out" / "stages")) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["box", "--learning_rate", 1], "--learning_rate: is not supported, because this study"),
        (["box", "--pairs", 0], "--pairs: 0 must be at least 1"),
        (["amount", "--sizes", 20, 0], r"--sizes: \[20, 0\] must be at least 1"),
        (["amount", "--sizes", 60], "--sizes: 60 is more than the 50 pairs of --train"),
        (["objectives", "--learnin_rate", 1], "--learnin_rate: is not a known argument"),
        (["objectives", "--risk", "ter"], "--risk: is not a known argument"),
        (
            ["objectives", "--label_smoothing_factor", 0.1],
            "label_smoothing_factor: 0.1 must be 0, because a risk has no labels",
        ),
        (["objectives", "--alpha", -1], "alpha: -1.0 must be positive"),
        (["stages", "--noam_scale", -1], "noam_scale: -1.0 must be 0"),
    ],
)
def test_wrong_arguments_are_named_before_any_training(run, words, message, monkeypatch):
    done = trained(monkeypatch)
    with pytest.raises(InputError, match=message):
        run(*words)
    assert done == []


def test_wrong_files_and_launchers_are_named(run, monkeypatch):
    with pytest.raises(InputError, match="--held: 1 files; give two parallel text files, or four"):
        run("box", files=["a.en"])
    with pytest.raises(InputError, match=r"nowhere\.en"):
        run("box", files=["nowhere.en", "nowhere.de"])
    with pytest.raises(InputError, match="--held: no sentence pairs in /dev/null and /dev/null"):
        run("box", files=["/dev/null", "/dev/null"])
    monkeypatch.setenv("MASTER_PORT", "29500")  # no launcher by itself
    assert run("box", "--pairs", 2, "--prefix", "reference")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    with pytest.raises(InputError, match="launcher: several processes"):
        run("box")
    monkeypatch.delenv("MASTER_PORT")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="launcher: several processes are not supported; train with train_"):
        run("box")


def test_every_argument_has_a_help_text():
    (studies,) = study_contributions.make_parser()._subparsers._group_actions
    for name, parser in studies.choices.items():
        assert all(action.help for action in parser._actions), name
