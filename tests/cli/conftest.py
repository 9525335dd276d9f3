"""Fixtures of corpus runs."""

import pytest

from tests.shard_files import SOURCES, TARGETS


@pytest.fixture
def files(tmp_path):
    """Two line-parallel files of 24 lines."""
    found = tmp_path / "in.en", tmp_path / "in.de"
    for path, lines in zip(found, (SOURCES, TARGETS), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return found


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
