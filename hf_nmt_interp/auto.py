"""`import hf_nmt_interp` lets transformers' Auto classes load the model kinds of this project.

They are registered right after transformers is imported, or immediately if it already is; a program that never imports
transformers, such as `hf-nmt-interp --help`, does not load it.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def register_with_transformers() -> None:
    """Register the kinds now if transformers is imported, otherwise as soon as it is."""
    if "transformers" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _Finder())


def _register() -> None:
    from hf_nmt_interp.models import register_kinds

    register_kinds()


class _Finder(MetaPathFinder):
    """Finds transformers once, with the usual finders."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name != "transformers":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads transformers as usual, then registers the kinds."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        sys.modules["transformers"].__spec__.loader = self.loader  # type: ignore[union-attr]
        _register()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
