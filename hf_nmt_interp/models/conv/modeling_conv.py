"""Convolutional translator (Gehring et al. 2017, sections 3.1 to 3.5).

Sums of two vectors are scaled by sqrt(0.5), including those around the attention, as in the authors' code. Their
weight normalisation is left out: it changes how weights are learned, not which functions they can represent.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions, Seq2SeqLMOutput
from transformers.models.marian.modeling_marian import shift_tokens_right
from transformers.utils.generic import can_return_tuple

from .configuration_conv import ConvSeq2SeqConfig

HALF = math.sqrt(0.5)


class ConvWindows(Cache):
    """Cache of a decoder: the last kernel - 1 inputs [B, kernel - 1, n] of a layer."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.inputs: list[Tensor] = []
        self.length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.inputs = [x.index_select(0, beam_idx) for x in self.inputs]


@dataclass
class ConvEncoderOutput(BaseModelOutput):
    """Keys z [B, S, d] as `last_hidden_state`, and values z + e [B, S, d] as `attended`."""

    attended: Tensor | None = None


class GatedConvolution(nn.Linear):
    """GLU of a convolution, written as a linear layer on windows of `kernel` tokens: A * sigmoid(B)."""

    def __init__(self, features: int, kernel: int) -> None:
        super().__init__(kernel * features, 2 * features)
        self.kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        """From [B, L + kernel - 1, n] to [B, L, n]."""
        length = x.shape[1] - self.kernel + 1
        windows = torch.cat([x[:, i : i + length] for i in range(self.kernel)], -1)
        return F.glu(super().forward(windows))


class ConvAttention(nn.Module):
    """d = W h + b + g, weights softmax(d z), c = weights (z + e) sqrt(m), m the length of the source (3.3, 3.4)."""

    def __init__(self, config: ConvSeq2SeqConfig) -> None:
        super().__init__()
        self.query = nn.Linear(config.hidden_size, config.embedding_size)
        self.output = nn.Linear(config.embedding_size, config.hidden_size)

    def forward(self, h: Tensor, g: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """From states h [B, T, n], embeddings g [B, T, d] and the source [B, S, d] to [B, T, n] and [B, 1, T, S]."""
        d = (self.query(h) + g) * HALF
        logits = d @ keys.transpose(-1, -2)
        weights = logits.masked_fill(mask[:, None] == 0, -torch.inf).softmax(-1)  # [B, T, S]
        m = mask.sum(-1)[:, None, None].to(h.dtype)
        return self.output(weights @ values * m.sqrt()), weights[:, None]


class ConvEncoderLayer(GradientCheckpointingLayer):
    def __init__(self, config: ConvSeq2SeqConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config.hidden_size, config.kernel_size)
        self.dropout, self.side = nn.Dropout(config.dropout), config.kernel_size // 2

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """From [B, S, n] and a mask [B, S, 1] to [B, S, n]."""
        seen = F.pad(self.dropout(x) * mask, (0, 0, self.side, self.side))
        return (self.convolution(seen) + x) * HALF


class ConvDecoderLayer(GradientCheckpointingLayer):
    def __init__(self, config: ConvSeq2SeqConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config.hidden_size, config.kernel_size)
        self.attention = ConvAttention(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, before: Tensor, g: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """From [B, T, n] and the inputs before it [B, kernel - 1, n] to [B, T, n], its weights, the last inputs."""
        seen = torch.cat([before, self.dropout(x)], 1)
        h = self.convolution(seen)
        c, weights = self.attention(h, g, keys, values, mask)
        return ((h + c) * HALF + x) * HALF, weights, seen[:, seen.shape[1] - before.shape[1] :]


class ConvPreTrainedModel(PreTrainedModel):
    config_class = ConvSeq2SeqConfig
    config: Any
    supports_gradient_checkpointing = True

    def _init_weights(self, module: nn.Module) -> None:
        """Keeps the variance: deviation sqrt(4 p / n) before a GLU, otherwise sqrt(p / n), p = 1 - dropout (3.5)."""
        if isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=0.1)
        elif isinstance(module, nn.Linear):
            gain = 4 if isinstance(module, GatedConvolution) else 1
            init.normal_(module.weight, std=math.sqrt(gain * (1 - self.config.dropout) / module.in_features))
            if module.bias is not None:
                init.zeros_(module.bias)


class ConvStack(ConvPreTrainedModel):
    """Shared by encoder and decoder: embeddings of tokens and positions, and their projection to states."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.embed_positions = nn.Embedding(config.max_position_embeddings, config.embedding_size)
        self.dropout = nn.Dropout(config.dropout)
        self.enter = nn.Linear(config.embedding_size, config.hidden_size)
        self.leave = nn.Linear(config.hidden_size, config.embedding_size)

    def embed(self, ids: Tensor | None, embeddings: Tensor | None, first: int = 0) -> Tensor:
        """Tokens [B, L], or their embeddings, plus positions, the first of which is given: [B, L, d]."""
        x = self.embed_tokens(ids) if embeddings is None else embeddings
        position = torch.arange(first, first + x.shape[1], device=x.device)
        return self.dropout(x + self.embed_positions(position))


class ConvEncoder(ConvStack):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.layers = nn.ModuleList(ConvEncoderLayer(config) for _ in range(config.encoder_layers))
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, inputs_embeds: Any = None, **kwargs: Any
    ) -> ConvEncoderOutput:
        """From tokens [B, S], or their embeddings, to keys z and values z + e [B, S, d]."""
        e = self.embed(input_ids, inputs_embeds)
        if attention_mask is None:
            attention_mask = e.new_ones(e.shape[:2])
        if not attention_mask[:, 0].all():
            raise ValueError("attention_mask: padding must be at the end of a row (pad with padding_side='right')")
        mask = attention_mask[..., None].to(e.dtype)
        x = self.enter(e)
        for layer in self.layers:
            x = layer(x, mask)
        z = self.leave(x)
        if self.training:  # gradients of all attentions arrive here; they are averaged, except for e (3.4)
            z = z.detach() + (z - z.detach()) / self.config.decoder_layers
        return ConvEncoderOutput(last_hidden_state=z, attended=(z + e) * HALF)


class ConvDecoder(ConvStack):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.layers = nn.ModuleList(ConvDecoderLayer(config) for _ in range(config.decoder_layers))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        keys: Tensor | None = None,
        values: Tensor | None = None,
        mask: Tensor | None = None,
        past_key_values: ConvWindows | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """From tokens [B, T] (those not read yet) and the source's keys and values [B, S, d] to [B, T, d]."""
        past = ConvWindows() if past_key_values is None else past_key_values
        g = self.embed(input_ids, inputs_embeds, past.length)
        x = self.enter(g)
        nothing = x.new_zeros(len(x), self.config.kernel_size - 1, x.shape[-1])
        weights, last = [], []
        for number, layer in enumerate(self.layers):
            before = past.inputs[number] if past.inputs else nothing
            x, found, inputs = layer(x, before, g, keys, values, mask)
            weights.append(found)
            last.append(inputs)
        if use_cache:
            past.inputs, past.length = last, past.length + x.shape[1]
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.dropout(self.leave(x)),
            past_key_values=past if use_cache else None,
            cross_attentions=tuple(weights),
        )


class ConvSeq2SeqForConditionalGeneration(ConvPreTrainedModel, GenerationMixin):
    """Convolutional translator.

    >>> model = ConvSeq2SeqForConditionalGeneration(ConvSeq2SeqConfig(vocab_size=20))
    >>> model(input_ids=torch.tensor([[3, 4]]), labels=torch.tensor([[5, 6, 7]])).logits.shape
    torch.Size([1, 3, 20])
    """

    _is_stateful = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder, self.decoder = ConvEncoder(config), ConvDecoder(config)
        self.lm_head = nn.Linear(config.embedding_size, config.vocab_size)
        tied = ["decoder.embed_tokens.weight"] + ["lm_head.weight"] * config.tie_output
        self._tied_weights_keys = dict.fromkeys(tied, "encoder.embed_tokens.weight")
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: Any) -> None:
        self.encoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.decoder.embed_tokens = value

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the decoder creates its own cache

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: ConvWindows | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Logits [B, T, V] of the target's next tokens; with labels [B, T] also the loss.

        Arguments are those of any encoder-decoder of transformers; padding of the source [B, S] must be at its end,
        and `encoder_outputs` are keys and values [B, S, d]. Attention weights are `cross_attentions` [B, 1, T, S].
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, inputs_embeds)
        keys, values = encoder_outputs[:2]
        mask = keys.new_ones(keys.shape[:2]) if attention_mask is None else attention_mask
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None
        source = keys, values, mask
        decoded = self.decoder(decoder_input_ids, *source, past_key_values, decoder_inputs_embeds, use_cache)
        logits = self.lm_head(decoded.last_hidden_state)
        loss: Any = None
        if labels is not None:
            loss = fixed_cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), num_items_in_batch)
        all_weights = self.config.output_attentions if output_attentions is None else output_attentions
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=decoded.past_key_values,
            cross_attentions=decoded.cross_attentions if all_weights else None,
            encoder_last_hidden_state=keys,
        )
