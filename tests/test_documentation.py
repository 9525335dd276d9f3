"""What the documentation shows works: Python blocks and commands run, long commands have the right options."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hf_nmt_interp.cli.main import main, make_parser
from tests.test_layout import ROOMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("model_cards/*.md"))]


def blocks(language: str) -> list:
    """Code blocks of all pages, named by page and line."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 1
            found.append(pytest.param(match[1], id=f"{page.name}:{line}"))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_block_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "documentation", "exec"), {})


@pytest.mark.parametrize("block", blocks("console"))
def test_commands_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    assert any(command.startswith("hf-nmt-interp ") for command in commands), (
        "a console block shows a command after '$ '"
    )
    for command in commands:
        if "data/" in command:
            continue  # needs the real corpora
        if command.startswith("hf-nmt-interp "):
            assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
        else:
            subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)  # printf makes small files


def command_lines(block: str) -> list[list[str]]:
    """Words of each command of a shell block; variables that it sets are put in, others are 1."""
    assignment = re.compile(r'^(\w+)="([^"]*)"$', re.MULTILINE)
    values = {name: " ".join(value.split()) for name, value in assignment.findall(block)}
    block = re.sub(r"\$(\w+)", lambda match: values.get(match[1], "1"), assignment.sub("", block))
    return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]


def test_commands_are_split_like_the_shell_does():
    block = "common=\"--x 1\n  --z\"\npython a$n.py $common \\\n  --y 'a b'  # why\n"
    assert command_lines(block) == [[], ["python", "a1.py", "--x", "1", "--z", "--y", "a b"]]


@pytest.mark.parametrize("block", blocks("bash"))
def test_long_commands_are_understood(block: str, capsys: pytest.CaptureFixture):
    """Their runs take hours: here, that every option of them exists."""
    for words in command_lines(block):
        for at, word in enumerate(words):
            script = ROOT / word
            if word.startswith("trainer_scripts/"):
                parser = load_script(script).make_parser()
            elif word == "hf-nmt-interp" and at == 0:
                parser = make_parser()
            else:
                continue
            _, unknown = parser.parse_known_args(words[at + 1 :])
            assert not unknown, f"{word} has no {unknown[0]}"


def load_script(script: Path) -> Any:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[script.stem] = importlib.util.module_from_spec(spec)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


PATHS = re.compile(rf"`((?:{'|'.join(ROOMS)})/[\w./]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_that_pages_name_exists(page: Path):
    for path in PATHS.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / "hf_nmt_interp" / path).exists() or (ROOT / path).exists(), f"{page.name} names {path}"


@pytest.mark.slow
def test_the_tour_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "tour", "exec"), names)
            shown = "".join(line for output in cell["outputs"] for line in output.get("text", ()))
            assert without_numbers(capsys.readouterr().out) == without_numbers(shown)


def without_numbers(text: str) -> str:
    """The last digits may differ from machine to machine."""
    return re.sub(r"[\d.]+(e-\d+)?", "#", text)


def test_the_two_commands_open_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^```bash\n(.*?)\n```", readme, re.DOTALL | re.MULTILINE)[:2]
    assert first == "pip install -c constraints.txt -e . && hf-nmt-interp demo"
    assert second == 'pip install -c constraints.txt -e ".[test]" && pytest'
    assert second in (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("install -q", "install")


def test_pictures_and_links_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
