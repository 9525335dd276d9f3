"""CalibrationTrainer: losses against their twins, exact routing of gradients, accumulation, resuming, processes."""

import math
from functools import partial

import pytest
import torch

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.calibration import CalibrationConfig, CalibrationTrainer, load_calibrated
from hf_nmt_interp.training.losses import global_mask_distance, mask_distance, mask_loss
from tests.calibrated_models import tiny_calibrated
from tests.reference import calibration as twin
from tests.reference.forward import Attention, describe, run
from tests.reference.losses import smoothed_cross_entropy
from tests.reference.shift import shifted_right
from tests.tiny_models import random_batch, tiny_model

EXAMPLES = [{"input_ids": [5 + i, 8, 9, 0], "labels": [20 + i, 7, 6, 0][: 4 - i % 3]} for i in range(8)]
LENGTHS = [(5, 4), (3, 6)]
SGD = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0, "max_steps": 1}


def make_trainer(folder, model=None, **settings):
    model = tiny_calibrated(dropout=0.0) if model is None else model
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "save_strategy": "no"}
    config = CalibrationConfig(output_dir=str(folder), **(quiet | {"tokens_per_batch": 16, "max_steps": 2} | settings))
    collate = partial(pad_batch, pad_id=model.config.pad_token_id)
    return CalibrationTrainer(model=model, args=config, train_dataset=EXAMPLES, data_collator=collate)


def separate_gradients(model, batch, alpha, smoothing):
    """By name: of the NMT loss under fused weights for theta, of the mask network's loss for theta_m, the slow way."""
    labels = batch["labels"]
    shifted = shifted_right(model, labels)
    network = describe(model)
    cross = [part for part, _ in network.decoder.sublayers if isinstance(part, Attention) and part.cross]
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}

    def cross_entropy(logits):
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing, reduction="sum"
        )

    count = (labels != -100).sum()
    first = cross_entropy(model(**inputs, decoder_input_ids=shifted).logits) / count
    theta = {name: p for name, p in model.named_parameters() if name not in model.mask_parameters()}
    theta = {name: p for name, p in theta.items() if p.requires_grad}
    found = dict(zip(theta, torch.autograd.grad(first, theta.values()), strict=True))
    second = 0
    for b, (S, T) in enumerate(LENGTHS):  # the twin keeps theta constant by itself, and has no padding
        source = network.encoder.embedding[batch["input_ids"][b, :S]]
        done = run(network, source, network.decoder.embedding[shifted[b, :T]], perturbed=True)
        log_p = done.logits.x.log_softmax(-1)
        gold = log_p.gather(-1, labels[b, :T, None]).sum()
        nmt = -(1 - smoothing) * gold - smoothing * log_p.mean(-1).sum()
        second = second + twin.mask_loss(nmt, [[list(head) for head in part.masks] for part in cross], alpha) / count
    theta_m = model.mask_parameters()
    found |= dict(zip(theta_m, torch.autograd.grad(second, theta_m.values()), strict=True))
    return first, found


@pytest.mark.parametrize("fusion", ["fixed", "fixed_unnormalised", "anneal", "gate"])
@pytest.mark.parametrize("fused_loss", [True, False])
def test_each_loss_trains_its_own_parameters_exactly(tmp_path, fusion, fused_loss):
    model = tiny_calibrated("marian", fusion, torch.float64, dropout=0.0)
    batch = random_batch(model, LENGTHS)
    trainer = make_trainer(tmp_path, model, alpha=0.3, label_smoothing_factor=0.1, fused_loss=fused_loss)
    calls = []
    handle = model.get_encoder().register_forward_hook(lambda *_: calls.append(1))
    model.train()
    loss = trainer.compute_loss(model, dict(batch))
    handle.remove()
    assert len(calls) == 1
    loss.backward()  # one backward pass
    expected_loss, expected = separate_gradients(model, batch, 0.3, 0.1)
    assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-10)
    for name, p in model.named_parameters():
        if p.requires_grad:
            torch.testing.assert_close(p.grad, expected[name], atol=1e-9, rtol=1e-6, msg=name)
    assert all(p.grad.abs().max() > 1e-8 for p in model.mask_parameters().values())


@pytest.mark.parametrize("family", ["bart", "mbart", "m2m100"])
def test_the_routing_holds_for_every_family(tmp_path, family):
    overrides = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "dropout": 0.0, "activation_dropout": 0.0}
    model = tiny_calibrated(family, dtype=torch.float64, attention_dropout=0.0, **overrides)
    batch = random_batch(model, LENGTHS)
    trainer = make_trainer(tmp_path, model, alpha=0.3)
    trainer.compute_loss(model.train(), dict(batch)).backward()
    _, expected = separate_gradients(model, batch, 0.3, 0.0)
    for name, p in model.named_parameters():
        if p.requires_grad and name in expected:
            torch.testing.assert_close(p.grad, expected[name], atol=1e-9, rtol=1e-6, msg=name)


def test_losses_agree_with_the_twins():
    generator = torch.Generator().manual_seed(0)
    masks = [torch.rand(1, 3, 4, 5, generator=generator, dtype=torch.float64) for _ in range(2)]
    lists = [[[m[0, h, t] for t in range(3)] for h in range(3)] for m in masks]
    labels = torch.tensor([[7, 8, 9, -100]])
    distance = mask_distance(masks, labels)
    assert distance.item() == pytest.approx(twin.distance(lists).item(), rel=1e-12)
    assert global_mask_distance(masks, labels).item() == pytest.approx(twin.global_distance(lists), rel=1e-12)
    logits = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    nmt = torch.tensor(smoothed_cross_entropy(logits.tolist(), [1, 2, 3], 0.1))
    expected = twin.mask_loss(nmt, lists, 0.3).item()
    assert mask_loss(nmt, distance, 0.3).item() == pytest.approx(expected, rel=1e-6)


def test_evaluation_is_the_plain_loss_under_fused_weights(tmp_path):
    trainer = make_trainer(tmp_path, label_smoothing_factor=0.1)
    batch = random_batch(trainer.model, LENGTHS)
    model = trainer.model.eval()
    assert trainer.compute_loss(model, dict(batch)).item() == pytest.approx(model(**batch).loss.item(), rel=1e-5)


def test_accumulated_batches_are_one_large_batch(tmp_path):
    whole = make_trainer(tmp_path / "whole", tokens_per_batch=32, **SGD)
    parts = make_trainer(tmp_path / "parts", tokens_per_batch=8, gradient_accumulation_steps=4, **SGD)
    start = {name: p.detach().clone() for name, p in whole.model.named_parameters()}
    whole.train()
    parts.train()
    for (name, a), b in zip(whole.model.named_parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5, msg=name)
    assert all(not torch.equal(start[name], p) for name, p in whole.model.mask_parameters().items())
    assert whole.state.log_history[0]["loss"] == pytest.approx(parts.state.log_history[0]["loss"], rel=1e-4)


@pytest.mark.parametrize(("penalty", "large"), [("step", 20.0), ("global", 500.0)])
def test_training_moves_the_masks_as_alpha_says_and_logs_tell(tmp_path, penalty, large):
    means = []
    for alpha in (0.0, large):
        settings = {"alpha": alpha, "penalty": penalty, "max_steps": 8, "learning_rate": 0.03}
        trainer = make_trainer(tmp_path, **settings)
        trainer.train()
        logs = [row for row in trainer.state.log_history if "perturbed_loss" in row]
        assert len(logs) == 8
        assert trainer.model.config.mask_alpha == alpha
        means.append(logs[-1]["mask_mean"])
    assert logs[-1]["mask_distance"] < logs[0]["mask_distance"]
    assert means[0] < means[1]


def test_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    make_model = partial(tiny_calibrated, "marian", "anneal", dropout=0.3)
    whole = make_trainer(tmp_path / "whole", make_model(), **settings)
    whole.train()
    resumed = make_trainer(tmp_path / "parts", make_model(), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    for trainer in (whole, resumed):  # 400 before, and a step counts once however many batches make it
        assert [fusion.step.item() for fusion in trainer.model.fusions()] == [404, 404]


def test_bf16(tmp_path):
    trainer = make_trainer(tmp_path, bf16=True)
    before = {name: p.detach().clone() for name, p in trainer.model.mask_parameters().items()}
    trainer.train()
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())
    assert all(not torch.equal(before[name], p) for name, p in trainer.model.mask_parameters().items())


def test_bf16_routes_gradients_too(tmp_path):
    """Casts of weights that one pass has cached must not reach the other one."""
    trainer = make_trainer(tmp_path, bf16=True, alpha=0.0)
    model = trainer.model.train()
    batch = random_batch(model, LENGTHS)
    with trainer.compute_loss_context_manager():
        trainer.compute_loss(model, dict(batch)).backward()
    _, expected = separate_gradients(tiny_calibrated(dropout=0.0, dtype=torch.float64), batch, 0.0, 0.0)
    for name, p in model.named_parameters():
        if p.requires_grad:
            error = (p.grad.double() - expected[name]).norm() / expected[name].norm().clamp(min=0.01)
            assert error < 0.1, (name, error)


def test_load_calibrated_takes_plain_and_calibrated_checkpoints(tmp_path):
    tiny_model("bart").save_pretrained(tmp_path / "plain")
    model = load_calibrated(str(tmp_path / "plain"), fusion="anneal", anneal_steps=7)
    assert (type(model).__name__, model.config.anneal_steps) == ("CalibratedBartForConditionalGeneration", 7)
    model.save_pretrained(tmp_path / "calibrated")
    assert load_calibrated(str(tmp_path / "calibrated")).config.fusion == "anneal"
    with pytest.raises(InputError, match="fusion='sum' is not one of fixed, fixed_unnormalised, anneal, gate"):
        load_calibrated(str(tmp_path / "plain"), fusion="sum")
    tiny_model("t5").save_pretrained(tmp_path / "t5")
    with pytest.raises(InputError, match="'t5', which has no calibrated models; supported are marian, bart, mbart"):
        load_calibrated(str(tmp_path / "t5"))


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(InputError, match="penalty: 'batch' is not one of step, global"):
        CalibrationConfig(output_dir=str(tmp_path), penalty="batch")
    with pytest.raises(InputError, match="alpha: -1 must not be negative"):
        make_trainer(tmp_path, alpha=-1)
    with pytest.raises(
        InputError, match="gradient_checkpointing: is not supported: it would train both losses on all parameters"
    ):
        make_trainer(tmp_path, gradient_checkpointing=True)
    with pytest.raises(InputError, match="MarianMTModel has no masks; load it with load_calibrated"):
        make_trainer(tmp_path, tiny_model("marian"))


def test_the_fusion_that_flattens_attention_is_warned_of(tmp_path, caplog):
    """Softmax of weights from 0 to 1 is nearly uniform: its entropy is close to the log of the number of tokens."""
    model = tiny_calibrated("marian", "fixed")
    make_trainer(tmp_path, model)
    assert "fusion='fixed': the softmax of eq. 8 is over weights that are already between 0 and 1" in caplog.text
    batch = random_batch(model, [(7, 5)])
    fused = model.eval()(**batch, output_attentions=True).cross_attentions[0]
    entropy = -(fused * fused.log()).sum(-1)
    assert entropy.min() > 0.95 * math.log(7)
    caplog.clear()
    make_trainer(tmp_path, tiny_calibrated("marian", "fixed_unnormalised"))
    assert "eq. 8" not in caplog.text


def test_outputs_can_be_asked_for_in_training(tmp_path):
    trainer = make_trainer(tmp_path)
    batch = random_batch(trainer.model, LENGTHS)
    model = trainer.model.train()
    loss, outputs = trainer.compute_loss(model, dict(batch), return_outputs=True)
    assert outputs.logits.shape == outputs.perturbed_logits.shape == (2, 6, 40)
    assert loss.item() == pytest.approx(trainer.compute_loss(model, dict(batch)).item(), rel=1e-5)


def test_parts_of_a_model_refuse_fsdp(tmp_path, sharding):
    with pytest.raises(InputError, match="FSDP, but CalibrationTrainer needs whole weights in each process"):
        make_trainer(tmp_path)
