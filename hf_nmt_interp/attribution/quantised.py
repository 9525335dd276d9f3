"""Quantised linear layers: torch's own int8 layers and those of bitsandbytes, dequantised one at a time."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_nmt_interp.attribution.tape import widened
from hf_nmt_interp.errors import InputError

_TORCH = "torch.ao.nn.quantized"


def is_quantised(module: Any) -> bool:
    """Whether a linear layer has integer weights.

    >>> is_quantised(nn.Linear(2, 1))
    False
    """
    if isinstance(module, nn.Linear):  # bitsandbytes' layers are subclasses
        return not module.weight.is_floating_point()
    return type(module).__module__.startswith(_TORCH) and hasattr(module, "out_features")


def weight_and_bias(module: Any) -> tuple[Tensor, Tensor | None]:
    """Weight [out, in] and bias [out] of a linear layer, at least in float32."""
    if not is_quantised(module):
        weight, bias = module.weight, module.bias
    elif callable(module.weight):  # torch packs both
        weight, bias = module.weight().dequantize(), module.bias()
    else:  # bitsandbytes packs 4 bits in several ways: its layer's own product with the identity fits all of them
        units, bias = torch.eye(module.in_features, device=module.weight.device), module.bias
        with torch.no_grad():
            weight = (module(units) if bias is None else module(units) - bias).T
    return widened(weight), None if bias is None else widened(bias)


def check_gradients(model: PreTrainedModel) -> None:
    """Raise if a layer has no gradients: torch's int8 layers, and bitsandbytes' 4-bit layers on the CPU."""
    for name, module in model.named_modules():
        if not is_quantised(module):
            continue
        if not isinstance(module, nn.Linear) or (module.weight.dtype == torch.uint8 and not module.weight.is_cuda):
            problem = f"{name} is quantised and has no gradients"
            remedy = "use attention, norm_attention, value_zeroing or occlusion, or load it without quantisation"
            raise InputError("model", None, problem, remedy)
