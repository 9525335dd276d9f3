"""Verbs `heads` and `prune`.

Also for cli/verbs/heads.py and text/tables.py.
"""

import csv
import io
import json

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_nmt_interp.analysis.heads import HeadReport
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import GatedMarianMTModel

ONE, TWO = "The old baker opens his shop.", "Where did you put the keys?"
CONLLU = """# text = A small dog sleeps.
1\tA\ta\tDET\t_\t_\t3\tdet\t_\t_
2\tsmall\tsmall\tADJ\t_\t_\t3\tamod\t_\t_
3\tdog\tdog\tNOUN\t_\t_\t4\tnsubj\t_\t_
4\tsleeps\tsleep\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_

"""


@pytest.fixture(scope="module")
def gated_folder(model_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gated")
    model = GatedMarianMTModel.from_pretrained(model_folder)
    model.set_kept_heads({"encoder": [[1], []], "cross": [[0], [0, 1]]})
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(folder)
    return folder


def test_heads_table(run, model_folder) -> None:
    ran = run("heads", "--model", model_folder, ONE, TWO)
    assert ran.code == 0, ran.err
    assert ran.out.count("encoder") == ran.out.count("cross") == 4
    assert all(name in ran.out for name in ("relev.", "conf.", "position", "best relation", "rare", "roles"))


def test_heads_from_trees_to_csv_json_and_figure(run, model_folder, tmp_path) -> None:
    (tmp_path / "trees.conllu").write_text(CONLLU)
    corpus = []
    for name, text in (("train.en", ONE), ("train.de", "Der Bäcker.")):
        (tmp_path / name).write_text(text + "\n")
        corpus.append(tmp_path / name)
    options = ["--model", model_folder, "--trees", tmp_path / "trees.conllu", "--corpus", *corpus]
    ran = run("heads", *options, "--output", tmp_path / "heads.csv", "--figure", tmp_path / "heads.png")
    assert (ran.code, ran.out) == (0, ""), ran.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "heads.csv").read_text())))
    assert len(rows) == 12
    assert float(rows[0]["nsubj_baseline"]) == 1
    assert (tmp_path / "heads.png").stat().st_size > 5000
    ran = run("heads", *options, "--format", "json", "--relevance-sentences", "0")
    about = {"model": str(model_folder), "sentences": 1, "trees": 1, "relevance": 0}
    assert json.loads(ran.out)["about"] == about | {"dependents": {"nsubj": {"-1": 1}, "amod": {"-1": 1}}}
    (tmp_path / "heads.json").write_text(ran.out)
    assert len(HeadReport.load(tmp_path / "heads.json").rows) == 12


def test_heads_with_trees_prints_and_draws_the_best_head_of_each_relation(run, model_folder, tmp_path) -> None:
    (tmp_path / "trees.conllu").write_text(CONLLU)
    options = ["--model", model_folder, "--trees", tmp_path / "trees.conllu", "--relevance-sentences", 0]
    ran = run("heads", *options, "--relations-figure", tmp_path / "relations.svg")
    assert ran.code == 0, ran.err
    lines = [line.split() for line in ran.out.splitlines()]
    at = lines.index(["relation", "direction", "head", "accuracy", "baseline"])
    printed = [line for line in lines[at + 2 :] if line]
    rows = HeadReport(**json.loads(run("heads", *options, "--format", "json").out)).syntax()
    assert [(row["relation"], row["direction"]) for row in rows] == [
        (relation, direction) for relation in ("nsubj", "amod") for direction in ("to_head", "to_dependent")
    ]
    assert printed == [[*list(row.values())[:3], f"{row['accuracy']:.0%}", "100%"] for row in rows]
    assert "position of the dependent" in (tmp_path / "relations.svg").read_text()
    numbers = (tmp_path / "relations.csv").read_text().splitlines()
    assert numbers[:3] == ["relation,position,share", "nsubj,-1,1.0", "amod,-1,1.0"]
    assert numbers[-4].startswith("nsubj,to_head,")


def test_heads_needs_sentences_or_trees(run, model_folder, tmp_path) -> None:
    ran = run("heads", "--model", model_folder)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "no sentences" in ran.err
    (tmp_path / "no.conllu").touch()
    assert "no.conllu has no sentences" in run("heads", "--model", model_folder, "--trees", tmp_path / "no.conllu").err
    ran = run("heads", "--model", model_folder, "--relevance-sentences", -1, "A dog.")
    assert (ran.code, "relevance_sentences: -1 must be at least 0 (none)" in ran.err) == (2, True)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_shards_and_merge_know_a_fourth_role(fourth_role, run, model_folder, tmp_path, format) -> None:
    (tmp_path / "in.en").write_text(f"{ONE}\n{TWO}\n")
    options = ["--model", model_folder, "--relevance-sentences", 0]
    shards = ["--shards", tmp_path / "run", "--shard-format", format]
    ran = run("heads", "--input", tmp_path / "in.en", *options, *shards)
    assert ran.code == 0, ran.err
    merged = json.loads(run("merge", tmp_path / "run", "--format", "json").out)["rows"]
    whole = json.loads(run("heads", *options, "--format", "json", ONE, TWO).out)["rows"]
    assert [row["last_share"] for row in merged] == [row["last_share"] for row in whole]
    assert all(row["roles"][-1].startswith(fourth_role) for row in merged)


def test_prune_makes_a_smaller_model_that_translates_the_same(run, gated_folder, tmp_path) -> None:
    ran = run("prune", "--model", gated_folder, "--output", tmp_path / "small")
    assert ran.code == 0, ran.err
    assert "4/4/4" in ran.out
    assert "1/4/3" in ran.out
    assert run("translate", "--model", tmp_path / "small", ONE) == run("translate", "--model", gated_folder, ONE)
    small, gated = (AutoModelForSeq2SeqLM.from_pretrained(f) for f in (tmp_path / "small", gated_folder))
    assert small.num_parameters() < gated.num_parameters()
    ids = AutoTokenizer.from_pretrained(gated_folder)(ONE, text_target=TWO, return_tensors="pt")
    torch.testing.assert_close(small(**ids).logits, gated(**ids).logits)


def test_prune_keeps_the_most_relevant_heads_of_a_report(run, model_folder, tmp_path) -> None:
    report = tmp_path / "heads.json"
    assert run("heads", "--model", model_folder, ONE, "--output", report).code == 0
    ran = run("prune", "--model", model_folder, "--heads", report, "--keep", 1, "--output", tmp_path / "small")
    assert ran.code == 0, ran.err
    assert "4/4/4" in ran.out
    assert "2/4/4" in ran.out
    assert f"{AutoModelForSeq2SeqLM.from_pretrained(model_folder).num_parameters():,}" in ran.out
    relevance = HeadReport.load(report).scores("relevance")
    small = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small")
    assert small.kept_heads()["encoder"] == [[int(layer.argmax())] for layer in relevance]
    again = ("--model", tmp_path / "small", "--heads", report, "--keep", 2, "--output", tmp_path / "other")
    assert "is not an ascending subset" in run("prune", *again).err


def test_most_relevant_heads_by_hand() -> None:
    shares = {(0, 0): 0.1, (0, 1): 0.2, (0, 2): 0.7, (1, 0): 0.6, (1, 2): 0.4}  # head 1 of layer 1 was pruned
    rows = [
        {"kind": "encoder", "layer": layer, "head": head, "relevance": share}
        for (layer, head), share in shares.items()
    ]
    report = HeadReport(rows)
    assert report.most_relevant(2) == [[1, 2], [0, 2]]
    assert report.most_relevant(3) == [[0, 1, 2], [0, 2]]
    assert report.most_relevant(0) == [[], []]
    assert report.most_relevant([1, 2]) == [report.most_relevant(1)[0], [0, 2]]
    with pytest.raises(InputError, match="keep: 1 numbers for 2 layers; give one, or one for each layer"):
        report.most_relevant([1])
    with pytest.raises(InputError, match="keep: 4 must be from 0 to 3"):
        report.most_relevant(4)
    with pytest.raises(InputError, match="relevance: the report has none"):
        HeadReport([row | {"relevance": None} for row in rows]).most_relevant(1)


def test_prune_refuses_what_it_cannot_do(run, gated_folder, model_folder, tmp_path) -> None:
    for model, output, message in (
        (model_folder, tmp_path / "new", "(MarianMTModel) has no gates; train_l0.py trains them"),
        (gated_folder, gated_folder, "exists and is not empty; name a new folder"),
    ):
        ran = run("prune", "--model", model, "--output", output)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert message in ran.err
    (tmp_path / "no.json").write_text("[]")
    ran = run(
        "prune", "--model", model_folder, "--output", tmp_path / "new", "--keep", 2, "--heads", tmp_path / "no.json"
    )
    assert "is not a report of heads in JSON (TypeError); the verb heads writes one" in ran.err
    ran = run(
        "prune", "--model", model_folder, "--output", tmp_path / "new", "--keep", 2, "--heads", tmp_path / "nowhere"
    )
    assert "is not a report of heads in JSON (FileNotFoundError)" in ran.err
    ran = run("prune", "--model", model_folder, "--output", tmp_path / "new", "--keep", 2)
    assert "--heads and --keep: one of them was given without the other" in ran.err
    assert not (tmp_path / "new").exists()
