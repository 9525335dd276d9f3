"""LSTM translator with attention (Luong et al. 2015) and LSTM classifier with attention, as in Snell et al. 2021."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPast,
    Seq2SeqLMOutput,
    SequenceClassifierOutput,
)
from transformers.models.marian.modeling_marian import shift_tokens_right
from transformers.utils.generic import can_return_tuple

from .configuration_lstm import LSTMAttentionConfig, LuongSeq2SeqConfig


class LSTMStates(Cache):
    """Cache of a decoder: h and c of each LSTM, [1, B, n] each.

    With input feeding, also the attentional state of the last token, [B, 1, n].
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.states: list[tuple[Tensor, Tensor]] = []
        self.fed: Tensor | None = None
        self.length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.states = [(h.index_select(1, beam_idx), c.index_select(1, beam_idx)) for h, c in self.states]
        self.fed = None if self.fed is None else self.fed.index_select(0, beam_idx)


class LSTMEncoder(nn.Module):
    """LSTM layers over padded sentences, in one direction or both, concatenated; padding at the end is ignored."""

    def __init__(self, in_features: int, hidden_size: int, layers: int, bidirectional: bool, dropout: float) -> None:
        super().__init__()
        self.out_features = hidden_size * (1 + bidirectional)
        sizes = [in_features] + [self.out_features] * (layers - 1)
        self.forwards = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
        directions = sizes if bidirectional else []
        self.backwards = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in directions)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """From embeddings [B, S, d] and a mask [B, S] to states [B, S, out_features], 0 for padding."""
        if not mask[:, 0].all():
            raise ValueError("attention_mask: padding must be at the end of a row (pad with padding_side='right')")
        position = torch.arange(x.shape[1], device=x.device)
        mirrored = mask.sum(-1, keepdim=True) - 1 - position  # [B, S]
        mirrored = torch.where(mirrored < 0, position, mirrored)[..., None]

        def turned(x: Tensor) -> Tensor:  # each sentence from its last token to its first
            return x.gather(1, mirrored.expand_as(x))

        for layer, ahead in enumerate(self.forwards):
            x = self.dropout(x) if layer else x
            states = ahead(x)[0]
            if self.backwards:
                states = torch.cat([states, turned(self.backwards[layer](turned(x))[0])], -1)
            x = states
        return x * mask[..., None].to(x.dtype)


class LSTMPreTrainedModel(PreTrainedModel):
    """Draws weights uniformly, as in Luong et al. 2015; an attention that is not learned gets no gradients."""

    config_class: Any = LuongSeq2SeqConfig
    config: Any

    def initialize_weights(self) -> None:
        super().initialize_weights()
        if hasattr(self, "attention"):  # here, because loading replaces the parameters
            self.attention.requires_grad_(self.config.attention_mode == "learned")

    def _init_weights(self, module: nn.Module) -> None:
        r = self.config.init_range
        if isinstance(module, nn.Embedding | nn.Linear | nn.LSTM):
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -r, r)


class LuongEncoder(LSTMPreTrainedModel):
    """States h_1..h_L of the source."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        sizes = config.embedding_size, config.hidden_size, config.encoder_layers
        self.layers = LSTMEncoder(*sizes, config.bidirectional, config.dropout)
        self.merge = nn.Linear(2 * config.hidden_size, config.hidden_size) if config.bidirectional else None
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, inputs_embeds: Any = None, **kwargs: Any
    ) -> BaseModelOutput:
        """From tokens [B, S], or their embeddings, to states [B, S, n], 0 for padding."""
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        mask = x.new_ones(x.shape[:2], dtype=torch.long) if attention_mask is None else attention_mask.long()
        states = self.layers(x, mask)
        if self.merge is not None:
            states = self.merge(states) * mask[..., None].to(states.dtype)
        return BaseModelOutput(last_hidden_state=states)


class LuongDecoder(LSTMPreTrainedModel):
    """States s_1..s_T of the target read so far; each layer starts from h_L of the encoder."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        first = config.embedding_size + config.hidden_size * config.input_feeding
        sizes = [first] + [config.hidden_size] * (config.decoder_layers - 1)
        self.layers = nn.ModuleList(nn.LSTM(size, config.hidden_size, batch_first=True) for size in sizes)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        encoder_hidden_states: Any = None,
        encoder_attention_mask: Any = None,
        past_key_values: LSTMStates | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        attentional: Callable[[Tensor], Tensor] | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """From tokens [B, T] (those not read yet) and the encoder's states [B, S, n] to states [B, T, n].

        Input feeding needs `attentional`, which maps states [B, 1, n] to attentional states.
        """
        x: Any = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        past = LSTMStates() if past_key_values is None else past_key_values
        states = past.states
        if not states:
            last = encoder_attention_mask.sum(-1) - 1  # [B]
            first = encoder_hidden_states[torch.arange(len(last), device=last.device), last][None].contiguous()
            states = [(first, torch.zeros_like(first))] * len(self.layers)
        fed = past.fed
        if attentional is None:
            x, states = self._read(x, states)
        else:
            fed = x.new_zeros(len(x), 1, self.config.hidden_size) if fed is None else fed
            found = []
            for token in x.split(1, 1):
                s, states = self._read(torch.cat([token, fed], -1), states)
                fed = attentional(s)
                found.append(s)
            x = torch.cat(found, 1)
        if use_cache:
            past.states, past.fed, past.length = states, fed, past.length + x.shape[1]
        return BaseModelOutputWithPast(last_hidden_state=x, past_key_values=past if use_cache else None)

    def _read(self, x: Tensor, states: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """From inputs [B, T, d] to states [B, T, n] of the topmost layer, and h and c of each layer after them."""
        new = []
        for layer, lstm in enumerate(self.layers):
            x, state = lstm(self.dropout(x) if layer else x, states[layer])
            new.append(state)
        return x, new


class LuongAttention(nn.Module):
    """a = s' W h, alpha = softmax(a), c = sum of alpha h (eq. 1, 2), summed over K heads (eq. 20, 21)."""

    def __init__(self, config: LuongSeq2SeqConfig) -> None:
        super().__init__()
        n = config.hidden_size
        self.heads, self.uniform = config.attention_heads, config.attention_mode == "uniform"
        self.weight = nn.Linear(n, self.heads * n, bias=False) if config.attention == "general" else None

    def forward(self, s: Tensor, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """`attend`; methods record this call, which computes all steps at once."""
        return self.attend(s, h, mask)

    def attend(self, s: Tensor, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """From states s [B, T, n], h [B, S, n] and mask [B, S] to contexts [B, T, n] and weights [B, K, T, S]."""
        query = s if self.weight is None else self.weight(s)
        query = query.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, K, T, n]
        logits = query @ h[:, None].transpose(-1, -2)  # [B, K, T, S]
        if self.uniform:
            logits = torch.zeros_like(logits)
        weights = logits.masked_fill(mask[:, None, None] == 0, -torch.inf).softmax(-1)
        return weights.sum(1) @ h, weights


class LuongSeq2SeqForConditionalGeneration(LSTMPreTrainedModel, GenerationMixin):
    """LSTM translator: p_t = N([c_t, s_t]) (eq. 2).

    With `input_feeding` the decoder reads the attentional state of its last step with each token (Luong et al. 2015,
    section 3.3).

    >>> model = LuongSeq2SeqForConditionalGeneration(LuongSeq2SeqConfig(vocab_size=20))
    >>> model(input_ids=torch.tensor([[3, 4]]), labels=torch.tensor([[5, 6, 7]])).logits.shape
    torch.Size([1, 3, 20])
    """

    _is_stateful = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        n = config.hidden_size
        self.encoder, self.decoder = LuongEncoder(config), LuongDecoder(config)
        self.attention = LuongAttention(config)
        self.hidden = nn.Linear(2 * n, n) if config.output == "hidden" else None
        self.lm_head = nn.Linear(n, config.vocab_size, bias=config.output == "hidden")
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

    def output_logits(self, context: Tensor, state: Tensor) -> Any:
        """Logits [..., V] of N([c, s]), or of W (c + s), from contexts and decoder states [..., n]."""
        return self.lm_head(self.attentional_state(context, state))

    def attentional_state(self, context: Tensor, state: Tensor) -> Tensor:
        """Input [..., n] of the output projection: the hidden layer of N, or c + s."""
        if self.hidden is None:
            return context + state
        return self.hidden(torch.cat([context, state], -1)).relu()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: LSTMStates | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Logits [B, T, V] of the target's next tokens; with labels [B, T] also the loss.

        Arguments are those of any encoder-decoder of transformers; padding of the source [B, S] must be at its end.
        Attention weights ([B, K, T, S],) are `cross_attentions`, states (h,) `encoder_hidden_states` and (s,)
        `decoder_hidden_states`.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, inputs_embeds)
        h = encoder_outputs[0]
        mask = h.new_ones(h.shape[:2], dtype=torch.long) if attention_mask is None else attention_mask
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None

        def attentional(s: Tensor) -> Tensor:
            return self.attentional_state(self.attention.attend(s, h, mask)[0], s)

        fed = attentional if self.config.input_feeding else None
        decoded = self.decoder(decoder_input_ids, h, mask, past_key_values, decoder_inputs_embeds, use_cache, fed)
        s = decoded.last_hidden_state
        context, weights = self.attention(s, h, mask)
        logits = self.output_logits(context, s)
        loss: Any = None
        if labels is not None:
            loss = fixed_cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), num_items_in_batch)
        all_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        all_weights = self.config.output_attentions if output_attentions is None else output_attentions
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=(s,) if all_states else None,
            cross_attentions=(weights,) if all_weights else None,
            encoder_last_hidden_state=h,
            encoder_hidden_states=(h,) if all_states else None,
        )


class LSTMAttentionForSequenceClassification(LSTMPreTrainedModel):
    """a_l = v' ReLU(Q h_l), alpha = softmax(a), p = softmax over [0, W' sum of alpha h] (eq. 7, 8).

    The first class has logit 0: with two classes, p of the second one is the paper's sigmoid.

    >>> model = LSTMAttentionForSequenceClassification(LSTMAttentionConfig(vocab_size=20, num_labels=2)).eval()
    >>> found = model(input_ids=torch.tensor([[3, 4, 5]]), output_attentions=True)
    >>> found.logits.shape, found.attentions[0].shape
    (torch.Size([1, 2]), torch.Size([1, 1, 1, 3]))
    """

    config_class = LSTMAttentionConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        n = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        sizes = config.embedding_size, n, config.encoder_layers
        self.encoder = LSTMEncoder(*sizes, config.bidirectional, config.dropout)
        states = self.encoder.out_features  # 2 n in both directions
        self.attention = nn.Sequential(nn.Linear(states, n), nn.ReLU(), nn.Linear(n, 1))
        self.classifier = nn.Linear(states, config.num_labels - 1)
        self.post_init()

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        return self

    def output_logits(self, context: Tensor) -> Any:
        """Logits [..., labels] from contexts [..., 2 n], or n in one direction."""
        return F.pad(self.classifier(context), (1, 0))

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Logits [B, labels] of texts; with labels [B] also the loss.

        Arguments are those of any classifier of transformers; padding of the text [B, S] must be at its end. Attention
        weights ([B, 1, 1, S],) are `attentions`, states ([B, S, 2 n],), or n in one direction, `hidden_states`.
        """
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        mask = x.new_ones(x.shape[:2], dtype=torch.long) if attention_mask is None else attention_mask.long()
        h = self.encoder(x, mask)
        a = self.attention(h)[..., 0]  # [B, S]
        if self.config.attention_mode == "uniform":
            a = torch.zeros_like(a)
        weights = a.masked_fill(mask == 0, -torch.inf).softmax(-1)
        logits = self.output_logits((weights[:, None] @ h)[:, 0])
        loss: Any = None
        if labels is not None:
            loss = fixed_cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), num_items_in_batch)
        all_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        all_weights = self.config.output_attentions if output_attentions is None else output_attentions
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=(h,) if all_states else None,
            attentions=(weights[:, None, None],) if all_weights else None,
        )
