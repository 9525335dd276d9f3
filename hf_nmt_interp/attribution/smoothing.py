"""SmoothGrad's noise (ding2019, section 4.3), and attention smoothed by it.

Definitions: docs/methods.md, Saliency and SmoothGrad.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.attention import AttentionWeights
from hf_nmt_interp.attribution.base import Scores
from hf_nmt_interp.attribution.gradients import embeddings
from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.decoding.batch import Batch, first_choices, label_log_probs, run_model
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Stack

logger = logging.getLogger(__name__)
DEFAULT_NOISE = 1.25  # chosen by word alignment of three translators: docs/alignment.md
MOST_LOST = 3.0  # nats a token: the probability of a token falls to a twentieth
_ROUND = 5


class Noise:
    """Noise of SmoothGrad: n noisy copies of a sentence's source embeddings, N(0, s^2).

    s = noise * (standard deviation of the sentence's embeddings), or in the paper s = sigma * (max - min) of them. A
    copy's noise depends on the seed, the sentence's ids and the copy's number only, not on the batch.

    Args:
        stack: the encoder.
        copies: number of copies n.
        sigma: relative to the range of the sentence's own embeddings; None if `noise` is meant.
        seed: any whole number.
        noise: relative to their standard deviation; None for 1.25, unless sigma is given.
        adaptive: use fewer copies where they suffice: they come in rounds of 5, and a sentence is done when a round
            did not change the best source token of any step.
    """

    def __init__(
        self,
        stack: Stack,
        copies: int,
        sigma: float | None = None,
        seed: int = 0,
        noise: float | None = None,
        adaptive: bool = False,
    ) -> None:
        if copies < 0 or copies != int(copies):
            raise InputError(
                "smoothgrad", copies, "is not a number of noisy copies", "use e.g. 30, or 0 for no SmoothGrad"
            )
        if sigma is not None and noise is not None:
            raise InputError("sigma", sigma, f"and noise {noise} both set the deviation", "leave one out")
        for name, value in (("sigma", sigma), ("noise", noise)):
            if value is not None and not 0 < value < float("inf"):
                raise InputError(name, value, "must be above 0 and finite", "for no noise use smoothgrad=0")
        self.stack, self.copies, self.seed, self.sigma = stack, copies, seed, sigma
        self.relative = DEFAULT_NOISE if noise is None else noise
        self.round = _ROUND if adaptive else max(1, copies)
        self.warned = False

    @torch.no_grad()
    def __call__(self, ids: Tensor, copy: int) -> Tensor:
        """Noise [S, d] of one copy of a sentence, given as ids [S] without padding."""
        embedding = self.stack.embedding(ids) * self.stack.scale
        return self._draw(ids.tolist(), embedding.cpu(), copy).to(embedding.device)

    def _draw(self, ids: list[int], embedding: Tensor, copy: int) -> Tensor:
        """The same on the CPU, for embeddings [S, d]: the numbers do not depend on the model's device."""
        key = hashlib.sha256(f"{self.seed} {copy} {ids}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "big", signed=True))
        noise = torch.randn(embedding.shape, generator=generator, dtype=torch.float32).to(embedding)
        if self.sigma is None:
            return noise * self.relative * embedding.double().std(correction=0).to(embedding)
        return noise * self.sigma * (embedding.max() - embedding.min())

    @torch.no_grad()
    def _sentences(self, batch: Batch) -> list[tuple[list[int], Tensor]]:
        """Ids and embeddings [S, d] of each sentence on the CPU, without padding."""
        embedding = (self.stack.embedding(batch.input_ids) * self.stack.scale).cpu()
        rows = zip(batch.input_ids.tolist(), embedding, batch.source_lengths, strict=True)
        return [(ids[:length], vectors[:length]) for ids, vectors, length in rows]

    def mean(
        self, batch: Batch, size: int, one_pass: Callable[[Batch, Tensor], Sequence[Tensor]]
    ) -> tuple[list[Tensor], Tensor]:
        """Mean over the noisy copies of a batch.

        Args:
            batch: of B sentences.
            size: copies per forward pass.
            one_pass: from copies and their noise [size, S, d] to tensors [size, ...]; the first is the source's
                scores [size, T, S].

        Returns:
            The means [B, ...] of these tensors, and how many copies [B] each sentence has had.
        """
        sentences = self._sentences(batch)
        left = torch.arange(len(sentences))
        used = torch.zeros(len(left), dtype=torch.long)
        total: list[Tensor] = []
        best: Tensor | None = None  # [B, T]
        for start in range(0, self.copies, self.round):
            copies = range(start, min(start + self.round, self.copies))
            jobs = [(row, copy) for row in left.tolist() for copy in copies]
            for first in range(0, len(jobs), size):
                found = self._pass(batch, sentences, jobs[first : first + size], one_pass)
                total = total or [x.new_zeros(len(used), *x.shape[1:]) for x in found]
                rows = torch.tensor([row for row, _ in jobs[first : first + size]], device=found[0].device)
                for sums, x in zip(total, found, strict=True):
                    sums.index_add_(0, rows, x)
            used[left] += len(copies)
            now = total[0].argmax(-1).cpu()
            if best is not None:
                left = left[(now != best)[left].any(-1)]
            best = now
        return [x / used.to(x.device).view(-1, *[1] * (x.ndim - 1)) for x in total], used

    def _pass(
        self,
        batch: Batch,
        sentences: Sequence[tuple[list[int], Tensor]],
        jobs: Sequence[tuple[int, int]],
        one_pass: Callable[[Batch, Tensor], Sequence[Tensor]],
    ) -> Sequence[Tensor]:
        """Run copies, given as (row, copy number), through the model."""
        longest, device = batch.input_ids.shape[1], batch.input_ids.device
        noise = [self._draw(*sentences[row], copy) for row, copy in jobs]
        padded = torch.stack([F.pad(x, (0, 0, 0, longest - len(x))) for x in noise])
        return one_pass(batch.take(torch.tensor([row for row, _ in jobs], device=device)), padded.to(device))

    def check(self, batch: Batch, clean: Tensor, noisy: Tensor) -> None:
        """Warn once if noise lowers the log-probability [B, T] of a translation by more than 3 nats per token."""
        lost = ((clean - noisy).sum(-1) / torch.tensor(batch.target_lengths).to(clean)).max().item()
        if lost > MOST_LOST and not self.warned:
            self.warned = True
            given = f"noise={self.relative:g}" if self.sigma is None else f"sigma={self.sigma:g}"
            logger.warning(
                "%s hides a sentence from the model: the log-probability of its translation falls by %.1f per token, "
                "more than %g; its scores say little, use less noise",
                *(given, lost, MOST_LOST),
            )


@torch.no_grad()
def clean_labels(model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """Log-probabilities [B, T] of the labels without noise, and whether they are the model's first choices."""
    logits = run_model(model, batch.inputs()).logits
    return label_log_probs(logits, batch.labels), first_choices(logits, batch)


class SmoothedAttention(AttentionWeights):
    """Mean of `AttentionWeights` over copies with SmoothGrad's noise on the source embeddings.

    Args:
        model: any supported translator.
        layer: decoder layer, as in `AttentionWeights`.
        head: one head, None for the mean over heads.
        smoothgrad: number of noisy copies.
        sigma: deviation of the noise, relative to the range of the sentence's own embeddings (0.15 in the paper).
        seed: of the noise.
        max_memory: approximate limit in bytes.
        noise: deviation of the noise, relative to that of the embeddings: 1.25 unless sigma is given.
        adaptive: use fewer copies where they suffice, see `Noise`.
    """

    name = "smoothed_attention"
    aligns_online = False  # the weights of a pass are of one noisy copy

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int | str | None = None,
        head: int | None = None,
        smoothgrad: int = 30,
        sigma: float | None = None,
        seed: int = 0,
        max_memory: int = 2**30,
        noise: float | None = None,
        adaptive: bool = False,
    ) -> None:
        super().__init__(model, layer, head)
        if smoothgrad == 0:
            raise InputError("smoothgrad", 0, "leaves nothing to smooth", "use method 'attention'")
        self.noise = Noise(self.parts.encoder, smoothgrad, sigma, seed, noise, adaptive)
        self.memory: Memory = Memory(model, self.parts, max_memory)

    def soft_links(self, batch: Batch) -> Tensor:
        """Mean of the source weights of the noisy copies."""
        return self.run(batch).source

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """Mean of the weights of the noisy copies."""

        def one_pass(copies: Batch, noise: Tensor) -> Sequence[Tensor]:
            with embeddings(self.parts.encoder, noise.add):
                scores = AttentionWeights.explain(self, copies)
            return scores.source, scores.prefix, scores.start, scores.log_probs

        (source, prefix, start, noisy), _ = self.noise.mean(batch, self.memory.sentences(batch), one_pass)
        clean, chosen = clean_labels(self.model, batch)
        self.noise.check(batch, clean, noisy)
        return Scores(source, prefix, start, clean, chosen=chosen)
