"""`alignment-table`.

Also for cli/verbs/alignment_table.py.
"""

import json
import sys

import pytest


@pytest.fixture
def table(run, model_folder, tmp_path):
    """Run `alignment-table` with tiny models on three pairs."""
    texts = {
        "gold": "1-1 2p2\n1-1\n1-1\n",
        "en": "A dog .\nTwo shells .\nA car .\n",
        "de": "Daß ich .\n. .\nEin Hund .\n",
    }
    texts |= {"train.en": "That it is.\nA dog.\n", "train.de": "Dass es ist.\nEin Hund.\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    models = "--model", model_folder, "--reverse-model", model_folder
    gold = "--gold", *(tmp_path / name for name in ("gold", "en", "de")), "--gold-base", 1
    return lambda *arguments: run("alignment-table", tmp_path / "out", *models, *gold, *arguments)


@pytest.fixture
def training(tmp_path):
    return "--train", tmp_path / "train.en", tmp_path / "train.de"


def test_tables(table, training, tmp_path, eflomal) -> None:
    code, out, err = table(*training, "--eflomal", "--method", "attention", "--sigma", 0, "--limit", 2)
    assert (code, err) == (0, "")
    lines = out.split("\n")
    assert [line.split(":")[0] for line in lines if "pairs" in line] == [
        "Force decoding, against the gold links (2 pairs)",
        "Free decoding, against eflomal (2 pairs)",
        "SmoothGrad by noise, force decoding (2 pairs)",
        "SmoothGrad by noise, free decoding (2 pairs)",
    ]
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ")] == [
        *("| method", "| eflomal", "| attention"),
        *("| method", "| attention"),
        *("| method", "| attention", "| sigma 0"),
        *("| method", "| attention", "| sigma 0"),
    ]
    assert (tmp_path / "out" / "table.md").read_text() == out
    rows = [json.loads(line) for line in (tmp_path / "out" / "table.jsonl").read_text().splitlines()]
    assert {row["table"] for row in rows} == {"force", "free", "force noise", "free noise"}
    assert "of 2" in (tmp_path / "out" / "log.txt").read_text()
    (kept,) = (tmp_path / "out").glob("force-backward-attention*")
    assert kept.read_text().count("\n") == 2


def test_the_aligner_of_the_package(table, training) -> None:
    code, out, _ = table(*training, "--statistical", "stepwise", "--method", "attention", "--table", "force", "free")
    assert code == 0
    assert "| stepwise |" in out
    assert "Free decoding, against stepwise (3 pairs)" in out


def test_as_published(table, tmp_path) -> None:
    assert table("--as-published", "--table", "force", "--method", "grad").code == 0
    code, out, _ = table("--table", "force", "--method", "grad")
    assert code == 0
    theirs = (tmp_path / "out" / "table-published.md").read_text()
    assert theirs.startswith(
        "Force decoding, against the gold links (3 pairs), as published: subwords linked by argmax"
    )
    assert (tmp_path / "out" / "table.md").read_text() == out
    assert "as published" not in out
    rows = (tmp_path / "out" / "table-published.jsonl").read_text().splitlines()
    assert {json.loads(row)["way"] for row in rows} == {"published"}


def test_old_spelling_is_mapped(table, training, monkeypatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        "hf_nmt_interp.studies.alignment_table.AlignmentTable.force",
        lambda self, names: iter(seen.extend(target for _, target in self.pairs["forward"]) or ()),
    )
    table(*training, "--table", "force")
    assert seen[0] == "Dass ich ."


def test_errors(table, training, tmp_path, monkeypatch) -> None:
    assert "--method: 'lrp' is not one of attention" in table("--method", "lrp").err
    assert "--method: 'LRP' is not one of attention" in table("--as-published", "--method", "LRP").err
    assert "--statistical: needs the text to train on" in table("--statistical", "stepwise").err
    both = "--eflomal", "--statistical", "stepwise"
    assert "--eflomal: --statistical names stepwise; give only one of them" in table(*training, *both).err
    assert "--eflomal: needs the text to train on" in table("--eflomal").err
    assert "--table: free decoding is compared with a statistical aligner" in table(*training, "--table", "free").err
    monkeypatch.setitem(sys.modules, "eflomal", None)
    code, _, err = table(*training, "--eflomal", "--method", "attention")
    assert code == 2
    assert 'pip install -c constraints.txt -e ".[yardstick]"' in err
    (tmp_path / "gold").write_text("1-1\n")
    assert "gold: 1 lines, but" in table().err
