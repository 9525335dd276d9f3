"""Best heads of relations as a table and a figure."""

import pytest

from hf_nmt_interp.analysis.heads import HeadReport
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.relations import plot_relations, syntax_table


def head(layer: int, number: int, **scores) -> dict:
    return {"kind": "encoder", "layer": layer, "head": number, "relevance": None, **scores, "roles": []}


ACCURACIES = [
    {"nsubj_to_head": 0.2, "nsubj_to_dependent": 0.5, "nsubj_baseline": 0.4, "obj_baseline": None},
    {"nsubj_to_head": 0.6, "nsubj_to_dependent": 0.3, "nsubj_baseline": 0.4, "obj_baseline": None},
]
REPORT = HeadReport(
    [head(0, 0, **ACCURACIES[0]), head(2, 1, **ACCURACIES[1])],
    about={"dependents": {"nsubj": {"-2": 1, "-1": 3}}},
)


def test_the_best_head_of_each_relation_and_direction():
    rows = [{"relation": "nsubj", "baseline": 0.4} for _ in range(2)]
    rows[0] |= {"direction": "to_head", "head": "2.1", "accuracy": 0.6}
    rows[1] |= {"direction": "to_dependent", "head": "0.0", "accuracy": 0.5}
    assert REPORT.syntax() == rows
    cells = [list(map(str, column.cells)) for column in syntax_table(REPORT).columns]
    assert cells[2:] == [["2.1", "0.0"], ["60%", "50%"], ["40%", "40%"]]


def test_figure_with_its_numbers(tmp_path):
    plot_relations(REPORT, tmp_path / "relations.svg")
    lines = (tmp_path / "relations.csv").read_text().splitlines()
    assert lines[:3] == ["relation,position,share", "nsubj,-2,0.25", "nsubj,-1,0.75"]
    assert lines[-1] == "nsubj,to_dependent,0.0,0.5,0.4"


def test_a_report_without_trees_is_refused(tmp_path):
    without = HeadReport([head(0, 0)], about={})
    assert without.syntax() == []
    with pytest.raises(InputError, match="report: has no syntactic scores; make it with trees"):
        plot_relations(without, tmp_path / "relations.svg")
