"""Uploads a model to the Hub: weights, configuration, tokenizer, code and card in one commit, or nothing."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.loading import model_files

_TRIES = 3


@dataclass(frozen=True)
class Pushed:
    """The files that were uploaded to the Hub, or would be.

    Attributes:
        repo: id of the repository.
        files: name and size in bytes of each file.
        url: URL of the commit; None for a dry run.
        left_out: other files in the folder, which are skipped.
    """

    repo: str
    files: dict[str, int]
    url: str | None = None
    left_out: tuple[str, ...] = ()


def files_of(folder: str | Path) -> list[Path]:
    """Files of a saved model to upload; raises if a required one is missing."""

    def need(is_there: bool, what: str, remedy: str) -> None:
        if not is_there:
            raise InputError("folder", str(folder), f"has no {what}", remedy)

    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("folder", str(folder), "is not a folder", "give one written by save_pretrained")
    # no pickles; a link may point anywhere
    own = [*model_files(folder), *folder.glob("*.py"), folder / "README.md"]
    found = sorted(path for path in own if path.is_file() and not path.is_symlink() and ".bin" not in path.suffixes)
    names = [path.name for path in found]
    need("config.json" in names, "config.json", "give a folder written by save_pretrained")
    need(any(name.endswith(".safetensors") for name in names), "weights in safetensors", "save_pretrained writes them")
    need("tokenizer_config.json" in names, "tokenizer", "save it there with tokenizer.save_pretrained")
    try:
        config = dict(json.loads((folder / "config.json").read_bytes()))
    except (ValueError, TypeError) as error:
        problem = f"has a config.json that is not a configuration ({error}); save the model again"
        raise InputError("folder", str(folder), problem) from error
    generates = not config.get("is_encoder_decoder") or "generation_config.json" in names
    need(generates, "generation_config.json", "model.save_pretrained writes it")
    need("README.md" in names, "card, README.md", "trainers write it, hni.push_to_hub makes one")
    for place in (config.get("auto_map") or {}).values():  # e.g. repository--modeling_gated.GatedMarian
        code = f"{place.rpartition('--')[2].split('.')[0]}.py"
        need(code in names, f"{code}, the code of its model", "save it with model.save_pretrained")
    return found


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool = True,
    token: str | None = None,
    message: str = "Model, tokenizer, code and card",
    dry_run: bool = False,
) -> Pushed:
    """Upload a saved model to the Hub in one commit; its card gets the name of the repository.

    Args:
        folder: folder with weights, configuration, tokenizer and card.
        repo_id: e.g. `me/my-translator`; created if it does not exist.
        private: whether a new repository is private; an existing one is not changed.
        token: access token; None for the one from `hf auth login` or HF_TOKEN.
        message: commit message.
        dry_run: upload nothing, only return the files that would be uploaded.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import hf_nmt_interp as hni
    >>> folder = Path(tempfile.mkdtemp())
    >>> for part in hni.load_demo("en-de"):
    ...     _ = part.save_pretrained(folder)
    >>> _ = (folder / "README.md").write_text("# My translator")
    >>> "model.safetensors" in hni.push_folder(folder, "me/my-translator", dry_run=True).files
    True
    """
    from hf_nmt_interp.report.cards import rename_card

    check_name(repo_id)
    files = files_of(folder)
    card = rename_card((Path(folder) / "README.md").read_text(encoding="utf-8"), repo_id).encode()
    sizes = {path.name: path.stat().st_size for path in files} | {"README.md": len(card)}
    left_out = tuple(sorted({path.name for path in Path(folder).iterdir()} - sizes.keys()))
    if dry_run:
        return Pushed(repo_id, sizes, None, left_out)
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(token=token)

    def send() -> str:
        repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        operations = [CommitOperationAdd(path.name, card if path.name == "README.md" else path) for path in files]
        return str(api.create_commit(repo, operations, commit_message=message).commit_url)

    return Pushed(repo_id, sizes, tried(repo_id, send), left_out)


def make_repo(repo_id: str, *, private: bool = True, token: str | None = None) -> str:
    """Create a repository for models if it does not exist, and return its full name; arguments as in `push_folder`."""
    from huggingface_hub import HfApi

    check_name(repo_id)
    return tried(repo_id, lambda: HfApi(token=token).create_repo(repo_id, private=private, exist_ok=True).repo_id)


def check_name(repo_id: str) -> None:
    """Raise if the name of a repository is invalid."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(
            "repo_id", repo_id, f"is not a valid name on the Hub, such as me/my-translator: {error}"
        ) from error


def tried(repo_id: str, send: Callable[[], str]) -> str:
    """Call `send`, with retries if the error is temporary; the last error is raised as one line."""
    from httpx2 import HTTPError, TransportError
    from huggingface_hub.errors import HfHubHTTPError

    for attempt in range(1, _TRIES + 1):
        try:
            return send()
        except (HTTPError, OSError, RuntimeError, ValueError) as error:
            # a failed upload is the cause of a RuntimeError; a ValueError is a response, e.g. that storage is full
            cause = error.__cause__ or error if isinstance(error, RuntimeError) else error
            status = cause.response.status_code if isinstance(cause, HfHubHTTPError) else None
            if status in (401, 403):
                problem = f"the Hub refused access to {repo_id} ({status})"
                remedy = "nothing was uploaded. Log in with `hf auth login` and a token with write access"
                raise InputError("token", None, problem, remedy) from error
            cut_off = isinstance(cause, TransportError | ConnectionError | TimeoutError)
            transient = cut_off if status is None else status >= 500 or status == 429  # 429: too many requests
            if not transient or attempt == _TRIES:
                reason = " ".join(str(cause).split())[:200]
                problem = f"was not pushed after {attempt} attempts, and nothing was committed: {reason}"
                remedy = "run it again; files that were uploaded are not sent twice"
                raise InputError("repo_id", repo_id, problem, remedy) from error
            time.sleep(attempt - 0.9)
    raise AssertionError("unreachable")


def push_to_hub(model: Any, tokenizer: Any, repo_id: str, *, card: str | None = None, **options: Any) -> Pushed:
    """Upload a model and its tokenizer to the Hub in one commit, with the code of its kind and a card.

    Args:
        model: any translator; for models of this project their code is uploaded too.
        tokenizer: its tokenizer.
        repo_id: e.g. `me/my-translator`; created if it does not exist.
        card: text of the card; None for one made from the configuration.
        options: `private` (default True), `token`, `message` and `dry_run` of `push_folder`.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> pushed = hni.push_to_hub(model, tokenizer, "me/my-translator", dry_run=True)
    >>> pushed.url is None, "modeling_aligned.py" in pushed.files, "README.md" in pushed.files
    (True, True, True)
    """
    from hf_nmt_interp.report.cards import model_card

    with TemporaryDirectory() as place:
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
        text = model_card(place, {"name": repo_id}) if card is None else card
        (Path(place) / "README.md").write_text(text, encoding="utf-8")
        return push_folder(place, repo_id, **options)
