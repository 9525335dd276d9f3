"""Checks with the default signals: seconds for 1,000 lines of Tatoeba with the box translator."""

import os
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark


@pytest.mark.data
def test_a_thousand_lines_take_less_than_a_minute(run, tmp_path) -> None:
    if "HF_NMT_INTERP_DATA" not in os.environ:
        pytest.skip("HF_NMT_INTERP_DATA is not set to a folder of corpora")
    folder = Path(os.environ["HF_NMT_INTERP_DATA"], "tatoeba_en-de")
    started = time.perf_counter()
    assert run("check", folder / "test.en", folder / "test.de", "--output", tmp_path / "checks.tsv").code == 0
    seconds = time.perf_counter() - started
    lines = len((tmp_path / "checks.tsv").read_text(encoding="utf-8").splitlines()) - 1
    print(f"\ncheck: {lines:,} lines in {seconds:.1f} s")
    assert lines == 1000
    assert seconds < 60
