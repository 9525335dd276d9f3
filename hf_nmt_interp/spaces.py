"""A Space on the Hub that serves the app for one model: its files, as a folder and as a repository."""

from pathlib import Path

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.hub import Pushed, check_name, tried
from hf_nmt_interp.version import __version__

_APP = """\"\"\"Where each word of a translation comes from.\"\"\"

import hf_nmt_interp as hni
from hf_nmt_interp.report.app import make_app

NAME = {model!r}
make_app({{NAME: hni.load(NAME)}}).launch()
"""
_README = """---
title: {title}
emoji: 🔎
colorFrom: blue
colorTo: indigo
sdk: gradio
app_file: app.py
license: apache-2.0
{models}---

# {title}

Type a sentence: `{model}` translates it, and the page shows where each word of the translation comes from.
Made with `hf-nmt-interp push {model} --space {space}`.
"""


def space_files(model: str, space: str) -> dict[str, str]:
    """Names and texts of a Space's files.

    Args:
        model: an id on the Hub, or a bundled translator; a Space cannot read local folders.
        space: e.g. `me/my-space`.

    >>> sorted(space_files("demo:en-de", "me/my-space"))
    ['README.md', 'app.py', 'requirements.txt']
    """
    check_name(space)
    if not model.startswith("demo:"):
        if Path(model).exists():
            raise InputError("model", model, "is a local folder", "push it first, then give its Hub id")
        check_name(model)
    title = space.rpartition("/")[2].replace("-", " ").replace("_", " ").strip().capitalize()
    models = "" if model.startswith("demo:") else f"models:\n- {model}\n"
    return {
        "README.md": _README.format(title=title, model=model, space=space, models=models),
        "app.py": _APP.format(model=model),
        "requirements.txt": f"hf_nmt_interp[app]>={__version__}\n",
    }


def push_space(
    model: str,
    space: str,
    folder: str | Path,
    *,
    private: bool = True,
    token: str | None = None,
    dry_run: bool = False,
) -> Pushed:
    """Write a Space's folder, and upload it to the Hub in one commit.

    Args:
        model: see `space_files`.
        space: its name on the Hub; created if it does not exist.
        folder: where to write it; existing files are replaced only if they belong to a Space.
        private: whether a new Space is private.
        token: None for the one from `hf auth login` or HF_TOKEN.
        dry_run: only write the folder.
    """
    texts, folder = space_files(model, space), Path(folder)
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - texts.keys()):
        raise InputError(
            "folder", str(folder), "exists but was not created by this command", "choose another folder with --output"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    sizes = {name: len(text.encode()) for name, text in texts.items()}
    if dry_run:
        return Pushed(space, sizes)
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(token=token)

    def send() -> str:
        repo = api.create_repo(space, private=private, exist_ok=True, repo_type="space", space_sdk="gradio").repo_id
        files = [CommitOperationAdd(name, text.encode()) for name, text in texts.items()]
        return str(api.create_commit(repo, files, commit_message="App", repo_type="space").commit_url)

    return Pushed(space, sizes, tried(space, send))
