"""Records the values that a run was started with; a run with other values cannot resume it."""

import json
import os
import shutil
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from transformers import Seq2SeqTrainingArguments

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.loading import model_fingerprint
from hf_nmt_interp.text.files import write_whole
from hf_nmt_interp.text.fingerprints import changes, data_fingerprint
from hf_nmt_interp.training.callbacks import CONTRIBUTIONS
from hf_nmt_interp.training.checkpoints import HISTORY, LINKS, UNFINISHED, list_checkpoints

RUN = "run.json"
# arguments of transformers that change what is learned; a resumed run may be longer than before
_LEARNING = (
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args", "weight_decay",
    "adam_beta1", "adam_beta2", "adam_epsilon", "gradient_accumulation_steps", "average_tokens_across_devices",
    "max_grad_norm", "label_smoothing_factor", "bf16", "fp16", "neftune_noise_alpha", "seed", "data_seed",
    "load_best_model_at_end", "metric_for_best_model",
)  # fmt: skip
# arguments of this package that do not
_FREE = (
    "average_last", "use_cache", "fused_loss", "predict_with_generate", "overwrite_output_dir", "export",
    "test_before", "valid", "test", "max_valid", "test_beams", "test_length_penalty", "contribution_steps", "license",
    "base_model", "data_names", "card_sentences", "on", "paper", "performance", "bleu_sentences", "valid_tokens",
    "every", "early_steps", "frozen", "uniform_steps", "second_seed_steps", "proxy_steps", "frozen_steps",
)  # fmt: skip


def describe_run(arguments: Any, data: Any, config: Any) -> dict[str, Any]:
    """The values that the weights depend on, from the arguments of the script, the data and the trainer."""
    of_others = {field.name for field in fields(Seq2SeqTrainingArguments)}
    about: dict[str, Any] = {"processes": config.world_size}
    for part in (arguments, data, config):
        for field in fields(part):
            if field.name in _LEARNING or (field.name not in _FREE and field.name not in of_others):
                value = getattr(part, field.name)
                about[field.name] = value.value if isinstance(value, Enum) else value
    about["train"] = [data_fingerprint(path) for path in data.train]
    for name in ("dataset", "tokenizer", "heads", "embeddings", "links"):
        if about.get(name) is not None:
            about[name] = data_fingerprint(about[name])
    for name in ("model", "reverse_model"):
        if about.get(name):
            about[name] = model_fingerprint(about[name], f"--{name}")
    return json.loads(json.dumps(about))


def check_run(about: dict[str, Any], config: Any, overwrite: bool = False) -> None:
    """Raise if the folder's run was started with other values; with `overwrite`, remove that run instead."""
    given = config.resume_from_checkpoint
    folder = Path(given).parent if given else Path(config.output_dir)
    with config.main_process_first(desc="earlier run"):
        if overwrite and config.process_index == 0:
            _remove(Path(config.output_dir))
        if not (folder / RUN).exists():
            if list_checkpoints(folder) and not given:
                problem = f"has checkpoints, but no {RUN} with the values they were trained with"
                raise InputError("--output_dir", str(folder), problem, _REMEDY)
            return
    try:
        before = dict(json.loads((folder / RUN).read_bytes()))
    except (ValueError, TypeError) as error:
        raise InputError("--output_dir", None, f"{folder / RUN} is damaged ({error})", _REMEDY) from error
    if changed := changes(before, about):
        shown = ", ".join(f"--{name} {_short(old)}, now {_short(new)}" for name, (old, new) in changed.items())
        raise InputError("--output_dir", str(folder), f"has a run that was started with {shown}", _REMEDY)


_REMEDY = "use the same values to resume it, choose another folder, or start over with --overwrite_output_dir true"


def _short(value: Any) -> str:
    """A value as text; fingerprints are shortened."""
    values = value if isinstance(value, list) else [value]
    texts = [one[:12] if isinstance(one, str) and len(one) == 64 else str(one) for one in values]
    return " ".join(texts)


def keep_run(about: dict[str, Any], config: Any) -> None:
    """Record the values that the weights depend on."""
    if config.process_index == 0:
        write_whole(os.path.join(config.output_dir, RUN), json.dumps(about, indent=1) + "\n")


def _remove(folder: Path) -> None:
    """Remove an earlier run: its checkpoints and the files written with them, nothing else."""
    for path in (*list_checkpoints(folder, complete=False), folder / UNFINISHED, folder / "tokenizer"):
        shutil.rmtree(path, ignore_errors=True)
    for name in (RUN, "results.json", CONTRIBUTIONS, HISTORY, LINKS):
        (folder / name).unlink(missing_ok=True)
