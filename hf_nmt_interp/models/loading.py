"""Models and tokenizers from folders and from the Hub; errors are reported in one line."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError  # raised by torch for weights that contain more than tensors
from typing import Any

from hf_nmt_interp.errors import InputError, printable
from hf_nmt_interp.models import register_kinds
from hf_nmt_interp.models.demo import find_model
from hf_nmt_interp.text.files import atomic
from hf_nmt_interp.text.fingerprints import files_fingerprint

# weights, configuration and tokenizer of a model
MODEL_FILES = (
    "*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*", "config.json", "generation_config.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab*.json",
    "vocab*.txt", "merges.txt", "*.spm", "*.model", "preprocessor_config.json", "chat_template.jinja",
)  # fmt: skip
# fields whose types transformers does not check
_WHOLE = (
    "max_length min_length max_new_tokens min_new_tokens num_beams num_return_sequences no_repeat_ngram_size top_k"
)
_IDS = "bos_token_id pad_token_id decoder_start_token_id forced_bos_token_id"
_GENERATION: dict[str, Any] = (
    dict.fromkeys(f"{_WHOLE} {_IDS}".split(), int)
    | dict.fromkeys(("eos_token_id", "forced_eos_token_id"), int | list)
    | dict.fromkeys(("length_penalty", "temperature", "top_p", "repetition_penalty"), int | float)
    | {"do_sample": bool, "use_cache": bool}
)
# errors of transformers for invalid values in a model's files, besides its own checks
_MISFITS = AssertionError, AttributeError, KeyError, TypeError, ZeroDivisionError
_NO_CONNECTION = "no connection to the Hub, and not in the cache; give a local folder or demo:en-de"


def load_model(kind: Any, name: str, argument: str = "--model", **settings: Any) -> Any:
    """Load a model of a class or Auto class; raises if weights are missing, have wrong shapes, or are NaN or inf.

    `name` is a folder, an id on the Hub, or a bundled translator such as `demo:en-de`; errors call it `argument`.
    Settings are those of `from_pretrained`, but the default dtype is float32.
    """
    settings = {"dtype": "float32"} | settings | {"trust_remote_code": False}
    with _reading(name, argument) as place:
        model, info = kind.from_pretrained(place, output_loading_info=True, ignore_mismatched_sizes=True, **settings)
    _check_weights(argument, name, model, info)
    if generates := getattr(model, "generation_config", None):
        _check_fields(argument, f"{place}/generation_config.json", generates.to_dict(), _GENERATION)
    return model


def load_config(name: str, argument: str = "--model") -> Any:
    """The configuration of a model; for the name see `load_model`."""
    from transformers import AutoConfig

    with _reading(name, argument) as place:
        return AutoConfig.from_pretrained(place, trust_remote_code=False)


def class_of_family(mixin: Any, prefix: str, name: str, config: Any) -> Any:
    """The class with this mixin for the family of a checkpoint, and its config; `prefix` is e.g. "gated"."""
    known = [kind for kind in mixin.__subclasses__() if kind.config_class]
    classes = {kind.config_class.model_type.removeprefix(f"{prefix}_"): kind for kind in known}
    # other kinds drop the alignment head of a checkpoint
    if (family := config.model_type.removeprefix("aligned_").removeprefix(f"{prefix}_")) not in classes:
        problem = f"is of the family {family!r}, which has no {prefix} models"
        raise InputError("name", name, problem, f"supported are {', '.join(classes)}")
    return classes[family]


def load_tokenizer(name: str, argument: str = "--model") -> Any:
    """The tokenizer saved with a model; for the name see `load_model`."""
    from transformers import AutoTokenizer

    place = _find(name, argument)
    try:
        return AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    except ImportError as error:  # it needs a library that is not installed
        raise InputError(argument, name, f"has a tokenizer that cannot be loaded: {_reason(error, True)}") from error
    except (OSError, ValueError, RuntimeError, *_MISFITS) as error:  # TypeError: Marian's, where files are missing
        if not os.path.exists(place) and _is_offline(error):
            raise InputError(argument, name, f"cannot be loaded: {_reason(error, False)}") from error
        raise InputError(
            argument, name, "has no tokenizer that can be loaded", "save it in the same folder as the weights"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars for loading and saving weights; download bars are kept."""
    from transformers.utils import logging

    before = logging.set_tqdm_hook(lambda make, args, options: make(*args, **options | {"disable": True}))
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def save_whole(folder: str | Path, model: Any, tokenizer: Any) -> None:
    """Save a model and its tokenizer in a folder, both or neither."""
    with quiet(), atomic(folder, shared=True) as part:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)


def model_files(folder: str | Path) -> list[Path]:
    """Files of a saved model."""
    return sorted(path for path in Path(folder).iterdir() if any(path.match(pattern) for pattern in MODEL_FILES))


def model_fingerprint(name: str, argument: str = "--model") -> str:
    """SHA-256 of the files of a model, for a name as in `load_model`; from the Hub, the last download."""
    from huggingface_hub import try_to_load_from_cache

    place = _find(name, argument)
    if not os.path.exists(place):
        found = try_to_load_from_cache(name, "config.json")
        if not isinstance(found, str):
            return "not downloaded"
        place = os.path.dirname(found)
    return files_fingerprint(model_files(place))


def weights_fingerprint(model: Any, without: tuple[str, ...] = ()) -> str:
    """Fingerprint of a model's weights in memory, as float32, except those whose names start with `without`."""
    from torch import Tensor

    digest, seen = hashlib.blake2b(digest_size=8), set()
    for name, entry in model.state_dict().items():
        for weights in entry if isinstance(entry, tuple) else (entry,):  # torch packs int8 weights with their bias
            if not isinstance(weights, Tensor) or name.startswith(without):
                continue
            place = weights.data_ptr(), weights.shape, weights.stride(), weights.dtype
            if place not in seen:  # tied weights have several names
                seen.add(place)
                values = weights.dequantize() if weights.is_quantized else weights
                digest.update(values.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def is_path(name: str) -> bool:
    """Whether a name must be a folder, existing or not, because it cannot be a Hub id."""
    return name.count("/") > 1 or name.startswith((".", "/", "~"))


def _find(name: str, argument: str) -> str:
    """The folder of a model, checked; or the id on the Hub."""
    if not name.strip():
        raise InputError(argument, name, "does not name a model", "give a folder, a Hub id or demo:en-de")
    path = Path(find_model(name, argument)).expanduser()
    if not os.path.exists(path):  # Path.exists raises for names that are too long for a file
        if is_path(name):
            raise InputError(argument, None, f"folder {name!r} does not exist")
        _check_connection(name, argument)
        return name
    if not (path / "config.json").exists():
        raise InputError(argument, name, "has no config.json", "give a folder written by save_pretrained")
    for file in sorted(path.glob("*.json")):  # transformers silently ignores some of them
        try:
            json.loads(file.read_bytes())
        except ValueError as error:
            raise InputError(argument, None, f"{file} is not JSON ({error})", "save the model again") from error
    _check_dtype(argument, path / "config.json")
    return str(path)


def _check_fields(argument: str, file: str, found: dict[str, Any], kinds: dict[str, Any]) -> None:
    """Raise for values of the wrong type, and for negative counts."""
    for field, kind in kinds.items():
        value = found.get(field)
        if value is None:
            continue
        is_wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        if is_wrong or (kind is int and value < (field == "num_beams")):
            raise InputError(argument, None, f"{file}: {field} {value!r} is not a valid value", "correct it there")


def _check_dtype(argument: str, file: Path) -> None:
    """Raise for an unknown dtype in a configuration; the error of transformers would name the tokenizer."""
    config = json.loads(file.read_bytes())
    value = config.get("dtype") if isinstance(config, dict) else None
    if value is not None and value not in ("float16", "bfloat16", "float32", "float64", "auto"):
        raise InputError(argument, None, f"{file}: dtype {value!r} is not known", "correct it there, e.g. float32")


def _check_connection(name: str, argument: str) -> None:
    """Raise for a Hub model if there is no connection; loading would retry each of its files for 23 seconds."""
    from httpx2 import TransportError
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(name, "config.json"))
    except TransportError as error:
        raise InputError(argument, name, f"cannot be loaded: {_NO_CONNECTION}") from error
    except (OSError, ValueError):  # errors from the Hub and invalid names are reported when loading
        pass


@contextmanager
def _reading(name: str, argument: str) -> Iterator[str]:
    """Context with arguments for `from_pretrained` that turns its errors into one line."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    wrong = OSError, ValueError, RuntimeError, ImportError, UnpicklingError, SafetensorError, StrictDataclassError
    register_kinds()
    place = _find(name, argument)
    try:
        yield place
    except (*wrong, *_MISFITS) as error:
        other = "Unrecognized configuration class" in str(error)
        reason = _other_kind(place) if other else _reason(error, os.path.exists(place))
        raise InputError(argument, name, f"cannot be loaded: {reason}") from error


def _check_weights(argument: str, name: str, model: Any, info: dict[str, Any]) -> None:
    """Raise for missing weights, NaN and inf; warn about weights that the model does not use."""
    if missing := sorted(info["missing_keys"]):
        raise InputError(argument, name, f"has no weights for {missing[0]} and {len(missing) - 1} others")
    if mismatched := sorted(info["mismatched_keys"]):
        key, found, needed = mismatched[0]
        others = f"and {len(mismatched) - 1} others"
        problem = f"has {key} of {list(found)} but its config.json needs {list(needed)}, {others}"
        raise InputError(argument, name, problem, "they belong to different models")
    weights = *model.named_parameters(), *model.named_buffers()  # the logits' bias is a buffer
    # the sum is finite only if all summands are, and takes a fraction of the time
    if bad := next((key for key, w in weights if not (w.sum().isfinite() or w.isfinite().all())), None):
        raise InputError(argument, name, f"has NaN or inf in {bad}", "use an earlier checkpoint")
    if unused := sorted(info["unexpected_keys"]):
        problem = f"has weights that its config.json does not use, {unused[0]} and {len(unused) - 1} others"
        print(f"hf-nmt-interp: {name!r} {printable(problem)}; they are ignored", file=sys.stderr)


def _is_offline(error: Exception) -> bool:
    return any(word in str(error) for word in ("offline", "connect"))


def _other_kind(place: str) -> str:
    """Why a model that AutoModelForSeq2SeqLM does not support cannot translate text."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES

    config = AutoConfig.from_pretrained(place, trust_remote_code=False)
    if config.model_type in MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES:
        return f"only models that read text are supported, {config.model_type} reads speech"
    if type(config).is_encoder_decoder:
        return f"{config.model_type} is not among the models of AutoModelForSeq2SeqLM, which read and write text"
    return f"only encoder-decoder models are supported, {config.model_type} is not one"


def _reason(error: Exception, is_local: bool) -> str:
    """Why loading failed and what to do, in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, _MISFITS):
        return f"its files have invalid values ({type(error).__name__}: {text[:150]})"
    if "trust_remote_code" in text:
        return "it needs custom code, which is never executed here; load it in Python if you trust it"
    if is_local:
        return text[:200]
    if _is_offline(error):
        return _NO_CONNECTION
    if "not a valid model identifier" in text or "404" in text:
        return "no such model on the Hub and no such folder here (private ones need `hf auth login`)"
    return text[:200]
