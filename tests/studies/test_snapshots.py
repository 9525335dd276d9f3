"""Snapshots: every output word of a set once, with its attention, probe and influence."""

from dataclasses import replace

import pytest
import torch

from hf_nmt_interp.analysis.flips import flip_influence
from hf_nmt_interp.analysis.optimal_attention import optimal_attention
from hf_nmt_interp.analysis.probe import lexical_probe
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.snapshots import Snapshot, take_snapshot
from tests.tiny_models import random_batch, tiny_model

LENGTHS = [[(5, 2)], [(3, 3), (2, 1)]]


def test_rows_are_the_output_words_in_order(tmp_path):
    model = tiny_model("lstm").train()
    batches = [random_batch(model, lengths) for lengths in LENGTHS]
    found = take_snapshot(model, batches, ("alpha", "beta", "delta"))
    assert model.training
    assert found.kept.sum(-1).tolist() == [5, 5, 3, 3, 3, 2]
    assert found.sentences.tolist() == [0, 0, 1, 1, 1, 2]
    right, row, model = 0, 0, model.eval()
    for batch, lengths in zip(batches, LENGTHS, strict=True):
        outputs = model(**batch, output_attentions=True)
        expected = {
            "alpha": outputs.cross_attentions[0].mean(1),
            "beta": lexical_probe(model, **batch).log_odds,
            "delta": flip_influence(model, **batch),
        }
        right += (outputs.logits.argmax(-1) == batch["labels"]).sum().item()
        for b, (S, T) in enumerate(lengths):
            for name, scores in expected.items():
                torch.testing.assert_close(found.scores[name][row : row + T, :S], scores[b, :T, :S].detach())
            row += T
    assert found.performance == right / 6
    found.save(tmp_path / "snapshots" / "7.safetensors")
    again = Snapshot.load(tmp_path / "snapshots" / "7.safetensors")
    assert again.bleu is None
    replace(found, bleu=0.25).save(tmp_path / "8.safetensors")
    assert Snapshot.load(tmp_path / "8.safetensors").bleu == 0.25
    assert again.performance == found.performance
    assert torch.equal(again.kept, found.kept)
    assert torch.equal(again.sentences, found.sentences)
    replace(found, sentences=None).save(tmp_path / "9.safetensors")
    assert Snapshot.load(tmp_path / "9.safetensors").sentences is None
    assert all(torch.equal(again.scores[name], found.scores[name]) for name in ("alpha", "beta", "delta"))
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["7.safetensors"]


def test_the_best_attention_of_a_linear_translator():
    model = tiny_model("lstm", output="linear")
    batches = [random_batch(model, lengths) for lengths in LENGTHS]
    found, row = take_snapshot(model, batches, ("alpha_opt",)), 0
    for batch, lengths in zip(batches, LENGTHS, strict=True):
        for b, (S, T) in enumerate(lengths):
            sentence = {"input_ids": batch["input_ids"][b : b + 1, :S], "labels": batch["labels"][b : b + 1, :T]}
            gamma = lexical_probe(model, **sentence, vocabulary=True).gamma[0]
            expected = optimal_attention(gamma, sentence["labels"][0]).float()
            torch.testing.assert_close(found.scores["alpha_opt"][row : row + T, :S], expected)
            assert (found.scores["alpha_opt"][row : row + T, S:] == 0).all()
            row += T
    assert row == len(found.kept)


def test_wrong_input_is_named():
    with pytest.raises(InputError, match="scores: 'gamma' is not one of alpha, beta, delta, alpha_opt"):
        take_snapshot(tiny_model("lstm"), [], ("gamma",))
    with pytest.raises(InputError, match="batches: they have no output words"):
        take_snapshot(tiny_model("lstm"), [])
