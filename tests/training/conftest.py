"""Fixtures of the tests of all trainers."""

import pytest

from hf_nmt_interp.training.translation import TranslationTrainer


@pytest.fixture
def sharding(monkeypatch):
    """Trainers are told that accelerate shards their model."""
    create = TranslationTrainer.create_accelerator_and_postprocess

    def sharding(self):
        create(self)
        self.is_fsdp_enabled = True

    monkeypatch.setattr(TranslationTrainer, "create_accelerator_and_postprocess", sharding)
