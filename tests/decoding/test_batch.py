"""Translations as padded tensors, and what the decoder reads."""

import pytest
import torch

from hf_nmt_interp.decoding.batch import Translation, collate, decoder_inputs
from tests.reference.shift import shifted_right
from tests.tiny_models import FAMILIES, random_batch, tiny_model


def test_collate_pads_on_the_right():
    batch = collate([Translation([5, 6, 0], [7, 0]), Translation([8, 0], [9, 4, 3, 0])], pad_id=1)
    assert {name: rows.tolist() for name, rows in batch.items()} == {
        "input_ids": [[5, 6, 0], [8, 0, 1]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "labels": [[7, 0, -100, -100], [9, 4, 3, 0]],
    }


def test_collate_gives_the_decoder_what_it_read():
    batch = collate([Translation([5, 0], [7, 8, 0], start_id=2), Translation([5, 0], [9], start_id=0)], pad_id=1)
    assert batch["decoder_input_ids"].tolist() == [[2, 7, 8], [0, 1, 1]]


def test_size_is_that_of_the_longer_side():
    assert Translation([5, 6, 0], [7, 0]).size == Translation([5, 0], [7, 8, 0]).size == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_are_shifted_as_the_family_does_it(family):
    model = tiny_model(family)
    labels = random_batch(model, [(2, 4), (2, 2)])["labels"]
    before = labels.clone()
    assert torch.equal(decoder_inputs(model, labels), shifted_right(model, labels))
    assert torch.equal(labels, before)
