"""MRTTrainer: the exact gradient, accumulation, resuming, telemetry, searches, families, two processes.

Also for training/candidates.py.
"""

import itertools
import json
import math
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import ProgressCallback

from hf_nmt_interp.decoding.batch import label_log_probs
from hf_nmt_interp.decoding.sampling import Sample, encoded
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.conv import ConvSeq2SeqConfig, ConvSeq2SeqForConditionalGeneration
from hf_nmt_interp.training import candidates as candidates_module
from hf_nmt_interp.training import mrt as mrt_module
from hf_nmt_interp.training.batching import pad_batch
from hf_nmt_interp.training.candidates import CandidateScorer, Sources, pad_targets
from hf_nmt_interp.training.mrt import MRTConfig, MRTTrainer, RiskProgress
from hf_nmt_interp.training.word_dropout import WordDropout
from tests.tiny_models import random_batch, tiny_model

WORDS = range(1, 5)  # of a vocabulary of 6: EOS is 0, padding is 5
EVERY = [(*words, 0) for size in range(3) for words in itertools.product(WORDS, repeat=size)]  # 1 + 4 + 16
EXAMPLES = [{"input_ids": [1 + i % 4, 2, 3, 0], "labels": [4 - i % 4, 2, 0]} for i in range(8)]


class Speller:
    """A tokenizer that spells ids as numbers."""

    all_special_ids, unk_token_id = (0, 5), None

    def batch_decode(self, rows, skip_special_tokens=True):
        return [" ".join(str(i) for i in row if i not in (0, 5)) for row in rows]

    def save_pretrained(self, folder):
        pass


def odd(candidates, reference):
    """A risk without any symmetry."""
    return [math.sin(1 + len(text) + 3 * sum(map(int, text.split()))) for text in candidates]


def make_trainer(folder, model=None, *, examples=EXAMPLES, risk=odd, tokenizer=None, **settings):
    if isinstance(risk, str):
        risk, settings["risk"] = None, risk
    model = tiny_model("marian", vocab_size=6) if model is None else model
    if hasattr(model, "final_logits_bias"):  # as from_pretrained leaves it, though it never gets a gradient
        model.get_encoder().embed_positions.weight.requires_grad_()
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "save_strategy": "no"}
    small = {"tokens_per_batch": 16, "max_steps": 2, "candidates": 6, "max_length_ratio": 0.1, "alpha": 0.5}
    config = MRTConfig(output_dir=str(folder), **(quiet | small | settings))
    collate = partial(pad_batch, pad_id=model.config.pad_token_id)
    more = {"train_dataset": examples, "data_collator": collate, "processing_class": tokenizer or Speller()}
    return MRTTrainer(model, config, risk=risk, **more)


def log_probs(model, batch, row, targets, **read):
    """log P of targets for one source by a plain forward pass, with a graph; `read` may be other decoder inputs."""
    labels, _ = pad_targets(targets, torch.zeros(len(targets), dtype=torch.long), model.config.pad_token_id)
    inputs = {name: batch[name][row].expand(len(targets), -1) for name in ("input_ids", "attention_mask")}
    return label_log_probs(model(**inputs, labels=labels, **read).logits, labels).sum(-1)


@pytest.fixture
def enumerated(monkeypatch):
    """Instead of samples every target of at most three tokens, some of them twice."""

    def everything(model, states, mask, start, number, limit):
        found, targets = [], [*EVERY, *EVERY[:3]]
        for row in range(len(states)):
            labels, shifted = pad_targets(targets, start[row].expand(len(targets)), pad_id=5)
            source = {"encoder_outputs": encoded(states[row].expand(len(targets), -1, -1))}
            with torch.no_grad():
                logits = model(
                    **source, attention_mask=mask[row].expand(len(targets), -1), decoder_input_ids=shifted
                ).logits
            scores = label_log_probs(logits, labels).sum(-1).tolist()
            found.append(list(map(Sample, targets, scores)))
        return found

    monkeypatch.setattr(candidates_module, "ancestral_samples", everything)


@pytest.mark.parametrize(
    "settings",
    [
        {"alpha": 1.0},
        {"alpha": 0.005, "candidate_tokens": 12},  # chunks of four
        {"length_normalisation": True, "add_reference": False, "candidate_tokens": 40},
        {"cross_entropy": 0.7, "fused_loss": False},
        {"cross_entropy": 0.7, "word dropout": True},
    ],
)
@pytest.mark.parametrize("family", ["marian", "t5"])
def test_gradient_is_the_exact_gradient_of_the_expected_risk(tmp_path, enumerated, family, settings):
    settings = dict(settings)
    ids = {"eos_token_id": 0, "pad_token_id": 5, "decoder_start_token_id": 5}
    model = tiny_model(family, torch.float64, vocab_size=6, **(ids if family == "t5" else {}))
    batch = random_batch(tiny_model("marian", vocab_size=6), [(5, 3), (3, 2)])
    noisy = torch.tensor([[5, 1, 2], [5, 3, 5]]) if settings.pop("word dropout", False) else None
    batch |= {} if noisy is None else {"decoder_input_ids": noisy}
    trainer = make_trainer(tmp_path, model, **settings)
    loss = trainer.compute_loss(model.train(), dict(batch))
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}

    exact = tiny_model(family, torch.float64, vocab_size=6, **(ids if family == "t5" else {}))
    expected = 0.0
    for row in range(2):
        scores = log_probs(exact, batch, row, EVERY)
        powers = settings.get("alpha", 0.5) * scores
        if settings.get("length_normalisation"):
            powers = powers / torch.tensor([len(target) for target in EVERY])
        shares = powers.exp() / powers.exp().sum()
        risks = torch.tensor(odd(Speller().batch_decode(EVERY), ""), dtype=torch.double)
        expected = expected + (shares * risks).sum() / 2
        gold = batch["labels"][row][batch["labels"][row] != -100].tolist()
        read = {} if noisy is None else {"decoder_input_ids": noisy[row : row + 1, : len(gold)]}
        cross_entropy = -log_probs(exact, batch, row, [gold], **read)[0] / len(gold)
        expected = expected + settings.get("cross_entropy", 0.0) * cross_entropy / 2
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for name, parameter in exact.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-8, msg=name)
    assert model.training


@pytest.mark.parametrize(
    "settings", [{"max_steps": 6}, {"search": "beam"}, {"length_normalisation": True, "bf16": True}]
)
def test_constant_risk_does_not_move_the_model(tmp_path, settings):
    constant = {"risk": lambda candidates, reference: [-0.3] * len(candidates), "learning_rate": 0.1}
    trainer = make_trainer(tmp_path, **constant, **settings)
    before = {name: p.clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    for name, p in trainer.model.named_parameters():
        assert torch.equal(p, before[name]), name
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert losses == pytest.approx([-0.3] * settings.get("max_steps", 2))


def test_risk_of_samples_falls(tmp_path):
    # every 3 in a candidate costs
    def risk(texts, reference):
        return [float(text.split().count("3")) for text in texts]

    settings = {"learning_rate": 0.02, "max_steps": 12, "alpha": 1.0, "candidates": 16, "tokens_per_batch": 40}
    trainer = make_trainer(tmp_path, risk=risk, **settings)
    trainer.train()
    risks = [row["sample_risk"] for row in trainer.state.log_history if "sample_risk" in row]
    assert risks[-1] < 0.5 * risks[0]


SGD = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0, "max_steps": 1}


def test_accumulated_batches_are_one_large_batch(tmp_path, enumerated):
    # uneven batches: five sources and three, against eight
    whole = make_trainer(tmp_path / "whole", tokens_per_batch=32, **SGD)
    parts = make_trainer(tmp_path / "parts", tokens_per_batch=20, gradient_accumulation_steps=2, **SGD)
    whole.train()
    parts.train()
    start = tiny_model("marian", vocab_size=6)
    for (name, a), b, c in zip(
        whole.model.named_parameters(), parts.model.parameters(), start.parameters(), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5, msg=name)
        still = "k_proj.bias" in name or "embed_positions" in name  # they have no gradient but rounding
        assert still or not torch.equal(a, c), name
    assert whole.state.log_history[0]["loss"] == pytest.approx(parts.state.log_history[0]["loss"], rel=1e-4)


def test_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.01}
    whole = make_trainer(tmp_path / "whole", **settings)
    whole.train()
    resumed = make_trainer(tmp_path / "parts", tiny_model("marian", vocab_size=6, seed=5), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict())


def test_bf16_gradients_are_near_those_of_float32(tmp_path, enumerated):
    steps = {}
    for bf16 in (False, True):
        trainer = make_trainer(tmp_path, bf16=bf16, risk="bleu", **SGD)
        before = torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])
        trainer.train()
        steps[bf16] = torch.cat([p.detach().flatten() for p in trainer.model.parameters()]) - before
    # bfloat16 has 8 bits of precision, 0.4 %; what is passed through some ten matrices has a few times that
    assert (steps[True] - steps[False]).norm() / steps[False].norm() < 0.03
    assert not torch.equal(steps[True], steps[False])


def test_bf16_and_frozen_parameters(tmp_path):
    model = tiny_model("marian", vocab_size=6)
    model.model.encoder.requires_grad_(False)
    before = {name: p.clone() for name, p in model.named_parameters()}
    make_trainer(tmp_path, model, bf16=True, learning_rate=0.01).train()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert any("decoder.layers" in name for name in changed)
    assert not any("encoder.layers" in name for name in changed)


@pytest.mark.parametrize(
    ("kind", "search"),
    [*((kind, "sample") for kind in ("marian", "nllb", "mbart", "t5", "bert"))]
    + [(kind, search) for kind in ("marian", "nllb") for search in ("beam", "top_p")],
)
def test_every_search_and_family_trains(tmp_path, translator_of, kind, search):
    model, tokenizer = translator_of(kind)
    examples = [
        {"input_ids": row, "labels": row} for row in tokenizer(["The old baker.", "A small dog."])["input_ids"]
    ]
    settings = {"search": search, "candidates": 3, "max_steps": 1, "learning_rate": 0.01, "tokens_per_batch": 40}
    risk = "subword_bleu" if search == "beam" else "chrf"
    trainer = make_trainer(tmp_path, model, examples=examples, risk=risk, tokenizer=tokenizer, **settings)
    trainer.train()
    log = trainer.state.log_history[0]
    assert math.isfinite(log["grad_norm"])
    assert 1 < log["unique_candidates"] <= 4


@pytest.mark.parametrize("kind", ["marian", "nllb"])
@pytest.mark.parametrize("search", ["beam", "top_p"])
def test_log_probs_of_generated_candidates_are_exact(translator_of, kind, search):
    model = (tiny_model("marian", vocab_size=6) if kind == "marian" else translator_of(kind)[0]).double()
    if kind == "marian":
        model.final_logits_bias[:, 0] += 1  # else it never ends
    batch = random_batch(model, [(5, 2), (3, 2)])
    states = model.get_encoder()(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    start = torch.full((2,), model.config.decoder_start_token_id)
    scorer = CandidateScorer(model, budget=20, fused=False, autocast=nullcontext)
    torch.manual_seed(0)
    drawn = scorer.draw(Sources(states, batch["attention_mask"], start), search, number=5, limit=7, top_p=0.9)
    assert [len(row) for row in drawn] == [5, 5]
    assert len({sample.ids for sample in drawn[0]}) == 5 or search == "top_p"
    assert len({len(sample.ids) for row in drawn for sample in row}) > 1 or kind == "nllb"
    for row, found in enumerate(drawn):
        with torch.no_grad():
            expected = [log_probs(model, batch, row, [sample.ids]).item() for sample in found]
        assert [sample.log_prob for sample in found] == pytest.approx(expected, rel=1e-6)


def test_telemetry_by_hand(tmp_path, monkeypatch):
    short, long = Sample((1, 0), -1.0), Sample((2, 3, 4, 0), -3.0)
    monkeypatch.setattr(candidates_module, "ancestral_samples", lambda *_: [[short, short, long], [long] * 3])
    clock = itertools.count()
    monkeypatch.setattr(mrt_module.time, "monotonic", lambda: float(next(clock)))  # a batch takes one second
    costs = {"1": 0.5, "2 3 4": 0.25, "3 2": 0.0, "4 2": 0.0}  # of both samples and both references

    def risk(texts, reference):
        return [costs[text] for text in texts]

    examples = [{"input_ids": [1, 2, 0], "labels": [3, 2, 0]}, {"input_ids": [2, 2, 0], "labels": [4, 2, 0]}]
    trainer = make_trainer(tmp_path, examples=examples, risk=risk, candidates=3, alpha=0.5, max_steps=1)
    batch = pad_batch(examples, 5)
    with torch.no_grad():
        gold = [log_probs(trainer.model.eval(), batch, row, [batch["labels"][row].tolist()]).item() for row in (0, 1)]
    trainer.train()
    powers = [[math.exp(0.5 * x) for x in (gold[0], -1.0, -3.0)], [math.exp(0.5 * x) for x in (gold[1], -3.0)]]
    shares = [[power / sum(row) for power in row] for row in powers]
    expected = {
        "loss": (shares[0][1] * 0.5 + shares[0][2] * 0.25 + shares[1][1] * 0.25) / 2,
        "unique_candidates": (3 + 2) / 2,
        "sample_risk": ((0.5 + 0.5 + 0.25) / 3 + 0.25) / 2,
        "reference_share": (shares[0][0] + shares[1][0]) / 2,
        "candidate_entropy": -sum(share * math.log(share) for row in shares for share in row) / 2,
        "length_ratio": (2 + 2 + 4 + 4 + 4 + 4) / (6 * 3),
        "tokens_per_second": 20.0,
    }
    log = trainer.state.log_history[0]
    assert {name: log[name] for name in expected} == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize("number", [5, 50])
def test_a_collapsed_set_is_warned_of_once(tmp_path, caplog, monkeypatch, number):
    def same(model, states, mask, start, number, limit):
        return [[Sample((1,) * 11 + (0,), -1.0)] * number for _ in states]

    monkeypatch.setattr(candidates_module, "ancestral_samples", same)
    trainer = make_trainer(tmp_path, candidates=number)
    trainer.train()
    assert caplog.text.count(f"step 1: only 2.0 of {number} candidates are unique; such candidates say little") == 1
    assert caplog.text.count("candidates are 4.00 times as long as references") == 1


def test_word_dropout_on_the_target_needs_the_cross_entropy(tmp_path, tokenizer_of):
    tokenizer = tokenizer_of("marian")
    model = tiny_model("marian", vocab_size=len(tokenizer))
    dropout = WordDropout(partial(pad_batch, pad_id=tokenizer.pad_token_id), model, tokenizer, target=0.1)
    config = MRTConfig(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    assert config.logging_steps == 10
    with pytest.raises(
        InputError, match=r"data_collator: word dropout on the target .* is 0.0; set cross_entropy above"
    ):
        MRTTrainer(model, config, processing_class=tokenizer, data_collator=dropout, train_dataset=EXAMPLES)


def test_progress_bar_shows_the_candidates(tmp_path, capsys):
    trainer = make_trainer(tmp_path, disable_tqdm=False)
    assert [type(c) for c in trainer.callback_handler.callbacks if isinstance(c, ProgressCallback)] == [RiskProgress]
    trainer.train()
    assert "unique_candidates=" in capsys.readouterr().err


def test_evaluation_is_cross_entropy(tmp_path):
    trainer = make_trainer(tmp_path, predict_with_generate=False)
    batch = random_batch(trainer.model, [(5, 3), (3, 2)])
    with torch.no_grad():
        expected = trainer.model(**batch).loss
        assert trainer.compute_loss(trainer.model.eval(), batch).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": 0}, "candidates: 0 must be at least 1"),
        ({"alpha": 0.0}, "alpha: 0.0 must be positive"),
        ({"search": "greedy"}, "search: 'greedy' is not one of sample, top_p, beam"),
        ({"top_p": 1.5}, "top_p: 1.5 must be above 0 and at most 1"),
        ({"cross_entropy": -1.0}, "cross_entropy: -1.0 must not be negative"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor: 0.1 must be 0, because a risk has no labels"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        MRTConfig(str(tmp_path), use_cpu=True, **settings)


def test_every_setting_has_a_help_text():
    for setting in fields(MRTConfig):
        if setting.name in MRTConfig.__annotations__:
            assert setting.metadata["help"].endswith("."), setting.name


def test_wrong_risks_are_refused(tmp_path):
    trainer = make_trainer(tmp_path, risk=lambda candidates, reference: [0.0])
    with pytest.raises(InputError, match=r"risk: returned 1 numbers for \d candidates"):
        trainer.train()
    with pytest.raises(InputError, match="risk: 'comet' is not one of bleu"):
        MRTTrainer(trainer.model, MRTConfig(str(tmp_path), risk="comet", use_cpu=True), processing_class=Speller())
    config = ConvSeq2SeqConfig(vocab_size=6, d_model=8, encoder_layers=1, decoder_layers=1)
    with pytest.raises(InputError, match="model: ConvSeq2SeqForConditionalGeneration is not a Transformer"):
        make_trainer(tmp_path, ConvSeq2SeqForConditionalGeneration(config))
    with pytest.raises(InputError, match="processing_class: is None, but the risk compares texts"):
        MRTTrainer(trainer.model, trainer.args)


@pytest.mark.slow
def test_two_processes(tmp_path, enumerated):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, *launcher, "-m", "tests.training.mrt_two_processes", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["first_draws"] != ranks[1]["first_draws"]
    assert ranks[0]["weights"] == ranks[1]["weights"]  # after steps with different draws: gradients are averaged
    # with every target for samples, two processes make the step that two accumulated batches make
    alone = make_trainer(tmp_path / "alone", gradient_accumulation_steps=2, **SGD)
    alone.train()
    expected = alone.model.model.decoder.layers[0].fc1.weight.flatten()
    torch.testing.assert_close(torch.tensor(ranks[0]["enumerated"]), expected, atol=1e-6, rtol=0)
    for name, value in ranks[0]["log"].items():
        assert value == pytest.approx(alone.state.log_history[0][name], rel=1e-5), name


@pytest.mark.parametrize("family", ["marian", "bert2bert"])
def test_candidates_have_no_more_tokens_than_the_decoder_has_positions(tmp_path, family):
    model = tiny_model(family, max_position_embeddings=12)
    trainer = make_trainer(tmp_path, model, max_length_ratio=2.0)
    assert trainer._limit([(1,) * 9]) == 12
    assert trainer._limit([()]) == 10


def test_parts_of_a_model_refuse_fsdp(tmp_path, sharding):
    with pytest.raises(InputError, match="FSDP, but MRTTrainer needs whole weights in each process"):
        make_trainer(tmp_path)
