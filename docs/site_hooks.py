"""The documentation site: the API reference of every public name, and links to files outside docs/."""

import ast
import inspect
import re
import sys
from typing import Any

import griffe

import hf_nmt_interp as hni

_INTRODUCTION = "Every public name of `hf_nmt_interp`; import it from there: `from hf_nmt_interp import attribute`."
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add api.md, which has a line for each public name: there is no second list."""
    from mkdocs.structure.files import File

    lines = [_entry(name) for name in hni.__all__ if name != "__version__"]
    lines += [f"::: {kind.__module__}.{kind.__name__}\n" for kind in _shared()]
    text = f"# API reference\n\n{_INTRODUCTION}\n\n" + "\n".join(lines)
    files.append(File.generated(config, "api.md", content=text))
    return files


def _entry(name: str) -> str:
    """What mkdocstrings is asked for; classes that a function makes for each family are not in the source."""
    home = getattr(hni, name)
    module = sys.modules[home.__module__]
    if _in_source(module, name):
        return f"::: {module.__name__}.{name}\n"
    bases = " and ".join(_link(base) for base in home.__bases__)
    return f"## `{name}`\n\nBases: {bases}.\n\n{_fenced(inspect.getdoc(home) or '')}\n"


def _shared() -> list[Any]:
    """The classes that give those of each family their fields and methods; they are in the reference too."""
    homes = [getattr(hni, name) for name in hni._HOME]
    made = [home for home in homes if not _in_source(sys.modules[home.__module__], home.__name__)]
    return list(dict.fromkeys(home.__bases__[0] for home in made))


def _in_source(module: Any, name: str) -> bool:
    return bool(re.search(rf"^(class|def) {name}\b", inspect.getsource(module), re.MULTILINE))


def _link(kind: type) -> str:
    ours = kind.__module__.startswith("hf_nmt_interp.")
    return f"[`{kind.__name__}`][{kind.__module__}.{kind.__name__}]" if ours else f"`transformers.{kind.__name__}`"


def _fenced(text: str) -> str:
    """A docstring whose examples are blocks of code; Markdown would take them for quotations."""
    text = re.sub(r" +# doctest:.*", "", text)
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", text)


class Docstrings(griffe.Extension):
    """Shows examples as code, and the help of each field of a trainer's configuration."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _fenced(obj.docstring.value)
        elif obj.is_attribute and str(obj.value).startswith("option("):
            default, text = ast.parse(str(obj.value), mode="eval").body.args  # type: ignore[attr-defined]
            obj.docstring = griffe.Docstring(ast.literal_eval(text), parent=obj)
            obj.value = ast.unparse(default)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that leave docs/, such as ../README.md, work in the repository only: on the site their text is left."""
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)
