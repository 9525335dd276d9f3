"""Word saliency with SmoothGrad (ding2019, section 4)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partialmethod

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.attribution import gradients
from hf_nmt_interp.attribution.base import AttributionMethod, Batch, Scores, label_log_probs, run_model
from hf_nmt_interp.attribution.smoothing import Memory, Noise, clean_log_probs, take
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.errors import InputError

_CACHED_ROWS = 2048  # gradients carried back at a time: enough for fast products, few enough for caches

STEP_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # of the labels' logits and log-probabilities [B, T]
    "log_probability": lambda logit, log_probability: log_probability,
    "probability": lambda logit, log_probability: log_probability.exp(),
    "logit": lambda logit, log_probability: logit,
}
AGGREGATES: dict[str, gradients.Reduce] = {  # of gradients and embeddings [..., d]
    "product": lambda gradient, embedding: (gradient * embedding).sum(-1),
    "li2016": lambda gradient, embedding: gradient.abs().mean(-1),
}


class Saliency(AttributionMethod):
    """psi(i, t) = d p(y_t) / d E_i . E_i for every source and prefix token (eq. 3), E_i the scaled embedding.

    Without SmoothGrad the signed psi. With it the mean over n copies whose source embeddings are noisy; psi is then
    the gradient at the noisy point times the clean embedding, as the authors released it.

    Args:
        model: any supported translator.
        score: what is differentiated: "log_probability", "probability" or "logit" of the label.
        smoothgrad: number of noisy copies n, 30 in the paper; 0 for none.
        sigma: deviation of the noise, relative to the range of the sentence's own embeddings.
        average: over copies, "normalised" (each copy clamped at 0 and divided by its sum over the source) or "raw".
        seed: of the noise.
        aggregate: over the units of an embedding, "product" (psi) or "li2016" (mean |d p / d E_i|, eq. 4).
        max_memory: bytes to stay within, roughly; more work is done piece by piece.

    Example: `Saliency(model, smoothgrad=30)(input_ids=ids, labels=labels, attention_mask=mask).source  # [B, T, S]`
    """

    name = "saliency"

    def __init__(
        self,
        model: PreTrainedModel,
        score: str = "log_probability",
        smoothgrad: int = 0,
        sigma: float = 0.15,
        average: str = "normalised",
        seed: int = 0,
        aggregate: str = "product",
        max_memory: int = 2**30,
    ) -> None:
        super().__init__(model)
        for argument, value, known in (
            ("score", score, STEP_SCORES),
            ("average", average, ("normalised", "raw")),
            ("aggregate", aggregate, AGGREGATES),
        ):
            if value not in known:
                raise InputError(f"{argument}: {value!r} is not one of {', '.join(known)}")
        self.score, self.reduce, self.average = STEP_SCORES[score], AGGREGATES[aggregate], average
        self.noise = Noise(self.parts.encoder, smoothgrad, sigma, seed)
        self.memory = Memory(model, self.parts, max_memory)

    @torch.inference_mode(False)
    def explain(self, batch: Batch) -> Scores:
        """Saliency of every token for every step of a batch."""
        size = self.memory.sentences(batch)
        if not self.noise.copies:
            found = [self._one_pass(take(batch, slice(b, b + size))) for b in range(0, len(batch.labels), size)]
            return Scores.from_inputs(*(torch.cat(parts) for parts in zip(*found, strict=True)))
        source, decoder = self.noise.mean(batch, size, self._noisy_pass)
        return Scores.from_inputs(source, decoder, clean_log_probs(self.model, batch))

    def _noisy_pass(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        source, decoder, _ = self._one_pass(batch, noise)
        if self.average == "raw":
            return source, decoder
        source, decoder = source.clamp(min=0), decoder.clamp(min=0)
        total = source.sum(-1, keepdim=True)
        total = total.masked_fill(total == 0, torch.inf)  # a copy without positive saliency counts as 0
        return source / total, decoder / total

    def _one_pass(self, batch: Batch, noise: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [B, T, S] and [B, T, T] of the source's and the decoder's inputs, and log-probabilities [B, T]."""
        clean: list[Tensor] = []
        inputs: list[Tensor] = []

        def input_of(noise: Tensor | None) -> Callable[[Tensor], Tensor]:
            def change(embedding: Tensor) -> Tensor:
                clean.append(embedding.detach())
                inputs.append((clean[-1] if noise is None else clean[-1] + noise).clone().requires_grad_())
                return inputs[-1]

            return change

        by_hand = gradients.is_plain(self.model)
        modules = gradients.modules(self.parts) if by_hand else [self.parts.projection]
        with ExitStack() as context:
            context.enter_context(torch.enable_grad())
            if not by_hand:
                context.enter_context(gradients.SingleOperations())
            context.enter_context(gradients.embeddings(self.parts.encoder, input_of(noise)))
            context.enter_context(gradients.embeddings(self.parts.decoder, input_of(None)))
            tape = context.enter_context(Tape(modules))
            logits = run_model(self.model, batch.inputs()).logits
            log_probs = label_log_probs(logits, batch.labels)
            if not torch.isfinite(log_probs).all():
                raise InputError("model: its logits are not finite; check the weights and the input")
            logit = logits.gather(-1, batch.labels.clamp(min=0)[..., None])[..., 0]
            scores = self.score(logit, log_probs).masked_fill(batch.labels == -100, 0)
            state = tape.output(modules[-1]) if by_hand else tape.input(modules[-1])
            (gradient,) = torch.autograd.grad(scores.sum(), state, retain_graph=not by_hand)
        log_probs = log_probs.detach()
        if by_hand:
            return *self._walk(gradients.Record(self.parts, batch, tape, gradient, *clean)), log_probs
        lengths = batch.labels.shape[1] + batch.input_ids.shape[1]
        steps = max(1, self.memory.rows // (lengths * len(batch.labels)))
        source, decoder = gradients.autograd_scores(state, gradient, inputs, clean, self.reduce, steps)
        shown = batch.attention_mask[:, None] != 0
        return source * shown, decoder, log_probs

    def _walk(self, record: gradients.Record) -> tuple[Tensor, Tensor]:
        labels, lengths = record.batch.labels, [record.batch.source_lengths, record.batch.target_lengths]
        to_source, to_decoder = (record.source.new_zeros(*labels.shape, x.shape[1]) for x in (record.source, labels))
        rows = min(_CACHED_ROWS, self.memory.rows)
        for some in _groups(list(zip(*lengths, strict=True)), rows):
            S, T = (max(side[some]) for side in lengths)
            steps = max(1, rows // max(S, T))
            for t in range(0, T, steps):
                these = slice(t, min(t + steps, T))
                scores = gradients.Walk(record, some, these).scores(self.reduce)
                to_source[some, these, :S], to_decoder[some, these, : these.stop] = scores
        return to_source, to_decoder


def _groups(lengths: Sequence[tuple[int, int]], rows: int) -> Iterator[slice]:
    """Consecutive sentences, given as (S, T), that have at most `rows` gradients (step, token) when padded alike.

    >>> list(_groups([(3, 2), (3, 2), (9, 9)], rows=20))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    start, S, T = 0, 0, 0
    for b, (source, target) in enumerate(lengths):
        S, T = max(S, source), max(T, target)
        if b > start and (b + 1 - start) * T * max(S, T) > rows:
            yield slice(start, b)
            start, S, T = b, source, target
    yield slice(start, len(lengths))


class SmoothGrad(Saliency):
    """`Saliency` with SmoothGrad: the mean over 30 copies with noisy source embeddings.

    Args:
        model: any supported translator.
        settings: those of `Saliency`, but `smoothgrad=30`.
    """

    name = "smoothgrad"
    __init__ = partialmethod(Saliency.__init__, smoothgrad=30)
