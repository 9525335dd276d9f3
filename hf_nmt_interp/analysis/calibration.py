"""What calibration does to cross-attention (lu2021); definitions: docs/methods.md, Calibrated cross-attention."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hf_nmt_interp.analysis.distributions import (
    bootstrap_means,
    entropy,
    half_interval,
    jensen_shannon,
    kendall_tau,
)
from hf_nmt_interp.analysis.reports import Report, sentence_pairs
from hf_nmt_interp.attribution.attention import attention_weights
from hf_nmt_interp.attribution.gradients import step_gradients
from hf_nmt_interp.attribution.scores import make_score
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.decoding.batch import Batch, evaluating, run_model
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import Parts, parts

Row = dict[str, Any]
EDGES = (0.0, 0.8, 1.6, 2.4, 3.2)  # lower edges of entropy bins in nats, as in figure 7; the last is open above
MEANS = ("jsd", "entropy", "entropy_change", "kendall_attention", "kendall_mask", "mask_mean")
_STEPS = 16  # steps of a batch whose gradients are computed together


@dataclass
class CalibrationReport(Report):
    """Effect of calibration in each layer of a model.

    Attributes:
        layers: one row per layer, and "all" for the mean over layers: jsd of original and fused weights; entropy of
            the original weights; entropy_change, fused minus original (above 0: more dispersed); tau of weights
            (kendall_attention) and of m (kendall_mask; below 0: important words are masked) with gradients; mask_mean.
            A plain translator only has entropy and kendall_attention. `*_ci`: half the 95 % interval of each number,
            over bootstrap samples of the sentences.
        bins: one row for each layer and entropy bin [low, high): jsd, jsd_ci and the number of distributions.
        about: model, fusion, alpha, sentences, steps.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> report = hni.calibration_report(model, tokenizer, ["I like tea."], ["Ich mag Tee."])
    >>> print(report.to_csv().splitlines()[0])  # doctest: +ELLIPSIS
    layer,jsd,entropy,entropy_change,kendall_attention,kendall_mask,mask_mean,jsd_ci,entropy_ci,entropy_change_ci,...
    """

    title: ClassVar = "report of calibration"
    layers: list[Row]
    bins: list[Row]
    about: Row = field(default_factory=dict)

    @property
    def mask_mean(self) -> float | None:
        """Mean mask over all layers, heads, steps and source tokens; None for a plain translator."""
        return self.layers[-1]["mask_mean"]

    def table(self) -> list[Row]:
        """One row per layer."""
        return self.layers


@takes_names
def calibration_report(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    batch_size: int = 16,
    edges: Sequence[float] = EDGES,
) -> CalibrationReport:
    """JSD and entropy change by layer, JSD by entropy bin, and tau of weights and masks with gradient importance.

    JSD and entropy (nats) are computed for each head's weights at each step, with fused weights divided by their sum;
    tau is computed for means over heads, at steps with at least two source tokens.

    Args:
        model: a calibrated translator, or a plain one for the correlation of its attention with gradients (figure 2).
        tokenizer: its tokenizer.
        sources: sentences.
        targets: their translations; None lets the model translate.
        batch_size: sentences at a time.
        edges: lower edges of the entropy bins.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> report = hni.calibration_report(model, tokenizer, ["I like tea."], ["Ich mag Tee."])
    >>> [row["layer"] for row in report.layers], report.about["steps"]
    ([0, 1, 2, 3, 'all'], 5)
    """
    if list(edges) != sorted(set(edges)) or edges[0] != 0:
        raise InputError("edges", list(edges), "must be increasing and start at 0")
    pairs = sentence_pairs(model, tokenizer, sources, targets, batch_size)
    translator = parts(model)
    if translator.weighted_sums:
        raise InputError("model", None, f"{type(model).__name__} is not a Transformer", "give a Transformer")
    layers = [_Layer(edges) for _ in translator.attentions("cross")]
    for rows, batch in pairs.batches(batch_size, "Comparing"):
        with evaluating(model):
            _look(model, translator, batch, torch.tensor(rows), layers)
    found: list[Row] = [{"layer": number, **layer.row()} for number, layer in enumerate(layers)]
    found.append({"layer": "all", **{name: _mean([row[name] for row in found]) for name in MEANS}})
    sampled = [layer.samples() for layer in layers]  # the same sentences for all layers
    together = {name: np.mean([own[name] for own in sampled], 0) for name in sampled[0]}
    for row, own in zip(found, [*sampled, together], strict=True):
        row |= {f"{name}_ci": half_interval(own[name]) if name in own else None for name in MEANS}
    bins = [{"layer": number, **row} for number, layer in enumerate(layers) for row in layer.bin_rows()]
    about = {"model": model.name_or_path}
    about |= {name: getattr(model.config, key, None) for name, key in (("fusion", "fusion"), ("alpha", "mask_alpha"))}
    about |= {"sentences": len(pairs), "steps": sum(len(pair.ids.target_ids) for pair in pairs)}
    return CalibrationReport(found, bins, about)


class _Layer:
    """Sums over the distributions of one layer."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = torch.tensor(list(edges), dtype=torch.float64)
        self.values: dict[str, list[Tensor]] = {name: [] for name in MEANS}
        self.sentences: dict[str, list[Tensor]] = {name: [] for name in MEANS}

    def add(self, sentences: Tensor, **values: Tensor) -> None:
        """Add numbers [N] of these sentences [N]."""
        for name, value in values.items():
            self.values[name].append(value.cpu().double())
            self.sentences[name].append(sentences.cpu())

    def samples(self) -> dict[str, np.ndarray]:
        """Means over bootstrap samples of the sentences, for each known number."""
        known = [name for name in MEANS if self.values[name]]
        return {name: bootstrap_means(torch.cat(self.values[name]), torch.cat(self.sentences[name])) for name in known}

    def row(self) -> Row:
        values = {name: torch.cat([torch.empty(0), *self.values[name]]) for name in MEANS}
        # tau is NaN where all scores are equal; other NaN values come from the model
        if wrong := [name for name in MEANS if not name.startswith("kendall") and values[name].isnan().any()]:
            raise InputError("model", None, f"{wrong[0]} is not a number", "check its weights, or load it in float32")
        return {name: _mean(values[name].tolist()) for name in MEANS}

    def bin_rows(self) -> Iterable[Row]:
        if not self.values["jsd"]:
            return
        jsd, entropy = (torch.cat(self.values[name]) for name in ("jsd", "entropy"))
        sentences = torch.cat(self.sentences["jsd"])
        chosen = torch.bucketize(entropy.clamp(min=0), self.edges, right=True) - 1
        for number, low in enumerate(self.edges.tolist()):
            high = self.edges[number + 1].item() if number + 1 < len(self.edges) else None
            inside, own = jsd[chosen == number], sentences[chosen == number]
            interval = half_interval(bootstrap_means(inside, own)) if len(inside) else None
            yield {"low": low, "high": high, "jsd": _mean(inside.tolist()), "jsd_ci": interval, "count": len(inside)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and value == value]
    return sum(known) / len(known) if known else None


def _look(model: Any, translator: Parts, batch: Batch, numbers: Tensor, layers: list[_Layer]) -> None:
    """Add one batch, the sentences with these numbers [B], to the sums."""
    attentions = translator.attentions("cross")
    masked = hasattr(model, "mask_parameters")
    with torch.no_grad(), Tape([module for a in attentions for module in a.recorded]) as tape:
        outputs = run_model(model, batch.inputs() | ({"output_calibration": True} if masked else {}))
        weights = [attention_weights(tape, attention, batch.attention_mask) for attention in attentions]  # fused ones
    importance = gradient_importance(model, batch, translator)  # [B, T, S]
    real = (batch.attention_mask != 0)[:, None].expand_as(importance)
    steps = batch.labels != -100
    many = real[steps].sum(-1) > 1
    originals = outputs.original_attentions if masked else weights
    words = numbers.to(steps.device)[:, None].expand_as(steps)[steps]  # [steps]: the sentence of each
    heads = [words.repeat_interleave(a.shape[1]) for a in originals]  # [steps * H]

    def tau(scores: Tensor) -> Tensor:
        return kendall_tau(scores.mean(1)[steps], importance[steps], real[steps])[many]

    for number, (layer, a) in enumerate(zip(layers, originals, strict=True)):
        before = a.transpose(1, 2)[steps].flatten(0, 1)  # [steps * H, S]
        layer.add(heads[number], entropy=entropy(before))
        layer.add(words[many], kendall_attention=tau(a))
        if masked:
            after = weights[number].transpose(1, 2)[steps].flatten(0, 1)
            after = after / after.sum(-1, keepdim=True)
            change = entropy(after) - entropy(before)
            layer.add(heads[number], jsd=jensen_shannon(before, after), entropy_change=change)
            m = outputs.masks[number]
            layer.add(words[many], kendall_mask=tau(m))
            layer.add(words.repeat_interleave(real[steps].sum(-1)), mask_mean=m.mean(1)[steps][real[steps]])


@torch.inference_mode(False)
def gradient_importance(model: Any, batch: Batch, translator: Parts | None = None) -> Tensor:
    """tau_it = |grad of p(y_t) with respect to h_i|, h_i the encoder's output (eq. 2); the norm of d numbers.

    Args:
        model: any supported Transformer, in evaluation mode.
        batch: a batch of B sentences.
        translator: parts of the model, if already known.

    Returns:
        [B, T, S]; 0 at padding.
    """
    (found,), *_ = step_gradients(
        model, translator or parts(model), batch.take(slice(None)), ["memory"], make_score(model, "probability"),
        lambda gradient, _: gradient.norm(dim=-1), rows=_STEPS * batch.input_ids.numel(),
    )  # fmt: skip
    return found
