"""Head reports as a table and as figures, also with a role that someone adds."""

import json
import re

import pytest

from hf_nmt_interp.analysis.heads import fact_types, head_facts, head_report, report_of
from hf_nmt_interp.analysis.roles import HEAD_SCORES
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.heads import head_table, plot_gate_history, plot_heads, role_colours
from hf_nmt_interp.report.pruning import PrunedModel, plot_pruning, read_runs
from hf_nmt_interp.text.tables import arrow_schema
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import ENGLISH, GERMAN


@pytest.fixture
def translator(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    return tiny_model("marian", vocab_size=len(tokenizer)), tokenizer


def shown(table) -> list[dict[str, str]]:
    """Lines of a terminal table, by the names of its columns."""
    columns = {column.header: [str(cell) for cell in column.cells] for column in table.columns}
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def drawn(path) -> list[str]:
    """Texts of an SVG figure."""
    return re.findall(r"<!-- (.*) -->", path.read_text())


def test_table_shows_each_score(translator):
    report = head_report(*translator, ENGLISH[:2], GERMAN[:2], relevance_sentences=0)
    lines = shown(head_table(report))
    assert list(lines[0]) == ["head", "relev.", "conf.", "position", "best relation", "rare", "roles"]
    row = report.rows[0]
    assert (lines[0]["head"], lines[0]["relev."], lines[0]["best relation"]) == ("encoder 0.0", "", "")
    assert lines[0]["position"] == f"{row['position']:+d} {row['position_share']:.0%}"
    assert lines[0]["conf."] == f"{row['confidence']:.0%}"


def test_a_fourth_role_is_one_class_and_one_line(fourth_role, translator, tmp_path):
    """Report, table, figures, the columns of shards and what merges them know it from `HEAD_SCORES`."""
    sources, targets = ENGLISH[:3], GERMAN[:3]
    report = head_report(*translator, sources, targets, relevance_sentences=0)
    first = report.rows[0]
    assert 0 <= first["last_share"] <= 1
    assert first["roles"][-1] == f"{fourth_role}: {first['last_hits']} times"

    line = shown(head_table(report))[0]
    assert (line["last_share"], line["last_hits"]) == (f"{first['last_share']:.0%}", str(first["last_hits"]))
    assert line["roles"].endswith(f"{first['last_hits']} times")

    plot_heads(report, tmp_path / "heads.svg")
    assert {*drawn(tmp_path / "heads.svg")} >= {fourth_role, "none", f"{first['last_hits']} times"}
    colours = role_colours()
    assert len(set(colours.values())) == len(colours) == 5

    facts = head_facts(*translator, sources, targets, relevance=False)
    import pyarrow as pa

    kept = pa.Table.from_pylist(facts, arrow_schema(fact_types()))
    assert kept.schema.field("heads").type.value_type.field("last").type == pa.list_(pa.int64())
    merged = report_of(kept.to_pylist(), {})
    names = "kind", "layer", "head", "last_share", "last_hits"
    assert [[row[n] for n in names] for row in merged.rows] == [[row[n] for n in names] for row in report.rows]

    report.save(tmp_path / "heads.json")
    numbers = {"heads_by_layer": {"encoder": [2, 2], "decoder": [2, 2], "cross": [2, 2]}, "parameters": 9}
    (tmp_path / "results.json").write_text(json.dumps({"penalty": 0.1, "before": numbers, "pruned": numbers}))
    models = read_runs([tmp_path], tmp_path / "heads.json")
    assert fourth_role in models[0].row()["encoder heads by role"]
    plot_pruning(models, tmp_path / "pruning.svg")
    assert fourth_role in drawn(tmp_path / "pruning.svg")


def test_more_roles_than_colours_and_hatches_can_be_drawn(fourth_role, monkeypatch, tmp_path):
    for number in range(6):
        monkeypatch.setitem(HEAD_SCORES, f"role {number}", HEAD_SCORES[fourth_role])
    model = PrunedModel("a", {"encoder": [1]}, 9, 0.1, {}, {("encoder", 0, 0): []})
    plot_pruning([model], tmp_path / "pruning.svg")
    assert drawn(tmp_path / "pruning.svg")[-7:] == [*(f"role {n}" for n in range(6)), "none"]


def test_gate_history(tmp_path):
    lines = ["step,kind,layer,head,log_alpha,open"]
    lines += [f"{step},{kind},{layer},{head},1,{1 / (step + 1)}" for step in (0, 9) for kind in ("encoder", "cross")
              for layer in (0, 1) for head in (0, 1)]  # fmt: skip
    (tmp_path / "gates.csv").write_text("\n".join(lines) + "\n")
    plot_gate_history(tmp_path / "gates.csv", tmp_path / "gates.svg")
    assert (tmp_path / "gates.svg").read_text().lstrip().startswith("<?xml")
    assert (tmp_path / "gates.csv").read_text().splitlines() == lines
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for name in ("other.csv", "none.csv"):
        with pytest.raises(InputError, match=f"history: '.*{name}' is not a gates.csv of L0Trainer"):
            plot_gate_history(tmp_path / name, tmp_path / "x.svg")
