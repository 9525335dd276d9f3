"""The rooms of the package, the pages of the documentation, and the scripts that they name."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

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
