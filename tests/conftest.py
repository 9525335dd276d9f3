"""Fixtures that several test folders share."""

import copy
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from hypothesis import settings
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_nmt_interp.analysis.roles import HEAD_SCORES
from hf_nmt_interp.cli.main import main
from hf_nmt_interp.training.vocabulary import train_marian_tokenizer
from tests.calibrated_models import calibrated_copy
from tests.fuzzing import NIGHTLY
from tests.made_up_corpus import made_up_pairs, write_parallel
from tests.made_up_role import LastKey
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import BUILDERS, make_marian_tokenizer

# kind of tokenizer -> family of the model that goes with it, and the model's language settings for generate()
TRANSLATORS: dict[str, tuple[str, dict[str, str]]] = {
    "marian": ("marian", {}),
    "bart": ("bart", {}),
    "mbart": ("mbart", {"decoder_start_token_id": "de_DE"}),
    "m2m100": ("m2m100", {"forced_bos_token_id": "__de__"}),
    "nllb": ("m2m100", {"forced_bos_token_id": "deu_Latn"}),
    "t5": ("t5", {}),
    "bert": ("bert2bert", {}),
}


settings.load_profile("nightly" if NIGHTLY else "quick")


def pytest_configure(config: pytest.Config) -> None:
    """One thread, also in processes that tests start: tiny models are slower on two. Benchmarks choose themselves."""
    if not re.search(r"(?<!not )\bbenchmark", config.option.markexpr):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """The quick tests side by side; chosen files, and all that measures or opens a browser, in one process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and "not benchmark" in config.option.markexpr
    return None if whole else 0


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
def translator_of(tokenizer_of) -> Callable[[str], tuple[PreTrainedModel, PreTrainedTokenizerBase]]:
    """Function from a kind (a key of `TRANSLATORS`) to a tiny random model of its own and its tokenizer."""
    built: dict[str, PreTrainedModel] = {}

    def get(kind: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        tokenizer = tokenizer_of(kind)
        if kind not in built:
            family, languages = TRANSLATORS[kind]
            codes = getattr(tokenizer, "lang_token_to_id", {}).values()  # M2M100's len() leaves them out
            built[kind] = tiny_model(family, vocab_size=max([len(tokenizer), *(i + 1 for i in codes)]))
            built[kind].generation_config.max_length = 10
            for name, code in languages.items():
                setattr(built[kind].generation_config, name, tokenizer.convert_tokens_to_ids(code))
        return copy.deepcopy(built[kind]), tokenizer

    return get


@pytest.fixture(params=list(TRANSLATORS))
def any_translator(request: pytest.FixtureRequest, translator_of) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model and its tokenizer, of each kind in turn."""
    return translator_of(request.param)


class Diagonal:
    """Stands in for eflomal's Aligner."""

    def align(self, source, target, links_filename_fwd, links_filename_rev):
        lengths = [min(len(s.split()), len(t.split())) for s, t in zip(source, target, strict=True)]
        for name, first in ((links_filename_fwd, 0), (links_filename_rev, 1)):
            with open(name, "w") as file:
                file.writelines(" ".join(f"{n}-{n}" for n in range(first, size)) + "\n" for size in lengths)


@pytest.fixture
def eflomal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for eflomal that links words at the same position."""
    monkeypatch.setitem(sys.modules, "eflomal", SimpleNamespace(Aligner=Diagonal))


@pytest.fixture
def fourth_role(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a head role that is added for the test."""
    monkeypatch.setitem(HEAD_SCORES, "last key", LastKey)
    return "last key"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real corpora; tests that use it carry the marker `data`."""
    if "HF_NMT_INTERP_DATA" not in os.environ:
        pytest.skip("HF_NMT_INTERP_DATA is not set to a folder of corpora")
    return Path(os.environ["HF_NMT_INTERP_DATA"]).absolute()


# ---------------------------------------------------------------------------------------------------- the command line
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


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A translator to prune, and its data."""
    folder = tmp_path_factory.mktemp("start")
    pairs = made_up_pairs(60)
    train_marian_tokenizer((side for pair in pairs for side in pair), folder, vocab_size=70)
    tiny_model("marian", vocab_size=70).save_pretrained(folder)
    splits = {"train": pairs[:50], "test": pairs[50:]}
    return folder, {split: write_parallel(folder, split, part) for split, part in splits.items()}
