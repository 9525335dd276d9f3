"""Every metric module declares its main figure and its direction."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from hf_nmt_interp import metrics
from hf_nmt_interp.metrics import best_first
from hf_nmt_interp.metrics.aer import rate
from hf_nmt_interp.metrics.agreement import score

FOLDER = Path(metrics.__file__).parent
MODULES = sorted(
    f"hf_nmt_interp.metrics.{path.relative_to(FOLDER).with_suffix('').as_posix().replace('/', '.')}"
    for path in FOLDER.rglob("*.py")
    if path.name != "__init__.py"
)
EXPECTED = {
    "aer": ("aer", False),
    "agreement": ("agreement", True),
    "sentence_bleu": ("sentence_bleu", True),
    "faithfulness": ("comprehensiveness", True),
    "risks": ("risk", False),
    "detection": ("auroc", True),
}


@pytest.mark.parametrize("name", MODULES)
def test_main_figure_and_direction(name):
    module = import_module(name)
    own = [one for _, one in inspect.getmembers(module, inspect.isclass) if one.__module__ == name]
    declared = [(one.primary, one.greater_is_better) for one in (module, *own) if hasattr(one, "primary")]
    assert declared == [EXPECTED[name.split(".")[2]]]


def test_every_metric_is_checked():
    assert {name.split(".")[2] for name in MODULES} == set(EXPECTED)


def test_the_best_is_the_lowest_or_the_highest_as_the_metric_says():
    found = [("a", 0.2), ("b", 0.1), ("c", 0.2), ("d", 0.3)]
    assert [name for name, _ in best_first(found, lambda row: row[1], rate)] == ["b", "a", "c", "d"]
    assert [name for name, _ in best_first(found, lambda row: row[1], score)] == ["d", "a", "c", "b"]
