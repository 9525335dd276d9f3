"""What the documentation shows is so: Python blocks and commands print it, long commands have the right options."""

import doctest
import importlib
import json
import re
import shlex
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import METHODS
from hf_nmt_interp.attribution.registry import methods_of_models, models_of_methods
from hf_nmt_interp.cli.main import main
from tests.made_up_corpus import made_up_pairs, write_parallel
from tests.pages import PAGES, ROOMS, ROOT, assert_understood, command_lines


def blocks(language: str, then: str = "") -> list:
    """Code blocks of all pages, named by page and line; with the groups of `then`, a pattern of what may follow."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```\n{then}", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 1
            marks = [pytest.mark.data] if language == "console" and "data/" in match[1] else []
            found.append(pytest.param(*match.groups(""), id=f"{page.name}:{line}", marks=marks))
    return found


NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?%?")


def assert_as_shown(printed: str, shown: str) -> None:
    """The same words and whole numbers, up to `...`. What is rounded may differ by 2 in its last digit from machine to
    machine; bars and rules in their length; numbers such as 5e-07, which are rounding errors, in all but their form.
    """
    both = [[line for line in text.splitlines() if line.strip()] for text in (printed, shown)]
    if both[1][-1:] == ["..."]:
        both = [both[0][: len(both[1]) - 1], both[1][:-1]]
    ours, theirs = (re.sub(r"[█░─]+", "─", " ".join(" ".join(lines).split())) for lines in both)
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    for one, other in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
        decimals = len(other.strip("%").partition(".")[2])
        near = 2.1 * 10**-decimals if decimals or "%" in other else 0
        far = abs(float(one.strip("%")) - float(other.strip("%"))) > near
        assert "e-" in other or not far, f"{one} is shown as {other}"


def test_what_is_shown_can_be_wrong():
    assert_as_shown("\n a   0.123  ███░  3%\n b 2 5e-07\n c", "a 0.125 ██░░ 5%\nb 2 7e-09\n...\n")
    for shown in ("a 0.126 █ 3%", "a -0.123 █ 3%", "b 0.123 █ 3%", "a 0.123 █ 6%", "a 0.123", ""):
        with pytest.raises(AssertionError):
            assert_as_shown("a 0.123 █ 3%", shown)
    with pytest.raises(AssertionError, match="12 is shown as 13"):
        assert_as_shown("12 heads", "13 heads")


def write_rated_sentences(path: Path) -> None:
    """A package like the one that the page on learning takes its reviews from, with made-up sentences."""
    lines = "".join(f"{n}\t{rating}\tA film, number {n}.\n" for n, rating in enumerate([-2.5, 0.5, 1.5] * 1000, 1))
    inner, outer = "hutto_ICWSM_2014", "vaderSentiment-0.5/additional_resources"
    folder = path.parent / inner
    folder.mkdir()
    (folder / "movieReviewSnippets_GroundTruth.txt").write_text(lines, encoding="utf-8")
    with tarfile.open(path.parent / f"{inner}.tar.gz", "w:gz") as files:
        files.add(folder, inner)
    with zipfile.ZipFile(path, "w") as package:
        package.write(path.parent / f"{inner}.tar.gz", f"{outer}/{inner}.tar.gz")


@pytest.mark.parametrize(("code", "shown"), blocks("python", r"(?:\n```text\n(.*?)^```)?"))
def test_python_block_prints_what_is_shown(
    code: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    if "eflomal" in code:
        pytest.importorskip("eflomal", reason="the yardstick extra is not installed")
        for name in ("train", "test"):
            write_parallel(tmp_path, name, made_up_pairs(16))
    if "vaderSentiment" in code:
        write_rated_sentences(tmp_path / "vaderSentiment-0.5.zip")
    exec(compile(code, "documentation", "exec"), {})
    if shown:
        assert_as_shown(capsys.readouterr().out, shown)


@pytest.mark.parametrize("block", blocks("console"))
def test_commands_print_what_is_shown(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, request
):
    monkeypatch.chdir(tmp_path)
    if "data/" in block:
        (tmp_path / "data").symlink_to(request.getfixturevalue("data_dir"))
    before, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert (before, "hf-nmt-interp " in block) == ("", True), "a console block shows a command after '$ '"
    for command, _, shown in (part.partition("\n") for part in parts):
        if command.startswith("hf-nmt-interp "):
            assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
            found = capsys.readouterr()
            printed = found.out or (found.err if shown else "")
        else:  # printf makes small files
            printed = subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
        assert_as_shown(printed, shown)


def test_commands_are_split_like_the_shell_does():
    block = "common=\"--x 1\n  --z\"\npython a$n.py $common \\\n  --y 'a b'  # why\n"
    assert command_lines(block) == [[], ["python", "a1.py", "--x", "1", "--z", "--y", "a b"]]


@pytest.mark.parametrize("block", blocks("bash"))
def test_long_commands_are_understood(block: str):
    """Their runs take hours: here, that every option of them exists."""
    assert_understood(block)


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
            assert_as_shown(capsys.readouterr().out, shown)


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


INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
ABOUT_ALL = {"robustness.md", "methods.md", "limits.md", "papers.md"}  # not of one capability
NO_PICTURE = {
    "corpora.md",
    "gpu.md",
    "sharing.md",
    "training.md",
    "methods-compared.md",
}  # files and commands: nothing to draw


def test_every_page_is_in_the_index():
    rows = re.findall(r"^\| \[(\S+\.md)\]\(\1\) \| .*\? \|(.*)\|$", INDEX, re.MULTILINE)
    assert {"index.md", *(name for name, _ in rows)} == {page.name for page in ROOT.glob("docs/*.md")}
    assert {name for name, command in rows if not command.strip()} == ABOUT_ALL


@pytest.mark.parametrize("name", sorted(set(re.findall(r"^\| \[(\S+)\]", INDEX, re.MULTILINE)) - ABOUT_ALL))
def test_a_page_has_question_command_output_picture_limits_and_code(name: str):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    first = text.split("\n## ")[0]
    assert "?" in first, "the question it answers"
    assert re.search(r"^```(bash|console)$", text, re.MULTILINE)
    assert re.search(r"^```(text|console)$|^\| ?--", text, re.MULTILINE), "what it printed"
    assert ("![" in text) == (name not in NO_PICTURE)
    assert "\n## Limits\n" in text
    assert "\n## Papers and code\n" in text


def test_limits_of_every_method_are_told():
    limits = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)`", limits, re.MULTILINE)) == set(METHODS)


def test_models_of_every_method_are_those_of_the_code():
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    table = page.split("| method | models |\n|---|---|\n")[1].split("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)) == models_of_methods()


def test_methods_of_every_model_are_those_of_the_code():
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    head, _, *rows = page[page.index("| model | `lrp` |") :].split("\n\n")[0].splitlines()
    names = re.findall(r"`(\w+)`", head)
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    found = {row[0]: [name for name, cell in zip(names, row[1:], strict=True) if cell == "yes"] for row in cells}
    assert found == methods_of_models()


def test_definitions_that_docstrings_point_to_exist():
    sections = set(re.findall(r"^## (.+)$", (ROOT / "docs" / "methods.md").read_text(encoding="utf-8"), re.MULTILINE))
    pointer = re.compile(r"docs/methods\.md(?: of hf_nmt_interp)?, ([^.)\n]+)")
    code = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "hf_nmt_interp").rglob("*.py"))
    assert set(pointer.findall(code)) == sections


@pytest.mark.parametrize("name", [name for name in hni.__all__ if name != "__version__"])
def test_every_public_name_has_an_example_that_runs(name: str):
    """Pytest runs the examples with --doctest-modules; only `to_inseq` needs what is not installed."""
    text = getattr(hni, name).__doc__ or ""
    examples = doctest.DocTestParser().get_examples(text)
    assert examples, f"the docstring of {name} has no example"
    skipped = any(example.options.get(doctest.SKIP) for example in examples)
    assert skipped == (name == "to_inseq")


def test_registries_that_the_checklist_names_exist():
    rows = [line.split("|") for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()]
    first = next(n for n, row in enumerate(rows) if row[1:2] == [" an attribution method "])
    rows = [row for row in rows[first:] if len(row) == 5]
    assert len(rows) > 7
    for _, what, write, register, _ in rows:
        name, file = re.fullmatch(r" `(\w+)`, (.+) ", register).groups()
        path = re.search(r"`(\w+/[\w/]+\.py)`", write if file == "same file" else register)[1]
        module = importlib.import_module(
            f"hf_nmt_interp.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
        )
        assert len(getattr(module, name)) > 1, what
