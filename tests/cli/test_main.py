"""The frame of the command line: help, errors, exit codes, entry points."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from hf_nmt_interp import __version__
from hf_nmt_interp.cli import main as frame
from hf_nmt_interp.cli.shards import ShardFolder
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.demo import box


def examples() -> list[str]:
    """The command lines in the help of all verbs."""
    parsers = frame.make_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    found = {verb: [line.strip() for line in parser.epilog.splitlines()[1:]] for verb, parser in parsers.items()}
    assert all(found.values()), "each verb has an example"
    return [line for lines in found.values() for line in lines]


def _start(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hf_nmt_interp", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, **options)


TREE = """# text = A dog sleeps.
1\tA\ta\tDET\t_\t_\t2\tdet\t_\t_
2\tdog\tdog\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\tsleeps\tsleep\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_

"""


@pytest.fixture
def here(tmp_path, monkeypatch, gated_folder, calibrated_folder):
    """The working folder, with the files that examples read."""
    shutil.copytree(gated_folder, tmp_path / "runs" / "l0" / "gated")
    (tmp_path / "runs" / "l0" / "gated" / "README.md").write_text("A card.")
    for name in ("gate", "gate2"):
        shutil.copytree(calibrated_folder, tmp_path / "runs" / name)
    for language in ("en", "de"):
        (tmp_path / f"{language}_pud-ud-test.conllu").write_text(TREE, encoding="utf-8")
    files = {"train.en": "A dog.\nTwo shells.\n", "train.de": "Ein Hund.\nZwei Muscheln.\n"}
    files["test.en"] = files["train.en"]
    files["clauses.en"], files["clauses.de"] = (
        "I see a dog, and you see a cat.\n",
        "Ich sehe einen Hund, du siehst eine Katze.\n",
    )
    lines = [f"Ein Hund sieht {n} Katzen.,A dog sees {n} cats.,{n % 2}" for n in range(12)]
    files["labels.csv"] = "\n".join(["src,mt,omission", *lines, ""])
    model = {
        "heads_by_layer": {"encoder": [1, 1], "decoder": [2, 2], "cross": [2, 2]},
        "parameters": 9,
        "test_bleu": 1.0,
    }
    files["runs/l0/results.json"] = json.dumps({"penalty": 0.1, "before": model, "pruned": model})
    files["runs/l0/gates.csv"] = "step,kind,layer,head,log_alpha,open\n0,encoder,0,0,3.0,0.97\n"
    heads = [{"kind": "encoder", "layer": n // 2, "head": n % 2, "relevance": 0.5, "roles": []} for n in range(4)]
    files["heads.json"] = json.dumps({"rows": heads})
    files |= {"gold.txt": "0-0 1p1\n0-0\n", "gold1.txt": "1-1 2p2\n1-1\n", "links.txt": "0-0\n0-0 1-1\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for verb, folder, row in (
        ("align", "links", {"links": [[0, 0]]}),
        ("attribute", "attention", {"start": [0.5]}),
        ("contributions", "shares", {"source_tokens": 12, "target_tokens": 12, "source_contribution": [1.0]}),
    ):
        shards = ShardFolder(tmp_path / "runs" / folder)
        shards.begin({"verb": verb, "shard_format": "jsonl", "shard_size": 9})
        with shards.shard(0, [], 1, "") as (writer, _):
            writer.write([{"line": 1} | row])
        shards.finish(1, 1)
    monkeypatch.chdir(tmp_path)
    served = SimpleNamespace(launch=lambda **_: None, block_thread=lambda: None)  # the app runs until it is stopped
    monkeypatch.setattr("hf_nmt_interp.report.app.make_app", lambda translators: served)
    return tmp_path


SUMMARY = {"contributions": r"used 1 of 2 pairs: .*\n", "check": r"2 lines, \d with an error found: .*\n"}


@pytest.mark.parametrize("example", examples())
def test_examples_of_the_help_run(example: str, run, model_folder, here) -> None:
    before = list(here.iterdir())
    program, verb, *rest = shlex.split(example)
    assert program == "hf-nmt-interp"
    if "--model" in rest:
        rest = [str(model_folder) if word.startswith("demo:") else word for word in rest]
    elif "--language" not in rest and verb not in ("env", "aer", "merge", "pruning-table", "push", "train"):
        rest += ["--model", str(model_folder)]
    code, out, err = run(verb, *rest)
    assert code == 0
    assert err == "" or re.fullmatch(SUMMARY.get(verb, "nothing"), err)
    assert out or list(here.iterdir()) != before


@pytest.mark.parametrize("example", examples())
def test_examples_of_the_help_run_with_the_box(example: str, run, here) -> None:
    if "en-de" not in box():
        pytest.skip("the box has no demo:en-de")
    code, out, err = run(*shlex.split(example)[1:])
    assert code == 0
    assert err == "" or re.fullmatch(r"(used 1 of 2 pairs|2 lines, \d with an error found): .*\n", err)
    lines = [line for line in out.splitlines() if not line.startswith("file://")]  # as long as the folder's name
    assert "─" not in out or max(map(len, lines)) <= 80
    for at, line in enumerate(lines):
        if set(line.strip()) == {"─"}:  # below a table's head, which is one line
            assert not lines[at - 2].strip(), lines[at - 2 : at]


def _seconds_of_processor(start: Callable[[], subprocess.CompletedProcess[str]]) -> tuple[float, str]:
    before = os.times()
    shown = start()
    after = os.times()
    assert shown.returncode == 0
    return after.children_user + after.children_system - before.children_user - before.children_system, shown.stdout


def test_help_is_fast_and_light() -> None:
    seconds, shown = _seconds_of_processor(lambda: _start("attribute", "--help"))
    torch, _ = _seconds_of_processor(lambda: subprocess.run([sys.executable, "-c", "import torch"], text=True))
    assert "--target-file" in shown
    assert seconds < torch / 3  # a ratio, as the machine may be busy; a ninth is usual
    heavy = (
        "import sys, hf_nmt_interp.cli.main as m; m.make_parser(); print({'torch', 'rich', 'numpy'} & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", heavy], text=True) == "set()\n"


def test_version(run) -> None:
    assert run("--version") == (0, f"hf-nmt-interp {__version__}\n", "")


def test_command_line_errors_are_one_line(run) -> None:
    code, out, err = run("attribute", "--batch-size", "0", "A.")
    assert (code, out) == (2, "")
    expected = "argument --batch-size: '0' is not an integer from 1 to 999999999 (see hf-nmt-interp attribute --help)"
    assert err == f"hf-nmt-interp attribute: error: {expected}\n"
    assert run("nonsense").code == 2
    assert (
        run().err == "hf-nmt-interp: error: the following arguments are required: <verb> (see hf-nmt-interp --help)\n"
    )


def _verb(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(args) -> None:
        raise error

    monkeypatch.setattr("hf_nmt_interp.cli.verbs.env.run", fail)


def test_user_errors_are_one_line(run, monkeypatch) -> None:
    _verb(monkeypatch, InputError("name", "x", "is wrong", "\n  try y"))
    assert run("env") == (2, "", "hf-nmt-interp env: error: name: 'x' is wrong; try y\n")
    with pytest.raises(InputError, match="try y"):
        frame.main(["env", "--traceback"])


def test_bugs_keep_their_traceback(monkeypatch) -> None:
    _verb(monkeypatch, ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        frame.main(["env"])


def test_interrupt(run, monkeypatch) -> None:
    _verb(monkeypatch, KeyboardInterrupt())
    assert run("env") == (130, "", "hf-nmt-interp env: interrupted\n")


def test_an_interrupted_comparison_says_what_is_kept(run, monkeypatch, tmp_path) -> None:
    def stop(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_nmt_interp.cli.verbs.compare_methods.run", stop)
    kept = f"; complete results are kept in {tmp_path / 'c'}, run the same command again to resume"
    (tmp_path / "x").write_text("0-0\n")
    gold = "--gold", tmp_path / "x", tmp_path / "x", tmp_path / "x"
    for more, text in ((["--folder", tmp_path / "c"], kept), ([], "")):
        ran = run("compare-methods", *gold, *more, "A dog.")
        assert (ran.code, ran.err) == (130, f"hf-nmt-interp compare-methods: interrupted{text}\n")


def test_broken_pipe(monkeypatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    _verb(monkeypatch, BrokenPipeError())
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(frame.sys, "stdout", SimpleNamespace(fileno=pipe.fileno))
        assert frame.main(["env"]) == 141


def test_a_reader_that_stops_early_is_no_error(model_folder) -> None:
    command = f"{sys.executable} -m hf_nmt_interp attribute --format tsv --model {model_folder} - | head -n 1"
    text = "The old baker opens his shop.\n" * 40
    done = subprocess.run(command, shell=True, input=text, capture_output=True, text=True, timeout=300)
    assert done.stdout == "sentence\tstep\ttarget\tside\tposition\ttoken\tscore\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("given", "expected"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_idle_threads_sleep_unless_asked_to_spin(given, expected):
    program = (
        "import contextlib, os, sys; from hf_nmt_interp.cli.main import main; assert 'torch' not in sys.modules\n"
        "with contextlib.redirect_stdout(sys.stderr): main(['env'])\n"
        "print(os.environ['OMP_WAIT_POLICY'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | given
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == f"{expected}\n"
