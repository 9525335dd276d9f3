"""What a model attends to and knows at one step of its training, on a fixed set (snell2021, section 3)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from hf_nmt_interp.analysis.flips import flip_influence
from hf_nmt_interp.analysis.optimal_attention import optimal_attention
from hf_nmt_interp.analysis.probe import lexical_probe
from hf_nmt_interp.decoding.batch import evaluating
from hf_nmt_interp.errors import InputError, check_choice
from hf_nmt_interp.text.files import atomic

SNAPSHOT_SCORES = ("alpha", "beta", "delta", "alpha_opt")


@dataclass
class Snapshot:
    """A model at one step of its training; rows are the output words of the whole set, in its order.

    Scores are "alpha", attention weights (mean over heads); "beta", the lexical probe as log-odds, which have the same
    order as the probability but, unlike it and its logarithm, do not lose precision near 1; "delta", the influence of
    source words by gradients; and "alpha_opt", the weights that minimise the loss, for translators with
    `output="linear"`.
    """

    kept: Tensor  # [N, L], whether a word has this source position
    scores: dict[str, Tensor]  # by name, [N, L]
    performance: float  # share of output words that the model predicts correctly after the reference prefix
    bleu: float | None = None  # of greedy translations, from 0 to 1; None if it was not measured
    sentences: Tensor | None = None  # [N], number of each word's sentence; None in files of earlier versions

    def save(self, path: str | Path) -> None:
        """Write a safetensors file; a killed process leaves the complete file or none."""
        with atomic(path) as part:
            numbers = {"performance": self.performance} | ({} if self.bleu is None else {"bleu": self.bleu})
            own = {} if self.sentences is None else {"sentences": self.sentences}
            save_file({"kept": self.kept, **own, **self.scores}, part, {name: repr(x) for name, x in numbers.items()})

    @classmethod
    def load(cls, path: str | Path) -> "Snapshot":
        """Read what `save` wrote."""
        with safe_open(path, "pt") as file:
            scores = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
            numbers = {name: float(text) for name, text in file.metadata().items()}
            return cls(scores.pop("kept"), scores, sentences=scores.pop("sentences", None), **numbers)


def take_snapshot(
    model: Any,  # LSTM translator or classifier; the proxy, which has only "beta"; other translators have no "alpha"
    batches: Iterable[dict[str, Any]],  # `input_ids`, `attention_mask`, `labels` ([B, T], -100 is padding; or [B])
    scores: Sequence[str] = SNAPSHOT_SCORES[:2],
) -> Snapshot:
    """Scores of all output words of a set, and how many of them the model gets right."""
    for name in scores:
        check_choice("scores", name, SNAPSHOT_SCORES)
    found: dict[str, list[Tensor]] = {name: [] for name in scores}
    kept, sentences, right, words, before = [], [], 0, 0, 0
    for batch in batches:
        labels = batch["labels"] if batch["labels"].ndim > 1 else batch["labels"][:, None]
        real = labels != -100
        with torch.no_grad(), evaluating(model):
            output = model(**batch, output_attentions="alpha" in scores)
        right += int((output.logits.argmax(-1).reshape(labels.shape) == labels).sum())
        words += int(real.sum())
        if "alpha" in scores:  # [B, T, S], as the others
            attentions = output.attentions if "attentions" in output else output.cross_attentions
            found["alpha"].append(attentions[-1].mean(1)[real])
        if "beta" in scores:
            found["beta"].append(lexical_probe(model, **batch).log_odds[real])
        if "delta" in scores:
            found["delta"].append(flip_influence(model, **batch)[real])
        if "alpha_opt" in scores:
            found["alpha_opt"].append(_optimal(model, batch)[real])
        positions = batch["attention_mask"].bool()[:, None].expand(-1, labels.shape[1], -1)
        kept.append(positions[real])
        sentences.append(before + real.nonzero()[:, 0])
        before += len(real)
    if not words:
        raise InputError("batches", None, "they have no output words", "give a validation set with words")
    scored = {name: _joined(rows) for name, rows in found.items()}
    return Snapshot(_joined(kept), scored, right / words, sentences=torch.cat(sentences))


def _optimal(model: Any, batch: dict[str, Any]) -> Tensor:
    """alpha_opt [B, T, S] of a translator, one sentence at a time, as it needs the logits of all words."""
    alpha = torch.zeros(*batch["labels"].shape, batch["input_ids"].shape[1], device=batch["labels"].device)
    for b in range(len(alpha)):
        probe = lexical_probe(model, **{name: tensor[b : b + 1] for name, tensor in batch.items()}, vocabulary=True)
        real = batch["labels"][b] != -100
        alpha[b, real] = optimal_attention(probe.gamma[0, real], batch["labels"][b, real], probe.kept[0, real]).float()
    return alpha


def _joined(rows: list[Tensor]) -> Tensor:
    """Rows [n, S] of all batches as one [N, L], 0 after the end of a batch."""
    width = max(part.shape[1] for part in rows)
    return torch.cat([F.pad(part, (0, width - part.shape[1])) for part in rows])
