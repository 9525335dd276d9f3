"""The tiny models are what the other tests take them for.

Also for models/families.py and models/kinds.py.
"""

import pytest
import torch

from tests.reference.shift import shifted_right
from tests.tiny_models import FAMILIES, random_batch, tiny_model


@pytest.mark.parametrize("family", FAMILIES)
def test_same_seed_same_model_and_global_seed_untouched(family):
    state = torch.random.get_rng_state()
    one, two, other = tiny_model(family), tiny_model(family, dtype=torch.float64), tiny_model(family, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    differs = False
    for (name, a), b, c in zip(one.named_parameters(), two.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.double(), b), name
        differs = differs or not torch.equal(a, c)
    assert differs
    assert not one.training


@pytest.mark.parametrize("family", FAMILIES)
def test_no_bias_is_zero_and_no_norm_is_one(family):
    model = tiny_model(family)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert (parameter != 0).all(), name
        if parameter.ndim == 1:
            assert (parameter != 1).all(), name
    if hasattr(model, "final_logits_bias"):
        assert (model.final_logits_bias != 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_nothing_and_generate_runs(family):
    model = tiny_model(family, dtype=torch.float64)
    batch = random_batch(model, [(5, 4), (3, 2)])
    alone = random_batch(model, [(5, 4)])["input_ids"]
    assert torch.equal(batch["input_ids"][:1], alone)
    shifted = shifted_right(model, batch["labels"])
    with torch.no_grad():
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"], decoder_input_ids=shifted).logits
        short = model(batch["input_ids"][1:, :3], decoder_input_ids=shifted[1:, :2]).logits
    torch.testing.assert_close(logits[1:, :2], short, atol=1e-6, rtol=0)
    generated = model.generate(alone, max_new_tokens=4, num_beams=2, do_sample=False)
    assert generated[0, 0] == shifted[0, 0]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "m2m100"])
def test_shift_is_the_family_own(family):
    model = tiny_model(family)
    labels = random_batch(model, [(2, 4), (2, 2)])["labels"]
    assert torch.equal(shifted_right(model, labels), model.prepare_decoder_input_ids_from_labels(labels))


def test_unknown_family():
    with pytest.raises(ValueError, match="family='gru' is not one of"):
        tiny_model("gru")
