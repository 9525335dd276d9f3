"""Bag-of-words proxy (Snell et al. 2021, section 2.3): a translator without attention, order or decoder."""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils.generic import can_return_tuple

from .configuration_proxy import BagOfWordsConfig


class BagOfWordsProxy(PreTrainedModel):
    """p_t = softmax(1 / L sum_l W e_(x_l)) for every step t (eq. 5); its probe is softmax(W e_(x_l))_(y_t) (eq. 6).

    >>> import torch
    >>> model = BagOfWordsProxy(BagOfWordsConfig(vocab_size=20))
    >>> model(input_ids=torch.tensor([[3, 4]]), labels=torch.tensor([[5, 6, 7]])).logits.shape
    torch.Size([1, 3, 20])
    """

    config_class = BagOfWordsConfig
    config: Any

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.projection = nn.Linear(config.embedding_size, config.output_size, bias=False)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """N(0, 1 / d), as assumed in section 4.1."""
        if isinstance(module, nn.Embedding | nn.Linear):
            init.normal_(module.weight, std=self.config.embedding_size**-0.5)

    def output_logits(self, context: Tensor) -> Any:
        """Logits [..., V] from embeddings, or their means, [..., d]."""
        return self.projection(context)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Logits [B, T, V], the same for all steps (T is 1 without labels); with labels [B, T] or [B] also the loss.

        Arguments are those of any model of transformers; padding of the source [B, S] may be anywhere. The embeddings
        ([B, S, d],) are `hidden_states`.
        """
        e: Any = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        mask = e.new_ones(e.shape[:2]) if attention_mask is None else attention_mask.to(e.dtype)
        mean = (mask[:, None] @ e)[:, 0] / mask.sum(-1, keepdim=True)  # [B, d]
        logits = self.output_logits(mean)[:, None]  # [B, 1, V]
        loss: Any = None
        if labels is not None:
            logits = logits.expand(-1, labels[0].numel(), -1)
            loss = fixed_cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), num_items_in_batch)
        states = (e,) if output_hidden_states else None
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=states)
