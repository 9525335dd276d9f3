"""Fixtures that several test folders share."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from tests.tiny_tokenizers import BUILDERS


@pytest.fixture(scope="session")
def tokenizer_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], PreTrainedTokenizerBase]:
    """Function from a kind (a key of `BUILDERS`) to its tiny tokenizer; do not change what it returns."""
    built: dict[str, PreTrainedTokenizerBase] = {}

    def get(kind: str) -> PreTrainedTokenizerBase:
        if kind not in built:
            built[kind] = BUILDERS[kind](tmp_path_factory.mktemp(kind))
        return built[kind]

    return get


@pytest.fixture(scope="session", params=list(BUILDERS))
def any_tokenizer(request: pytest.FixtureRequest, tokenizer_of) -> PreTrainedTokenizerBase:
    """Each kind of tokenizer in turn."""
    return tokenizer_of(request.param)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real corpora; tests that use it carry the marker `data`."""
    folder = Path(os.environ.get("HF_NMT_INTERP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no corpora in {folder}; set HF_NMT_INTERP_DATA")
    return folder
