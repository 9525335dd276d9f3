"""Files that are there as a whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from hf_nmt_interp.text.files import atomic, write_whole


def test_a_kill_leaves_the_file_before(tmp_path, monkeypatch):
    path = tmp_path / "new" / "file.csv"
    write_whole(path, "step\n1\n")
    before = Path.write_text

    def killed(self, text, **options):
        before(self, text[:5], **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "step\n1\n2 ä\n")
    assert path.read_bytes() == b"step\n1\n"
    monkeypatch.undo()
    write_whole(path, "step\n1\n2 ä\n")
    assert path.read_text(encoding="utf-8") == "step\n1\n2 ä\n"
    assert [file.name for file in path.parent.iterdir()] == ["file.csv"]


def test_a_folder_replaces_another_when_it_is_complete(tmp_path):
    place = tmp_path / "model"
    for name in ("old", "new"):
        with atomic(place) as part:
            part.mkdir()
            (part / name).touch()

    def fail_half_way(part):
        part.mkdir()
        (part / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), atomic(place) as part:
        fail_half_way(part)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["model", "model/new"]


def test_links_are_followed_and_devices_are_kept(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"
    write_whole("/dev/null", "text")
    assert not Path("/dev/null").is_file()


def test_errors_of_the_disk_name_the_file(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(OSError, match="No space left on device") as caught, atomic(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as caught, atomic(path):
        Path(tmp_path / "other").read_text()
    assert caught.value.filename == str(tmp_path / "other")
    assert not list(tmp_path.iterdir())
