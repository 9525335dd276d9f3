"""Matrix products in bfloat16, everything else in float32."""

from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from hf_nmt_interp.errors import InputError

PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bfloat16": torch.bfloat16}  # of products
_ACTIVE: ContextVar[torch.dtype | None] = ContextVar("products", default=None)


def product_precision(model: Any, name: str) -> torch.dtype | None:
    """The dtype of matrix products for a named precision; None for the model's own."""
    if PRECISIONS[name] is not None and model.dtype != torch.float32:
        raise InputError("precision", name, f"needs float32 weights, not {model.dtype}", "leave it out")
    return PRECISIONS[name]


def product_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Dtype of products with this tensor: its own, unless `NarrowProducts` is active."""
    return (tensor.dtype == torch.float32 and _ACTIVE.get()) or tensor.dtype


class _Product(torch.autograd.Function):
    """`F.linear` whose three products (one forward, two backward) use a narrower dtype."""

    @staticmethod
    def forward(ctx, x, weight, bias, dtype):
        rows = x.reshape(-1, x.shape[-1]).to(dtype)  # [rows, in]
        narrow = weight.to(dtype)
        ctx.save_for_backward(rows, narrow)
        ctx.shape = x.shape
        y = (rows @ narrow.T).to(x.dtype)
        return (y if bias is None else y.add_(bias)).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        rows, narrow = ctx.saved_tensors
        grad = grad.reshape(-1, grad.shape[-1])  # [rows, out]
        small = grad.to(rows.dtype)
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            (small @ narrow).to(grad.dtype).view(ctx.shape) if needs_x else None,
            (small.T @ rows).to(grad.dtype) if needs_weight else None,
            grad.sum(0) if needs_bias else None,
            None,
        )


class NarrowProducts(TorchFunctionMode):
    """Context in which float32 linear layers multiply in `dtype` and return float32.

    Unlike autocast, only the products are narrow: norms, residuals, attention and the optimizer stay in float32, and
    activations are not converted in between.

    >>> layer, x = torch.nn.Linear(2, 1, bias=False), torch.ones(1, 2)
    >>> with NarrowProducts(torch.bfloat16):
    ...     y = layer(x)
    >>> y.dtype, bool((y - layer(x)).abs() < 0.01)
    (torch.float32, True)
    """

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype

    def __enter__(self) -> "NarrowProducts":
        self.token = _ACTIVE.set(self.dtype)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _ACTIVE.reset(self.token)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is F.linear and not kwargs and args[0].dtype == args[1].dtype == torch.float32:
            x, weight, bias = (*args, None)[:3]
            return _Product.apply(x, weight, bias, self.dtype)
        return func(*args, **(kwargs or {}))
