"""Bag-of-words logistic regression against its literal loss, and as a proxy."""

import pytest
import torch

from hf_nmt_interp.analysis.probe import lexical_probe
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.logistic import as_proxy, bag_of_words, best_logistic, fit_logistic
from tests.reference import learning as reference

TEXTS = [([1, 2, 2], 0), ([1, 3], 1), ([2, 4, 4, 1], 2), ([3, 3, 2], 1), ([4], 0)]
EXAMPLES = [{"input_ids": words, "labels": [label]} for words, label in TEXTS]
LABELS = torch.tensor([label for _, label in TEXTS])


@pytest.mark.parametrize("l2", [1.0, 0.01])
def test_no_change_of_any_weight_lowers_the_literal_loss(l2):
    weight = fit_logistic(bag_of_words(EXAMPLES, 5), LABELS, 3, l2).tolist()
    lowest, h = reference.logistic_loss(weight, TEXTS, l2), 1e-4
    for row in weight:
        for i in range(5):
            losses = []
            for step in (h, -h):
                row[i] += step
                losses.append(reference.logistic_loss(weight, TEXTS, l2))
                row[i] -= step
            assert min(losses) > lowest
            assert (losses[0] - losses[1]) / (2 * h) == pytest.approx(0, abs=1e-7)
    assert [row[0] for row in weight] == [0, 0, 0]  # a word that no text has


def test_the_proxy_of_a_regression_has_its_logits_and_its_probe():
    weight = fit_logistic(bag_of_words(EXAMPLES, 5), LABELS, 3, 0.1)
    model = as_proxy(weight, pad_token_id=0).double().eval()
    with torch.no_grad():  # float64 weights, which the model's own precision has rounded
        model.embed_tokens.weight.copy_(weight.T)
    ids, labels = torch.tensor([TEXTS[2][0]]), torch.tensor([2])
    expected = reference.logistic_logits(weight.tolist(), TEXTS[2][0])
    assert model(ids).logits[0, 0].tolist() == pytest.approx(expected, abs=1e-12)
    beta = [torch.softmax(weight[:, word], 0)[2].item() for word in TEXTS[2][0]]
    assert lexical_probe(model, ids, labels).beta[0, 0].tolist() == pytest.approx(beta, abs=1e-12)


def test_the_penalty_with_the_best_validation_accuracy_is_taken():
    train = [{"input_ids": [1, 3], "labels": [0]}] * 9 + [{"input_ids": [2, 3], "labels": [1]}]
    valid = [{"input_ids": [2, 3], "labels": [1]}, {"input_ids": [1, 3], "labels": [0]}]
    weight, rows = best_logistic(train, valid, 4, 2, l2=(100.0, 1e-4, 1e-5))
    assert [row["accuracy"] for row in rows] == [0.5, 1, 1]  # a strong penalty leaves the frequent class only
    expected = fit_logistic(bag_of_words(train, 4), torch.tensor([0] * 9 + [1]), 2, 1e-4)
    assert torch.equal(weight, expected)


def test_wrong_input_is_named():
    with pytest.raises(InputError, match="l2: 0 must be above 0"):
        fit_logistic(bag_of_words(EXAMPLES, 5), LABELS, 3, 0)
    with pytest.raises(InputError, match=r"examples\[1\]: has no words; leave it out"):
        bag_of_words([EXAMPLES[0], {"input_ids": [], "labels": [0]}], 5)
