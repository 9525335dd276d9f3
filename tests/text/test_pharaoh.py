"""Pharaoh links: sure and possible, from 0 or 1, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import read_lines
from hf_nmt_interp.text.pharaoh import format_links, parse_links, read_gold, read_links, write_links

LINKS = st.sets(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=10)


@pytest.mark.parametrize("line", ["1-2 3p4\t1-2", "1-2 3?4", " 3?4  3p4 1p2 1-2 "])
def test_both_marks_of_possible_links(line):
    assert parse_links(line) == ({(1, 2)}, {(1, 2), (3, 4)})
    assert parse_links(line, base=1) == ({(0, 1)}, {(0, 1), (2, 3)})


@given(sure=LINKS, possible=LINKS, base=st.sampled_from([0, 1]))
def test_there_and_back(sure, possible, base):
    assert parse_links(format_links(sure, possible, base), base) == (sure, sure | possible)


@pytest.mark.parametrize("item", ["1", "1-", "-1", "1-2-3", "1x2", "1.0-2", "²-1", "1--2"])
def test_what_is_no_link(tmp_path, item):
    (tmp_path / "x.gold").write_text(f"0-0\n\n1-1 {item}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.gold, line 3: '.*' is not a link like 3-4, 3p4 or 3\?4"):
        read_gold(tmp_path / "x.gold")


def test_zero_where_words_count_from_one(tmp_path):
    (tmp_path / "x.gold").write_text("1-1\n2-0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.gold, line 2: link '2-0' is invalid: words are counted from 1"):
        read_gold(tmp_path / "x.gold", base=1)


def test_files(tmp_path):
    sure, possible = [{(0, 0)}, set(), {(2, 1)}], [{(0, 0), (0, 1)}, set(), {(2, 1)}]
    write_links(tmp_path / "a", sure, possible)
    assert (tmp_path / "a").read_bytes() == b"0-0 0p1\n\n2-1\n"
    assert read_gold(tmp_path / "a") == (sure, possible)
    assert read_links(tmp_path / "a") == possible
    write_links(tmp_path / "b", sure, base=1)
    assert read_links(tmp_path / "b", base=1) == sure
    with pytest.raises(InputError, match="possible: 2 sentence pairs, but sure has 3"):
        write_links(tmp_path / "a", sure, possible[:2])


@pytest.mark.data
def test_real_gold(data_dir):
    folder = data_dir / "gold_de-en"
    sure, possible = read_gold(folder / "dev.gold")
    german, english = ([line.split() for line in read_lines(folder / f"dev.{side}")] for side in ("de", "en"))
    assert len(sure) == len(german) == len(english) == 300
    for links, source, target in zip(possible, german, english, strict=True):
        assert all(i < len(source) and j < len(target) for i, j in links)
    assert [format_links(s, p) for s, p in zip(sure, possible, strict=True)] == list(read_lines(folder / "dev.gold"))
