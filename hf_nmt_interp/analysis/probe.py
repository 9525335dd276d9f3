"""Lexical probe (snell2021, section 2.2); definitions: docs/methods.md, How attention learns."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from hf_nmt_interp.decoding.batch import Batch, evaluating, make_batch
from hf_nmt_interp.decoding.translators import takes_names
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.models.conv.modeling_conv import ConvEncoderOutput
from hf_nmt_interp.models.families import any_parts
from hf_nmt_interp.models.lstm import LSTMAttentionForSequenceClassification, LuongSeq2SeqForConditionalGeneration
from hf_nmt_interp.models.proxy import BagOfWordsProxy

_NUMBERS = 2**22  # logits in memory at a time: they fit into the cache


@dataclass(frozen=True)
class Probe:
    """Scores of every step t and source position l; T is 1 for classifiers.

    Attributes:
        log_beta: [B, T, S] log-probability of y_t if the network attends to l only, -inf at padding.
        log_odds: [B, T, S] log(beta / (1 - beta)), from the logits: has the same order as beta, but unlike log_beta in
            float32 does not lose precision where beta is near 1; 0 at padding.
        gamma: [B, T, S] that logit of y_t, for classifiers its log-odds; with `vocabulary` [B, T, S, V]; 0 at padding.
        kept: [B, T, S], False at padding.
    """

    log_beta: Tensor
    log_odds: Tensor
    gamma: Tensor
    kept: Tensor

    @property
    def beta(self) -> Tensor:
        """[B, T, S] probability of y_t if the network attends to l only (eq. 4, 6, 9), 0 at padding."""
        return self.log_beta.exp()


@takes_names
@torch.no_grad()
def lexical_probe(
    model: Any, input_ids: Tensor, labels: Tensor, attention_mask: Tensor | None = None, *, vocabulary: bool = False
) -> Probe:
    """beta[t, l] = N([h_l, s_t])_(y_t) for all t and l: the network attends to position l only (eq. 4, 6, 9).

    All heads attend to l: the context of K heads, which is summed, is K h_l. Decoder states are the usual ones, also
    with input feeding. In Transformers and the convolutional translator, which attend in every layer, all heads of all
    layers attend to l at every step up to t.

    Args:
        model: the LSTM translator or classifier, the bag-of-words proxy, or any other supported translator.
        input_ids: [B, S] source tokens, padded on the right.
        labels: [B, T] target tokens, -100 is padding; for classifiers, [B] or [B, 1] classes.
        attention_mask: [B, S], 0 for padding.
        vocabulary: whether to return `gamma` of all words, not only of y_t.

    >>> import hf_nmt_interp as hni
    >>> model, tokenizer = hni.load_demo("en-de")
    >>> pair = tokenizer("I like tea.", text_target="Ich mag Tee.", return_tensors="pt")
    >>> hni.lexical_probe(model, pair.input_ids, pair.labels).beta[0].argmax(-1)
    tensor([0, 1, 2, 3, 4])
    """
    with evaluating(model):
        if isinstance(model, LSTMAttentionForSequenceClassification | BagOfWordsProxy):
            return _states_only(model, input_ids, labels, attention_mask, vocabulary)
        any_parts(model)  # raises unless it is a translator
        batch = make_batch(model, input_ids, labels, attention_mask)
        if isinstance(model, LuongSeq2SeqForConditionalGeneration):
            return _luong(model, batch, vocabulary)
        return _one_state_memories(model, batch, vocabulary)


class _Collector:
    """The probe of a batch, filled piece by piece."""

    def __init__(self, mask: Tensor, labels: Tensor, like: Tensor, sizes: list[int]) -> None:
        self.kept = (mask != 0)[:, None, :] & (labels != -100)[:, :, None]
        self.labels = labels
        self.log_beta = torch.full(self.kept.shape, -torch.inf, dtype=like.dtype, device=like.device)
        self.log_odds = like.new_zeros(self.kept.shape)
        self.gamma = like.new_zeros(*self.kept.shape, *sizes)

    def put(self, where: tuple[Tensor, Tensor, Tensor], logits: Tensor) -> None:
        """Logits [N, V] of the triples (sentence, step, position) given."""
        labels = self.labels[where[:2]]
        self.log_beta[where] = -F.cross_entropy(logits, labels, reduction="none")
        self.log_odds[where] = _log_odds(logits, labels)
        self.gamma[where] = logits if self.gamma.ndim > 3 else logits.gather(1, labels[:, None])[:, 0]

    def probe(self) -> Probe:
        return Probe(self.log_beta, self.log_odds, self.gamma, self.kept)


def _log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """logit of y minus the log of the sum of exp of all others [...], from logits [..., V] and labels y [...]."""
    at = labels[..., None]
    return logits.gather(-1, at)[..., 0] - logits.scatter(-1, at, -torch.inf).logsumexp(-1)


def _luong(model: Any, batch: Batch, vocabulary: bool) -> Probe:
    found = model(**batch.inputs(), output_hidden_states=True)
    h, s, V = found.encoder_hidden_states[0], found.decoder_hidden_states[0], model.config.vocab_size
    collector = _Collector(batch.attention_mask, batch.labels, s, [V] if vocabulary else [])
    for rows in collector.kept.nonzero().split(max(1, _NUMBERS // V)):
        b, t, l = rows.unbind(1)  # noqa: E741
        collector.put((b, t, l), model.output_logits(model.config.attention_heads * h[b, l], s[b, t]))
    return collector.probe()


def _states_only(model: Any, input_ids: Tensor, labels: Tensor, mask: Tensor | None, vocabulary: bool) -> Probe:
    """Predictions from the context alone: one row of logits per position."""
    labels = labels[:, None] if labels.ndim == 1 else labels
    if input_ids.ndim != 2 or labels.ndim != 2 or len(labels) != len(input_ids):
        problem = f"of shape {list(labels.shape)} for input_ids of {list(input_ids.shape)}"
        raise InputError("labels", None, problem, "[B] or [B, T] is needed")
    mask = torch.ones_like(input_ids) if mask is None else mask
    kept = (mask != 0)[:, None] & (labels != -100)[:, :, None]  # [B, T, S]
    logits = model.output_logits(model(input_ids, mask, output_hidden_states=True).hidden_states[0])  # [B, S, V]
    picked = labels.clamp(min=0)[:, None].expand(-1, logits.shape[1], -1)  # [B, S, T]
    log_beta = logits.log_softmax(-1).gather(-1, picked).transpose(1, 2)
    columns = [_log_odds(logits, picked[..., t]) for t in range(picked.shape[-1])]  # T of [B, S]
    log_odds = torch.stack(columns, 1) * kept
    if vocabulary:
        gamma = logits[:, None] * kept[..., None]  # [B, T, S, V]
    elif isinstance(model, LSTMAttentionForSequenceClassification):
        gamma = log_odds
    else:
        gamma = logits.gather(-1, picked).transpose(1, 2) * kept
    return Probe(log_beta.masked_fill(~kept, -torch.inf), log_odds, gamma, kept)


def _one_state_memories(model: Any, batch: Batch, vocabulary: bool) -> Probe:
    """Decoders that read one encoder state instead of all: softmax over one key is 1 in every layer and head."""
    encoded: Any = model.get_encoder()(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
    h, T = encoded[0], batch.labels.shape[1]
    V = any_parts(model).projection.out_features
    collector = _Collector(batch.attention_mask, batch.labels, h, [V] if vocabulary else [])
    for rows in (batch.attention_mask != 0).nonzero().split(max(1, _NUMBERS // (T * V))):
        b, l = rows.unbind(1)  # noqa: E741
        memory: Any = BaseModelOutput(last_hidden_state=h[b, l][:, None])  # [N, 1, d]
        if isinstance(encoded, ConvEncoderOutput):  # its contexts grow with the square root of the number of states
            lengths = batch.attention_mask.sum(-1)[b].to(h.dtype).sqrt()[:, None, None]
            memory = ConvEncoderOutput(h[b, l][:, None], attended=encoded[1][b, l][:, None] * lengths)
        inputs = batch.inputs() | {"encoder_outputs": memory, "attention_mask": torch.ones_like(b)[:, None]}
        del inputs["input_ids"]
        logits = model(**inputs | {"decoder_input_ids": batch.decoder_input_ids[b]}).logits  # [N, T, V]
        n, t = (batch.labels[b] != -100).nonzero(as_tuple=True)
        collector.put((b[n], t, l[n]), logits[n, t])
    return collector.probe()
