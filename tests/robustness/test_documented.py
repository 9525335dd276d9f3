"""The table of cases names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = sorted(set(re.findall(r"`([\w/.]*(?:::)?test_\w+)`", (ROOT / "docs" / "robustness.md").read_text())))


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", NAMES)
def test_named_tests_exist(name):
    path, _, function = name.rpartition("::")
    files = [ROOT / path] if path else (ROOT / "tests" / "robustness").glob("test_*.py")
    assert any(function in functions(file) for file in files)


def test_every_test_is_named():
    named = {name.rpartition("::")[2] for name in NAMES}
    own = [f for path in (ROOT / "tests" / "robustness").glob("test_*.py") for f in functions(path)]
    aside = {"test_named_tests_exist", "test_every_test_is_named", "test_numbers_of_numpy_are_numbers"}
    assert {f for f in own if f.startswith("test_")} - aside <= named
