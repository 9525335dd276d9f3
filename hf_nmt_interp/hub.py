"""A model on the Hub: weights, configuration, tokenizer, code and card go there in one commit, or nothing does."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hf_nmt_interp.errors import InputError

# what belongs to a model; no pickles, no state of a training
_SUFFIXES = (".safetensors", ".json", ".py", ".md", ".spm", ".model", ".txt", ".svg", ".png")
_STATE = (
    "trainer_state.json",
    "training_args.json",
    "results.json",
    "all_results.json",
    "train_results.json",
    "eval_results.json",
)
_TRIES = 3


@dataclass(frozen=True)
class Pushed:
    """What went to the Hub, or would go.

    Attributes:
        repo: id of the repository.
        files: name and size in bytes of each file.
        url: of the commit; None for a dry run.
    """

    repo: str
    files: dict[str, int]
    url: str | None = None


def files_of(folder: str | Path) -> list[Path]:
    """Files of a saved model that are shared; raises if one is missing that a user needs."""
    folder = Path(folder)
    found = sorted(p for p in folder.glob("*") if p.is_file() and p.suffix in _SUFFIXES and p.name not in _STATE)
    names = [path.name for path in found if not path.name.startswith(".")]
    if "config.json" not in names:
        raise InputError(f"folder: {folder} has no config.json; give a folder written by save_pretrained")
    if not any(name.endswith(".safetensors") for name in names):
        raise InputError(f"folder: {folder} has no weights in safetensors; save_pretrained writes them")
    if "tokenizer_config.json" not in names:
        raise InputError(f"folder: {folder} has no tokenizer; save it there by tokenizer.save_pretrained")
    try:
        config = dict(json.loads((folder / "config.json").read_bytes()))
    except (ValueError, TypeError) as error:
        raise InputError(
            f"folder: {folder}/config.json is no configuration ({error}); save the model again"
        ) from error
    if config.get("is_encoder_decoder") and "generation_config.json" not in names:
        raise InputError(f"folder: {folder} has no generation_config.json; model.save_pretrained writes it")
    if "README.md" not in names:
        raise InputError(f"folder: {folder} has no card, README.md; trainers write it, hni.push_to_hub makes one")
    for name in _code(config):
        if name not in names:
            raise InputError(
                f"folder: {folder} has no {name}, the code of its model; save it by model.save_pretrained"
            )
    return [path for path in found if not path.name.startswith(".")]


def _code(config: dict[str, Any]) -> Iterator[str]:
    """Files of code that a configuration names."""
    for place in (config.get("auto_map") or {}).values():
        yield f"{place.rpartition('--')[2].split('.')[0]}.py"


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool = True,
    token: str | None = None,
    message: str = "Model, tokenizer, code and card",
    dry_run: bool = False,
) -> Pushed:
    """Send a saved model to the Hub in one commit.

    Args:
        folder: with weights, configuration, tokenizer and card.
        repo_id: e.g. `me/my-translator`; it is made if it is not there.
        private: whether a new repository is; one that is there stays as it is.
        token: None for the one of `hf auth login` or HF_TOKEN.
        message: of the commit.
        dry_run: only tell what would go.
    """
    _check_name(repo_id)
    files = files_of(folder)
    sizes = {path.name: path.stat().st_size for path in files}
    if dry_run:
        return Pushed(repo_id, sizes)
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(token=token)

    def send() -> str:
        repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        operations = [CommitOperationAdd(path.name, path) for path in files]
        return str(api.create_commit(repo, operations, commit_message=message).commit_url)

    return Pushed(repo_id, sizes, _tried(repo_id, send))


def make_repo(repo_id: str, *, private: bool = True, token: str | None = None) -> str:
    """Make a repository for models if it is not there, as of `push_folder`; its full name."""
    from huggingface_hub import HfApi

    _check_name(repo_id)
    return _tried(repo_id, lambda: HfApi(token=token).create_repo(repo_id, private=private, exist_ok=True).repo_id)


def _check_name(repo_id: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(f"repo_id: {repo_id!r} cannot be a name on the Hub: {error}") from error


def _tried(repo_id: str, send: Callable[[], str]) -> str:
    """What `send` gives, tried again if it may go better; what can go wrong is told in one line."""
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError

    for attempt in range(1, _TRIES + 1):
        try:
            return send()
        except (HTTPError, OSError, RuntimeError, ValueError) as error:
            # a failed upload comes in a RuntimeError; a ValueError tells of answers such as that the store is full
            cause = error.__cause__ or error if isinstance(error, RuntimeError) else error
            status = cause.response.status_code if isinstance(cause, HfHubHTTPError) else None
            if status in (401, 403):
                raise InputError(
                    f"token: the Hub refused it for {repo_id} ({status}); nothing was sent. Log in with "
                    "`hf auth login` and a token that may write there"
                ) from error
            if not _is_transient(cause, status) or attempt == _TRIES:
                reason = " ".join(str(cause).split())[:200]
                raise InputError(
                    f"repo_id: {repo_id} was not pushed after {attempt} tries, nothing was committed: {reason}. "
                    "Run it again: files that arrived are not sent twice"
                ) from error
            time.sleep(attempt - 0.9)
    raise AssertionError("unreachable")


def _is_transient(error: BaseException, status: int | None) -> bool:
    """Whether it may go better the next time: a connection that was cut off, a server that is busy."""
    from httpx2 import TransportError

    if status is not None:
        return status >= 500 or status == 429
    return isinstance(error, TransportError | ConnectionError | TimeoutError)


def push_to_hub(model: Any, tokenizer: Any, repo_id: str, *, card: str | None = None, **options: Any) -> Pushed:
    """Send a model and its tokenizer to the Hub in one commit, with the code of its kind and a card.

    Args:
        model: any translator; kinds of this project bring their code.
        tokenizer: its tokenizer.
        repo_id: as of `push_folder`.
        card: text of the card; None for one that tells what the configuration does.
        options: `private` (True unless given), `token`, `message` and `dry_run`, as of `push_folder`.
    """
    from hf_nmt_interp.report.cards import model_card

    with TemporaryDirectory() as place:
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
        text = model_card(place, {"name": repo_id}) if card is None else card
        (Path(place) / "README.md").write_text(text, encoding="utf-8")
        return push_folder(place, repo_id, **options)
