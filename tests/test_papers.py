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
CLAIM = re.compile(
    r"\b(?:in|unlike) (?:the|that) paper\b"
    r"|\b(?:the|that) paper (?:finds|found|has|sees|describes|reports|loses|gains|needs|shows|compares)\b"
    r"|\b(?:than|above|below|from) (?:the|that) paper's\b|\bpaper's \w+ (?:is|are|has|have)\b"
    r"|\bas in (?:\w+20\d\d|appendix)|\bas the paper found",
    re.IGNORECASE,
)
# "figures 1 (a) and 2 (b)", "table 1 (OPUS-MT) and section 6.2": all rows that are cited "in [papers.md]"
KIND, ROW = r"figures?|tables?|eq\.|sections?|appendix|appendices", r"([A-Z]\.\d+|\d+(?:\.\d+)*)(?: \(([^()]+)\))?"
CITED = re.compile(rf"(?:({KIND}) )?{ROW}")
CITATION = re.compile(rf"((?:{KIND}) {ROW}(?:(?:, | and ){CITED.pattern})*) in \[papers\.md\]")
SINGULAR = {"figures": "figure", "tables": "table", "sections": "section", "appendices": "appendix"}


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


def blocks(text: str) -> list[str]:
    """Paragraphs, tables and list items, each in one line."""
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n|\n(?=- )", text)]


def unlinked_claims(text: str) -> list[str]:
    """Paragraphs and list items that compare with a paper, but have no link to the row."""
    return [block for block in blocks(text) if CLAIM.search(block) and "papers.md)" not in block]


def test_comparisons_with_a_paper_link_to_its_row():
    linked = "- Other than in the paper ([papers.md](papers.md))\n- The paper leaves it open."
    for claim in ("As in the paper, it falls.", "In the\npaper it is higher.", "It falls; the paper finds a rise.",
                  "The paper has one.", "Ours is lower than the paper's.", "The paper's LSTM is worse."):  # fmt: skip
        assert unlinked_claims(f"{claim}\n{linked}") == [" ".join(claim.split())]
    for page, text in OTHERS.items():
        assert not unlinked_claims(text), page.name


ITEMS = [
    (f"{kind} {number}", part)
    for section in SECTIONS.values()
    for kind, first, last, part in (ITEM.fullmatch(row["item"]).groups() for row in rows_of(section))  # type: ignore[union-attr]
    for number in (range(int(first), int(last) + 1) if last else [first])
]


def wrong_citations(text: str, items: list[tuple[str, str | None]]) -> list[str]:
    """Citations of rows that do not exist, and those that cannot be read.

    "table 1" cites all rows of the table, "figure 5 (a)" also those of "figure 5 (a, MRT)".
    """
    wrong = []
    for block in blocks(text):
        found = list(CITATION.finditer(block))
        if len(found) < block.count(" in [papers.md]"):
            wrong.append(f"not understood: {block}")
        for kind, number, part in (cited for match in found for cited in with_kinds(match[1])):
            rows = [own for item, own in items if item == f"{kind} {number}"]
            if not (rows if part is None else any(own == part or (own or "").startswith(f"{part}, ") for own in rows)):
                wrong.append(f"{kind} {number}" + (f" ({part})" if part else ""))
    return wrong


def with_kinds(citation: str) -> list[tuple[str, str, str | None]]:
    """Kind, number and part of each cited row; "figures 1 and 2" are two figures."""
    rows, kind = [], ""
    for named, number, part in CITED.findall(citation):
        kind = SINGULAR.get(named, named) or kind
        rows.append((kind, number, part or None))
    return rows


def test_cited_rows_exist():
    items: list[tuple[str, str | None]] = [("figure 3", "a"), ("figure 3", "b, OPUS-MT"), ("table 1", None)]
    items += [("appendix A.7", "SST"), ("section 6.2", None)]
    for cited, problems in {
        "figures 3 (a) and 3 (b, OPUS-MT)": [],
        "figure 3 (b), table 1 and appendix A.7": [],
        "figure 3 and section 6.2": [],
        "figure 3 (c)": ["figure 3 (c)"],
        "figures 3 (a) and 4": ["figure 4"],
        "table 1 (box), appendix A.7 (SST)": ["table 1 (box)"],
        "table 1, OPUS-MT,": ["not understood: It falls (table 1, OPUS-MT, in [papers.md](papers.md))."],
    }.items():
        assert wrong_citations(f"It falls ({cited} in [papers.md](papers.md)).", items) == problems
    for page, text in OTHERS.items():
        assert not wrong_citations(text, ITEMS), page.name
