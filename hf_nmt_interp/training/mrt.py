"""Minimum risk training of translators (Shen et al. 2016; voita2021, section 5 and appendix B).

Definitions: docs/methods.md, Minimum risk training and word dropout.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import ProgressCallback

from hf_nmt_interp.analysis.distributions import entropy
from hf_nmt_interp.decoding.batch import decoder_inputs, evaluating, label_log_probs
from hf_nmt_interp.decoding.sampling import Sample
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.metrics.risks import Risk, make_risk
from hf_nmt_interp.models.families import positions
from hf_nmt_interp.training.arguments import check_fields, option
from hf_nmt_interp.training.candidates import SEARCHES, Candidate, CandidateScorer, Sources, ids_of, pad_targets, until
from hf_nmt_interp.training.expected_risk import candidate_set, risk_weights
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer

logger = logging.getLogger(__name__)

_FEW = 0.1  # warn if unique / drawn candidates is at most this
_LENGTHS = 0.5, 1.5  # warn if the length ratio is outside this range


@dataclass
class MRTConfig(TranslationConfig):
    """`TranslationConfig` with the candidates, the risk and the sharpness of P~.

    >>> MRTConfig("runs/mrt", report_to=[]).learning_rate
    1e-05
    """

    learning_rate: float = option(1e-5, "Learning rate, for fine-tuning a converged translator.")
    logging_steps: float = option(10, "Steps between logs, which include statistics of candidates and warnings.")
    candidates: int = option(50, "Candidates drawn for each source; duplicates count once.")
    search: str = option("sample", "How to draw candidates: sample (from the full distribution), top_p or beam.")
    top_p: float = option(0.95, "Probability mass that top_p samples from.")
    add_reference: bool = option(True, "Make the reference a candidate.")
    alpha: float = option(0.005, "Sharpness of P~, which is proportional to P^alpha.")
    length_normalisation: bool = option(False, "Use P^(alpha / length) instead of P^alpha.")
    risk: str = option("bleu", "bleu, subword_bleu, chrf or ter; for others use the trainer's `risk`.")
    cross_entropy: float = option(0.0, "Weight of the reference's cross entropy per token, with target word dropout.")
    max_length_ratio: float = option(2.0, "Maximum candidate length: this times the longest reference, plus 10.")
    candidate_tokens: int = option(2048, "Memory budget: maximum padded candidate tokens scored at a time.")

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, "must be at least 1", lambda x: x < 1, "candidates", "candidate_tokens")
        check_fields(self, "must be positive", lambda x: x <= 0, "alpha", "max_length_ratio")
        check_choice("search", self.search, SEARCHES)
        check_fields(self, "must be above 0 and at most 1", lambda x: not 0 < x <= 1, "top_p")
        check_fields(self, "must not be negative", lambda x: x < 0, "cross_entropy")
        check_fields(self, "must be 0, because a risk has no labels", bool, "label_smoothing_factor")


class RiskProgress(ProgressCallback):
    """The progress bar, followed by the latest statistics of the candidates."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs, **kwargs)
        if self.training_bar is not None and "unique_candidates" in (logs or {}):
            names = ("loss", "unique_candidates", "reference_share", "length_ratio", "tokens_per_second")
            self.training_bar.set_postfix({name: f"{float(logs[name]):.3g}" for name in names if name in logs})


class MRTTrainer(TranslationTrainer):
    """`TranslationTrainer` that minimises R = sum over candidates of P~(y|x) Delta(y, reference).

    Each source is encoded once (with word dropout on the target, twice). Candidates are drawn from its states;
    their log P determines P~ and the weights alpha P~ (Delta - R) of the gradient. One forward and backward pass over
    the unique candidates, in chunks of `candidate_tokens`, then computes the exact gradient of R.

    Dropout is off: candidates are drawn from the same distribution whose risk is differentiated. Word dropout on the
    source applies to everything; on the target it applies only to the cross entropy of the reference. The
    reference is the label row up to EOS; its text is decoded from the ids. R counts each source once, however a step
    is split into batches, accumulation and processes. Each process draws with `seed` + its rank.

    The log has means since the last log: `unique_candidates` of a set; `sample_risk`, of the candidates as drawn;
    `reference_share` and `candidate_entropy` (nats) of P~; `length_ratio` of drawn candidates to references;
    `tokens_per_second` drawn and scored. A warning is logged if few candidates are unique or their lengths are off.

    Args:
        model: any encoder-decoder Transformer, ideally a converged one.
        args: an `MRTConfig`.
        processing_class: its tokenizer.
        risk: a function (candidates, reference) -> risks of texts that replaces the config's; see `metrics.risks`.
        more: further arguments of `Seq2SeqTrainer`.

    >>> import tempfile
    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> pairs = [tokenizer("I like tea.", text_target="Ich mag Tee.")]
    >>> args = hni.MRTConfig(tempfile.mkdtemp(), max_steps=1, candidates=4, save_strategy="no", report_to=[])
    >>> trainer = hni.MRTTrainer(model, args, processing_class=tokenizer, train_dataset=pairs)
    >>> trainer.train().global_step  # doctest: +ELLIPSIS
    {'train_runtime': ...}
    1
    """

    args: MRTConfig
    uses_parts = True
    draws = True

    def __init__(
        self, model: Any, args: MRTConfig, *, processing_class: Any = None, risk: Risk | None = None, **more: Any
    ) -> None:
        if processing_class is None:
            raise InputError("processing_class", None, "is None, but the risk compares texts", "give the tokenizer")
        if not model._supports_default_dynamic_cache():
            problem = f"{type(model).__name__} is not a Transformer with a cache to draw candidates with"
            raise InputError("model", None, problem)
        super().__init__(model=model, args=args, processing_class=processing_class, **more)
        if getattr(self.train_collator, "target", 0) and not args.cross_entropy:
            problem = f"word dropout on the target needs the cross entropy, whose weight is {args.cross_entropy}"
            raise InputError("data_collator", None, problem, "set cross_entropy above 0, or leave the dropout out")
        self.subwords = risk is None and args.risk == "subword_bleu"
        self.risk = make_risk(args.risk) if risk is None else risk
        self._sums: dict[str, float] = defaultdict(float)
        self._warned: set[str] = set()
        if self.pop_callback(ProgressCallback):
            self.add_callback(RiskProgress())

    def compute_loss(self, model, inputs: dict[str, Any], return_outputs=False, num_items_in_batch=None):
        """Expected risk per source (+ cross entropy of the reference); in evaluation, cross entropy per token."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        began, args = time.monotonic(), self.args
        with evaluating(self.model):
            fused = self._has_plain_head(self.model)
            scorer = CandidateScorer(self.model, args.candidate_tokens, fused, self.accelerator.autocast)
            sources, references, log_probs, noisy, outputs = self._encode(model, inputs)
            drawn = scorer.draw(sources, args.search, args.candidates, self._limit(references), args.top_p)
            sets = [self._set(*found) for found in zip(drawn, references, log_probs.tolist(), strict=True)]
            risks = [self._risks(list(found), gold) for found, gold in zip(sets, references, strict=True)]
            lengths = [list(map(len, found)) for found in sets] if args.length_normalisation else None
            risk, weights, shares = risk_weights([list(s.values()) for s in sets], risks, args.alpha, lengths)
            first = int(args.add_reference)  # the reference's log P already has a graph
            flat = [list(zip(*both, strict=True))[first:] for both in zip(sets, weights, strict=True)]
            others = [Candidate(b, ids, weight) for b, row in enumerate(flat) for ids, weight in row if weight]
            # the gradient of sum (d R / d log P) log P is that of R
            surrogate = scorer.weighted_sum(sources, others)
            surrogate = surrogate + log_probs @ log_probs.new_tensor([row[0] * first for row in weights])
        sizes = log_probs.new_tensor([len(reference) for reference in references])
        loss = risk.sum().to(surrogate) + surrogate - surrogate.detach()
        loss = loss - args.cross_entropy * (noisy / sizes).sum()
        self._watch(references, sets, drawn, risks, shares, time.monotonic() - began)
        processes = args.world_size if args.average_tokens_across_devices else 1
        loss = loss / len(sets) if num_items_in_batch is None else loss / num_items_in_batch * processes
        return (loss, outputs) if return_outputs else loss

    def _encode(self, model, inputs: dict[str, Any]) -> tuple[Sources, list[tuple[int, ...]], Tensor, Tensor, Any]:
        """Sources, references, their log P [B], and log P under the collator's noise [B], from one wrapped pass."""
        ends = ids_of(self.model.config.eos_token_id)
        references = [until(row[row != -100].tolist(), ends) for row in inputs["labels"]]
        start = decoder_inputs(self.model, inputs["labels"])[:, 0]
        labels, shifted = pad_targets(references, start, self.model.config.pad_token_id)
        mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
        given = {"input_ids": inputs["input_ids"], "attention_mask": mask, "decoder_input_ids": shifted}
        size, noisy = len(references), inputs.get("decoder_input_ids")
        if self.args.cross_entropy and noisy is not None:
            labels, given = labels.repeat(2, 1), {name: ids.repeat(2, 1) for name, ids in given.items()}  # [2 B, ...]
            given["decoder_input_ids"][size:] = noisy[:, : shifted.shape[1]]
        outputs = model(**given, use_cache=False)
        log_probs = label_log_probs(outputs.logits.float(), labels).sum(-1)
        sources = Sources(outputs.encoder_last_hidden_state[:size], mask, start)
        return sources, references, log_probs[:size], log_probs[-size:], outputs

    def _limit(self, references: Sequence[Sequence[int]]) -> int:
        """Maximum tokens of a candidate."""
        longest = int(self.args.max_length_ratio * max(map(len, references))) + 10
        room = positions(self.model.get_decoder())
        return min(limit for limit in (longest, self.args.generation_max_length, room) if limit)

    def _set(self, drawn: list[Sample], reference: tuple[int, ...], log_prob: float) -> dict[tuple[int, ...], float]:
        """Unique candidates and their log P."""
        found = {sample.ids: sample.log_prob for sample in drawn}
        if self.args.add_reference:
            found[reference] = log_prob
        return {ids: found[ids] for ids in candidate_set(found, reference if self.args.add_reference else None)}

    def _risks(self, candidates: list[tuple[int, ...]], reference: tuple[int, ...]) -> list[float]:
        tokenizer: Any = self.processing_class
        rows = [list(ids) for ids in (*candidates, reference)]
        if self.subwords:
            special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
            texts = [" ".join(str(i) for i in row if i not in special) for row in rows]
        else:
            texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
        found = [float(risk) for risk in self.risk(texts[:-1], texts[-1])]
        if len(found) != len(candidates):
            raise InputError("risk", None, f"returned {len(found)} numbers for {len(candidates)} candidates")
        return found

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> Tensor:
        """Number of sources in a step, over all processes."""
        count = torch.tensor(sum(len(batch["labels"]) for batch in batch_samples), device=device)
        return self.accelerator.gather(count).sum() if self.args.average_tokens_across_devices else count

    def _watch(self, references, sets, drawn, risks, shares: Tensor, seconds: float) -> None:
        """Add the statistics of a batch to the next log."""
        by_ids = [dict(zip(found, row, strict=True)) for found, row in zip(sets, risks, strict=True)]
        by_draw = [sum(risk[s.ids] for s in row) / len(row) for risk, row in zip(by_ids, drawn, strict=True)]
        figures = {
            "sources": len(sets),
            "unique_candidates": sum(map(len, sets)),
            "sample_risk": sum(by_draw),
            "reference_share": shares[:, 0].sum().item(),
            "candidate_entropy": entropy(shares).sum().item(),
            "tokens": sum(len(sample.ids) for row in drawn for sample in row),
            "reference_tokens": self.args.candidates * sum(map(len, references)),
            "seconds": seconds,
        }
        for name, figure in figures.items():
            self._sums[name] += figure

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        """Also logs the statistics of the candidates since the last log, over all processes."""
        if "loss" in logs and self._sums:
            logs |= self._figures()
        super().log(logs, *args, **kwargs)

    def _figures(self) -> dict[str, float]:
        names = sorted(self._sums)
        sums = torch.tensor([self._sums[name] for name in names], dtype=torch.double, device=self.args.device)
        found = dict(zip(names, self.accelerator.reduce(sums).tolist(), strict=True))
        self._sums.clear()
        means = ["unique_candidates", "sample_risk", "candidate_entropy"]
        means += ["reference_share"] if self.args.add_reference else []
        figures = {name: found[name] / found["sources"] for name in means}
        figures["length_ratio"] = found["tokens"] / found["reference_tokens"]
        figures["tokens_per_second"] = found["tokens"] / found["seconds"] * self.args.world_size
        self._warn(figures["unique_candidates"], figures["length_ratio"])
        return {name: round(figure, 4) for name, figure in figures.items()}

    def _warn(self, unique: float, ratio: float) -> None:
        """Warn once about each way in which the candidates collapse."""
        candidates = self.args.candidates
        fewest = max(1.0, _FEW * candidates) + self.args.add_reference  # the reference is always unique
        few = unique <= fewest, f"only {unique:.1f} of {candidates} candidates are unique"
        length = not _LENGTHS[0] <= ratio <= _LENGTHS[1], f"candidates are {ratio:.2f} times as long as references"
        for kind, (is_so, text) in {"few": few, "length": length}.items():
            if is_so and kind not in self._warned and self.is_world_process_zero():
                self._warned.add(kind)
                advice = "such candidates say little: start from a converged model, lower learning_rate or alpha"
                logger.warning("step %d: %s; %s", self.state.global_step, text, advice)
