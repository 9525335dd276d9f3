"""What a folder of shards says of itself is true: of which run, input and model its shards are.

Also for text/fingerprints.py, cli/shards.py and cli/sharded_run.py.
"""

import json
import shutil

import pytest

from hf_nmt_interp.cli.shards import SHARD_FORMATS
from hf_nmt_interp.text.fingerprints import data_fingerprint, versions
from tests.shard_files import bytes_of, shards_of


def test_a_run_is_recorded_with_fingerprints_and_versions(work, files, tmp_path) -> None:
    assert work("align").code == 0
    about = json.loads((tmp_path / "run/run.json").read_bytes())
    assert about["source"] == files[0].name
    assert about["sha256 of source"] == data_fingerprint(files[0])
    assert len(about["sha256 of model"]) == 64
    assert {name.removeprefix("version of "): about[name] for name in about if "version of" in name} == versions()


def test_one_file_has_many_names(work, files, tmp_path, monkeypatch) -> None:
    assert work("align").code == 0
    before = bytes_of(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert work("align", files=[f"./{path.name}" for path in files]).code == 0
    assert bytes_of(tmp_path / "run") == before


def test_other_content_or_weights_are_not_resumed(work, model_folder, files, tmp_path) -> None:
    model = shutil.copytree(model_folder, tmp_path / "model")
    (tmp_path / "model/README.md").write_text("A card.")
    assert work("align", "--model", model).code == 0
    (tmp_path / "model/README.md").write_text("Another card.")
    assert work("align", "--model", model).code == 0
    content = files[0].read_bytes()
    files[0].write_bytes(content.replace(b"a", b"o"))  # of the same size
    assert "run was started with sha256 of source '" in work("align", "--model", model).err
    files[0].write_bytes(content)
    weights = model / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert "run was started with sha256 of model '" in work("align", "--model", model).err


def test_other_lines_of_a_stream_are_not_resumed(work, run, model_folder, tmp_path, monkeypatch) -> None:
    import io
    import sys

    def start(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        place = "--shards", tmp_path / "run", "--shard-size", 2
        return run("attribute", "--input", "-", "--method", "attention", "--model", model_folder, *place)

    lines = b"A dog.\nA cat.\nA bird.\n"
    assert start(lines).code == 0
    assert start(lines).code == 0
    message = "000001.jsonl: was made from other lines than the input has now; give the same input, or another folder"
    assert message in start(lines.replace(b"bird", b"fish")).err


def test_sampling_has_a_recorded_seed(work, model_folder, tmp_path) -> None:
    model = shutil.copytree(model_folder, tmp_path / "model")
    config = json.loads((model / "generation_config.json").read_bytes())
    (model / "generation_config.json").write_text(json.dumps(config | {"do_sample": True, "num_beams": 1}))
    source = [tmp_path / "in.en"]
    for folder, more in (("run", ()), ("again", ()), ("other", ("--seed", 1))):
        assert work("align", "--model", model, *more, files=source, folder=folder).code == 0
    run, again, other = (bytes_of(tmp_path / folder) for folder in ("run", "again", "other"))
    assert run == again
    assert json.loads(other["run.json"])["seed"] == 1
    assert run["shards/000000.jsonl"] != other["shards/000000.jsonl"]
    assert work("heads", files=source, folder="heads").code == 0
    assert json.loads((tmp_path / "heads/run.json").read_bytes())["seed"] == 0


def test_versions_are_compared(work, monkeypatch) -> None:
    assert work("align").code == 0
    monkeypatch.setattr("hf_nmt_interp.cli.sharded_run.versions", lambda: versions() | {"torch": "1.0"})
    assert "not '1.0'; give the same arguments to resume, or another folder" in work("align").err


@pytest.mark.parametrize("format", SHARD_FORMATS)
def test_merge_refuses_what_another_run_wrote_or_somebody_changed(work, run, tmp_path, format) -> None:
    for folder, more in (("run", ()), ("other", ("--extraction", "mutual"))):
        assert work("align", "--shard-format", format, *more, folder=folder).code == 0
    first, second, last = (path.name for path in shards_of(tmp_path / "run"))

    def swap(folder):
        for of in ("shards", "sums"):
            a, b = sorted((folder / of).glob("0*"))[:2]
            names = a.read_bytes(), b.read_bytes()
            b.write_bytes(names[0])
            a.write_bytes(names[1])

    def change(folder):
        path = folder / "shards" / second
        if format == "jsonl":  # reordered rows of the same lines
            path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
        else:
            changed = bytearray(path.read_bytes())
            changed[len(changed) // 2] ^= 1
            path.write_bytes(changed)

    def take(folder):
        for of, name in (("shards", second), ("sums", f"{second[:6]}.json")):
            shutil.copy(tmp_path / "other" / of / name, folder / of / name)

    def of_verb(folder):
        about = json.loads((folder / "run.json").read_bytes())
        (folder / "run.json").write_text(json.dumps(about | {"verb": "attribute"}))

    def shorten(folder):
        (folder / "total.json").write_text(json.dumps({"lines": 20, "shards": 2}))

    def lengthen(folder):
        (folder / "total.json").write_text(json.dumps({"lines": 25, "shards": 3}))

    def forget(folder):
        (folder / "sums" / f"{first[:6]}.json").unlink()

    for number, (attack, message) in enumerate(
        {
            swap: f"{first}: is damaged (sums/{first[:6]}.json has 10 lines from 11, expected 10 from 1); delete",
            change: f"{second}: is damaged (it was changed after it was written); delete it and run",
            take: f"{second}: is damaged (sums/{second[:6]}.json belongs to another run); delete it and run",
            of_verb: f"{first}: is damaged (sums/{first[:6]}.json belongs to another run); delete it and run",
            shorten: "20 lines in 2 shards, according to its total.json, do not match shards of 10 lines; run",
            lengthen: f"{last}: is damaged (sums/{last[:6]}.json has 4 lines from 21, expected 5 from 21); delete",
            forget: f"{first}: is damaged (sums/{first[:6]}.json is missing or damaged); delete it and run",
        }.items()
    ):
        folder = shutil.copytree(tmp_path / "run", tmp_path / str(number))
        attack(folder)
        code, _, err = run("merge", folder, "--format", "json", "--output", tmp_path / "out")
        assert (code, message in err, (tmp_path / "out").exists()) == (2, True, False), (attack, err)
    assert run("merge", tmp_path / "run", "--output", tmp_path / "out").code == 0
