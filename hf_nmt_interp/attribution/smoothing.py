"""SmoothGrad's noise (ding2019, section 4.3), the memory its copies may take, and attention smoothed by it.

Definitions: docs/methods.md, Saliency and SmoothGrad.
"""

import hashlib
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.attention import AttentionWeights
from hf_nmt_interp.attribution.base import Scores
from hf_nmt_interp.attribution.gradients import embeddings
from hf_nmt_interp.decoding.batch import Batch, label_log_probs, run_model
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Parts, Stack


class Noise:
    """Noise of SmoothGrad: n noisy copies of a sentence's source embeddings, N(0, s^2), s = sigma (max - min) of them.

    A copy's noise depends on the seed, the sentence's ids and the copy's number only, not on the batch.

    Args:
        stack: the encoder.
        copies: n.
        sigma: relative to the range of the sentence's own embeddings.
        seed: any whole number.
    """

    def __init__(self, stack: Stack, copies: int, sigma: float, seed: int) -> None:
        if copies < 0 or copies != int(copies):
            raise InputError("smoothgrad", copies, "noisy copies are impossible", "30 is usual, 0 is no SmoothGrad")
        if not 0 < sigma < float("inf"):
            raise InputError("sigma", sigma, "must be above 0 and finite", "for no noise use smoothgrad=0")
        self.stack, self.copies, self.sigma, self.seed = stack, copies, sigma, seed

    @torch.no_grad()
    def __call__(self, ids: Tensor, copy: int) -> Tensor:
        """Noise [S, d] of one copy of a sentence, given as ids [S] without padding."""
        embedding = self.stack.embedding(ids) * self.stack.scale
        key = hashlib.sha256(f"{self.seed} {copy} {ids.tolist()}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "big", signed=True))
        noise = torch.randn(embedding.shape, generator=generator).to(embedding)
        return noise * self.sigma * (embedding.max() - embedding.min())

    def mean(self, batch: Batch, size: int, one_pass: Callable[[Batch, Tensor], Sequence[Tensor]]) -> list[Tensor]:
        """Mean over the noisy copies of a batch.

        Args:
            batch: of B sentences.
            size: copies that go through the model together.
            one_pass: from copies and their noise [size, S, d] to tensors [size, ...].

        Returns:
            The means [B, ...] of these tensors.
        """
        B, longest = batch.input_ids.shape
        lengths = batch.source_lengths
        total: list[Tensor] = []
        for chosen in torch.arange(B * self.copies).split(size):
            numbers = [divmod(number, self.copies) for number in chosen.tolist()]
            noise = [self(batch.input_ids[row, : lengths[row]], copy) for row, copy in numbers]
            padded = torch.stack([F.pad(x, (0, 0, 0, longest - len(x))) for x in noise])
            rows = chosen // self.copies
            found = one_pass(batch.take(rows), padded)
            total = total or [x.new_zeros(B, *x.shape[1:]) for x in found]
            for sums, x in zip(total, found, strict=True):
                sums.index_add_(0, rows.to(x.device), x / self.copies)
        return total


class Memory:
    """How much fits into a number of bytes, half of it for the forward pass and half for the way back."""

    def __init__(self, model: PreTrainedModel, parts: Parts, limit: int) -> None:
        if limit < 1:
            raise InputError("max_memory", limit, "bytes must be more than 0", "the default is 2**30")
        linears = [m.out_features for m in model.modules() if isinstance(m, nn.Linear) and m is not parts.projection]
        if not linears:
            raise InputError("model", None, "it has no nn.Linear layers, it may be quantised", "load it in float32")
        linears += [8 * m.hidden_size for m in model.modules() if isinstance(m, nn.LSTM)]  # gates and their results
        self.numbers = limit // 2 // next(model.parameters()).element_size()
        self.kept, self.widest, self.vocabulary = sum(linears), max(linears), parts.projection.out_features

    def sentences(self, batch: Batch) -> int:
        """That can go forward together: their activations and four arrays of the logits' size."""
        T = batch.labels.shape[1]
        one = 2 * self.kept * (T + batch.input_ids.shape[1]) + 4 * self.vocabulary * T
        return max(1, self.numbers // one)

    @property
    def rows(self) -> int:
        """Gradients of a token for a step that can go back together."""
        return max(1, self.numbers // (8 * self.widest))


@torch.no_grad()
def clean_log_probs(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Log-probabilities [B, T] of the labels without noise."""
    return label_log_probs(run_model(model, batch.inputs()).logits, batch.labels)


class SmoothedAttention(AttentionWeights):
    """Mean of `AttentionWeights` over copies with SmoothGrad's noise on the source embeddings.

    Args:
        model: any supported translator.
        layer: decoder layer, as in `AttentionWeights`.
        head: one head, None for the mean over heads.
        smoothgrad: number of noisy copies.
        sigma: deviation of the noise, relative to the range of the sentence's own embeddings.
        seed: of the noise.
        max_memory: bytes to stay within, roughly.
    """

    name = "smoothed_attention"
    aligns_online = False  # the weights of a pass are of one noisy copy

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int | str | None = None,
        head: int | None = None,
        smoothgrad: int = 30,
        sigma: float = 0.15,
        seed: int = 0,
        max_memory: int = 2**30,
    ) -> None:
        super().__init__(model, layer, head)
        if smoothgrad == 0:
            raise InputError("smoothgrad", 0, "leaves nothing to smooth", "use method 'attention'")
        self.noise = Noise(self.parts.encoder, smoothgrad, sigma, seed)
        self.memory = Memory(model, self.parts, max_memory)

    @torch.no_grad()
    def explain(self, batch: Batch) -> Scores:
        """Mean of the weights of the noisy copies."""

        def one_pass(copies: Batch, noise: Tensor) -> Sequence[Tensor]:
            with embeddings(self.parts.encoder, noise.add):
                scores = AttentionWeights.explain(self, copies)
            return scores.source, scores.prefix, scores.start

        source, prefix, start = self.noise.mean(batch, self.memory.sentences(batch), one_pass)
        return Scores(source, prefix, start, clean_log_probs(self.model, batch))
