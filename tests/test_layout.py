"""The house plan: rooms import downwards only, model kinds travel alone, importing the package is light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import hf_nmt_interp as hni
from tests.pages import ROOMS

PACKAGE = Path(hni.__file__).parent
ROOT = PACKAGE.parent
# steps upwards: results show themselves as a page or a frame of pandas, which they import when asked to
ALLOWED = {("attribution/result.py", f"hf_nmt_interp.report.{module}") for module in ("html", "bridges")}
HEAVY = ["matplotlib", "datasets", "evaluate", "jinja2", "rich"]


def imports_of(file: Path) -> Iterator[str]:
    """Every module a file imports, at its top or inside functions; names imported from a package count as modules."""
    package = [PACKAGE.name, *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str | None:
    """The room of an imported module; for names that the package's top gives away, the room of their home."""
    first, _, rest = module.partition(".")
    if first != PACKAGE.name or not rest:
        return None
    name = rest.split(".")[0]
    return hni._HOME.get(name, name).split(".")[0]


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_from_rooms_above(room):
    files = list((PACKAGE / room).rglob("*.py"))
    assert files
    below = ROOMS[ROOMS.index(room) + 1 :]
    wrong = []
    for file in files:
        name = file.relative_to(PACKAGE).as_posix()
        for module in imports_of(file):
            excused = any(name == place and module.startswith(f"{target}.") for place, target in ALLOWED)
            if room_of(module) in below and not excused:
                wrong.append(f"{name} imports {module}")
    assert not wrong


def test_every_module_has_its_test_file_or_one_that_names_it():
    tests, own = ROOT / "tests", ("__init__.py", "__main__.py", "version.py")
    texts = [ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "" for file in tests.rglob("test_*.py")]
    modules = [file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py") if file.name not in own]
    alone = [name for name in modules if not (tests / name.parent / f"test_{name.stem}.py").exists()]
    assert not [name for name in alone if not any(name.as_posix() in text for text in texts)]


def module_graph() -> dict[str, set[str]]:
    """Modules of the package and those that each imports, at its top or inside functions; but for what is excused."""
    files = {}
    for file in PACKAGE.rglob("*.py"):
        files[".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = file

    def home(name: str) -> str:
        top = name.removeprefix(f"{PACKAGE.name}.")
        name = f"{PACKAGE.name}.{hni._HOME[top]}" if top in hni._HOME else name
        while name and name not in files:
            name = name.rpartition(".")[0]  # a name inside a module
        return name

    graph = {module: {home(name) for name in imports_of(file)} - {"", module} for module, file in files.items()}
    for place, target in ALLOWED:
        graph[home(f"{PACKAGE.name}.{place.removesuffix('.py').replace('/', '.')}")].remove(target)
    return graph


def test_no_import_cycles():
    graph = module_graph()
    assert "hf_nmt_interp.attribution.registry" in graph["hf_nmt_interp.attribution.api"]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_the_package_has_these_rooms_and_no_others():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(ROOMS)
    for file in ("errors.py", "version.py"):
        assert not any(room_of(module) in ROOMS for module in imports_of(PACKAGE / file))


def test_the_excused_step_upwards_is_inside_a_function():
    for place, target in ALLOWED:
        tree = ast.parse((PACKAGE / place).read_text(encoding="utf-8"))
        at_the_top = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
        assert target not in at_the_top


def test_model_kinds_are_self_contained():
    kinds = [folder for folder in (PACKAGE / "models").iterdir() if (folder / "__init__.py").exists()]
    known = {"torch", "transformers", *sys.stdlib_module_names}
    wrong = []
    for kind in kinds:
        if kind.name == "demo":  # ships weights, not code
            continue
        own = f"{PACKAGE.name}.models.{kind.name}."
        for file in kind.rglob("*.py"):
            for module in imports_of(file):
                if not module.startswith(own) and module.split(".")[0] not in known:
                    wrong.append(f"{file.relative_to(PACKAGE)} imports {module}")
            absolute = [
                node.module
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith(PACKAGE.name)
            ]
            wrong += [f"{file.relative_to(PACKAGE)} imports {module} absolutely" for module in absolute]
    assert not wrong


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_top_loads_no_room():
    modules = ast.literal_eval(run("import sys, hf_nmt_interp; print(list(sys.modules))"))
    assert not set(HEAVY) & set(modules)
    assert [name for name in modules if name.startswith("hf_nmt_interp.")] == [
        "hf_nmt_interp.auto",
        "hf_nmt_interp.version",
    ]


def test_attribution_is_light():
    # transformers itself imports jinja2
    program = f"""
import sys
from transformers import PreTrainedModel
before = set(sys.modules)
import hf_nmt_interp as hni
hni.attribute, hni.explain_generation, hni.AttributionResult
print([name for name in {HEAVY} if name in sys.modules and name not in before])
"""
    assert run(program) == "[]"


@pytest.mark.parametrize("name", hni.__all__)
def test_public_names_resolve(name):
    assert getattr(hni, name) is not None
    assert name in dir(hni)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(AttributeError, match=r"no attribute 'atribute'; it has __version__, .*attribute"):
        hni.atribute  # noqa: B018


def test_version_is_a_release_number():
    assert [part.isdigit() for part in hni.__version__.split(".")] == [True, True, True]


@pytest.mark.parametrize("file", [PACKAGE / "py.typed", ROOT / "LICENSE", ROOT / "CHANGELOG.md", ROOT / "README.md"])
def test_files_that_must_be_there(file):
    assert file.is_file()
    if file.name == "LICENSE":
        assert "Apache License" in file.read_text(encoding="utf-8")
