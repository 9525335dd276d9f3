"""Bag-of-words logistic regression of texts (snell2021, appendix A.10); definitions: docs/methods.md."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.proxy import BagOfWordsConfig, BagOfWordsProxy
from hf_nmt_interp.text.corpus import Example

L2 = tuple(10.0**-k for k in range(10))  # strengths of the penalty that are tried, ten orders of magnitude


def bag_of_words(examples: Sequence[Example], vocab_size: int) -> Tensor:
    """Sparse x [M, V]: the count of each word in a text, divided by the length of the text (eq. 55).

    >>> bag_of_words([{"input_ids": [2, 0, 2, 2], "labels": [1]}], 3).to_dense().tolist()
    [[0.25, 0.0, 0.75]]
    """
    if empty := [m for m, example in enumerate(examples) if not example["input_ids"]]:
        raise InputError("examples", None, "has no words", "leave it out", row=empty[0])
    rows = [m for m, example in enumerate(examples) for _ in example["input_ids"]]
    words = [word for example in examples for word in example["input_ids"]]
    shares = [1 / len(example["input_ids"]) for example in examples for _ in example["input_ids"]]
    sizes = len(examples), vocab_size
    x = torch.sparse_coo_tensor(torch.tensor([rows, words]), shares, sizes, dtype=torch.float64, check_invariants=True)
    return x.coalesce()


def fit_logistic(x: Tensor, y: Tensor, classes: int, l2: float, max_iter: int = 200) -> Tensor:
    """beta_log [O, V] that minimises mean_m -log softmax(beta_log x_m)_(y_m) + l2 / 2 |beta_log|^2 (eq. 55).

    Args:
        x: [M, V] bags of words, e.g. of `bag_of_words`.
        y: [M] classes.
        classes: O.
        l2: strength of the penalty; must be above 0, or words that occur in one class only have no finite optimum.
        max_iter: maximum number of L-BFGS steps; a weak penalty may need more, with little effect.
    """
    if not l2 > 0:
        raise InputError("l2", l2, "must be above 0")
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    stops: dict[str, Any] = {
        "max_iter": max_iter,
        "tolerance_grad": 1e-10,
        "tolerance_change": 1e-14,
        "history_size": 20,
    }
    optimizer = torch.optim.LBFGS([weight], line_search_fn="strong_wolfe", **stops)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(torch.sparse.mm(x, weight.T), y) + l2 / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weight.detach()


def best_logistic(
    train: Sequence[Example], valid: Sequence[Example], vocab_size: int, classes: int, l2: Sequence[float] = L2
) -> tuple[Tensor, list[dict[str, float]]]:
    """beta_log [O, V] of the penalty with the highest accuracy on the validation set, and all accuracies."""
    (x, y), (other, right) = (
        (bag_of_words(texts, vocab_size), torch.tensor([example["labels"][0] for example in texts]))
        for texts in (train, valid)
    )
    rows, weights = [], []
    for strength in l2:
        weights.append(fit_logistic(x, y, classes, strength))
        found = torch.sparse.mm(other, weights[-1].T).argmax(-1) == right
        rows.append({"l2": strength, "accuracy": found.double().mean().item()})
    best = max(range(len(rows)), key=lambda i: rows[i]["accuracy"])  # the first of equal ones
    return weights[best], rows


def as_proxy(weight: Tensor, pad_token_id: int) -> BagOfWordsProxy:
    """The proxy whose W e is beta_log [O, V]: W is the identity, e_i column i of beta_log (eq. 57, 58)."""
    classes, words = weight.shape
    config = BagOfWordsConfig(vocab_size=words, embedding_size=classes, output_size=classes, pad_token_id=pad_token_id)
    model = BagOfWordsProxy(config)
    with torch.no_grad():
        model.embed_tokens.weight.copy_(weight.T)
        model.projection.weight.copy_(torch.eye(classes))
    return model
