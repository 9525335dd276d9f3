"""The page on speed shows what was measured."""

from hf_nmt_interp.attribution import METHODS
from tests.benchmarks.cost_growth import FIGURE, slope, stored, table


def test_the_page_shows_the_table_of_its_numbers():
    page = FIGURE.with_name("performance.md").read_text(encoding="utf-8")
    rows = stored()
    assert {row["method"] for row in rows} == set(METHODS)
    assert "\n".join(table(rows)) in page
    what_to_use = page.split("## What to use for a million sentences")[1].split("\n## ")[0]
    for method in METHODS:
        assert what_to_use.count(f"\n| `{method}` |") == 1


def test_slopes():
    rows = [{"tokens": n, "seconds": 0.1 * n**2} for n in (10, 20, 40)]
    assert round(slope(rows, "tokens", "seconds"), 6) == 2
    assert slope(rows[:1], "tokens", "seconds") is None
