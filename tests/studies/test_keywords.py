"""The made-up set with planted keywords, and files of texts with classes."""

from collections import Counter

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.keywords import PAD, UNKNOWN, WordIds, planted_texts, read_texts, write_texts


def test_the_class_is_that_of_most_keywords():
    texts = list(planted_texts(300, seed=1))
    assert texts == list(planted_texts(300, seed=1))
    assert texts != list(planted_texts(300, seed=2))
    for name, words in texts:
        kinds = Counter(word.rstrip("0123456789") for word in words)
        other = {"good": "bad", "bad": "good"}[name]
        assert 1 <= kinds[name] <= 3
        assert kinds[other] < kinds[name]
        assert 10 <= len(words) <= 30
    assert {name for name, _ in texts} == {"good", "bad"}
    assert 20 < sum(any(word.startswith("bad") for word in words) for name, words in texts if name == "good") < 80


def test_files_and_ids(tmp_path):
    texts = [("+", ["nice", "film"]), ("-", ["bad", "film", "film"]), ("+", ["nice", "nice"])]
    write_texts(texts, tmp_path / "a.tsv")
    assert read_texts(tmp_path / "a.tsv") == texts
    ids = WordIds(texts, min_count=3)
    assert (ids.words, ids.classes, len(ids)) == ({"film": 2, "nice": 3}, {"+": 0, "-": 1}, 4)
    assert ids.encode(texts, max_length=2)[1] == {"input_ids": [UNKNOWN, 2], "labels": [1]}
    assert PAD not in ids.words.values()


def test_wrong_files_are_named(tmp_path):
    (tmp_path / "a.tsv").write_text("+\tnice film\nnice film\n")
    with pytest.raises(InputError, match=r"a.tsv, line 2: 'nice film' is not a class, a tab and words"):
        read_texts(tmp_path / "a.tsv")
    with pytest.raises(InputError, match=r"b.tsv: No such file or directory; give a file of lines"):
        read_texts(tmp_path / "b.tsv")
    with pytest.raises(InputError, match=r"texts: \['\+'\] are too few classes; give texts of at least two"):
        WordIds([("+", ["film"])])
    with pytest.raises(InputError, match=r"texts: '\?' is not a class of the training set: \+, -"):
        WordIds([("+", ["film"]), ("-", ["film"])]).encode([("?", ["film"])], 9)
