"""The calibration report against a report made step by step, and its figures.

Also for analysis/distributions.py and report/calibration.py.
"""

import copy
import csv
import json
import math

import numpy as np
import pytest
import torch

from hf_nmt_interp.analysis.calibration import (
    MEANS,
    CalibrationReport,
    calibration_report,
    entropy,
    gradient_importance,
    jensen_shannon,
    kendall_tau,
)
from hf_nmt_interp.analysis.distributions import bootstrap_means, half_interval
from hf_nmt_interp.decoding.batch import make_batch
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import parts
from hf_nmt_interp.report.calibration import calibration_rows, mask_means, plot_calibration
from hf_nmt_interp.text.tokens import encode_source, encode_target
from tests.calibrated_models import calibrated_copy, tiny_calibrated
from tests.reference import calibration as twin
from tests.reference.shift import shifted_right
from tests.tiny_models import random_batch, tiny_model

SOURCES = ["The old dog sleeps under the table.", "A car!", "Two children are looking for shells."]
TARGETS = ["Der alte Hund schläft.", "Zwei kleine Kinder suchen am Strand nach Muscheln.", "Ein Auto!"]


@pytest.fixture(scope="module")
def calibrated(translator_of):
    model, tokenizer = translator_of("marian")
    model = calibrated_copy(model, "gate", mask_alpha=0.5)
    return model, tokenizer, calibration_report(model, tokenizer, SOURCES, TARGETS, batch_size=2)


def slow_importance(model, source, target):
    """|grad of p(y_t) with respect to h_i| [T, S] of one sentence: a backward pass a step."""
    memory = model.get_encoder()(source[None]).last_hidden_state.detach().requires_grad_()
    prefix = shifted_right(model, target[None])
    rows = []
    for t, label in enumerate(target):
        logits = model(encoder_outputs=(memory,), decoder_input_ids=prefix[:, : t + 1]).logits[0, -1]
        (gradient,) = torch.autograd.grad(logits.softmax(-1)[label], memory)
        rows.append((gradient[0] ** 2).sum(-1).sqrt())
    return torch.stack(rows)


@pytest.mark.parametrize("family", ["marian", "m2m100"])
def test_gradient_importance_is_that_of_single_backward_passes(family):
    for model in (tiny_calibrated(family, dtype=torch.float64), tiny_model(family, torch.float64)):
        batch = random_batch(model, [(5, 4), (3, 6)])
        found = gradient_importance(model, make_batch(model, **batch))
        for row, (S, T) in enumerate([(5, 4), (3, 6)]):
            expected = slow_importance(model, batch["input_ids"][row, :S], batch["labels"][row, :T])
            torch.testing.assert_close(found[row, :T, :S], expected, atol=1e-10, rtol=1e-7)
            assert not found[row, T:].any()
            assert not found[row, :, S:].any()


def sampled(groups, samples=1000):
    """Means of the numbers in bootstrap samples of the groups."""
    drawn = np.random.default_rng(0).integers(len(groups), size=(samples, len(groups)))
    return np.array([np.concatenate([groups[i] for i in d]).mean() for d in drawn])


def half(means):
    low, high = np.quantile(means, (0.025, 0.975))
    return pytest.approx((high - low) / 2, abs=1e-5)


def test_report_agrees_with_one_made_step_by_step(calibrated):
    model, tokenizer, report = calibrated
    found = [{name: [] for name in MEANS} for _ in range(2)]
    ends = [{name: [] for name in MEANS} for _ in range(2)]  # how many values there are after each sentence
    for text, goal in zip(SOURCES, TARGETS, strict=True):
        source, target = torch.tensor(encode_source(tokenizer, text).ids), encode_target(tokenizer, goal).ids
        labels = torch.tensor(target)
        with torch.no_grad():
            outputs = model(source[None], labels=labels[None], output_attentions=True)
        importance = slow_importance(model, source, labels)
        for layer, values in enumerate(found):
            a, fused, m = (x[layer][0] for x in (outputs.original_attentions, outputs.cross_attentions, outputs.masks))
            values["mask_mean"] += m.mean(0).flatten().tolist()
            for t in range(len(target)):
                for h in range(len(a)):
                    before, after = a[h, t].tolist(), (fused[h, t] / fused[h, t].sum()).tolist()
                    values["jsd"].append(twin.jensen_shannon(before, after))
                    values["entropy"].append(twin.entropy(before))
                    values["entropy_change"].append(twin.entropy(after) - twin.entropy(before))
                scores = {"attention": a[:, t].mean(0), "mask": m[:, t].mean(0)}
                for name, score in scores.items():
                    tau = twin.kendall_tau(score.tolist(), importance[t].tolist())
                    values[f"kendall_{name}"].append(tau)
        for own, values in zip(ends, found, strict=True):
            for name in MEANS:
                own[name].append(len(values[name]))
    both = zip(found, ends, strict=True)
    means = [{name: sampled(np.split(values[name], own[name][:-1])) for name in MEANS} for values, own in both]
    for name in MEANS:
        assert [row[f"{name}_ci"] for row in report.layers[:2]] == [half(own[name]) for own in means]
        assert report.layers[2][f"{name}_ci"] == half((means[0][name] + means[1][name]) / 2)
    assert report.layers[0]["jsd_ci"] > 0
    for layer, values in enumerate(found):
        for name in MEANS:
            mean = sum(values[name]) / len(values[name])
            assert report.layers[layer][name] == pytest.approx(mean, abs=1e-5), (layer, name)
        bins = [row for row in report.bins if row["layer"] == layer]
        assert sum(row["count"] for row in bins) == len(values["jsd"])
        for row in bins:
            high = math.inf if row["high"] is None else row["high"]
            inside = [j for j, e in zip(values["jsd"], values["entropy"], strict=True) if row["low"] <= e < high]
            assert row["count"] == len(inside)
            if inside:
                assert row["jsd"] == pytest.approx(sum(inside) / len(inside), abs=1e-5)
            parts = (np.split(values[name], ends[layer][name][:-1]) for name in ("jsd", "entropy"))
            groups = [jsd[(row["low"] <= e) & (e < high)] for jsd, e in zip(*parts, strict=True)]
            groups = [group for group in groups if len(group)]
            assert row["jsd_ci"] == (half(sampled(groups)) if len(groups) > 1 else None)
    for name in MEANS:
        assert report.layers[2][name] == pytest.approx(sum(row[name] for row in report.layers[:2]) / 2)
    assert report.about["alpha"] == 0.5
    assert report.about["sentences"] == 3


def test_measures_agree_with_their_twins():
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.rand(6, generator=generator, dtype=torch.float64) for _ in range(2))
    p[2] = 0
    p, q = p / p.sum(), q / q.sum()
    assert entropy(p).item() == pytest.approx(twin.entropy(p.tolist()))
    assert jensen_shannon(p, q).item() == pytest.approx(twin.jensen_shannon(p.tolist(), q.tolist()))
    x, y = torch.tensor([1.0, 2.0, 2.0, 0.0, 5.0, 9.0]), torch.tensor([3.0, 3.0, 1.0, 0.5, 4.0, -9.0])
    kept = torch.tensor([True] * 5 + [False])
    assert kendall_tau(x, y, kept).item() == pytest.approx(twin.kendall_tau(x[:5].tolist(), y[:5].tolist()))
    assert kendall_tau(x[:4], torch.ones(4), kept[:4]).isnan()


def test_intervals_are_over_groups():
    """NaN are ignored; numbers of one group stay together."""
    values, groups = torch.tensor([1.0, 0.0, 5.0, torch.nan, 2.0, 9.0]), torch.tensor([3, 8, 3, 8, 8, 1])
    expected = sampled([np.array([9.0]), np.array([1.0, 5.0]), np.array([0.0, 2.0])], 200)
    assert bootstrap_means(values, groups, 200) == pytest.approx(expected)
    assert half_interval(bootstrap_means(values, groups)) != half_interval(bootstrap_means(values, torch.arange(6)))
    unknown = bootstrap_means(torch.tensor([torch.nan, 1.0]), torch.tensor([0, 1]))
    assert 0 < np.isnan(unknown).mean() < 1  # samples of the first group only
    assert half_interval(unknown) == 0
    assert half_interval(bootstrap_means(torch.full((2,), torch.nan), torch.arange(2))) is None
    assert half_interval(bootstrap_means(torch.tensor([1.0, 2.0]), torch.zeros(2))) is None  # one group


def test_report_is_saved_and_drawn(calibrated, tmp_path):
    *_, report = calibrated
    report.save(tmp_path / "report.json")
    assert CalibrationReport.load(tmp_path / "report.json") == report
    assert json.loads(report.to_json())["about"]["fusion"] == "gate"
    assert report.to_csv().startswith("layer,jsd,entropy,")
    other = CalibrationReport(report.layers, report.bins, report.about | {"alpha": 0.1, "model": "other"})
    assert [row["alpha"] for row in mask_means([report, other])] == [0.1, 0.5]
    alone = plot_calibration([report], tmp_path / "one", "pdf")
    assert "mask_by_alpha.pdf" not in {path.name for path in alone}
    files = plot_calibration([report, other], tmp_path / "two")
    names = ["jsd_by_layer", "entropy_change_by_layer", "jsd_by_entropy", "kendall_by_layer", "mask_by_alpha"]
    assert [path.stem for path in files] == names
    for path in files:
        assert path.read_text().lstrip().startswith("<?xml")
        rows = list(csv.DictReader(path.with_suffix(".csv").open()))
        assert {row["model"] for row in rows} == {"model", "other"}
    expected = [row["jsd"] for row in calibration_rows([report, other]) if row["layer"] != "all"]
    assert [float(row["jsd"]) for row in csv.DictReader(files[0].with_suffix(".csv").open())] == expected
    with pytest.raises(InputError, match="kind: 'png' is not one of svg, pdf"):
        plot_calibration([report], tmp_path, "png")


def test_the_model_translates_if_there_are_no_targets(calibrated):
    model, tokenizer, _ = calibrated
    report = calibration_report(model, tokenizer, SOURCES[:1])
    assert report.about["steps"] > 0
    assert all(-1 <= row["kendall_mask"] <= 1 for row in report.layers)


def test_a_plain_translator_as_a_calibrated_one_whose_attention_it_has(calibrated):
    """Fused weights equal to the original ones: entropy and tau of both models agree (figure 2)."""
    model, tokenizer, _ = calibrated
    same = copy.deepcopy(model)
    with torch.no_grad():
        for attention in parts(same).attentions("cross"):
            attention.core.fusion.bias.fill_(50.0)  # gates at 1 take the original weights alone
    plain = tiny_model("marian", vocab_size=len(tokenizer))
    plain.load_state_dict(same.state_dict(), strict=False)
    found, expected = (calibration_report(m, tokenizer, SOURCES, TARGETS) for m in (plain, same))
    assert found.bins == []
    for row, other in zip(found.layers, expected.layers, strict=True):
        assert row["entropy"] == pytest.approx(other["entropy"], rel=1e-4)
        assert row["kendall_attention"] == pytest.approx(other["kendall_attention"], abs=1e-3)
        assert row["mask_mean"] is row["jsd"] is row["kendall_mask"] is row["entropy_change"] is None


def test_bad_arguments_are_named(calibrated):
    model, tokenizer, _ = calibrated
    with pytest.raises(InputError, match="targets: 1 targets for 3 sources; give one each"):
        calibration_report(model, tokenizer, SOURCES, TARGETS[:1])
    with pytest.raises(InputError, match="sources: expected a list of sentences"):
        calibration_report(model, tokenizer, "A car!")
    with pytest.raises(InputError, match=r"edges: \[1, 2\] must be increasing and start at 0"):
        calibration_report(model, tokenizer, SOURCES, edges=[1, 2])
