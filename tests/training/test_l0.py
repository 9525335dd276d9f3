"""L0Trainer: loss, gates' own rate, freezing, accumulation, resuming, history."""

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.gated import HardConcreteGate
from hf_nmt_interp.training.l0 import L0Config, count_heads, gate_parameters, load_gated
from tests.tiny_models import random_batch, tiny_model
from tests.training.tiny_trainers import make_l0_trainer, tiny_gated


@pytest.fixture
def certain(monkeypatch):
    """Gates that are not drawn but computed, so that runs can be compared."""
    monkeypatch.setattr(HardConcreteGate, "sample", lambda self: torch.sigmoid(self.log_alpha - 2))


@pytest.fixture
def sgd():
    return {"optim": "sgd", "learning_rate": 0.1, "gate_learning_rate": 0.1, "max_grad_norm": 0.0, "max_steps": 1}


def test_loss_is_cross_entropy_plus_lambda_times_the_expected_heads(tmp_path, certain):
    trainer = make_l0_trainer(tmp_path, penalty=0.3, penalty_warmup_steps=4)
    model = trainer.model.train()
    batch = random_batch(model, [(5, 4), (3, 6)])
    cross_entropy = model(**batch).loss
    # P(g > 0) of one gate, written out
    one = 1 / (1 + math.exp(-(3.0 - 0.33 * math.log(0.1 / 1.1))))
    expected = cross_entropy + 0.3 / 4 * 12 * one  # 3 kinds, 2 layers, 2 heads; first of 4 steps of the warm-up
    assert trainer.compute_loss(model, dict(batch)).item() == pytest.approx(expected.item(), rel=1e-5)
    model.eval()
    assert trainer.compute_loss(model, dict(batch)).item() == pytest.approx(model(**batch).loss.item(), rel=1e-5)


def test_two_accumulated_batches_are_one_large_batch(tmp_path, certain, sgd):
    # one batch of 8, four batches of 2; the penalty counts once in both
    whole = make_l0_trainer(tmp_path / "whole", tokens_per_batch=32, penalty=0.5, **sgd)
    parts = make_l0_trainer(tmp_path / "parts", tokens_per_batch=8, gradient_accumulation_steps=4, penalty=0.5, **sgd)
    whole.train()
    parts.train()
    for (name, a), b in zip(whole.model.named_parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5, msg=name)
    assert all((gate != 3).all() for gate in gate_parameters(whole.model))
    # the logged loss does not depend on the cut either
    assert whole.state.log_history[0]["loss"] == pytest.approx(parts.state.log_history[0]["loss"], rel=1e-4)


def test_frozen_decoder_keeps_all_it_computes_with(tmp_path, sgd):
    model = tiny_gated()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = make_l0_trainer(tmp_path, model, freeze="decoder", penalty=0.1, **sgd)
    trainer.train()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert "model.shared.weight" not in changed
    assert {name for name in changed if "decoder" in name} == {n for n in before if "decoder" in n and "gate" in n}
    assert {name for name in before if "encoder.layers" in name and "fc1" in name} <= changed


@pytest.mark.parametrize("fused_loss", [True, False])
def test_frozen_output_projection_gets_no_gradient(tmp_path, certain, fused_loss):
    gradients = []
    for settings in ({"freeze": "decoder", "fused_loss": fused_loss}, {"fused_loss": False}):
        trainer = make_l0_trainer(tmp_path, **settings)
        model = trainer.model.train()
        trainer.compute_loss(model, random_batch(model, [(5, 4), (3, 6)])).backward()
        assert (model.lm_head.weight.grad is None) is ("freeze" in settings)
        gradients.append(model.model.encoder.layers[0].fc1.weight.grad)
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-4)


def test_strong_penalty_closes_heads_and_logs_tell(tmp_path):
    settings = {"penalty": 1.0, "gate_learning_rate": 0.5, "gated_attentions": ["encoder"], "max_steps": 20}
    settings |= {"penalty_warmup_steps": 2}
    trainer = make_l0_trainer(tmp_path, **settings)
    trainer.train()
    assert trainer.model.kept_heads()["encoder"] == [[], []]
    assert trainer.model.kept_heads()["cross"] == [[0, 1], [0, 1]]
    logs = [row for row in trainer.state.log_history if "loss" in row]
    assert logs[-1]["kept_heads/encoder"] == 0
    assert [row["penalty_weight"] for row in logs[:3]] == [0.5, 1.0, 1.0]
    assert logs[-1]["expected_heads/encoder_1"] < logs[0]["expected_heads/encoder_1"] < 2
    assert not any("cross" in name for name in logs[-1])
    rows = list(csv.DictReader((tmp_path / "gates.csv").open()))
    assert [int(row["step"]) for row in rows[::4]] == list(range(21))  # 2 layers of 2 heads at each log, and before
    assert (rows[0]["kind"], rows[3]["layer"], rows[3]["head"], float(rows[0]["log_alpha"])) == (
        "encoder",
        "1",
        "1",
        3,
    )
    assert float(rows[-1]["open"]) < 0.5 < float(rows[0]["open"])
    assert trainer.model.prune().num_parameters() < trainer.model.num_parameters()


def test_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path, monkeypatch):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "penalty": 0.2, "gate_learning_rate": 0.5}
    whole = make_l0_trainer(tmp_path / "whole", tiny_gated(dropout=0.3), **settings)
    whole.train()
    first = make_l0_trainer(tmp_path / "parts", tiny_gated(dropout=0.3), **settings)
    first.train()  # its files of steps 3 and 4 are what a killed run leaves behind
    resumed = make_l0_trainer(tmp_path / "parts", tiny_gated(dropout=0.3), **settings)
    warnings: list = []
    monkeypatch.setattr("transformers.trainer.logger.warning", warnings.append)
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert not [text for text in warnings if "missing keys" in text]  # tied weights are in a checkpoint once
    assert (tmp_path / "whole" / "gates.csv").read_text() == (tmp_path / "parts" / "gates.csv").read_text()


def test_history_of_a_killed_run_is_that_of_a_whole_one(tmp_path):
    settings = {"max_steps": 12, "save_strategy": "steps", "save_steps": 5, "logging_steps": 4}
    make_l0_trainer(tmp_path / "whole", tiny_gated(), **settings).train()
    make_l0_trainer(tmp_path / "parts", tiny_gated(), **settings).train()
    expected = (tmp_path / "whole" / "gates.csv").read_text()
    assert sorted({int(line.split(",")[0]) for line in expected.splitlines()[1:]}) == [0, 4, 8, 12]
    history = tmp_path / "parts" / "gates.csv"
    cuts = expected.index("\n8,") + 1, expected.index("\n12,") + 2
    for left in (expected, expected + "1", *(expected[:cut] for cut in cuts)):
        history.write_text(left)  # of later steps, and cut off in the middle: "1" is what a kill left of step 12
        trainer = make_l0_trainer(tmp_path / "parts", tiny_gated(), **settings)
        trainer.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-5"))
        assert history.read_text() == expected


def test_gates_have_a_group_and_a_rate_of_their_own(tmp_path):
    trainer = make_l0_trainer(tmp_path, learning_rate=1e-3, gate_learning_rate=0.02, noam_scale=1.0, warmup_steps=5)
    trainer.create_optimizer_and_scheduler(10)
    *others, gates = trainer.optimizer.param_groups
    assert gates["weight_decay"] == 0
    assert set(map(id, gates["params"])) == set(map(id, gate_parameters(trainer.model)))
    for _ in range(3):
        assert gates["lr"] == pytest.approx(20 * others[0]["lr"])
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    plain = make_l0_trainer(tmp_path, learning_rate=1e-3, gate_learning_rate=0.02)
    plain.create_optimizer_and_scheduler(10)
    assert [group["lr"] for group in plain.optimizer.param_groups] == [1e-3, 1e-3, 0.02]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_bf16(tmp_path, checkpointing):
    options = {"bf16": True, "gradient_checkpointing": checkpointing}
    trainer = make_l0_trainer(tmp_path, penalty=0.1, gate_learning_rate=0.1, **options)
    trainer.train()
    assert all(gate.dtype == torch.float32 and (gate != 3).all() for gate in gate_parameters(trainer.model))
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())


def test_load_gated_takes_plain_gated_and_pruned_checkpoints(tmp_path):
    plain = tiny_model("marian")
    plain.save_pretrained(tmp_path / "plain")
    model = load_gated(str(tmp_path / "plain"), ["encoder"], gate_init=2.0)
    assert (model.config.gated_attentions, gate_parameters(model)[0].tolist()) == (["encoder"], [2.0, 2.0])
    batch = random_batch(plain, [(5, 4)])
    torch.testing.assert_close(model.eval()(**batch).logits, plain(**batch).logits)
    model.set_kept_heads({"encoder": [[1], []]})
    model.save_pretrained(tmp_path / "gated")
    assert load_gated(str(tmp_path / "gated"), "encoder").kept_heads()["encoder"] == [[1], []]
    model.prune().save_pretrained(tmp_path / "pruned")
    again = load_gated(str(tmp_path / "pruned"))
    assert (again.kept_heads()["encoder"], len(gate_parameters(again))) == ([[1], []], 5)
    assert count_heads(again)["kept_heads/cross"] == 4
    tiny_model("bert2bert").save_pretrained(tmp_path / "bert")
    with pytest.raises(
        InputError, match="'encoder-decoder', which has no gated models; supported are marian, bart, mbart, m2m_100"
    ):
        load_gated(str(tmp_path / "bert"))


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(InputError, match="penalty: -1 must not be negative"):
        make_l0_trainer(tmp_path, penalty=-1)
    with pytest.raises(InputError, match="freeze: 'encoder' is not supported; use decoder"):
        make_l0_trainer(tmp_path, freeze="encoder")
    with pytest.raises(
        InputError, match=r"gated_attentions: \['self'\] has values other than all, encoder, decoder, cross"
    ):
        L0Config(output_dir=str(tmp_path), gated_attentions=["self"], use_cpu=True)
    with pytest.raises(InputError, match="the model also has gates on decoder, cross"):
        make_l0_trainer(tmp_path, tiny_gated(), gated_attentions=["encoder"])
    with pytest.raises(InputError, match="MarianMTModel has no gates; load it with load_gated"):
        make_l0_trainer(tmp_path, tiny_model("marian"))


@pytest.mark.slow
def test_two_processes(tmp_path, certain, sgd):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, *launcher, "-m", "tests.training.l0_two_processes", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["draws"] == ranks[0]["again"]  # defined by seed and rank
    assert ranks[0]["draws"] != ranks[1]["draws"]
    assert ranks[0]["gates"] == ranks[1]["gates"]  # after steps with different draws: gradients are averaged
    # without chance, two processes make the step that two accumulated batches make
    alone = make_l0_trainer(tmp_path / "alone", gradient_accumulation_steps=2, penalty=0.5, **sgd)
    alone.train()
    expected = torch.cat([gate.detach() for gate in gate_parameters(alone.model)])
    torch.testing.assert_close(torch.tensor(ranks[0]["certain"]), expected, atol=1e-6, rtol=0)


def test_parts_of_a_model_refuse_fsdp(tmp_path, sharding):
    with pytest.raises(InputError, match="FSDP, but L0Trainer needs whole weights in each process"):
        make_l0_trainer(tmp_path)
