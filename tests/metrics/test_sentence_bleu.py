"""Sentence BLEU equals sacrebleu's, whatever the text; the risks made of it and of other metrics.

Also for metrics/sentence_bleu/score.py, metrics/sentence_bleu/sentence_bleu.py and metrics/risks.py.
"""

from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

import hf_nmt_interp as hni
from hf_nmt_interp.metrics import sentence_bleu as folder
from hf_nmt_interp.metrics.risks import make_risk, metric_risk
from hf_nmt_interp.metrics.sentence_bleu.score import SentenceBLEU

words = st.sampled_from(["a", "b", "the", "cat", "sat", ".", ",", "1,000", "it's", "&amp;", "-"])
texts = st.lists(words, max_size=9).map(" ".join) | st.text(max_size=12)


@pytest.mark.parametrize(
    ("tokenize", "smoothing"), [("13a", "exp"), ("none", "exp"), ("13a", "floor"), ("13a", "add-k"), ("char", "none")]
)
@given(candidates=st.lists(texts, min_size=1, max_size=3), reference=texts)
def test_equals_sacrebleu(tokenize, smoothing, candidates, reference):
    found = SentenceBLEU(tokenize, smoothing)(candidates, reference)
    for candidate, score in zip(candidates, found, strict=True):
        options = {"smooth_method": smoothing, "tokenize": tokenize}
        assert score == sacrebleu.sentence_bleu(candidate, [reference], **options).score


def test_by_hand():
    # 3 of 4 words, 2 of 3 pairs, 1 of 2 triples, no quadruple: exp counts half of one
    expected = 100 * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25
    assert SentenceBLEU()(["a cat sat here"], "the cat sat here") == [pytest.approx(expected)]


def test_risks_fall_with_quality():
    good, bad, gold = "the cat sat on the mat", "a dog", "the cat sat on the mat"
    for name in ("bleu", "subword_bleu", "chrf"):
        found = make_risk(name)([good, bad], gold)
        assert found[0] == pytest.approx(-1)
        assert -1 < found[1] <= 0
    assert make_risk("ter")([good, "the cat sat on the hat"], gold) == pytest.approx([0, 1 / 6])


def test_evaluate_module_and_a_risk_of_it(tmp_path, monkeypatch):
    evaluate = pytest.importorskip("evaluate")
    monkeypatch.setattr("evaluate.config.HF_EVALUATE_OFFLINE", True)
    metric = evaluate.load(str(Path(folder.__file__).parent), cache_dir=str(tmp_path))
    found = metric.compute(predictions=["a b c d", "a"], references=["a b c d", "b"])
    assert found == {"sentence_bleu": pytest.approx(50), "scores": [pytest.approx(100), 0]}
    risk = metric_risk(metric, metric.primary, factor=-0.01)
    assert risk(["a b c d", "b"], "a b c d") == pytest.approx(make_risk("bleu")(["a b c d", "b"], "a b c d"))
    with pytest.raises(hni.InputError, match="key: 'bleu' is not one of sentence_bleu, scores"):
        metric_risk(metric, "bleu")(["a"], "a")


def test_wrong_names_are_refused():
    with pytest.raises(hni.InputError, match="risk: 'comet' is not one of bleu, subword_bleu, chrf, ter"):
        make_risk("comet")
    with pytest.raises(hni.InputError, match="tokenize: '14a' is not one of none"):
        SentenceBLEU(tokenize="14a")
    with pytest.raises(hni.InputError, match="smoothing: 'much' is not one of none, floor, add-k, exp"):
        SentenceBLEU(smoothing="much")
