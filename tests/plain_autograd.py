"""Saliency as anybody would compute it: one backward pass of torch a step, whatever the model computes."""

from typing import Any

import torch
from torch import Tensor

from hf_nmt_interp.decoding.batch import make_batch


def plain_saliency(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """[B, T, S] of d log p(y_t) / d E_i . E_i, 0 at padding."""
    inputs, looked_up = make_batch(model, **batch), []

    def keep(module: Any, args: Any, output: Tensor) -> Tensor:
        if looked_up:  # by the decoder, which may share the module
            return output
        looked_up.append(output.detach().requires_grad_())
        return looked_up[0]

    handle = model.get_encoder().get_input_embeddings().register_forward_hook(keep)
    try:
        with torch.enable_grad():
            logits = model(**inputs.inputs()).logits
            kept = inputs.labels != -100
            chosen = logits.log_softmax(-1).gather(-1, inputs.labels.clamp(min=0).long()[..., None])[..., 0]
            steps = (chosen * kept).sum(0)  # [T]: sentences do not touch each other
            grads = [torch.autograd.grad(step, looked_up[0], retain_graph=True)[0] for step in steps]
    finally:
        handle.remove()
    psi = (torch.stack(grads, 1) * looked_up[0].detach()[:, None]).sum(-1)  # [B, T, S]
    return psi * kept[..., None] * (inputs.attention_mask[:, None] != 0)
