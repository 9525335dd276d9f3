"""Text that is more than text: on cards, in tables, on a terminal, in a folder that is pushed."""

import ast
import json
import shutil

import yaml

from hf_nmt_interp.cli.output import write_tsv
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.hub import push_folder
from hf_nmt_interp.report.cards import model_card
from hf_nmt_interp.text.tables import csv_text

EVIL = 'x"); import os; os.system("ls") # ```\n---\n# Title | <script>alert(1)</script> `y`'


def test_text_cannot_leave_its_place_on_a_card(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["<img src=x>"], "dtype": EVIL}))
    names = (
        "name",
        "base_model",
        "started_from",
        "license",
        "source_lang",
        "target_lang",
        "data",
        "risk",
        "test_name",
    )
    results = {"test_bleu": 1.0, "test_chrf": 1.0}
    more = {"arguments": {"seed": EVIL}, "command": "python x.py --name '```\n# y'", "results": results}
    card = model_card(folder, dict.fromkeys(names, EVIL) | more)
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head)["base_model"] == " ".join(EVIL.split())
    assert "<script>" not in body.partition("<details>")[0]
    assert "<img" not in body
    lines, fence, code, titles = body.splitlines(), None, [], []
    for line in lines:
        if fence is None and line.startswith("```"):
            fence = line.rstrip("bashpyton")
        elif line == fence:
            fence = None
        elif fence:
            code.append(line)
        elif line.startswith("#"):
            titles.append(line)
    assert fence is None
    assert [title for title in titles if title.startswith("## ")] == ["## Training", "## Use"]
    assert len(titles) == 3
    (name,) = [line for line in code if line.startswith("name = ")]
    assert ast.literal_eval(name.removeprefix("name = ")) == " ".join(EVIL.split())
    assert all(row.replace("\\|", "").count("|") == 3 for row in lines if row.startswith("|"))


def test_control_characters_are_not_printed(run, monkeypatch):
    def fail(args):
        raise InputError("--model", None, "has no weights for \x1b[2Jlayer\x07")

    monkeypatch.setattr("hf_nmt_interp.cli.verbs.env.run", fail)
    assert run("env").err == "hf-nmt-interp env: error: --model: has no weights for \\x1b[2Jlayer\\x07\n"


def test_formulas_are_text_in_tables(tmp_path):
    rows = [{"word": word, "score": -0.5} for word in ("=1+1", "+x", "-", "@y", "-3", "well")]
    with (tmp_path / "x.tsv").open("w") as file:
        write_tsv(rows, file)
    expected = ["'=1+1", "'+x", "'-", "'@y", "-3", "well"]
    assert [line.split("\t") for line in (tmp_path / "x.tsv").read_text().splitlines()[1:]] == [
        [word, "-0.5"] for word in expected
    ]
    assert csv_text(rows).splitlines()[1:] == [f"{word},-0.5" for word in expected]


def test_push_sends_nothing_else(run, model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / "README.md").write_text("A card.")
    others = ["hf_token.txt", "credentials.json", "notes.md", "optimizer.pt", "pytorch_model.bin", "results.json"]
    for name in others:
        (folder / name).write_text("secret")
    (folder / "vocab.txt").symlink_to("/etc/hostname")
    pushed = push_folder(folder, "me/x", dry_run=True)
    assert set(others) | {"vocab.txt"} <= set(pushed.left_out)
    assert set(pushed.files) & set(pushed.left_out) == set()
    assert {"model.safetensors", "config.json", "README.md", "source.spm", "vocab.json"} <= set(pushed.files)
    out = run("push", folder, "me/x", "--dry-run").out
    assert "skipped, not part of a model: credentials.json, hf_token.txt," in out
