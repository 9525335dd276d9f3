"""Fixtures of corpus runs."""

import pytest

from hf_nmt_interp.cli.loading import load
from tests.shard_files import SOURCES, TARGETS
from tests.tiny_tokenizers import ENGLISH, GERMAN


def written(folder, *texts):
    """Two line-parallel files."""
    found = folder / "in.en", folder / "in.de"
    for path, lines in zip(found, texts, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return found


@pytest.fixture
def files(tmp_path):
    """Two line-parallel files of 24 lines."""
    return written(tmp_path, SOURCES, TARGETS)


@pytest.fixture
def short_files(tmp_path):
    """Two line-parallel files of the tokenizers' sentences."""
    return written(tmp_path, ENGLISH, GERMAN)


@pytest.fixture(scope="module")
def tiny(model_folder):
    """The tiny model and its tokenizer, as verbs load them."""
    return load(str(model_folder))


@pytest.fixture
def work(run, model_folder, files, tmp_path):
    """Run a verb over the files into shards of 10 lines; a keyword `files` for others."""

    def start(verb, *arguments, files=files, folder="run"):
        method = [] if verb == "heads" else ["--method", "attention"]
        given = [*files] if verb == "align" else [*zip(("--input", "--target-file"), files, strict=False)]
        given = [part for item in given for part in (item if isinstance(item, tuple) else (item,))]
        common = "--model", model_folder, "--batch-size", 4, "--shard-size", 10, "--shards", tmp_path / folder
        return run(verb, *given, *method, *common, *arguments)

    return start
