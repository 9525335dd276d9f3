"""The rooms of the package, the pages of the documentation, and the scripts and commands that they name."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from hf_nmt_interp.cli.main import make_parser
from hf_nmt_interp.training.scripts import find_scripts

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("model_cards/*.md"))]
ROOMS = ["text", "models", "decoding", "attribution", "analysis", "metrics", "studies", "report", "training", "cli"]


def load_script(script: Path) -> Any:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[script.stem] = importlib.util.module_from_spec(spec)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def command_lines(block: str) -> list[list[str]]:
    """Words of each command of a shell block; variables that it sets are put in, others are 1."""
    assignment = re.compile(r'^(\w+)="([^"]*)"$', re.MULTILINE)
    values = {name: " ".join(value.split()) for name, value in assignment.findall(block)}
    block = re.sub(r"\$(\w+)", lambda match: values.get(match[1], "1"), assignment.sub("", block))
    return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]


def assert_understood(block: str) -> None:
    """Every verb, script and option of a shell block's commands exists."""
    for words in command_lines(block):
        for at, word in enumerate(words):
            if word.startswith("trainer_scripts/"):
                assert (ROOT / word).exists(), f"{word} does not exist"
                parser = load_script(ROOT / word).make_parser()
            elif words[at : at + 2] == ["hf-nmt-interp", "train"]:
                parser, at = load_script(find_scripts()[words[at + 2]]).make_parser(), at + 2
            elif word == "hf-nmt-interp" and at == 0:
                parser = make_parser()
            else:
                continue
            try:
                _, unknown = parser.parse_known_args(words[at + 1 :])
            except SystemExit:
                raise AssertionError(f"not understood: {shlex.join(words)}") from None
            assert not unknown, f"{word} has no {unknown[0]}"
