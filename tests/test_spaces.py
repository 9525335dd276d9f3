"""A Space around a model: its files and the command that makes them."""

import ast

import pytest
import yaml

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.spaces import push_space, space_files


def test_files_of_a_space() -> None:
    texts = space_files("me/my-translator", "me/my-space")
    _, metadata, _ = texts["README.md"].split("---\n", 2)
    about = yaml.safe_load(metadata)
    assert (about["sdk"], about["app_file"], about["models"]) == ("gradio", "app.py", ["me/my-translator"])
    assert "'me/my-translator'" in ast.unparse(ast.parse(texts["app.py"]))
    assert texts["requirements.txt"].startswith("hf_nmt_interp[app]>=")


def test_the_command_writes_the_folder_and_sends_nothing(run, tmp_path) -> None:
    ran = run("push", "demo:en-de", "--space", "me/my-space", "--output", tmp_path / "space", "--dry-run")
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in (tmp_path / "space").iterdir()) == ["README.md", "app.py", "requirements.txt"]
    assert "nothing was uploaded" in ran.out


def test_bad_input(run, tmp_path) -> None:
    with pytest.raises(InputError, match="is a local folder; push it first"):
        space_files(str(tmp_path), "me/my-space")
    with pytest.raises(InputError, match="is not a valid name"):
        space_files("demo:en-de", "me/my space")
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="exists but was not created by this command; choose another folder"):
        push_space("demo:en-de", "me/my-space", tmp_path, dry_run=True)
    assert "REPO: is missing; give FOLDER REPO, or MODEL --space NAME" in run("push", "folder").err
    assert "is given as well as --space" in run("push", "demo:en-de", "me/x", "--space", "me/my-space").err
