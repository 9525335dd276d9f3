"""Models and tokenizers to train: new ones, or from a checkpoint."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, MarianConfig, MarianTokenizer

from hf_nmt_interp.decoding.languages import set_languages
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.models.conv import ConvSeq2SeqConfig
from hf_nmt_interp.models.gated import GatedMarianConfig
from hf_nmt_interp.models.loading import load_config, load_model, load_tokenizer
from hf_nmt_interp.models.lstm import LuongSeq2SeqConfig
from hf_nmt_interp.text.files import atomic
from hf_nmt_interp.training.arguments import DataArguments, open_split
from hf_nmt_interp.training.vocabulary import train_marian_tokenizer


def load_checkpoint(name: str, data: DataArguments, load: Callable[[str], Any] | None = None) -> tuple[Any, Any]:
    """The seq2seq model to start from, in float32, and its tokenizer; `load` can load another class."""
    try:
        model = load(name) if load else load_model(AutoModelForSeq2SeqLM, name)
        if not load and hasattr(model, "without_head"):
            model = model.without_head()  # an alignment head fits only the weights it was trained on
    except InputError as error:  # the argument of other loaders is called `name`
        raise error.at(argument="--model") if error.argument == "name" else error from error
    tokenizer = load_tokenizer(name)
    set_languages(model, tokenizer, *data.codes)
    return model, tokenizer


def new_tokenizer(data: DataArguments, config: Any, vocab_size: int, max_length: int) -> Any:
    """A tokenizer trained on the training pairs, or the one in the output folder from an earlier run."""
    folder = Path(config.output_dir) / "tokenizer"
    with config.main_process_first(desc="vocabulary"):
        if not (folder / "tokenizer_config.json").is_file():
            pairs = islice(open_split(data, "train"), data.vocabulary_pairs)
            sentences = (side for pair in pairs for side in pair)
            with atomic(folder) as part:
                train_marian_tokenizer(sentences, part, vocab_size, data.source_lang, data.target_lang, max_length)
    tokenizer = MarianTokenizer.from_pretrained(folder)
    if len(tokenizer) != vocab_size:
        problem = f"differs from the {len(tokenizer)} of {folder}, made by an earlier run"
        raise InputError("--vocab_size", vocab_size, problem, "use the same size, or another --output_dir")
    return tokenizer


def special_ids(tokenizer: Any) -> dict[str, int]:
    """Fields of a new model's configuration: a translation starts with padding and ends with EOS, as in Marian."""
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    return {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": eos, "forced_eos_token_id": eos}


def read_settings(texts: Iterable[str], kind: Any) -> dict[str, Any]:
    """Fields of a new model's configuration, of the class `kind`, from NAME=VALUE of `--set`."""
    known = [one for one in kind.__annotations__ if one != "vocab_size" and not one.endswith("_id")]
    found: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise InputError("--set", text, f"is not one of the fields {', '.join(known)}")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):  # not JSON, or a number or nesting that Python cannot parse
            found[name] = value
    return found


def make_model(make_config: Callable[[], Any], tokenizer: Any, max_length: int, arguments: str) -> Any:
    """A new model with random weights, 4 beams and no padding in translations; an error names the `arguments`."""
    try:
        model: Any = AutoModelForSeq2SeqLM.from_config(make_config())
    except InputError:
        raise
    except (ValueError, TypeError, RuntimeError, ZeroDivisionError, StrictDataclassError) as error:
        raise InputError(arguments, None, str(error), "choose other values") from error
    model.generation_config = GenerationConfig(
        num_beams=4, max_length=max_length, bad_words_ids=[[tokenizer.pad_token_id]], **special_ids(tokenizer)
    )
    return model


def new_marian(arguments: Any, tokenizer: Any) -> Any:
    """A Marian model with random weights; `arguments` are those of `train_translation.py`."""
    make = dense_config if arguments.heads.isdecimal() else sparse_config
    make_config = partial(make, arguments, vocab_size=len(tokenizer), **special_ids(tokenizer))
    return make_model(make_config, tokenizer, arguments.max_length, "--d_model, --layers, --heads, --ffn_dim")


def dense_config(arguments: Any, **more: Any) -> Any:
    """Marian of the given sizes."""
    sizes = {"layers": arguments.layers, "attention_heads": int(arguments.heads), "ffn_dim": arguments.ffn_dim}
    both: dict[str, Any] = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    both |= {"d_model": arguments.d_model, "max_position_embeddings": 2 * arguments.max_length}
    return MarianConfig(**both, dropout=arguments.dropout, activation_function="relu", scale_embedding=True, **more)


def sparse_config(arguments: Any, **more: Any) -> Any:
    """The architecture of a pruned model, to be trained from scratch (voita2019, table 2, right column)."""
    if not Path(arguments.heads, "config.json").is_file():
        raise InputError("--heads", arguments.heads, "is neither a number nor a folder with a config.json")
    family = load_config(arguments.heads, "--heads").model_type.removeprefix("gated_")
    if family != "marian":
        raise InputError("--heads", arguments.heads, f"is of the family {family!r}", "only Marian is supported")
    return GatedMarianConfig.from_pretrained(arguments.heads, **more, gated_attentions=[], dtype="float32")


def new_seq2seq(arguments: Any, tokenizer: Any) -> Any:
    """An LSTM or convolutional model with random weights; `arguments` are those of `train_seq2seq.py`."""
    kinds: dict[str, Any] = {"lstm": LuongSeq2SeqConfig, "conv": ConvSeq2SeqConfig}
    check_choice("--architecture", arguments.architecture, kinds)
    kind = kinds[arguments.architecture]
    settings = special_ids(tokenizer) | read_settings(arguments.set, kind)
    return make_model(lambda: kind(vocab_size=len(tokenizer), **settings), tokenizer, arguments.max_length, "--set")
