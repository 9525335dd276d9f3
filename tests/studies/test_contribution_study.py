"""Contribution studies on tiny models: sets, prefixes, statistics against attribute(), figures, callback.

Also for report/contributions.py.
"""

import csv

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.contributions import plot_contributions, plot_training
from hf_nmt_interp.studies.contribution_study import (
    ContributionStudy,
    contribution_study,
    influence_kl,
    length_buckets,
)
from tests.made_up_corpus import BY_LENGTH as SOURCES
from tests.made_up_corpus import BY_LENGTH_TARGETS as TARGETS
from tests.made_up_results import EXAMPLE, random_result, result_of
from tests.reference.contributions import influence_kl as influence_kl_twin


@pytest.fixture(scope="module")
def translator(translator_of):
    return translator_of("marian")


def test_influence_kl_by_hand():
    other = result_of(
        source=[[0.5, 0.5], [0.4, 0.2], [0.1, 0.2]],
        prefix=[[0, 0, 0], [0.2, 0, 0], [0.25, 0.25, 0]],
        start=[0.0, 0.2, 0.2],
    )
    p, q = np.array([0.3, 0.3, 0.2]) / 0.8, np.array([0.4, 0.2, 0.2]) / 0.8
    expected = [0.25 * np.log(0.5) + 0.75 * np.log(1.5), (p * np.log(p / q)).sum()]
    assert influence_kl(EXAMPLE, other)[:2] == pytest.approx(expected, rel=1e-5)
    assert influence_kl(EXAMPLE, EXAMPLE) == pytest.approx([0, 0, 0], abs=1e-7)


@pytest.mark.parametrize("sizes", [(1, 1), (4, 3), (2, 6), (6, 6)], ids=str)
def test_influence_kl_agrees_with_the_twin(sizes):
    for seed in range(5):
        model, final = random_result(*sizes, seed), random_result(*sizes, 100 + seed)
        expected = influence_kl_twin(*((r.source.tolist(), r.prefix.tolist()) for r in (model, final)))
        assert influence_kl(model, final) == pytest.approx(expected, abs=1e-9)
        assert min(expected) >= 0


def test_buckets_are_most_frequent_first():
    assert list(length_buckets([(5, 4), (3, 3), (5, 4), (5, 3)])) == [(5, 4), (3, 3), (5, 3)]


@pytest.fixture(scope="module")
def lengths(translator):
    """The most frequent lengths, and the pairs of those lengths."""
    _, tokenizer = translator
    rows = tokenizer(SOURCES, text_target=TARGETS)
    sizes = [(len(s), len(t)) for s, t in zip(rows["input_ids"], rows["labels"], strict=True)]
    size, numbers = next(iter(length_buckets(sizes).items()))
    return size, numbers


def test_reference_curves_are_those_of_attribute(translator, lengths):
    model, tokenizer = translator
    size, numbers = lengths
    study = contribution_study(model, tokenizer, SOURCES, TARGETS)
    assert study.names("statistic")[-1] == "accuracy"
    assert {(row["source_tokens"], row["target_tokens"]) for row in study.rows} == {size}
    pairs = [SOURCES[i] for i in numbers], [TARGETS[i] for i in numbers]
    results = hni.attribute(model, tokenizer, *pairs, logit="top1")  # the papers' choice
    found = [row["mean"] for row in study.select(statistic="source_contribution")]
    assert found == pytest.approx(np.mean([r.source_contribution for r in results], axis=0), abs=1e-4)
    labels = tokenizer(text_target=[TARGETS[i] for i in numbers], return_tensors="pt")["input_ids"]
    inputs = tokenizer([SOURCES[i] for i in numbers], return_tensors="pt")
    with torch.no_grad():
        right = (model(**inputs, labels=labels).logits.argmax(-1) == labels).double().mean(0)
    assert [row["mean"] for row in study.select(statistic="accuracy")] == pytest.approx(right.tolist(), abs=1e-5)


def test_models_prefixes_and_distance_to_the_final_one(translator, lengths, tmp_path):
    from tests.tiny_models import tiny_model

    model, tokenizer = translator
    other = tiny_model("marian", vocab_size=model.config.vocab_size, seed=4)
    models = {"checkpoint-5": lambda: other, "checkpoint-9": model}
    # a limit that every translation of the random models reaches has them all of one length
    generate = {"num_beams": 1, "min_new_tokens": lengths[0][1], "max_length": lengths[0][1] + 1}
    study = contribution_study(
        models, tokenizer, SOURCES * 2, TARGETS * 2, prefixes=("reference", "random", "model"),
        final="checkpoint-9", lengths=[lengths[0]], generate=generate, batch_size=4,
    )  # fmt: skip
    assert study.names("model") == ["checkpoint-5", "checkpoint-9"]
    assert study.names("prefix") == ["reference", "random", "model"]
    far, same = (study.select(model=name, statistic="kl_to_final") for name in models)
    assert max(row["mean"] for row in same) < 1e-6
    assert min(row["mean"] for row in far) > 1e-6
    assert {row["prefix"] for row in far} == {"reference", "random"}
    assert {row["prefix"] for row in study.select(statistic="accuracy")} == {"reference"}
    again = contribution_study(models, tokenizer, SOURCES * 2, TARGETS * 2, prefixes=["random"], lengths=[lengths[0]])
    assert again.rows == [row for row in study.select(prefix="random") if row["statistic"] != "kl_to_final"]

    (tmp_path / "study.csv").write_text(study.to_csv())
    assert ContributionStudy.load(tmp_path / "study.csv").rows == study.rows
    plot_contributions(study, tmp_path / "curves.svg", ["source_contribution", "position_influence"])
    plot_training(study, tmp_path / "stages.pdf")
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    assert (tmp_path / "stages.pdf").read_bytes().startswith(b"%PDF")
    with (tmp_path / "curves.csv").open() as file:
        assert {row["statistic"] for row in csv.DictReader(file)} == {"source_contribution", "position_influence"}
    means = {(r["model"], r["prefix"], r["statistic"]): r["mean"] for r in study.means()}
    rows = study.select(model="checkpoint-5", prefix="random", statistic="source_contribution")
    expected = np.mean([row["mean"] for row in rows if row["position"] > 0])
    assert means["checkpoint-5", "random", "source_contribution"] == pytest.approx(expected)


def test_random_prefixes_are_never_a_sentence_s_own(translator, lengths, monkeypatch):
    from hf_nmt_interp.studies import contribution_study as module

    seen, explain = [], module.explain
    monkeypatch.setattr(module, "explain", lambda *a: seen.extend(a[1]) or explain(*a))
    model, tokenizer = translator
    _, numbers = lengths
    contribution_study(model, tokenizer, SOURCES, TARGETS, prefixes=["random"])
    own = [tokenizer(text_target=TARGETS[i])["input_ids"] for i in numbers]
    assert all(pair.ids.target_ids != ids for pair, ids in zip(seen, own, strict=True))
    assert sorted(pair.ids.target_ids for pair in seen) == sorted(own)


def test_lengths_may_differ_by_some_tokens(translator, lengths):
    model, tokenizer = translator
    size, numbers = lengths
    wide = contribution_study(model, tokenizer, SOURCES, TARGETS, lengths=[size], within=99)
    assert {(row["source_tokens"], row["target_tokens"]) for row in wide.rows} == {size}
    first = [study_.select(statistic="source_part", position=0)[0]["sentences"] for study_ in (
        wide, contribution_study(model, tokenizer, SOURCES, TARGETS, lengths=[size]),
    )]  # fmt: skip
    assert first == [len(SOURCES), len(numbers)]
    results = hni.attribute(model, tokenizer, SOURCES, TARGETS, logit="top1")
    assert wide.select(statistic="source_part", position=1)[0]["mean"] == pytest.approx(
        np.mean([result.source_part[1] for result in results]), abs=1e-4
    )
    with pytest.raises(InputError, match="within: -1 must be at least 0"):
        contribution_study(model, tokenizer, SOURCES, TARGETS, within=-1)


def test_wrong_input_is_named(translator, lengths, tmp_path):
    with pytest.raises(hni.InputError, match="models: none given; a study needs at least one"):
        hni.contribution_study({}, translator[1], ["A"], ["B"])
    model, tokenizer = translator
    with pytest.raises(InputError, match="prefixes: 'own' is not one of reference, model, random"):
        contribution_study(model, tokenizer, SOURCES, TARGETS, prefixes=["own"])
    with pytest.raises(InputError, match=r"lengths: no pair has \(99, None\) tokens; the most frequent are"):
        contribution_study(model, tokenizer, SOURCES, TARGETS, lengths=[(99, None)])
    with pytest.raises(InputError, match="final: 'last' is not one of the models model"):
        contribution_study(model, tokenizer, SOURCES, TARGETS, final="last")
    with pytest.raises(InputError, match="targets: 1 targets for 5 sources; give one each"):
        contribution_study(model, tokenizer, SOURCES, TARGETS[:1])
    with pytest.raises(InputError, match="random ones need two sentences of the same lengths"):
        contribution_study(model, tokenizer, SOURCES[:1], TARGETS[:1], prefixes=["random"])
    study = ContributionStudy([{"model": "mrt", "prefix": "random", "statistic": "position_influence", "position": 0}])
    with pytest.raises(InputError, match="model 'mrt' does not end in a number of steps"):
        plot_training(study, tmp_path / "x.svg")
    with pytest.raises(InputError, match="statistics: 'share' is not one of source_contribution"):
        plot_contributions(study, tmp_path / "x.svg", ["share"])
