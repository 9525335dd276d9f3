"""Translators that calibrate their cross-attention with a learned mask (Lu et al. 2021)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from .attention import Calibration, add_calibration
from .configuration_calibrated import (
    CalibratedBartConfig,
    CalibratedM2M100Config,
    CalibratedMarianConfig,
    CalibratedMBartConfig,
)
from .fusion import Fusion


@dataclass
class CalibratedSeq2SeqLMOutput(Seq2SeqLMOutput):
    """`Seq2SeqLMOutput`, whose `cross_attentions` are the fused weights, with their parts, layer by layer.

    The first three are returned with `output_attentions` or `output_calibration`, the last two with `perturbed=True`.
    """

    original_attentions: tuple[Tensor, ...] | None = None  # a, [B, H, T, S] each
    masks: tuple[Tensor, ...] | None = None  # m, [B, H, T, S] each; 1 at padding
    gates: tuple[Tensor, ...] | None = None  # g, [B, H, T] each; None if the fusion has none
    perturbed_logits: Tensor | None = None  # [B, T, V] under perturbed weights
    perturbed_masks: tuple[Tensor, ...] | None = None  # m of that pass, [B, H, T, S] each


class TwoPasses(NamedTuple):
    """Last decoder states of a training step, and the masks of the second pass."""

    fused: Tensor  # [B, T, d]; theta gets its gradient, theta_m none
    perturbed: Tensor  # [B, T, d]; theta_m gets its gradient, theta none
    masks: tuple[Tensor, ...]  # [B, H, T, S] of each layer


class CalibratedAttentionMixin(PreTrainedModel):
    """Cross-attention with a mask network m = sigmoid(q W_Q (K W_K)' / sqrt(d_k)) in each layer and head.

    It decodes with fused weights of a and a exp(1 - m). theta_m is all W_Q and W_K, theta all other parameters.
    """

    _keys_to_ignore_on_load_unexpected = [r"^alignment_head\."]  # noqa: RUF012

    def __init__(self, config):
        if not hasattr(config, "fusion"):  # not isinstance: with remote code the configuration class may exist twice
            name = type(config).__name__
            raise ValueError(f"config is a {name}; use Calibrated{name}(**config.to_dict())")
        super().__init__(config)
        for attention in self.cross_attentions():
            add_calibration(attention, config)
        self._reset_calibration()

    def cross_attentions(self) -> list[Any]:
        """The cross-attention module of each layer."""
        return [layer.encoder_attn for layer in self.get_decoder().layers]

    def fusions(self) -> list[Fusion]:
        """The fusion of each layer."""
        return [attention.fusion for attention in self.cross_attentions()]

    def mask_parameters(self) -> dict[str, Tensor]:
        """theta_m: W_Q and W_K of all layers, by name."""
        return {name: p for name, p in self.named_parameters() if name.endswith("_proj.mask.weight")}

    def count_step(self) -> None:
        """Notify the fusions of a finished training step, for annealing."""
        for fusion in self.fusions():
            fusion.count_step()

    @can_return_tuple
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
        perturbed: bool = False,
        output_calibration: bool | None = None,
        **kwargs,
    ):
        """Like the family's, with two more arguments.

        `perturbed` returns only `logits` and `perturbed_logits` of `two_passes`, for training. `output_calibration`
        adds original weights, masks and gates; it is `output_attentions` by default.
        """
        if perturbed:
            if input_ids is None or decoder_input_ids is None:
                raise ValueError("perturbed=True needs input_ids and decoder_input_ids")
            return self._both_logits(self.two_passes(input_ids, decoder_input_ids, attention_mask))
        if output_calibration is None:
            output_calibration = kwargs.get("output_attentions", self.config.output_attentions)
        seen = Calibration()
        outputs = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            labels=labels,
            use_cache=use_cache,
            calibration=seen if output_calibration else None,
            **kwargs,
        )
        if not output_calibration:
            return CalibratedSeq2SeqLMOutput(**outputs)
        attentions, masks, gates = zip(*seen.layers, strict=True)
        found = CalibratedSeq2SeqLMOutput(**outputs, original_attentions=attentions, masks=masks)
        found.gates = None if gates[0] is None else gates
        return found

    def two_passes(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask=None) -> TwoPasses:
        """Run the encoder once and the decoder with fused and perturbed weights, for one backward pass of both losses.

        Losses of `fused` only train theta, losses of `perturbed` and `masks` only theta_m.
        """
        if self.is_gradient_checkpointing:
            raise ValueError(
                "gradient_checkpointing is not supported: it runs passes again with all gradients; turn it off"
            )
        decoder = self.get_decoder()
        detached = {name: p.detach() for name, p in decoder.named_parameters()}
        theta_m = {name: p for name, p in detached.items() if name.endswith("_proj.mask.weight")}
        theta = {name: p for name, p in detached.items() if name not in theta_m}
        memory = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        inputs = {"input_ids": decoder_input_ids, "encoder_attention_mask": attention_mask, "use_cache": False}
        second = Calibration(perturbed=True)
        first = inputs | {"encoder_hidden_states": memory}
        again = inputs | {"encoder_hidden_states": memory.detach(), "calibration": second}
        fused = functional_call(decoder, theta_m, kwargs=first).last_hidden_state
        perturbed = functional_call(decoder, theta, kwargs=again).last_hidden_state
        return TwoPasses(fused, perturbed, tuple(layer.mask for layer in second.layers))

    def _both_logits(self, passes: TwoPasses) -> CalibratedSeq2SeqLMOutput:
        weight, bias = self.get_output_embeddings().weight, getattr(self, "final_logits_bias", 0)
        logits: Any = F.linear(passes.fused, weight) + bias
        perturbed: Any = F.linear(passes.perturbed, weight.detach()) + bias
        return CalibratedSeq2SeqLMOutput(logits=logits, perturbed_logits=perturbed, perturbed_masks=passes.masks)

    def initialize_weights(self):
        super().initialize_weights()
        self._reset_calibration()

    @torch.no_grad()
    def _reset_calibration(self) -> None:
        """Initialise the weights that the family does not have, like its own; loaded values are kept."""
        for attention in self.cross_attentions():
            if hasattr(attention, "fusion"):  # not while the family's own constructor runs
                for projection in (attention.q_proj, attention.k_proj):
                    init.normal_(projection.mask.weight, std=self.config.init_std)
                attention.fusion.reset(self.config.init_std)

    def _adjust_missing_and_unexpected_keys(self, loading_info) -> None:
        """Does not report missing masks: a plain checkpoint gets new ones."""
        super()._adjust_missing_and_unexpected_keys(loading_info)
        new = {name for name in self.state_dict() if ".fusion." in name} | self.mask_parameters().keys()
        if new <= loading_info.missing_keys:
            loading_info.missing_keys -= new


def _make(family: Any, config: Any) -> Any:
    """A family's models with calibrated cross-attention, e.g. `CalibratedBartForConditionalGeneration`."""
    name = f"Calibrated{family.__name__}"
    doc = f"""`{family.__name__}` with calibrated cross-attention: see `CalibratedAttentionMixin`.

    `{name}.from_pretrained` also loads a plain checkpoint of the family, with new mask networks.

    >>> import torch
    >>> from hf_nmt_interp import {config.__name__}, {name}
    >>> layers = {{"encoder_layers": 2, "decoder_layers": 2}}
    >>> model = {name}({config.__name__}(vocab_size=20, pad_token_id=1, d_model=16, **layers)).eval()
    >>> ids = {{"input_ids": torch.tensor([[5, 6, 2]]), "decoder_input_ids": torch.tensor([[1, 7]])}}
    >>> [mask.shape for mask in model(**ids, output_calibration=True).masks]
    [torch.Size([1, 16, 2, 3]), torch.Size([1, 16, 2, 3])]
    """
    names = {"config_class": config, "__module__": __name__, "__doc__": doc}
    return type(name, (CalibratedAttentionMixin, family), names)


CalibratedMarianMTModel = _make(transformers.MarianMTModel, CalibratedMarianConfig)
CalibratedBartForConditionalGeneration = _make(transformers.BartForConditionalGeneration, CalibratedBartConfig)
CalibratedMBartForConditionalGeneration = _make(transformers.MBartForConditionalGeneration, CalibratedMBartConfig)
CalibratedM2M100ForConditionalGeneration = _make(transformers.M2M100ForConditionalGeneration, CalibratedM2M100Config)
