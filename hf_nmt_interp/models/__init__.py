"""Model kinds of this project and where each Hugging Face family keeps its parts."""

import pkgutil
from importlib import import_module


def register_kinds() -> None:
    """Register every model kind of this project with the Auto classes; importing one kind registers only that one."""
    for kind in pkgutil.iter_modules(__path__, f"{__name__}."):
        if kind.ispkg:
            import_module(kind.name)
    import_module(f"{__name__}.combined")
