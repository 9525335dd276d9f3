"""Texts with classes: reads them from files, and generates a set with known keywords."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.text.corpus import Example, LineError, MissingField, load_rows
from hf_nmt_interp.text.files import write_whole

Text = tuple[str, list[str]]  # class and words
PAD, UNKNOWN = 0, 1
TABLES = (".csv", ".jsonl", ".parquet")  # endings of files with named fields


def planted_texts(number: int, seed: int | str = 0, keywords: int = 20, fillers: int = 1000) -> Iterator[Text]:
    """Texts of 10 to 30 words, mostly fillers drawn by Zipf's law; the majority of the keywords determines the class.

    A text has one to three keywords of its class; half of the texts with two or more also have one of the other class.
    Keywords are named `good0`, `bad0`, ... by class; the same seed produces the same texts.
    """
    rng = Random(f"planted-{seed}")
    words, weights = [f"w{n}" for n in range(fillers)], list(accumulate(1 / (n + 1) for n in range(fillers)))
    for _ in range(number):
        own, other = rng.sample(["good", "bad"], 2)
        planted = [f"{own}{rng.randrange(keywords)}" for _ in range(rng.randint(1, 3))]
        if len(planted) > 1 and rng.random() < 0.5:
            planted.append(f"{other}{rng.randrange(keywords)}")
        text = rng.choices(words, cum_weights=weights, k=rng.randint(10, 30) - len(planted)) + planted
        rng.shuffle(text)
        yield own, text


def write_texts(texts: Iterable[Text], path: str | Path) -> None:
    """One line per text: its class, a tab, space-separated words."""
    write_whole(path, "".join(f"{name}\t{' '.join(words)}\n" for name, words in texts))


def read_rows(
    name: str, config: str | None = None, split: str = "train", text: str = "text", label: str = "label"
) -> list[Text]:
    """Texts of a dataset (Hub id or folder), or of a file that ends with one of `TABLES`.

    Args:
        name: name of the dataset or path of the file.
        config: configuration of the dataset.
        split: split of the dataset.
        text: text field, with space-separated words.
        label: class field, a string or an integer.
    """
    rows = enumerate(load_rows(name, config, split, streaming=False), 1)
    return [_text(row, text, label, f"{name}, row {number}") for number, row in rows]


def _text(row: Mapping[str, Any], text: str, label: str, where: str) -> Text:
    if missing := [field for field in (text, label) if field not in row]:
        raise MissingField(where, None, f"no field {missing[0]!r}", f"it has {', '.join(map(repr, row))}")
    if not isinstance(row[text], str) or not row[text].split():
        raise LineError(where, row[text], f"in the field {text!r} is not a text with words")
    if not isinstance(row[label], str | int):
        raise LineError(where, row[label], f"in the field {label!r} is neither a string nor an integer")
    return str(row[label]), row[text].split()


def read_texts(path: str | Path) -> list[Text]:
    """Read the texts that `write_texts` wrote."""
    found = []
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except OSError as error:
        remedy = "give a file in which each line is a class, a tab and words"
        raise InputError(str(path), None, str(error.strerror), remedy) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, tab, text = line.partition("\t")
        if not tab or not text.split():
            raise InputError(f"{path}, line {number}", line[:40], "is not a class, a tab and words")
        found.append((name, text.split()))
    return found


class WordIds:
    """Ids of the words and classes of training texts; words rarer than `min_count` are unknown (snell2021, A.8)."""

    def __init__(self, texts: list[Text], min_count: int = 3) -> None:
        counts = Counter(word for _, words in texts for word in words)
        kept = sorted(word for word, count in counts.items() if count >= min_count)
        self.words = {word: number for number, word in enumerate(kept, UNKNOWN + 1)}
        self.classes = {name: number for number, name in enumerate(sorted({name for name, _ in texts}))}
        if len(self.classes) < 2:
            raise InputError("texts", list(self.classes), "is not enough classes", "give texts of at least two")

    def __len__(self) -> int:
        return len(self.words) + UNKNOWN + 1

    def encode(self, texts: Iterable[Text], max_length: int) -> list[Example]:
        """Examples of ids, truncated to `max_length`; the class is the only output word."""
        found = []
        for name, words in texts:
            if name not in self.classes:
                raise InputError("texts", name, f"is not a class of the training set: {', '.join(self.classes)}")
            ids = [self.words.get(word, UNKNOWN) for word in words[:max_length]]
            found.append({"input_ids": ids, "labels": [self.classes[name]]})
        return found
