"""The documentation site: the API reference of every public name, and links to files outside docs/."""

import inspect
import re
import sys
from typing import Any

import hf_nmt_interp as hni


def on_files(files: Any, config: Any) -> Any:
    """Add api.md, which has a line for each public name: there is no second list."""
    from mkdocs.structure.files import File

    lines = [_entry(name) for name in hni.__all__ if name != "__version__"]
    text = "# API reference\n\nEvery public name of `hf_nmt_interp`, from its docstring.\n\n" + "\n".join(lines)
    files.append(File.generated(config, "api.md", content=text))
    return files


def _entry(name: str) -> str:
    """What mkdocstrings is asked for; classes that a function makes for each family are not in the source."""
    home = getattr(hni, name)
    module = sys.modules[home.__module__]
    if re.search(rf"^(class|def) {name}\b", inspect.getsource(module), re.MULTILINE):
        return f"::: {module.__name__}.{name}\n"
    bases = ", ".join(f"`{base.__name__}`" for base in home.__bases__)
    return f"## `{name}`\n\nA class of {bases}, in `{module.__name__}`.\n\n{inspect.getdoc(home) or ''}\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that leave docs/, such as ../README.md, work in the repository only: on the site their text is left."""
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)
