"""Influence of source words by gradients, as HotFlip estimates it (Ebrahimi et al. 2018; snell2021, section 5.1)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hf_nmt_interp.attribution import gradients
from hf_nmt_interp.attribution.base import Batch, evaluating, label_log_probs, make_batch
from hf_nmt_interp.attribution.tape import Tape
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.families import parts
from hf_nmt_interp.models.lstm import LSTMAttentionForSequenceClassification

REPLACEMENTS = ("worst", "zero")
_NUMBERS = 2**25  # products with the vocabulary that are held at a time


@torch.inference_mode(False)
def flip_influence(
    model: Any,
    input_ids: Tensor,
    labels: Tensor,
    attention_mask: Tensor | None = None,
    *,
    replacement: str = "worst",
) -> Tensor:
    """Delta[t, l]: how much the loss of y_t grows, to first order, if the word x_l is replaced.

    Delta[t, l] = max_w (e_w - e_(x_l)) . d L_t / d e_(x_l), L_t = -log p(y_t), w any word of the vocabulary.

    Args:
        model: any supported translator, or the LSTM classifier.
        input_ids: [B, S] source tokens, padded on the right.
        labels: [B, T] target tokens, -100 is padding; of the classifier [B] or [B, 1] classes.
        attention_mask: [B, S], 0 for padding.
        replacement: by the "worst" word, or by the "zero" vector, as if it were erased.

    Returns:
        [B, T, S] (T = 1 for the classifier), 0 at padding.
    """
    if replacement not in REPLACEMENTS:
        raise InputError(f"replacement: {replacement!r} is not one of {', '.join(REPLACEMENTS)}")
    if isinstance(model, LSTMAttentionForSequenceClassification):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        with evaluating(model):
            found = _of_classes(model, input_ids.clone(), labels.clone().flatten(), mask.clone(), replacement)
    else:
        batch = make_batch(model, input_ids, labels, attention_mask)
        with evaluating(model):
            found = _of_words(model, Batch(*(tensor.clone() for tensor in vars(batch).values())), replacement)
        found = found * (batch.labels != -100)[..., None]
        mask = batch.attention_mask
    return found * (mask != 0)[:, None]


def _change(gradient: Tensor, embedding: Tensor, table: Tensor | None) -> Tensor:
    """Growth of the loss [...] from its gradient and the word's embedding [..., d]; all vectors are in the table."""
    away = -(gradient * embedding).sum(-1)
    return away if table is None else (gradient @ table.T).amax(-1) + away


def _of_classes(model: Any, input_ids: Tensor, labels: Tensor, mask: Tensor, replacement: str) -> Tensor:
    table = model.embed_tokens.weight.detach()
    with torch.enable_grad():
        embedding = table[input_ids].requires_grad_()
        loss = F.cross_entropy(model(attention_mask=mask, inputs_embeds=embedding).logits, labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, embedding)
    return _change(gradient, embedding.detach(), table if replacement == "worst" else None)[:, None]


def _of_words(model: Any, batch: Batch, replacement: str) -> Tensor:
    found = parts(model)
    stack, projection = found.encoder, found.projection
    embedding: Any = stack.embedding
    inputs: list[Tensor] = []

    def leaf(embedding: Tensor) -> Tensor:
        inputs.append(embedding.detach().clone().requires_grad_())
        return inputs[-1]

    with (
        torch.enable_grad(),
        gradients.SingleOperations(),
        gradients.embeddings(stack, leaf),
        Tape([projection]) as tape,
    ):
        loss = -label_log_probs(model(**batch.inputs()).logits, batch.labels)
        state = tape.input(projection)
        (gradient,) = torch.autograd.grad(loss.sum(), state, retain_graph=True)
        table = None
        if replacement == "worst":
            ids = torch.arange(embedding.num_embeddings, device=state.device)
            table = embedding(ids).detach() * stack.scale  # as the model looks words up: BART scales inside
        steps = max(1, _NUMBERS // (batch.input_ids.numel() * (state.shape[-1] if table is None else len(table))))
        (scores,) = gradients.autograd_scores(
            state, gradient, inputs, [inputs[0].detach()], lambda g, e: _change(g, e, table), steps
        )
    return scores
