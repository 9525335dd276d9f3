"""Integrated gradients (Sundararajan et al. 2017).

Definitions: docs/methods.md, Integrated gradients.
"""

from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.base import AttributionMethod, Scores
from hf_nmt_interp.attribution.baselines import baseline_vector
from hf_nmt_interp.attribution.gradients import embeddings, step_gradients
from hf_nmt_interp.attribution.memory import Memory
from hf_nmt_interp.attribution.scores import make_score
from hf_nmt_interp.attribution.smoothing import clean_labels
from hf_nmt_interp.decoding.batch import Batch, run_model
from hf_nmt_interp.decoding.precision import PRECISIONS, product_precision
from hf_nmt_interp.errors import InputError, check_choice

POINTS = {"gauss_legendre", "riemann_right"}
PATHS = {"all": ("source", "decoder"), "source": ("source",)}


class IntegratedGradients(AttributionMethod):
    """Gradients along the straight path from a baseline to the embeddings, times the path.

    The contributions of a step add up to its score minus that of the baseline. The error of the integral is the
    result's conservation gap.

    Args:
        model: any supported translator.
        score: the score to explain, as in `Saliency`.
        steps: number of points of the integral.
        baseline: "zero", "pad" (the embedding of the padding token), or the id of another token.
        points: positions of the points: "gauss_legendre", or "riemann_right" (at 1/n, 2/n, ..., 1).
        path: inputs that move along the path: "all" (source and decoder input) or "source".
        max_memory: approximate limit in bytes; larger work is split.
        precision: dtype of products with float32 weights, "float32" or "bfloat16" (faster on processors that support
            it).
    """

    name = "integrated_gradients"
    contrasts = True
    gap = "error of the integral, in units of the score"

    def __init__(
        self,
        model: PreTrainedModel,
        score: str = "log_probability",
        steps: int = 50,
        baseline: str | int = "zero",
        points: str = "gauss_legendre",
        path: str = "all",
        max_memory: int = 2**30,
        precision: str = "float32",
    ) -> None:
        super().__init__(model)
        check_choice("points", points, sorted(POINTS))
        check_choice("path", path, PATHS)
        check_choice("precision", precision, PRECISIONS)
        if steps < 1:
            raise InputError("steps", steps, "must be at least 1", "50 is usual")
        self.score, self.leaves = make_score(model, score), PATHS[path]
        self.baseline = {name: baseline_vector(model, getattr(self.parts, stack), baseline) for name, stack in _STACKS}
        if points == "gauss_legendre":
            at, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
            self.points = list(zip((at + 1) / 2, weights / 2, strict=True))
        else:
            self.points = [(n / steps, 1 / steps) for n in range(1, steps + 1)]
        self.memory: Memory = Memory(model, self.parts, max_memory)
        self.products = product_precision(model, precision)

    @property
    def signed(self) -> bool:
        """Contributions can be negative."""
        return True

    @torch.inference_mode(False)
    def explain(self, batch: Batch) -> Scores:
        """Contributions of every token to every step of a batch."""
        with torch.no_grad():
            ways = self._ways(batch)
            whole = self._scores(batch, {}) - self._scores(batch, {name: -way for name, way in ways.items()})
        total: dict[str, Tensor] = {}
        jobs = [(row, *point) for row in range(len(batch.labels)) for point in self.points]
        size = self.memory.sentences(batch)
        for first in range(0, len(jobs), size):
            rows, at, weights = zip(*jobs[first : first + size], strict=True)
            for name, found in self._gradients(batch, ways, torch.tensor(rows, device=whole.device), at).items():
                total[name] = total.get(name, found.new_zeros(len(batch.labels), *found.shape[1:]))
                weighted = found * found.new_tensor(weights)[:, None, None]
                total[name].index_add_(0, torch.tensor(rows, device=found.device), weighted)
        T = batch.labels.shape[1]
        source, decoder = total["source"], total.get("decoder", whole.new_zeros(len(whole), T, T))
        gap = (source.sum(-1) + decoder.sum(-1) - whole).abs().masked_fill(~self.score.steps(batch), 0).amax(-1)
        log_probs, chosen = clean_labels(self.model, batch)
        return Scores.from_inputs(source, decoder, log_probs, conservation_gap=gap, chosen=chosen)

    def _ways(self, batch: Batch) -> dict[str, Tensor]:
        """Paths from the baseline to the embeddings [B, L, d] of each side."""
        ids = {"source": batch.input_ids, "decoder": batch.decoder_input_ids}
        stacks = {name: getattr(self.parts, stack) for name, stack in _STACKS}
        return {
            name: stacks[name].embedding(ids[name]) * stacks[name].scale - self.baseline[name] for name in self.leaves
        }

    def _gradients(
        self, batch: Batch, ways: Mapping[str, Tensor], rows: Tensor, at: tuple[float, ...]
    ) -> dict[str, Tensor]:
        """Gradients times the path [n, T, L] of copies of some rows, each at its point of the path."""
        values = {name: way[rows] for name, way in ways.items()}
        offsets = {name: way * (way.new_tensor(at) - 1)[:, None, None] for name, way in values.items()}
        found, *_ = step_gradients(
            self.model, self.parts, batch.take(rows), self.leaves, self.score,
            lambda gradient, way: (gradient * way).sum(-1), offsets=offsets, values=values, rows=self.memory.rows,
            products=self.products,
        )  # fmt: skip
        return dict(zip(self.leaves, found, strict=True))

    def _scores(self, batch: Batch, offsets: Mapping[str, Tensor]) -> Tensor:
        """Scores [B, T] with offsets added to the embeddings."""
        scoring = self.score.scoring(batch)
        with ExitStack() as context:
            for name, stack in _STACKS:
                if name in offsets:
                    context.enter_context(embeddings(getattr(self.parts, stack), offsets[name].add))
            return scoring(run_model(self.model, batch.inputs()).logits).masked_fill(batch.labels == -100, 0)


_STACKS = ("source", "encoder"), ("decoder", "decoder")
