"""Ancestral samples: their distribution, their log-probabilities, every family, languages, limits."""

import itertools

import pytest
import torch

from hf_nmt_interp.decoding import sampling
from hf_nmt_interp.decoding.batch import decoder_inputs, label_log_probs
from hf_nmt_interp.decoding.sampling import ancestral_samples, draw, encoded
from hf_nmt_interp.errors import InputError
from tests.tiny_models import FAMILIES, random_batch, tiny_model


def encode(model, batch):
    """States, mask and first decoder inputs."""
    with torch.no_grad():
        states = model.get_encoder()(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    return states, batch["attention_mask"], decoder_inputs(model, batch["labels"])[:, 0]


def log_prob(model, states, mask, start, ids):
    """Of one whole target by one pass without a cache."""
    decoder_ids = torch.tensor([[start, *ids[:-1]]])
    source = {"encoder_outputs": encoded(states[None]), "attention_mask": mask[None]}
    with torch.no_grad():
        logits = model(**source, decoder_input_ids=decoder_ids).logits
    return label_log_probs(logits, torch.tensor([ids])).sum().item()


def chi_square(counts, expected):
    """Mean over the cells of (observed - expected)^2 / expected; about 1 for the right distribution."""
    kept = expected > 5
    return (((counts - expected) ** 2 / expected)[kept]).mean().item()


@pytest.mark.parametrize("size", [3, 256, 600])
def test_draws_have_the_softmax_as_their_distribution(size):
    torch.manual_seed(0)
    logits = torch.randn(1, size) * 2
    logits[0, 0] = -torch.inf
    items, log_probs = draw(logits.expand(60_000, -1).contiguous(), forbidden=[1])
    counts = torch.bincount(items, minlength=size).double()
    assert counts[0] == counts[1] == 0
    exact = logits.double().softmax(-1)[0]
    torch.testing.assert_close(log_probs.double(), exact.log()[items], atol=1e-5, rtol=1e-5)
    exact[1] = 0
    if size > 3:
        assert 0.7 < chi_square(counts, 60_000 * exact / exact.sum()) < 1.3


def test_extreme_random_numbers_never_draw_what_has_no_mass(monkeypatch):
    logits = torch.full((2, 300), -torch.inf)
    logits[:, [10, 280]] = 0.0
    numbers = torch.tensor([[0.0], [1 - 2**-53]], dtype=torch.double)
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: numbers)
    assert draw(logits)[0].tolist() == [10, 280]


def test_samples_are_as_frequent_as_they_are_probable():
    model = tiny_model("marian", vocab_size=6)  # EOS is 0, padding 5: 1 + 4 + 16 targets of at most 3 tokens
    states, mask, start = encode(model, random_batch(model, [(4, 3)]))
    torch.manual_seed(1)
    (samples,) = ancestral_samples(model, states, mask, start, 8000, 3)
    targets = [(*words, 0) for size in range(3) for words in itertools.product(range(1, 5), repeat=size)]
    counts = dict.fromkeys(targets, 0)
    for sample in samples:
        counts[sample.ids] += 1
    probability = []
    for target in targets:
        # padding is never drawn, and the last EOS is not drawn but given
        parts = [log_prob(model, states[0], mask[0], start[0], [*target[:t], 5]) for t in range(len(target))]
        whole = [log_prob(model, states[0], mask[0], start[0], [*target[: t + 1]]) for t in range(len(target))]
        p = 1.0
        for t in range(min(len(target), 2)):
            before = whole[t - 1] if t else 0.0
            p *= torch.tensor(whole[t] - before).exp() / (1 - torch.tensor(parts[t] - before).exp())
        probability.append(float(p))
    assert sum(probability) == pytest.approx(1, abs=1e-4)
    expected = 8000 * torch.tensor(probability)
    assert 0.4 < chi_square(torch.tensor(list(counts.values())).float(), expected) < 1.8


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_those_of_whole_targets(family, monkeypatch):
    monkeypatch.setattr(sampling, "_CROWDED", 1.0)  # finished rows are dropped at once
    model = tiny_model(family, vocab_size=8)
    sources = encode(model, random_batch(model, [(5, 4), (3, 6)]))
    torch.manual_seed(0)
    samples = ancestral_samples(model, *sources, 6, 8)
    assert [len(row) for row in samples] == [6, 6]
    assert len({len(sample.ids) for row in samples for sample in row}) > 2
    for row, found in enumerate(samples):
        for sample in found:
            assert sample.ids[-1] == model.config.eos_token_id
            expected = log_prob(model, *(side[row] for side in sources), sample.ids)
            assert sample.log_prob == pytest.approx(expected, abs=1e-4)


def test_a_forced_language_comes_first_and_counts():
    model = tiny_model("m2m100")
    model.generation_config.forced_bos_token_id = 7
    sources = encode(model, random_batch(model, [(5, 4)]))
    (samples,) = ancestral_samples(model, *sources, 4, 6)
    for sample in samples:
        assert sample.ids[0] == 7
        expected = log_prob(model, *(side[0] for side in sources), sample.ids)
        assert sample.log_prob == pytest.approx(expected, abs=1e-4)


def test_padding_and_bad_words_are_never_drawn():
    model = tiny_model("marian", vocab_size=6)
    model.generation_config.bad_words_ids = [[2], [3, 4]]
    sources = encode(model, random_batch(model, [(4, 3)]))
    (samples,) = ancestral_samples(model, *sources, 200, 4)
    assert {token for sample in samples for token in sample.ids} == {0, 1, 3, 4}


def test_a_model_without_the_cache_is_refused():
    model = tiny_model("marian")
    sources = encode(model, random_batch(model, [(4, 3)]))
    forward = model.forward
    model.forward = lambda **inputs: forward(**inputs | {"use_cache": False})
    with pytest.raises(InputError, match="MarianMTModel has no EncoderDecoderCache; use beam or top_p for candidates"):
        ancestral_samples(model, *sources, 2, 4)
