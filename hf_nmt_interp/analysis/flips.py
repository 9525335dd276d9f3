"""Influence of source words by HotFlip (snell2021, 5.1); definitions: docs/methods.md, How attention learns."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hf_nmt_interp.attribution.gradients import step_gradients
from hf_nmt_interp.attribution.scores import make_score
from hf_nmt_interp.decoding.batch import Batch, evaluating, make_batch
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import check_choice
from hf_nmt_interp.models.families import any_parts
from hf_nmt_interp.models.lstm import LSTMAttentionForSequenceClassification

REPLACEMENTS = ("worst", "zero")
_NUMBERS = 2**25  # products with the vocabulary in memory at a time


@takes_names
@torch.inference_mode(False)
def flip_influence(
    model: Any, input_ids: Tensor, labels: Tensor, attention_mask: Tensor | None = None, *, replacement: str = "worst"
) -> Tensor:
    """Delta[t, l]: how much the loss of y_t grows, to first order, if the word x_l is replaced.

    Delta[t, l] = max_w (e_w - e_(x_l)) . d L_t / d e_(x_l), L_t = -log p(y_t), w any word of the vocabulary.

    Args:
        model: any supported translator, or the LSTM classifier.
        input_ids: [B, S] source tokens, padded on the right.
        labels: [B, T] target tokens, -100 is padding; for the classifier, [B] or [B, 1] classes.
        attention_mask: [B, S], 0 for padding.
        replacement: replace by the "worst" word, or by the "zero" vector, as if it were erased.

    Returns:
        [B, T, S] (T = 1 for the classifier), 0 at padding.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> pair = tokenizer("I like tea.", text_target="Ich mag Tee.", return_tensors="pt")
    >>> hni.flip_influence(model, pair.input_ids, pair.labels).shape
    torch.Size([1, 5, 5])
    """
    check_choice("replacement", replacement, REPLACEMENTS)
    if isinstance(model, LSTMAttentionForSequenceClassification):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        with evaluating(model):
            found = _of_classes(model, input_ids.clone(), labels.clone().flatten(), mask.clone(), replacement)
    else:
        batch = make_batch(model, input_ids, labels, attention_mask)
        with evaluating(model):
            found = _of_words(model, batch, replacement)
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
    taken = any_parts(model)
    embedding: Any = taken.encoder.embedding
    table, width = None, embedding.embedding_dim
    if replacement == "worst":  # the model's own lookup: BART scales inside
        ids = torch.arange(embedding.num_embeddings, device=batch.input_ids.device)
        table, width = embedding(ids).detach() * taken.encoder.scale, len(ids)
    (found,), *_ = step_gradients(
        model, taken, batch.take(slice(None)), ["source"], make_score(model, "log_probability"),
        lambda gradient, vector: _change(-gradient, vector, table), rows=max(1, _NUMBERS // width),
    )  # fmt: skip
    return found
