"""The made-up set with planted keywords, and files of texts with classes."""

import json
from collections import Counter

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.keywords import PAD, UNKNOWN, WordIds, planted_texts, read_rows, read_texts, write_texts


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


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "folder"])
def test_texts_of_files_with_fields_and_of_sets(ending, tmp_path):
    import datasets

    rows = [{"review": "nice  film", "stars": 1}, {"review": "bad film", "stars": 0}]
    whole = datasets.Dataset.from_list(rows)
    path = tmp_path / f"a.{ending}"
    if ending == "folder":
        datasets.DatasetDict({"test": whole}).save_to_disk(path)
    else:
        getattr(whole, {"jsonl": "to_json"}.get(ending, f"to_{ending}"))(path)
    split = "test" if ending == "folder" else "train"
    found = read_rows(str(path), split=split, text="review", label="stars")
    assert found == [("1", ["nice", "film"]), ("0", ["bad", "film"])]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "film"}, r"row 1: no field 'label'; it has 'text'"),
        ({"text": " ", "label": "a"}, r"row 1: ' ' in the field 'text' is not a text with words"),
        ({"text": 3, "label": "a"}, r"row 1: 3 in the field 'text' is not a text with words"),
        ({"text": "film", "label": 0.5}, r"row 1: 0.5 in the field 'label' is neither a string nor an integer"),
    ],
)
def test_wrong_rows_are_named(row, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=message):
        read_rows(str(tmp_path / "a.jsonl"))


def test_wrong_files_are_named(tmp_path):
    (tmp_path / "a.tsv").write_text("+\tnice film\nnice film\n")
    with pytest.raises(InputError, match=r"a.tsv, line 2: 'nice film' is not a class, a tab and words"):
        read_texts(tmp_path / "a.tsv")
    with pytest.raises(InputError, match=r"b.tsv: No such file or directory; give a file in which each line is"):
        read_texts(tmp_path / "b.tsv")
    with pytest.raises(InputError, match=r"texts: \['\+'\] is not enough classes; give texts of at least two"):
        WordIds([("+", ["film"])])
    with pytest.raises(InputError, match=r"texts: '\?' is not a class of the training set: \+, -"):
        WordIds([("+", ["film"]), ("-", ["film"])]).encode([("?", ["film"])], 9)
