"""Parallel text from files, JSON lines and `datasets`; errors that name file and line."""

import json
import subprocess
import sys

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import read_dataset, read_jsonl, read_lines, read_pairs, read_parallel

PAIRS = [("A dog.", "Ein Hund."), ("", ""), ("Two  cats\u2028and a\x0bbird", "Zwei Katzen\x85\x1c")]
ROWS = [{"source": source, "target": target} for source, target in PAIRS]
TRANSLATIONS = [{"id": 1, "translation": {"en": source, "de": target}} for source, target in PAIRS]


def write(path, lines):
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def test_line_parallel_files_are_split_on_newlines_only(tmp_path):
    source = write(tmp_path / "a.en", [source for source, _ in PAIRS])
    target = write(tmp_path / "a.de", [target for _, target in PAIRS])
    assert list(read_parallel(source, target)) == PAIRS
    assert list(read_pairs(str(source), str(target))) == PAIRS


@pytest.mark.parametrize("content", [b"a\n\nb\n", b"a\n\nb", b"\xef\xbb\xbfa\n\nb\n"])
def test_last_newline_and_byte_order_mark(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    assert list(read_lines(tmp_path / "x")) == ["a", "", "b"]


def test_empty_file_has_no_lines(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    assert list(read_lines(tmp_path / "x")) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\xc3\n", r"x\.en, line 2: byte 2 \(0xc3\) is not UTF-8; convert the file first"),
        (b"a\n\nb\0c\n", r"x\.en, line 3: NUL character"),
    ],
)
def test_bad_bytes_are_named(tmp_path, content, message):
    (tmp_path / "x.en").write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_lines(tmp_path / "x.en"))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.en: No such file"):
        list(read_lines(tmp_path / "nowhere.en"))


@pytest.mark.parametrize(("short", "long"), [("a.en", "b.de"), ("b.de", "a.en")])
def test_unequal_files_are_named(tmp_path, short, long):
    write(tmp_path / short, ["x", "y"])
    write(tmp_path / long, ["x", "y", "z"])
    with pytest.raises(InputError, match=rf"{short}, line 3: missing; .*{long} has more lines"):
        list(read_parallel(tmp_path / "a.en", tmp_path / "b.de"))


def test_number_of_files(tmp_path):
    with pytest.raises(InputError, match="paths: 3 files; give two text files or one JSONL file"):
        read_pairs("a", "b", "c")


def test_jsonl(tmp_path):
    plain = write(tmp_path / "a.jsonl", [json.dumps(ROWS[0]), "", *map(json.dumps, ROWS[1:])])
    nested = write(tmp_path / "b.jsonl", map(json.dumps, TRANSLATIONS))
    assert list(read_jsonl(plain)) == list(read_pairs(plain)) == PAIRS
    assert list(read_jsonl(nested, source="en", target="de")) == PAIRS


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"a\.jsonl, line 2: not JSON \(.* at column 2\)"),
        ("[1]", r"a\.jsonl, line 2: '\[1\]' has no fields"),
        ('{"source": "x", "Target": "y"}', r"a\.jsonl, line 2: no field 'target'; it has 'source', 'Target'"),
        ('{"translation": {"en": "x"}}', r"a\.jsonl, line 2: no field 'source'; it has 'en'"),
        ('{"source": "x", "target": null}', r"a\.jsonl, line 2: field 'target' is None, not a string"),
    ],
)
def test_jsonl_errors(tmp_path, line, message):
    path = write(tmp_path / "a.jsonl", [json.dumps(ROWS[0]), line])
    with pytest.raises(InputError, match=message):
        list(read_jsonl(path))


def test_a_column_may_be_called_translation():
    assert list(read_dataset([{"en": "a", "translation": "b"}], "en", "translation")) == [("a", "b")]


def test_datasets(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    loaded = datasets.Dataset.from_list(TRANSLATIONS)
    fields = {"source": "en", "target": "de"}
    assert list(read_dataset(loaded, **fields)) == PAIRS
    assert list(read_dataset(loaded.to_iterable_dataset(), **fields)) == PAIRS
    loaded.save_to_disk(tmp_path / "one")
    assert list(read_dataset(tmp_path / "one", **fields)) == PAIRS
    with pytest.raises(InputError, match="saved as one dataset without splits"):
        list(read_dataset(tmp_path / "one", split="valid", **fields))
    datasets.DatasetDict(valid=loaded).save_to_disk(tmp_path / "splits")
    assert list(read_dataset(str(tmp_path / "splits"), split="valid", **fields)) == PAIRS
    (tmp_path / "files").mkdir()
    write(tmp_path / "files" / "train.jsonl", map(json.dumps, TRANSLATIONS))
    for streaming in (False, True):
        assert list(read_dataset(tmp_path / "files", streaming=streaming, **fields)) == PAIRS
    with pytest.raises(InputError, match=r"splits \(config None, split test\) cannot be loaded"):
        list(read_dataset(tmp_path / "splits", split="test"))
    with pytest.raises(InputError, match=r"nowhere \(config None, split train\) cannot be loaded"):
        list(read_dataset(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="dataset, row 1: no field 'source'; it has 'en', 'de'"):
        list(read_dataset(loaded))


def test_reading_text_does_not_import_datasets():
    code = "import sys, hf_nmt_interp.text.corpus; assert 'datasets' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.data
def test_real_corpora(data_dir):
    folder = data_dir / "tatoeba_en-de"
    assert sum(1 for _ in read_parallel(folder / "train.en", folder / "train.de")) == 165_548
