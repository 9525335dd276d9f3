"""Verbs that explain many sentences and average: contributions, faithfulness, detached.

Also for cli/verbs/faithfulness.py, cli/verbs/detached.py and text/progress.py.
"""

import json
import re

import pytest

from hf_nmt_interp.attribution import LRP, AttentionWeights
from hf_nmt_interp.cli.loading import load
from hf_nmt_interp.metrics.faithfulness import compare

SENTENCES = ["The old baker opens his shop.", "Where did you put the keys?", "A dog sleeps."]


@pytest.fixture
def rows(run, model_folder):
    """Run a verb with the tiny model and read its JSON."""

    def run_verb(*arguments: object) -> list[dict]:
        code, out, err = run(*arguments, "--model", model_folder, "--format", "json")
        assert (code, err) == (0, "")  # no progress bar if stderr is not a terminal
        return [json.loads(line) for line in out.splitlines()]

    return run_verb


def test_faithfulness_ranks_methods_by_their_names_and_settings(rows, model_folder) -> None:
    given = ["--method", "lrp:attention=values,logit=label", "--method", "attention:layer=0"]
    found = rows("faithfulness", *given, "--batch-size", 2, *SENTENCES)
    model, tokenizer = load(str(model_folder))
    methods = {given[1]: LRP(model, attention="values", logit="label"), given[3]: AttentionWeights(model, layer=0)}
    expected = compare(model, tokenizer, SENTENCES, methods, batch_size=2)
    assert {row["method"] for row in found} == {given[1], given[3], "random"}
    assert found == sorted(found, key=lambda row: -row["comprehensiveness"])
    for above, row in zip([None, *found], found, strict=False):
        own = expected[row["method"]]
        margin = own.margin(expected[above["method"]]) if above else {}
        for name, value in own.area.items():
            assert row[name] == pytest.approx(value, abs=1e-4)
            assert row[f"{name[0]}_margin"] == pytest.approx(margin.get(name), abs=1e-4)


def test_faithfulness_takes_all_methods_that_fit(rows) -> None:
    found = rows("faithfulness", "A dog sleeps.")
    assert {"lrp", "saliency", "smoothgrad", "attention", "random"} <= {row["method"] for row in found}
    assert all(row["c_margin"] is None for row in found)  # one sentence has no interval


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("magic", "--method: 'magic' is not one of lrp, alti, saliency"),
        ("lrp:alpha", "--method: 'alpha' is not name=value, e.g. rule=..."),
        ("lrp:layer=1", "--method: method 'lrp' has no setting 'layer'"),
        ("attention:head=x", "--method: head=x is not of type int or null"),
    ],
)
def test_faithfulness_errors(run, model_folder, method, message) -> None:
    code, _, err = run("faithfulness", "--model", model_folder, "--method", method, *SENTENCES)
    assert code == 2
    assert err.startswith(f"hf-nmt-interp faithfulness: error: {message}")


def test_limit_takes_the_first_sentences(rows, tmp_path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    cut = rows("detached", "--input", tmp_path / "in.txt", "--limit", 2)
    assert cut == rows("detached", *SENTENCES[:2])
    assert cut != rows("detached", *SENTENCES)
    assert [row["score"] for row in cut] == ["source_share", "log_probability"]


@pytest.mark.parametrize(
    ("verb", "label"), [("detached", "Explaining"), ("faithfulness", "Comparing"), ("contributions", "Explaining")]
)
def test_a_terminal_shows_progress(run, model_folder, monkeypatch, verb, label) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    monkeypatch.setattr("hf_nmt_interp.text.progress._SOON", -1)
    sentences = SENTENCES[:2] if verb != "contributions" else ["A dog."] * 5  # windows of four batches there
    method = ("--method", "lrp" if verb == "detached" else "attention")
    code, out, err = run(verb, "--model", model_folder, "--format", "tsv", "--batch-size", 1, *method, *sentences)
    assert code == 0
    assert label in err
    assert label not in out


@pytest.mark.parametrize("verb", ["attribute", "contributions", "detached", "faithfulness", "heads"])
def test_a_terminal_is_told_how_long_it_will_take(run, model_folder, monkeypatch, verb) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("hf_nmt_interp.text.progress._LONG", 0)
    method = () if verb == "heads" else ("--method", "lrp")
    sentences = [f"A dog. {n}" for n in range(5)]
    code, _, err = run(verb, "--model", model_folder, *method, *sentences)
    assert code == 0
    assert re.search(r"lrp: about \d+ s for \d+ sentences", err)
