"""Word saliency with SmoothGrad (ding2019, section 4).

Definitions: docs/methods.md, Saliency and SmoothGrad.
"""

from functools import partialmethod

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.gradients import step_gradients
from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.attribution.scores import make_score
from hf_nmt_interp.attribution.smoothing import Noise, clean_labels
from hf_nmt_interp.attribution.walk import Reduce
from hf_nmt_interp.decoding.batch import Batch
from hf_nmt_interp.decoding.precision import PRECISIONS, product_precision
from hf_nmt_interp.errors import check_choice

AGGREGATES: dict[str, Reduce] = {  # of gradients and embeddings [..., d]
    "product": lambda gradient, embedding: (gradient * embedding).sum(-1),
    "abs_product": lambda gradient, embedding: (gradient * embedding).sum(-1).abs(),
    "li2016": lambda gradient, embedding: gradient.abs().mean(-1),
}


class Saliency(AttributionMethod):
    """psi(i, t) = d p(y_t) / d E_i . E_i for every source and prefix token (eq. 3), E_i the scaled embedding.

    Without SmoothGrad, scores are the signed psi. With it, they are the mean over n copies with noisy source
    embeddings; psi is then the gradient at the noisy point times the clean embedding, as in the authors' code.

    Args:
        model: any supported translator.
        score: the score to differentiate: "log_probability", "probability" or "logit" of the label, "entropy" of the
            step, or "kl" between two prefixes (see `make_score`).
        smoothgrad: number of noisy copies n, 30 in the paper; 0 for none.
        sigma: deviation of the noise, relative to the range of the sentence's embeddings (0.15 in the paper).
        average: over copies, "normalised" (each copy clamped at 0 and divided by its sum over the source) or "raw".
        seed: seed of the noise.
        aggregate: over the units of an embedding, "product" (psi), "abs_product" (|psi|; inferred from the authors'
            option `--abs`) or "li2016" (mean |d p / d E_i|, eq. 4).
        max_memory: approximate limit in bytes; larger work is split.
        noise: deviation of the noise, relative to that of the embeddings: 1.25 unless sigma is given.
        adaptive: use fewer copies if that is enough, see `Noise`.
        precision: dtype of products with float32 weights, "float32" or "bfloat16" (faster on processors that support
            it).

    Example: `Saliency(model, smoothgrad=30)(input_ids=ids, labels=labels, attention_mask=mask).source  # [B, T, S]`
    """

    name = "saliency"
    contrasts = True

    def __init__(
        self,
        model: PreTrainedModel,
        score: str = "log_probability",
        smoothgrad: int = 0,
        sigma: float | None = None,
        average: str = "normalised",
        seed: int = 0,
        aggregate: str = "product",
        max_memory: int = 2**30,
        noise: float | None = None,
        adaptive: bool = False,
        precision: str = "float32",
    ) -> None:
        super().__init__(model)
        for argument, value, known in (
            ("average", average, ("normalised", "raw")),
            ("aggregate", aggregate, AGGREGATES),
            ("precision", precision, PRECISIONS),
        ):
            check_choice(argument, value, known)
        self.score, self.reduce, self.average = make_score(model, score), AGGREGATES[aggregate], average
        self.noise = Noise(self.parts.encoder, smoothgrad, sigma, seed, noise, adaptive)
        self.memory: Memory = Memory(model, self.parts, max_memory)
        self.products = product_precision(model, precision)
        self._signed = aggregate == "product" and (not smoothgrad or average == "raw")

    @property
    def signed(self) -> bool:
        """Whether the signed psi is returned."""
        return self._signed

    @torch.inference_mode(False)
    def explain(self, batch: Batch) -> Scores:
        """Saliency of every token for every step of a batch."""
        if not self.noise.copies:
            source, decoder, log_probs, chosen = self._one_pass(batch)
            exact = self.products is None  # rounded products may change first choices
            return Scores.from_inputs(source, decoder, log_probs, chosen=chosen if exact else None)
        (source, decoder, noisy), _ = self.noise.mean(batch, self.memory.sentences(batch), self._noisy_pass)
        clean, chosen = clean_labels(self.model, batch)
        self.noise.check(batch, clean, noisy)
        return Scores.from_inputs(source, decoder, clean, chosen=chosen)

    def _noisy_pass(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        source, decoder, log_probs, _ = self._one_pass(batch, noise)
        if self.average == "raw":
            return source, decoder, log_probs
        source, decoder = source.clamp(min=0), decoder.clamp(min=0)
        total = source.sum(-1, keepdim=True)
        total = total.masked_fill(total == 0, torch.inf)  # a copy without positive saliency counts as 0
        return source / total, decoder / total, log_probs

    def _one_pass(self, batch: Batch, noise: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores [B, T, S] and [B, T, T] of the two sides' inputs, log-probabilities and first choices [B, T]."""
        leaves, rows = ("source", "decoder"), self.memory.rows
        offsets = {} if noise is None else {"source": noise}
        (source, decoder), log_probs, chosen = step_gradients(
            self.model, self.parts, batch, leaves, self.score, self.reduce, offsets=offsets, rows=rows,
            products=self.products,
        )  # fmt: skip
        return source, decoder, log_probs, chosen


class SmoothGrad(Saliency):
    """`Saliency` with SmoothGrad: the mean over 30 copies with noisy source embeddings.

    Args:
        model: any supported translator.
        settings: settings of `Saliency`, with `smoothgrad=30` as default.
    """

    name = "smoothgrad"
    __init__ = partialmethod(Saliency.__init__, smoothgrad=30)
