"""Translators with a head that is trained to align words (Chen et al. 2020); their translations are unchanged."""

import math
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from .configuration_aligned import (
    AlignedBartConfig,
    AlignedM2M100Config,
    AlignedMarianConfig,
    AlignedMBartConfig,
    AlignedMT5Config,
    AlignedT5Config,
)
from .head import AlignmentHead


class AlignmentHeadMixin(PreTrainedModel):
    """A translator with an `alignment_head`: soft links at the cost of one attention.

    `forward(..., output_alignment=True)` adds `alignment` [B, T, S] to the output, `generate(..., output_alignment=
    True)` to its result; row t aligns the token that the decoder reads at position t, so row 0 belongs to the start
    token. Logits are those of the translator without a head.

    The head of a plain checkpoint starts with the norm and the projections of the cross-attention above the layer it
    reads, if there is one with as many heads, otherwise at random.
    """

    def __init__(self, config):
        if not hasattr(config, "alignment_heads"):  # not isinstance: with remote code the class may exist twice
            name = type(config).__name__
            raise ValueError(f"config is a {name}; use Aligned{name}(**config.to_dict())")
        super().__init__(config)
        if config.alignment_heads is None:
            heads = getattr(config, "decoder_attention_heads", None) or config.num_heads  # T5
            config.alignment_heads = math.gcd(heads, config.hidden_size)
        self._new_head(len(self._decoder_layers()) // 2 if config.alignment_layer is None else config.alignment_layer)
        self.alignment_head.reset()

    def _new_head(self, layer: int) -> None:
        number = len(self._decoder_layers())
        if not -number <= layer < number:
            raise ValueError(f"alignment_layer={layer} is out of range: the decoder has {number} layers")
        self.config.alignment_layer = layer % number
        self.alignment_head = AlignmentHead(self.config.hidden_size, self.config.alignment_heads)

    def _decoder_layers(self) -> Any:
        decoder = self.get_decoder()
        return decoder.block if hasattr(decoder, "block") else decoder.layers  # T5, others

    def alignment_inputs(self) -> tuple[nn.Module, nn.Module]:
        """The modules whose outputs the head reads: a decoder layer (the decoder for the last), and the encoder."""
        layers, layer = self._decoder_layers(), self.config.alignment_layer
        is_last = layer == len(layers) - 1  # some families have a norm after the last layer
        return self.get_decoder() if is_last else layers[layer], self.get_encoder()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_alignment: bool = False,
        only_alignment: bool = False,
        **kwargs,
    ):
        """Like the family's, with two more arguments.

        `output_alignment` adds the soft links [B, T, S] as `alignment`. `only_alignment`, for training, returns only
        these, without logits, and only the head gets a gradient; it needs both kinds of ids.
        """
        if only_alignment:
            return self.align_ids(input_ids, decoder_input_ids, attention_mask)
        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "encoder_outputs": encoder_outputs,
            "past_key_values": past_key_values,
            "inputs_embeds": inputs_embeds,
            "decoder_inputs_embeds": decoder_inputs_embeds,
            "labels": labels,
            "use_cache": use_cache,
        }
        if not output_alignment:
            return super().forward(**given, **kwargs)
        shown = kwargs.pop("output_hidden_states", None)
        as_dict = kwargs.pop("return_dict", None)
        outputs = super().forward(**given, **kwargs, output_hidden_states=True, return_dict=True)
        states = outputs.decoder_hidden_states[self.config.alignment_layer + 1]
        alignment = self.alignment_head(states, outputs.encoder_last_hidden_state, attention_mask)
        if not (self.config.output_hidden_states if shown is None else shown):
            hidden = ("decoder_hidden_states", "encoder_hidden_states")
            outputs = type(outputs)(**{name: value for name, value in outputs.items() if name not in hidden})
        outputs["alignment"] = alignment
        return outputs if (self.config.return_dict if as_dict is None else as_dict) else outputs.to_tuple()

    def align_ids(self, input_ids: Any, decoder_input_ids: Any, attention_mask: Tensor | None = None) -> Tensor:
        """Soft links [B, T, S] without logits; only the head gets a gradient."""
        if input_ids is None or decoder_input_ids is None:
            raise ValueError("only_alignment=True needs input_ids and decoder_input_ids")
        with torch.no_grad():
            memory = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            read = {"encoder_hidden_states": memory, "encoder_attention_mask": attention_mask, "use_cache": False}
            found = self.get_decoder()(input_ids=decoder_input_ids, **read, output_hidden_states=True)
        return self.alignment_head(found.hidden_states[self.config.alignment_layer + 1], memory, attention_mask)

    @torch.no_grad()
    def generate(self, *args, output_alignment: bool = False, **kwargs):
        """Like the family's; `output_alignment` adds `alignment` [N, L, S] to a returned dictionary.

        Row t aligns the token `sequences[:, t]`. It is 0 for the last one, which the decoder has not read, and after
        the end of a sequence.
        """
        if not output_alignment:
            return super().generate(*args, **kwargs)  # type: ignore[misc]
        kwargs |= {"return_dict_in_generate": True, "output_hidden_states": True}
        found = super().generate(*args, **kwargs)  # type: ignore[misc]
        found["alignment"] = self._align_generated(found, kwargs.get("attention_mask"))
        return found

    def _align_generated(self, found: Any, mask: Tensor | None) -> Tensor:
        """Soft links from the states that `generate()` kept, for the returned beams."""
        layer, length = self.config.alignment_layer + 1, found.sequences.shape[1]
        steps = [step[layer] for step in found.decoder_hidden_states]
        number = len(found.sequences)
        rows = torch.arange(number, device=steps[0].device)[:, None].expand(-1, len(steps))
        if (beams := getattr(found, "beam_indices", None)) is not None:
            rows = beams[:, : len(steps)]  # the row that was continued at each step; -1 after the end
        memory = found.encoder_hidden_states[-1]
        first = steps[0][rows[:, 0], : length - len(steps)]  # tokens given to generate(), e.g. the start token
        later = [step[rows[:, n].clamp(min=0), -1] for n, step in enumerate(steps) if n]
        states = torch.cat([first, torch.stack(later, 1)] if later else [first], 1)  # [N, L - 1, d]

        def expand(of_source: Tensor) -> Tensor:  # a row for each sequence; sources may have been repeated for beams
            return of_source[rows[:, 0] // (len(steps[0]) // len(of_source))]

        alignment = self.alignment_head(states, expand(memory), None if mask is None else expand(mask))
        ended = F.pad(rows[:, 1:] < 0, (first.shape[1], 0))
        return F.pad(alignment.masked_fill(ended[..., None], 0), (0, 0, 0, 1))

    def without_head(self) -> Any:
        """The translator without the head, a model of its family with the same weights."""
        family: Any = type(self).__mro__[2]
        known = self.config.to_dict()
        for name in ("alignment_layer", "alignment_heads", "model_type", "architectures"):
            known.pop(name, None)
        model = family(family.config_class(**known))
        weights = {k: w for k, w in self.state_dict().items() if not k.startswith("alignment_head.")}
        model.load_state_dict(weights)
        model.generation_config, model.name_or_path = self.generation_config, self.name_or_path
        return model.to(self.device, self.dtype).train(self.training)

    def read_layer(self, layer: int) -> None:
        """Replace the head by a new one that reads another decoder layer."""
        self._new_head(layer)
        self.alignment_head.reset(self._next_attention())
        self.alignment_head.to(self.device, self.dtype)

    def initialize_weights(self):
        super().initialize_weights()
        if hasattr(self, "alignment_head"):  # not while the family's own constructor runs
            self.alignment_head.reset(self._next_attention())

    def _next_attention(self) -> dict[str, Tensor] | None:
        """Weights of the cross-attention above the layer that the head reads, by their names in the head, or None.

        Between the two, only self-attention changes the state.
        """
        layers, above = self._decoder_layers(), self.config.alignment_layer + 1
        if above == len(layers):
            return None
        layer = layers[above]
        is_t5 = hasattr(layer, "layer")
        if is_t5:
            norm, attention = layer.layer[1].layer_norm, layer.layer[1].EncDecAttention
            query, key, heads = attention.q, attention.k, attention.n_heads
        else:
            norm_first = hasattr(self.get_decoder(), "layer_norm")
            norm = layer.encoder_attn_layer_norm if norm_first else layer.self_attn_layer_norm
            query, key, heads = layer.encoder_attn.q_proj, layer.encoder_attn.k_proj, layer.encoder_attn.num_heads
        head = self.alignment_head
        if not isinstance(query, nn.Linear):  # all heads were pruned
            return None
        if heads != head.heads or query.weight.shape != head.q_proj.weight.shape:
            return None
        found = {"norm": norm, "q_proj": query, "k_proj": key}
        start = {
            f"{name}.{part}": weight for name, module in found.items() for part, weight in module.named_parameters()
        }
        if is_t5:  # its scores are not scaled
            start["q_proj.weight"] = start["q_proj.weight"] * (head.q_proj.out_features / heads) ** 0.5
        return start

    def _adjust_missing_and_unexpected_keys(self, loading_info) -> None:
        """Does not report a missing head: a plain checkpoint gets a new one."""
        super()._adjust_missing_and_unexpected_keys(loading_info)
        new = {f"alignment_head.{name}" for name in self.alignment_head.state_dict()}
        if new <= loading_info.missing_keys:
            loading_info.missing_keys -= new


def aligned_model(family: Any, config: Any, module: str = __name__) -> Any:
    """A family's models with an alignment head, e.g. `AlignedBartForConditionalGeneration`."""
    name = f"Aligned{family.__name__}"
    layers = "num_layers=2, num_heads=4, d_kv=4" if "T5" in name else "encoder_layers=2, decoder_layers=2"
    doc = f"""`{family.__name__}` with a head that is trained to align words: see `AlignmentHeadMixin`.

    `{name}.from_pretrained` also loads a plain checkpoint of the family, with a new head.
    """
    example = f"""
    >>> import torch
    >>> from hf_nmt_interp import {config.__name__}, {name}
    >>> config = {config.__name__}(vocab_size=20, pad_token_id=1, d_model=16, {layers})
    >>> model = {name}(config).eval()
    >>> ids = {{"input_ids": torch.tensor([[5, 6, 2]]), "decoder_input_ids": torch.tensor([[1, 7]])}}
    >>> model(**ids, output_alignment=True).alignment.shape
    torch.Size([1, 2, 3])
    """
    doc += example if module == __name__ else ""  # others are not public
    names = {"config_class": config, "__module__": module, "__doc__": doc}
    names["same_outputs"] = family.__module__.startswith("transformers.")  # see `is_plain`
    return type(name, (AlignmentHeadMixin, family), names)


AlignedMarianMTModel = aligned_model(transformers.MarianMTModel, AlignedMarianConfig)
AlignedBartForConditionalGeneration = aligned_model(transformers.BartForConditionalGeneration, AlignedBartConfig)
AlignedMBartForConditionalGeneration = aligned_model(transformers.MBartForConditionalGeneration, AlignedMBartConfig)
AlignedM2M100ForConditionalGeneration = aligned_model(transformers.M2M100ForConditionalGeneration, AlignedM2M100Config)
AlignedMT5ForConditionalGeneration = aligned_model(transformers.MT5ForConditionalGeneration, AlignedMT5Config)
AlignedT5ForConditionalGeneration = aligned_model(transformers.T5ForConditionalGeneration, AlignedT5Config)
