"""docs/papers.md has every item of the papers, its commands are understood, its numbers are on the other pages."""

import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.pages import PAGES, ROOT, assert_understood

PAGE = ROOT / "docs" / "papers.md"
COLUMNS = ["item", "what it shows", "command or code here", "theirs", "ours", "verdict", "why"]
FINDINGS, DEFINITIONS = {"agrees", "differs", "not run"}, {"same", "differs", "not needed"}
NOTHING = {"not run", "not needed"}  # nothing of ours to show

# figures, tables and numbered equations of each paper, then definitions and findings known by their section
PAPERS: dict[str, dict[str, Iterable[int | str]]] = {
    "voita2021": {
        "figure": range(1, 21),
        "eq.": range(1, 8),
        "section": ["2.3"],
        "appendix": ["B.1", "B.2"],
    },
    "voita2019": {
        "figure": range(1, 11),
        "table": range(1, 3),
        "eq.": range(1, 4),
        "section": ["5.1", "5.3", "6.1"],
        "appendix": ["A.1", "A.2", "A.3"],
    },
    "ding2019": {"figure": range(1, 4), "table": range(1, 4), "eq.": range(1, 5), "section": ["4.3", "7"]},
    "lu2021": {"figure": range(1, 8), "table": range(1, 6), "eq.": range(1, 14)},
    "snell2021": {
        "figure": range(1, 9),
        "table": range(1, 12),
        "eq.": range(1, 59),
        "section": ["5.1", "6.2"],
        "appendix": ["A.1", "A.7", "A.8"],
    },
}
ITEM = re.compile(r"(figure|table|eq\.|section|appendix) ([\w.]+)(?: to (\d+))?(?: \((.+)\))?")
FILE = re.compile(r"[\w./-]+\.(?:py|md)")
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w]|\.\d)")
CLAIM = re.compile(r"\b(?:as|than|unlike) in (?:the|that) paper|\bas in \w+20\d\d|\bas the paper found", re.IGNORECASE)


def rows_of(text: str) -> list[dict[str, str]]:
    """Rows of the one table in a section."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    head, rule, *rows = [[cell.strip() for cell in line] for line in lines]
    assert head == COLUMNS
    assert set(rule) == {"---"}
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def check_items(rows: list[dict[str, str]], expected: dict[str, Iterable[int | str]]) -> None:
    """Each item has one row, or several with different parts in brackets; no other items."""
    parts = defaultdict(list)
    for row in rows:
        match = ITEM.fullmatch(row["item"])
        assert match, f"cannot read the item {row['item']!r}"
        kind, first, last, part = match.groups()
        numbers = map(str, range(int(first), int(last) + 1)) if last else [first]
        for number in numbers:
            parts[f"{kind} {number}"].append(part)
    wanted = {f"{kind} {number}" for kind, numbers in expected.items() for number in numbers}
    assert set(parts) == wanted, f"missing {wanted - set(parts)}, not of the paper {set(parts) - wanted}"
    for item, names in parts.items():
        assert len(names) == 1 or (None not in names and len(set(names)) == len(names)), f"{item} is there twice"


def check_row(row: dict[str, str], elsewhere: str) -> None:
    """The verdict fits the item; commands are understood; files exist; our decimals are in the text `elsewhere`."""
    allowed = DEFINITIONS if row["item"].startswith("eq.") else FINDINGS | DEFINITIONS
    assert row["verdict"] in allowed, f"{row['item']}: verdict {row['verdict']!r}"
    without = row["verdict"] in NOTHING
    assert (row["ours"] == "-") == without, f"{row['item']}: {row['verdict']}, ours {row['ours']!r}"
    assert row["what it shows"], f"{row['item']}: nothing about what it shows"
    assert row["theirs"], f"{row['item']}: nothing of theirs"
    assert row["why"] or row["verdict"] == "same", f"{row['item']}: no reason"
    code = re.findall(r"`([^`]+)`", row["command or code here"])
    assert code or (without and row["command or code here"] == "-"), f"{row['item']}: no code"
    for words in code:
        assert words.startswith(("hf-nmt-interp ", "python trainer_scripts/")) or FILE.fullmatch(words), words
        assert_understood(words)
    for name in filter(FILE.fullmatch, re.findall(r"`([^`]+)`", " ".join(row.values()))):
        assert (ROOT / "hf_nmt_interp" / name).exists() or (ROOT / name).exists(), f"{name} does not exist"
    for number in DECIMAL.findall(row["ours"]):
        assert re.search(rf"(?<![\w.]){re.escape(number)}(?!\d)", elsewhere), f"{row['item']}: {number} is on no page"


SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
OTHERS = {page: page.read_text(encoding="utf-8") for page in PAGES if page != PAGE}


def test_every_paper_has_a_section():
    assert list(SECTIONS) == list(PAPERS)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_item_of_a_paper_is_there(paper: str):
    check_items(rows_of(SECTIONS[paper]), PAPERS[paper])


@pytest.mark.parametrize("paper", PAPERS)
def test_rows_hold(paper: str):
    for row in rows_of(SECTIONS[paper]):
        check_row(row, "\n".join(OTHERS.values()))


GOOD = "`hf-nmt-interp heads --figure a.png`"


def row(**changed: str) -> dict[str, str]:
    cells = ("figure 1", "heads", GOOD, "falls", "0.25", "agrees", "short runs")
    return dict(zip(COLUMNS, cells, strict=True)) | changed


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"command or code here": "`hf-nmt-interp heads --figure a.png --nothing`"}, "has no --nothing"),
        ({"command or code here": "`hf-nmt-interp haeds`"}, "not understood: hf-nmt-interp haeds"),
        ({"command or code here": "`python trainer_scripts/train_no.py`"}, "train_no.py does not exist"),
        ({"command or code here": "`python trainer_scripts/train_l0.py --lambada 1`"}, "has no --lambada"),
        ({"command or code here": "`attribution/no.py`"}, "attribution/no.py does not exist"),
        ({"command or code here": "`rm x`"}, "rm x"),
        ({"command or code here": "-"}, "no code"),
        ({"why": "see `docs/no.md`"}, "docs/no.md does not exist"),
        ({"why": ""}, "no reason"),
        ({"verdict": "better"}, "verdict 'better'"),
        ({"verdict": "not run"}, "not run, ours '0.25'"),
        ({"ours": "-"}, "agrees, ours '-'"),
        ({"ours": "0.26"}, "0.26 is on no page"),
        ({"item": "eq. 1"}, "verdict 'agrees'"),
    ],
)
def test_a_wrong_row_is_found(bad: dict[str, str], problem: str):
    check_row(row(), "a share of 0.25, 10.26 and 0.261")
    with pytest.raises(AssertionError, match=re.escape(problem)):
        check_row(row(**bad), "a share of 0.25, 10.26 and 0.261")


def test_a_missing_item_is_found():
    items = ["figure 1 (a)", "figure 1 (b)", "eq. 1 to 3", "section 2.1"]
    expected: dict[str, Iterable[int | str]] = {"figure": [1], "eq.": [1, 2, 3], "section": ["2.1"]}
    check_items([row(item=item) for item in items], expected)
    for changed, problem in [
        (items[:3], "missing {'section 2.1'}"),
        ([*items, "table 1"], "not of the paper {'table 1'}"),
        ([*items, "eq. 2"], "eq. 2 is there twice"),
        ([*items, "figure 1"], "figure 1 is there twice"),
        ([*items, "figures 1"], "cannot read the item 'figures 1'"),
    ]:
        with pytest.raises(AssertionError, match=re.escape(problem)):
            check_items([row(item=item) for item in changed], expected)
    with pytest.raises(AssertionError):
        rows_of("| item | why |\n|---|---|\n")


def unlinked_claims(text: str) -> list[str]:
    """Paragraphs and list items that compare with a paper, but have no link to the row."""
    blocks = re.split(r"\n\s*\n|\n(?=- )", text)
    return [block for block in blocks if CLAIM.search(block) and "papers.md)" not in block]


def test_comparisons_with_a_paper_link_to_its_row():
    assert unlinked_claims("As in the paper, it falls.\n- Other than in the paper ([papers.md](papers.md))") == [
        "As in the paper, it falls."
    ]
    for page, text in OTHERS.items():
        assert not unlinked_claims(text), page.name
