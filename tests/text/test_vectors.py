"""Word vectors of a text file."""

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.vectors import read_vectors


def test_only_the_words_that_are_looked_for(tmp_path):
    (tmp_path / "a.txt").write_text("the 0.5 -1e-2\nfilm 1 2\nthe 7 7\nüber 3 4\n", encoding="utf-8")
    found = read_vectors(tmp_path / "a.txt", {"the", "über", "unknown"}, 2)
    assert found == {"the": [0.5, -0.01], "über": [3.0, 4.0]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("film 1", r"a.txt, line 2: has 1 numbers; embeddings of 2 are needed; change embedding_size or the file"),
        ("film 1 2 3", r"a.txt, line 2: has 3 numbers"),
        ("", r"a.txt, line 2: has 0 numbers"),
        ("film 1 two", r"a.txt, line 2: 'two' is not a number"),
        ("film 1 nan", r"a.txt, line 2: 'nan' is not finite"),
    ],
)
def test_wrong_lines_are_named(line, message, tmp_path):
    (tmp_path / "a.txt").write_text(f"the 1 2\n{line}\n")
    with pytest.raises(InputError, match=message):
        read_vectors(tmp_path / "a.txt", {"film"}, 2)
    with pytest.raises(InputError, match=r"b.txt: No such file"):
        read_vectors(tmp_path / "b.txt", {"film"}, 2)
