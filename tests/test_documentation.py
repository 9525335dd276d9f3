"""What the documentation shows works: Python blocks run, `$ hf-nmt-interp` lines exit with 0, cards are valid."""

import re
import shlex
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from hf_nmt_interp.cli.main import main

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
    commands = re.findall(r"^\$ (hf-nmt-interp .*)$", block, re.MULTILINE)
    assert commands, "a console block shows a command after '$ '"
    for command in commands:
        if "data/" in command:
            continue  # needs the real corpora
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err


def test_the_two_commands_open_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^```bash\n(.*?)\n```", readme, re.DOTALL | re.MULTILINE)[:2]
    assert first == "pip install -c constraints.txt -e . && hf-nmt-interp demo"
    assert second == 'pip install -c constraints.txt -e ".[test]" && pytest'
    assert second in (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("install -q", "install")


@pytest.mark.parametrize("name", ["en-de", "de-en", "en-de-pruned"])
def test_card_of_a_box_translator_has_valid_metadata(name: str):
    card = ModelCard.load(ROOT / "model_cards" / f"demo-{name}.md")
    assert card.data.pipeline_tag == "translation"
    assert {result.metric_type for result in card.data.eval_results} == {"sacrebleu", "chrf"}


def test_pictures_and_links_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
