"""Model kinds of this project and where each Hugging Face family keeps its parts."""

import pkgutil
from importlib import import_module


def register_kinds() -> None:
    """Let the Auto classes load every model kind of this project; importing a kind registers that one."""
    for kind in pkgutil.iter_modules(__path__, f"{__name__}."):
        if kind.ispkg:
            import_module(kind.name)
    import_module(f"{__name__}.combined")
