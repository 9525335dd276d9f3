"""Training in bfloat16, by narrow products or by autocast: losses within the noise of the order of the data."""

import pytest
import torch

from tests.training.every_trainer import TRAINERS, make_any_trainer
from tests.training.tiny_trainers import logged, random_examples

EXAMPLES = random_examples(60)


def train(kind, folder, **options):
    sizes, usual = (32, 2, 60), {"tokens_per_batch": 60, "max_steps": 3, "learning_rate": 1e-3}
    trainer = make_any_trainer(kind, folder, sizes, EXAMPLES, **usual | options)
    trainer.train()
    weights = torch.cat([weight.flatten() for weight in trainer.model.parameters()])
    return torch.tensor(list(logged(trainer).values())), weights.detach()


@pytest.mark.parametrize("kind", TRAINERS)
def test_losses_in_bfloat16_are_within_noise(tmp_path, kind):
    plain, weights = train(kind, tmp_path)
    other, _ = train(kind, tmp_path, data_seed=1)
    noise = (plain - other).abs().max()
    for option in ("bf16_products", "bf16"):
        losses, found = train(kind, tmp_path, **{option: True})
        assert (losses - plain).abs().max() <= 0.1 * noise
        assert not found.equal(weights)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAINERS)
def test_compiled_training_has_the_same_losses(tmp_path, kind):
    """Without the compiler's own rounding: what is traced is what the trainer computes."""
    plain, weights = train(kind, tmp_path, max_steps=2)
    losses, found = train(kind, tmp_path, max_steps=2, torch_compile=True, torch_compile_backend="eager")
    torch.testing.assert_close(losses, plain, rtol=1e-4, atol=0)
    torch.testing.assert_close(found, weights, rtol=0, atol=1e-4)
