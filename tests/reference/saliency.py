"""Word saliency, slow and literal: one forward and one backward pass per target step and noisy copy."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.reference.forward import describe, double, run
from tests.reference.recurrent import FORWARDS
from tests.reference.shift import shifted_right


def score_of(logits: Tensor, label: Tensor, score: str) -> Tensor:
    """What is differentiated: the label's log_probability, probability or logit, from the logits [V] of its step."""
    if score == "logit":
        return logits[label]
    log_probability = logits[label] - torch.logsumexp(logits, -1)
    return log_probability if score == "log_probability" else log_probability.exp()


def take_apart(model: PreTrainedModel) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], Tensor]]:
    """Embeddings of source and target tokens [V, d], and the function from some of them to logits [T, V]."""
    if forward := FORWARDS.get(type(model).__name__):
        tables = (double(stack.embed_tokens.weight) for stack in (model.encoder, model.decoder))
        return *tables, lambda source, target: forward(model, source, target)[0]
    network = describe(model)
    tables = network.encoder.embedding, network.decoder.embedding
    return *tables, lambda source, target: run(network, source, target).logits.x


def _one_copy(
    logits_of: Callable, clean: Tensor, noise: Tensor, prefix: Tensor, label: Tensor, score: str, kind: str
) -> Tensor:
    """Saliency [S + P] of the source and prefix tokens for one step, at source embeddings clean + noise [S, d].

    psi_i = dp/dE_i . E_i with the gradient at the noisy point and E_i the clean embedding (as the authors released it:
    the embedding is multiplied by a 1 whose gradient is psi, then the noise is added); li2016_i = mean |dp/dE_i|.
    """
    source = (clean + noise).requires_grad_()
    prefix = prefix.clone().requires_grad_()
    logits = logits_of(source, prefix)[-1]
    gradients = torch.cat(torch.autograd.grad(score_of(logits, label, score), (source, prefix)))  # [S + P, d]
    if kind == "li2016":
        return gradients.abs().mean(-1)
    psi = (gradients * torch.cat([clean, prefix.detach()])).sum(-1)
    return psi.abs() if kind == "abs_psi" else psi


def saliency(
    model: PreTrainedModel,
    input_ids: Tensor,
    labels: Tensor,
    score: str = "log_probability",
    kind: str = "psi",
    noise: Tensor | None = None,
    average: str = "normalised",
) -> dict[str, Tensor]:
    """Saliency of every token for every target step of one unpadded sentence pair.

    Without noise the signed saliency itself. With noise the average over the n copies: "raw" is the plain mean;
    "normalised" clamps each copy at 0 and divides it by its sum over the source (prefix and start by the same sum)
    before the mean. A copy without any positive source saliency counts as 0.

    Args:
        model: any family; its weights are used in float64.
        input_ids: source tokens [S].
        labels: target tokens [T].
        score: "log_probability", "probability" or "logit".
        kind: "psi", "abs_psi" (|psi| of each copy) or "li2016".
        noise: added to the scaled source embeddings before positions [n, S, d].
        average: of the noisy copies, "normalised" or "raw".

    Returns:
        source [T, S], prefix [T, T], start [T].
    """
    S, T = len(input_ids), len(labels)
    source_table, target_table, logits_of = take_apart(model)
    clean = source_table[input_ids]  # [S, d]: each occurrence is a row of its own
    decoder_input = shifted_right(model, labels[None])[0]
    found = {"source": torch.zeros(T, S), "prefix": torch.zeros(T, T), "start": torch.zeros(T)}
    found = {name: array.double() for name, array in found.items()}
    for t in range(T):
        prefix = target_table[decoder_input[: t + 1]]
        copies = []
        for sample in torch.zeros(1, *clean.shape) if noise is None else noise:
            copy = _one_copy(logits_of, clean, sample, prefix, labels[t], score, kind)
            if noise is not None and average == "normalised":
                copy = copy.clamp(min=0)
                total = copy[:S].sum()
                copy = copy / total if total > 0 else torch.zeros_like(copy)
            copies.append(copy)
        mean = torch.stack(copies).mean(0)
        found["source"][t], found["start"][t], found["prefix"][t, :t] = mean[:S], mean[S], mean[S + 1 :]
    return found


def noise_deviation(
    model: PreTrainedModel, input_ids: Tensor, sigma: float | None = 0.15, noise: float = 1.25
) -> float:
    """s = sigma (max - min) of the sentence's own scaled embeddings; without sigma, noise times their deviation."""
    embeddings = take_apart(model)[0][input_ids]
    if sigma is not None:
        return sigma * (embeddings.max() - embeddings.min()).item()
    numbers = embeddings.flatten().tolist()
    mean = sum(numbers) / len(numbers)
    return noise * (sum((x - mean) ** 2 for x in numbers) / len(numbers)) ** 0.5


def copies_needed(copies: Sequence[Tensor], size: int = 5) -> int:
    """Of source scores [T, S] of noisy copies, how many until a round has changed the best token of no step."""

    def best_tokens(count: int) -> list[int]:
        mean = sum(copies[:count]) / count
        return [max(range(mean.shape[1]), key=lambda i: mean[t, i].item()) for t in range(mean.shape[0])]

    count = min(size, len(copies))
    while count < len(copies):
        before, count = best_tokens(count), min(count + size, len(copies))
        if best_tokens(count) == before:
            break
    return count
