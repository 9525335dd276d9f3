"""Force decoding: the decoder is fed a given target."""

from typing import Any

import torch
from torch import Tensor


def decoder_inputs(model: Any, labels: Tensor) -> Tensor:
    """The decoder's input for given labels [B, T] (-100 is padding): the family's own shift to the right.

    M2M100 has no public method for it and shifts inside its forward pass by the config's start token, as below.
    """
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(labels=labels)
    start = torch.full_like(labels[:, :1], model.config.decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == -100, model.config.pad_token_id)
