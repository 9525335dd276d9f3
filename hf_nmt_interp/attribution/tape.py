"""Records the inputs and outputs of modules in one forward pass."""

import threading
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

REGISTERING = threading.Lock()  # torch numbers its hooks without a lock


def widened(x: Tensor) -> Tensor:
    """The tensor itself, or in float32 if it has half precision.

    >>> import torch
    >>> widened(torch.ones(1, dtype=torch.bfloat16)).dtype, widened(torch.ones(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return x.float() if x.is_floating_point() and x.element_size() == 2 else x


class Tape:
    """Context that records the inputs and outputs of the given modules; nothing is left on them afterwards.

    Only forward passes of the thread that opened the tape are recorded. A `wide` tape is read in float32 where the
    model computes in half precision; the stored values keep the model's dtype.

    >>> layer = nn.Linear(2, 3)
    >>> with Tape([layer]) as tape:
    ...     y = layer(layer.weight.new_ones(1, 2))
    >>> tape.input(layer).tolist(), tape.output(layer) is y, len(layer._forward_hooks)
    ([[1.0, 1.0]], True, 0)
    """

    def __init__(self, modules: Iterable[nn.Module], wide: bool = False) -> None:
        self._modules, self._wide = list(modules), wide
        self._kept: dict[nn.Module, tuple[Tensor, Any]] = {}

    def __enter__(self) -> "Tape":
        thread = threading.get_ident()

        # a thread gets no kwargs if another one is adding or removing this hook
        def keep(module: nn.Module, args: tuple, *kwargs_and_output: Any) -> None:
            if threading.get_ident() == thread:
                kwargs, output = kwargs_and_output
                self._kept[module] = (args[0] if args else next(iter(kwargs.values())), output)

        with REGISTERING:
            self._handles = [module.register_forward_hook(keep, with_kwargs=True) for module in self._modules]
        return self

    def __exit__(self, *error) -> None:
        with REGISTERING:
            for handle in self._handles:
                handle.remove()

    def input(self, module: nn.Module) -> Tensor:
        """First input of the module's last call."""
        return self._read(self._kept[module][0])

    def output(self, module: nn.Module) -> Any:
        """Output of the module's last call."""
        output = self._kept[module][1]
        return tuple(map(self._read, output)) if isinstance(output, tuple) else self._read(output)

    def _read(self, x: Any) -> Any:
        return widened(x) if self._wide and isinstance(x, Tensor) else x
