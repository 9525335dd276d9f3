"""A tiny saved translator, and one function to run the command line in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hf_nmt_interp.cli.main import main
from tests.calibrated_models import calibrated_copy
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import make_marian_tokenizer


class Ran(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Marian model with a real tokenizer."""
    folder = tmp_path_factory.mktemp("tiny_marian")
    tokenizer = make_marian_tokenizer(folder)
    model = tiny_model("marian", vocab_size=len(tokenizer))
    model.generation_config.max_length = 12
    model.generation_config.num_beams = 2
    model.generation_config.bad_words_ids = [[tokenizer.pad_token_id]]
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def gated_folder(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """The same with gates, some of them closed."""
    from transformers import AutoTokenizer

    from hf_nmt_interp import GatedMarianMTModel

    folder = tmp_path_factory.mktemp("tiny_gated")
    gated = GatedMarianMTModel.from_pretrained(model_folder)
    gated.set_kept_heads(gated.kept_heads() | {"encoder": [[0]] * gated.config.encoder_layers})
    gated.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def calibrated_folder(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """The same with calibrated cross-attention."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("tiny_calibrated")
    calibrated_copy(AutoModelForSeq2SeqLM.from_pretrained(model_folder), mask_alpha=0.3).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(folder)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command line with these arguments."""

    def run_main(*arguments: object) -> Ran:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(code, *capsys.readouterr())

    return run_main
