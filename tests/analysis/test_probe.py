"""The lexical probe and the influence of words against their twins, whatever the batch.

Also for analysis/flips.py.
Also for models/proxy/modeling_proxy.py and models/proxy/configuration_proxy.py.
"""

import pytest
import torch

from hf_nmt_interp.analysis.flips import flip_influence
from hf_nmt_interp.analysis.probe import lexical_probe
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.lstm import LSTMAttentionConfig, LSTMAttentionForSequenceClassification
from hf_nmt_interp.models.proxy import BagOfWordsConfig, BagOfWordsProxy
from tests.attribution.leaks import unchanged
from tests.reference import learning as twin
from tests.tiny_models import FAMILIES, RECURRENT, random_batch, tiny_model

LENGTHS = [(5, 4), (3, 6), (2, 1)]
VARIANTS = {name: (name, {}) for name in [*FAMILIES, *RECURRENT]}
VARIANTS |= {"lstm, linear": ("lstm", {"output": "linear", "attention_heads": 3})}
VARIANTS |= {"lstm, uniform": ("lstm", {"attention_mode": "uniform", "attention_heads": 1})}
PROBED, FLIPPED = [*VARIANTS, "classifier", "two classes", "proxy"], [*VARIANTS, "classifier", "two classes"]


def make(variant):
    if variant in VARIANTS:
        family, settings = VARIANTS[variant]
        return tiny_model(family, torch.float64, **settings)
    torch.manual_seed(0)
    if variant == "proxy":
        return BagOfWordsProxy(BagOfWordsConfig(vocab_size=40, embedding_size=6)).double().eval()
    sizes = {"vocab_size": 40, "embedding_size": 6, "hidden_size": 8, "init_range": 0.8}
    config = LSTMAttentionConfig(num_labels=2 if variant == "two classes" else 5, **sizes)
    return LSTMAttentionForSequenceClassification(config).double().eval()


def batch_of(model):
    if isinstance(model, LSTMAttentionForSequenceClassification):
        batch = random_batch(tiny_model("lstm"), LENGTHS)
        return batch | {"labels": torch.tensor([1, 0, 1])}, [(S, 1) for S, _ in LENGTHS]
    return random_batch(tiny_model("lstm") if isinstance(model, BagOfWordsProxy) else model, LENGTHS), LENGTHS


def tolerance(model) -> float:
    return 1e-5 if "t5" in model.config.model_type else 1e-9  # T5's norm is taken in float32


@pytest.mark.parametrize("variant", PROBED)
def test_probe_equals_its_twin_whatever_the_batch(variant):
    model = make(variant)
    batch, lengths = batch_of(model)
    with unchanged(model):
        found = lexical_probe(model, **batch)
    everything = lexical_probe(model, **batch, vocabulary=True)
    close = {"atol": tolerance(model), "rtol": 0}
    for row, (S, T) in enumerate(lengths):
        labels = batch["labels"][row].reshape(-1)[:T]
        beta, logits = twin.probe(model, batch["input_ids"][row, :S], labels)
        torch.testing.assert_close(found.beta[row, :T, :S], beta, **close)
        torch.testing.assert_close(everything.gamma[row, :T, :S], logits, **close)
        torch.testing.assert_close(found.log_odds[row, :T, :S], torch.log(beta / (1 - beta)), **close)
        picked = torch.stack([logits[t, :, label] for t, label in enumerate(labels)])
        if isinstance(model, LSTMAttentionForSequenceClassification):
            picked = torch.log(beta / (1 - beta))
        torch.testing.assert_close(found.gamma[row, :T, :S], picked, **close)
        assert found.kept[row].sum() == S * T
        assert not found.beta[row, T:].any()
        assert not found.beta[row, :, S:].any()
        assert not found.gamma[row, :, S:].any()


@pytest.mark.parametrize("replacement", ["worst", "zero"])
@pytest.mark.parametrize("variant", FLIPPED)
def test_influence_equals_its_twin_whatever_the_batch(variant, replacement):
    model = make(variant)
    batch, lengths = batch_of(model)
    with unchanged(model):
        found = flip_influence(model, **batch, replacement=replacement)
    for row, (S, T) in enumerate(lengths):
        labels = batch["labels"][row].reshape(-1)[:T]
        expected = twin.flips(model, batch["input_ids"][row, :S], labels, replacement)
        torch.testing.assert_close(found[row, :T, :S], expected, atol=10 * tolerance(model), rtol=1e-5)
        assert not found[row, T:].any()
        assert not found[row, :, S:].any()
    assert found[0].any()


def test_two_classes_have_the_log_odds_of_the_paper():
    model = make("two classes")
    batch, _ = batch_of(model)
    found = lexical_probe(model, **batch)
    states = model(batch["input_ids"], batch["attention_mask"], output_hidden_states=True).hidden_states[0]
    signed = (2 * batch["labels"] - 1)[:, None] * model.classifier(states)[..., 0]  # (2y - 1) W' h (eq. 9)
    torch.testing.assert_close(found.gamma[:, 0], (signed * batch["attention_mask"]).detach())
    torch.testing.assert_close(found.beta[0, 0], torch.sigmoid(signed[0]).detach())


@pytest.mark.parametrize("variant", ["two classes", "proxy"])
def test_probes_near_one_keep_their_order(variant):
    model = make(variant).float()
    batch, _ = batch_of(model)
    with torch.no_grad():
        (model.classifier if variant == "two classes" else model.projection).weight.mul_(1000)
        if variant == "proxy":  # words that some position is sure of
            batch["labels"] = model.output_logits(model.embed_tokens(batch["input_ids"])).argmax(-1)
    found = lexical_probe(model, **batch)
    sure = found.kept & (found.log_beta == 0)  # rounded: a log-probability of 0 is a probability of 1
    assert sure.sum() > 1
    odds = found.log_odds[sure]
    assert odds.isfinite().all()
    assert odds.min() > 15
    assert len(odds.unique()) > 1


def test_what_the_network_attends_to_is_all_that_counts():
    model = make("lstm, uniform")
    ids = torch.tensor([[7, 7, 7, 7]])
    batch = {"input_ids": ids, "labels": torch.tensor([[5, 6, 2]])}
    one = lexical_probe(model, ids[:, :1], batch["labels"]).beta  # a source of one word is attended to alone
    log_probs = model(ids[:, :1], labels=batch["labels"]).logits.log_softmax(-1)
    torch.testing.assert_close(one[0, :, 0], log_probs.exp()[0, torch.arange(3), batch["labels"][0]].detach())


def test_wrong_input_is_named():
    model = make("lstm")
    batch, _ = batch_of(model)
    with pytest.raises(InputError, match="replacement: 'unk' is not one of worst, zero"):
        flip_influence(model, **batch, replacement="unk")
    with pytest.raises(InputError, match=r"labels: of shape \[2, 1\] for input_ids of \[3, 5\]; \[B\] or \[B, T\]"):
        lexical_probe(make("classifier"), batch["input_ids"], torch.tensor([0, 1]))
    with pytest.raises(InputError, match="only encoder-decoder models are supported, Linear is not one"):
        lexical_probe(torch.nn.Linear(1, 1), **batch)
