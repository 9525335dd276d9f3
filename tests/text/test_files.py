"""Files that are there as a whole or not at all."""

from pathlib import Path

import pytest

from hf_nmt_interp.text.files import write_whole


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
