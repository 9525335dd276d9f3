"""Erasure metrics against a literal twin."""

import numpy as np
import pytest
import torch

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import METHODS, AttentionWeights, ShiftedAttention
from hf_nmt_interp.attribution.registry import make_method, word_settings
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.metrics import faithfulness as metric
from hf_nmt_interp.metrics.faithfulness import Faithfulness, faithfulness, random_scores
from tests.fitting import fitting
from tests.tiny_models import tiny_model

SOURCES = ["the cat sleeps", "a dog reads my book in the garden", "we"]


@pytest.fixture(scope="module")
def explained(tokenizer_of):
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer))
    return model, hni.attribute(model, tokenizer, SOURCES, method="attention", generate={"max_length": 7})


def probability(model, source_ids, target_ids, positions) -> float:
    """Product of the probabilities of some target positions, one sentence, by the model's own forward pass."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([source_ids]), labels=torch.tensor([target_ids])).logits[0]
    return float(torch.stack([logits[t].softmax(-1)[target_ids[t]] for t in positions]).prod())


def literal(model, results, fraction):
    """Mean losses when the best words are erased, and when only they are kept."""
    erased, kept = [], []
    for r in results:
        words = r.to_words()
        columns = [i for i, special in enumerate(words.source_side.special) if not special]
        rows = [t for t, special in enumerate(words.target_side.special) if not special]
        subwords = [positions for positions in r.target_side.positions if positions]
        for row, positions in zip(rows, subwords, strict=True):
            ranked = sorted(range(len(columns)), key=lambda i: -words.source[row, columns[i]])
            best = set(ranked[: max(1, round(fraction * len(ranked)))])
            full = probability(model, r.translation.source_ids, r.translation.target_ids, positions)
            for losses, keep_best in ((erased, False), (kept, True)):
                pairs = zip(r.translation.source_ids, r.source_side.word_ids, strict=True)
                ids = [token for token, word in pairs if word is None or (word in best) == keep_best]
                losses.append(full - probability(model, ids, r.translation.target_ids, positions))
    return np.mean(erased), np.mean(kept)


def test_equals_the_literal_twin(explained):
    model, results = explained
    found = faithfulness(model, results, fractions=(0.2, 0.5))
    for level, fraction in enumerate((0.2, 0.5)):
        erased, kept = literal(model, results, fraction)
        assert found.comprehensiveness[level] == pytest.approx(erased, abs=1e-6)
        assert found.sufficiency[level] == pytest.approx(kept, abs=1e-6)
    assert found.area["comprehensiveness"] == pytest.approx(found.comprehensiveness.mean())


def test_erasing_by_true_effect_beats_random_and_random_beats_the_worst(explained):
    model, results = explained

    def effect(result, sign):
        pair, words = result.translation, range(len(result.source_side.words))
        table = []
        for positions in filter(None, result.target_side.positions):
            row = []
            for erased in words:
                pairs = zip(pair.source_ids, result.source_side.word_ids, strict=True)
                ids = [token for token, word in pairs if word != erased]
                row.append(-sign * probability(model, ids, pair.target_ids, positions))
            table.append(row)
        return np.array(table)

    fraction = (0.01,)  # one word
    best, worst = (faithfulness(model, results, fraction, scores=lambda r, s=s: effect(r, s)) for s in (1, -1))
    random = faithfulness(model, results, fraction, scores=random_scores())
    areas = [f.area["comprehensiveness"] for f in (best, random, worst)]
    assert areas == sorted(areas, reverse=True)
    assert areas[0] > areas[2]


def test_random_scores_are_seeded(explained):
    model, results = explained
    one, two, three = (faithfulness(model, results, scores=random_scores(seed)).area for seed in (1, 1, 2))
    assert one == two != three


def test_word_level_results_are_refused(explained):
    model, results = explained
    with pytest.raises(InputError, match="token-level results with ids"):
        faithfulness(model, [results[0].to_words()])


def test_results_without_words_are_refused(explained):
    with pytest.raises(InputError, match="no sentence has words on both sides"):
        faithfulness(explained[0], [])


# ---------------------------------------------------------------------------------------------------- several methods
def test_comparing_on_no_sentences_is_refused(explained, tokenizer_of):
    model, _ = explained
    with pytest.raises(InputError, match="results: no sentence has words on both sides"):
        metric.compare(model, tokenizer_of("marian"), [], {"one": AttentionWeights(model)})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_compared_by_its_explanations(explained, tokenizer_of, name):
    model, tokenizer = fitting(name, explained[0]), tokenizer_of("marian")
    generate = {"max_length": 7}
    method = make_method(model, name, **word_settings(name, {}))
    found = metric.compare(model, tokenizer, SOURCES, {name: method}, 2, generate)
    own = faithfulness(model, hni.attribute(model, tokenizer, SOURCES, method=name, generate=generate))
    for losses, expected in zip(found[name].losses, own.losses, strict=True):
        np.testing.assert_allclose(losses, expected, atol=1e-6)
    assert found[name].area != found["random"].area


def test_comparing_translates_once_and_scores_what_methods_share_once(explained, tokenizer_of, monkeypatch):
    model, results = explained
    one, two, again = AttentionWeights(model), ShiftedAttention(model), AttentionWeights(model)
    translated, scored = [], []
    for owner, name, calls in ((metric.Pairs, "translate", translated), (metric, "_score", scored)):
        function = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, f=function, calls=calls: calls.append(args) or f(*args))

    methods = {"one": one, "two": two, "again": again}
    found = metric.compare(model, tokenizer_of("marian"), SOURCES, methods, 2, {"max_length": 7})
    assert list(found) == ["one", "two", "again", "random"]
    assert len(translated) == 1
    assert [bool(pairs) for _, pairs, *_ in scored[:3]] == [True, True, False]
    assert found["again"].area == found["one"].area != found["two"].area
    for name, area in faithfulness(model, results).area.items():
        assert found["one"].area[name] == pytest.approx(area, abs=1e-6)
    for own, apart in zip(found["one"].losses, faithfulness(model, results).losses, strict=True):
        np.testing.assert_allclose(own, apart, atol=1e-6)  # in the order of the sentences, not of the batches
    with pytest.raises(InputError, match="methods: none given"):
        metric.compare(model, tokenizer_of("marian"), SOURCES, {})


def test_margin_is_the_interval_of_paired_differences_by_sentence():
    generator = np.random.default_rng(0)
    words = [3, 0, 5, 2, 7, 1]
    one, two = (Faithfulness([generator.random((2, 4, n)) for n in words], (0.1, 0.2, 0.3, 0.4)) for _ in range(2))
    for measure, name in enumerate(("comprehensiveness", "sufficiency")):
        differences = [(a[measure] - b[measure]).mean(0) for a, b in zip(one.losses, two.losses, strict=True)]
        mean = np.concatenate(differences).mean()
        assert one.area[name] - two.area[name] == pytest.approx(mean)
        residuals = [d.sum() - mean * len(d) for d in differences if len(d)]  # of a ratio of sums over sentences
        error = np.sqrt(len(residuals) * np.var(residuals, ddof=1)) / sum(words)
        assert one.margin(two)[name] == pytest.approx(1.96 * error)
        assert two.margin(one)[name] == one.margin(two)[name]
        assert one.margin(one)[name] == 0


def test_margins_cover_the_truth_as_often_as_they_say():
    """Sentences share an effect of their own; words taken as independent would give margins far too small."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        shifts = generator.normal(0.1, 0.2, 40)
        losses = [shift + generator.normal(0, 0.1, (2, 1, n)) for shift, n in zip(shifts, [4] * 40, strict=True)]
        one, two = Faithfulness(losses, (0.1,)), Faithfulness([np.zeros_like(x) for x in losses], (0.1,))
        covered += abs(one.area["sufficiency"] - 0.1) < one.margin(two)["sufficiency"]
    assert 0.9 < covered / 300 < 0.98


def test_one_sentence_has_no_margin():
    one = Faithfulness([np.ones((2, 1, 3))], (0.1,))
    assert np.isnan(list(one.margin(one).values())).all()
