"""Pruning runs side by side.

Also for cli/verbs/pruning_table.py and cli/verbs/prune.py.
"""

import json
import math
import re
from dataclasses import replace

import pytest

from hf_nmt_interp.cli.main import main
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated.gates import HardConcreteGate
from hf_nmt_interp.report.pruning import decided_gates, plot_layers, plot_pruning, read_runs

HEADS = {"encoder": [2, 2], "decoder": [2, 2], "cross": [2, 2]}
ROLES = {(0, 0): ["positional: -1", "syntactic: obj_to_head"], (0, 1): [], (1, 0): ["rare words"], (1, 1): []}


def write_report(path, kept):
    rows = [
        {"kind": "encoder", "layer": layer, "head": head, "relevance": layer + head / 2, "roles": ROLES[layer, head]}
        for layer, head in kept
    ]
    path.write_text(json.dumps({"rows": rows}))


@pytest.fixture
def runs(tmp_path):
    """Two runs, the one that prunes more first; only the second tested the translator before."""
    before = {"heads_by_layer": HEADS, "parameters": 1000}
    for name, penalty, encoder, bleu, tested in [
        ("b", 0.1, [1, 0], 20.0, {}),
        ("a", 0.01, [2, 1], 21.0, {"test_bleu": 22.0}),
    ]:
        pruned = {"heads_by_layer": HEADS | {"encoder": encoder}, "parameters": 900, "test_bleu": bleu}
        (tmp_path / name).mkdir()
        results = {"penalty": penalty, "before": before | tested, "pruned": pruned}
        (tmp_path / name / "results.json").write_text(json.dumps(results))
    write_report(tmp_path / "a" / "heads.json", [(0, 0), (0, 1), (1, 0)])
    write_report(tmp_path / "before.json", ROLES)
    return tmp_path


def test_table_is_of_the_translator_before_then_by_falling_heads(runs):
    rows = [model.row() for model in read_runs([runs / "b", runs / "a"], runs / "before.json")]
    assert [row["run"] for row in rows] == ["before", "a", "b"]
    assert [row["heads e/d/d-e"] for row in rows] == ["4/4/4", "3/4/4", "1/4/4"]
    assert [row["encoder layers"] for row in rows] == ["2 2", "2 1", "1 0"]
    assert [row["lambda"] for row in rows] == ["", "0.01", "0.1"]
    assert [row["BLEU"] for row in rows] == ["22.00", "21.00", "20.00"]
    assert [row["encoder heads by role"] for row in rows] == [
        "1 positional, 1 syntactic, 1 rare words, 2 none",
        "1 positional, 1 syntactic, 1 rare words, 1 none",
        "",
    ]


def test_heads_are_sorted_by_role_then_by_relevance_before(runs):
    before, a, b = read_runs([runs / "b", runs / "a"], runs / "before.json")
    assert list(before.kinds_of_roles()) == ["0.0", "1.0", "1.1", "0.1"]
    assert a.kinds_of_roles() == {"0.0": ["positional", "syntactic"], "1.0": ["rare words"], "0.1": ["none"]}
    assert b.kinds_of_roles() == {}


def test_figure(runs):
    plot_pruning(read_runs([runs / "b", runs / "a"], runs / "before.json"), runs / "pruning.png")
    assert (runs / "pruning.png").stat().st_size > 5000
    assert (runs / "pruning.csv").read_text().startswith("run,lambda,heads e/d/d-e,")


def test_a_figure_has_no_empty_panel(runs):
    def axis_labels(*models):
        plot_pruning(models, runs / "some.svg")
        texts = re.findall(r"<!-- (.*) -->", (runs / "some.svg").read_text())
        return [text for text in texts if text in ("BLEU", "encoder heads, layer.number")]

    before, a, b = read_runs([runs / "b", runs / "a"], runs / "before.json")
    assert axis_labels(before, a) == ["BLEU", "encoder heads, layer.number"]
    assert axis_labels(b) == ["BLEU"]
    assert axis_labels(replace(a, scores={})) == ["encoder heads, layer.number"]
    with pytest.raises(
        InputError, match=r"figure: there is nothing to draw: .*; train with --test, or write RUN/heads"
    ):
        axis_labels(replace(b, scores={}))


def test_layers_gates_and_models_from_scratch(runs, capsys):
    header = "step,kind,layer,head,log_alpha,open\n"
    ends = [(0, -5.0), (10, 5.0), (10, -5.0), (10, 0.0), (10, 3.0)]  # the last: P(g > 0) = 0.98, P(g = 1) = 0.90
    opened = [1 / (1 + math.exp(-end - 0.33 * math.log(11))) for _, end in ends]
    numbered = enumerate(zip(ends, opened, strict=True))
    lines = "".join(f"{step},encoder,0,{head},{end},{is_open}\n" for head, ((step, end), is_open) in numbered)
    (runs / "a" / "gates.csv").write_text(header + lines)
    (runs / "new").mkdir()
    (runs / "new" / "results.json").write_text('{"test_bleu": 19.5}')
    models = read_runs([runs / "b", runs / "a"], scratch={"a": runs / "new"})
    rows = [model.row() for model in models]
    assert [row["decided gates"] for row in rows] == ["", "50%", ""]  # of the last step
    assert [row["BLEU from scratch"] for row in rows] == ["", "19.50", ""]
    assert HardConcreteGate(1, init=3.0).p_one().item() < 0.95 < opened[-1]
    (runs / "a" / "gated").mkdir()
    (runs / "a" / "gated" / "config.json").write_text('{"gate_temperature": 0.01, "gate_stretch": [-0.1, 1.1]}')
    assert decided_gates(runs / "a") == 0.75  # the gates are steeper
    assert (rows[2]["decoder layers"], rows[2]["cross layers"]) == ("2 2", "2 2")
    plot_layers(models, runs / "layers.svg")
    written = (runs / "layers.csv").read_text().splitlines()
    assert written[0] == "run,kind,layer,heads"
    assert "b,encoder,1,0" in written
    arguments = ["pruning-table", str(runs / "a"), "--scratch", f"a={runs / 'new'}"]
    assert main([*arguments, "--layers-figure", str(runs / "verb.svg")]) == 0
    assert "19.50" in capsys.readouterr().out
    assert (runs / "verb.svg").exists()
    with pytest.raises(InputError, match="scratch: 'c' is not the name of a run; give RUN=FOLDER"):
        read_runs([runs / "a"], scratch={"c": runs})
    with pytest.raises(InputError, match=r"before.json: has no results.json with test_bleu; train it with"):
        read_runs([runs / "a"], scratch={"a": runs / "before.json"})


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: has no results.json of train_l0.py"):
        read_runs([tmp_path / "nowhere"])
    for text in ("[]", '{"penalty": 1}', '{"penalty": 1, "pruned"'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(InputError, match=r"has no results.json of train_l0.py; it is written at the end"):
            read_runs([tmp_path])
    with pytest.raises(InputError, match="at least one output folder"):
        read_runs([])


def test_the_table_of_the_verb_fits_a_terminal_and_files_have_all(runs, capsys):
    for folder, name in (("a", "encoder-0.005-longer"), ("b", "decoder-0.005-longer")):
        (runs / folder).rename(runs / name)
    arguments = ["pruning-table", *map(str, runs.glob("*coder*")), "--before", str(runs / "before.json")]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.strip()] == [
        *("run", next(line for line in lines if "─" in line).strip()),
        *("before", "encoder-0.005-longer", "decoder-0.005-longer"),
    ]
    assert main([*arguments, "--format", "tsv"]) == 0
    assert "encoder heads by role" in capsys.readouterr().out
