"""Fixtures that several test folders share."""

from collections.abc import Callable

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
