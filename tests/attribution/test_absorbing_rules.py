"""Rules of LRP that let biases keep their part: what is left and what was absorbed add up to 1.

For attribution/rules/cp_lrp.py, attribution/rules/attnlrp.py and attribution/rules/gamma.py; test_lrp.py compares them
with their twins.
"""

from dataclasses import dataclass

import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import LRP
from hf_nmt_interp.attribution.rules import RULES
from hf_nmt_interp.attribution.rules.attnlrp import AttnLRP
from hf_nmt_interp.errors import InputError
from tests.attribution.comparing import assert_relevance
from tests.attribution.test_lrp import GATED, gated_model
from tests.reference.lrp import lrp as twin
from tests.tiny_models import FAMILIES, random_batch, tiny_model

ABSORBING = [name for name, rule in RULES.items() if rule.absorbs]
every_rule = pytest.mark.parametrize("rule", ABSORBING)
every_family = pytest.mark.parametrize("family", FAMILIES)


def total(scores):
    return scores.source.sum(-1) + scores.prefix.sum(-1) + scores.start


def test_which_rules_absorb():
    assert ABSORBING == ["attnlrp", "cp_lrp", "gamma"]


@every_rule
@every_family
def test_float32_agrees_with_float64_and_absorbed_relevance_is_counted(family, rule):
    batch = random_batch(tiny_model(family), [(7, 6), (4, 5), (1, 1)])
    single, double = (LRP(tiny_model(family, dtype), rule=rule)(**batch) for dtype in (torch.float32, torch.float64))
    for name in ("source", "prefix", "start"):
        torch.testing.assert_close(getattr(single, name).double(), getattr(double, name), atol=1e-5, rtol=0)
    assert single.conservation_gap.max() < 1e-5
    biases = rule != "cp_lrp" or not family.startswith("t5")  # T5 has none outside of its scores
    assert ((1 - total(double)).abs().amax(-1) > 1e-3).all() == biases


@every_rule
def test_nothing_is_lost_without_biases(rule):
    """With attention weights as constants, T5 has no constant but epsilon."""
    model = tiny_model("t5", torch.float64)
    batch = random_batch(model, [(6, 5)])
    scores = LRP(model, rule=rule, attention="values")(**batch)
    torch.testing.assert_close(total(scores), torch.ones(1, 5).double(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("operation", ["shares", "softmax", "constant", "projection"])
def test_the_gap_shows_what_an_operation_forgets_to_count(operation, monkeypatch):
    """A rule whose operation does not report what it absorbs."""

    def forgetful(self, *args):
        *others, absorbed = args
        return getattr(AttnLRP, operation)(self, *others, torch.zeros_like(absorbed))

    rule = dataclass(frozen=True)(type("Forgetful", (AttnLRP,), {operation: forgetful, "__annotations__": {}}))
    model = gated_model("marian", tiny_model("marian", torch.float64)).prune()  # layers without heads: constants
    batch = random_batch(model, [(5, 4)])
    assert LRP(model, rule="attnlrp")(**batch).conservation_gap < 1e-12
    monkeypatch.setitem(RULES, "forgetful", rule)
    with pytest.raises(InputError, match=r"Forgetful\(epsilon=1e-09\) has a conservation gap of"):
        LRP(model, rule="forgetful")(**batch)


def test_gamma_0_and_constant_weights_are_the_other_rules():
    model = tiny_model("marian", torch.float64)
    batch = random_batch(model, [(6, 5), (3, 2)])
    plain = LRP(model, rule="attnlrp")(**batch)
    torch.testing.assert_close(LRP(model, rule="gamma", gamma=0.0)(**batch).source, plain.source)
    values = LRP(model, rule="attnlrp", attention="values")(**batch)
    assert torch.equal(LRP(model, rule="cp_lrp")(**batch).source, values.source)
    assert (values.source - plain.source).abs().max() > 1e-3


def test_norms_that_pass_relevance_unchanged_make_it_explode():
    """A sum of nearly 0 may come out of a layer norm as a large unit; deeper models do it more often."""
    model = tiny_model("marian", encoder_layers=6, decoder_layers=6)
    batch = random_batch(model, [(9, 8)])
    assert LRP(model, rule="attnlrp")(**batch).conservation_gap < 1e-5
    with pytest.raises(InputError, match=r"AttnLRP\(epsilon=1e-09\) has a conservation gap of .* norm='jacobian'"):
        LRP(model, rule="attnlrp", norm="scale")(**batch)


@every_rule
@pytest.mark.parametrize("family", GATED)
def test_closed_heads_are_as_good_as_pruned(family, rule):
    """A bias keeps its part whether there are heads beside it or not, so that both have the same relevance."""
    model = gated_model(family, tiny_model(family, torch.float64))
    batch = random_batch(model, [(6, 5), (3, 2)])
    closed, pruned = (LRP(explained, rule=rule)(**batch) for explained in (model, model.prune()))
    for name in ("source", "prefix", "start"):
        torch.testing.assert_close(getattr(pruned, name), getattr(closed, name), atol=1e-9, rtol=0)
    assert max(closed.conservation_gap.max(), pruned.conservation_gap.max()) < 1e-6


@every_rule
@every_family
def test_one_source_token_and_one_step(family, rule):
    model = tiny_model(family, torch.float64)
    batch = random_batch(model, [(1, 1)])
    scores = LRP(model, rule=rule)(**batch)
    assert_relevance(scores, 0, twin(model, batch["input_ids"][0], batch["labels"][0], rule=rule), 1e-6)


@pytest.fixture(scope="module")
def box():
    return hni.load_demo("en-de")


@every_rule
def test_the_translator_in_the_box(box, rule):
    sources = ["The cat is sleeping on the sofa.", "Two dogs run across the snow."]
    targets = ["Die Katze schläft auf dem Sofa.", "Zwei Hunde laufen über den Schnee."]
    results = hni.attribute(*box, sources, targets, method="lrp", rule=rule)
    for result in results:
        assert result.conservation_gap < 1e-4
        assert abs(result.source).max() < 5
    cat, sofa = results[0].target_tokens.index("▁Katze"), results[0].target_tokens.index("▁Sofa")
    for step, word in ((cat, "▁cat"), (sofa, "▁sofa")):
        assert results[0].source_tokens[results[0].source[step].argmax()] == word
