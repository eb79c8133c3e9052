"""The plan of the house: which part may import which, and what every file has to have."""

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "crosslight"
MODULES = sorted(SOURCE.rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))

BASE = {"shapes", "errors", "batches"}
BLOCKS = {"nn", "tokenizers", "losses", "metrics", "optim", "decoding"}
MAY_IMPORT: dict[str, set[str]] = {
    "shapes": set(),
    "errors": set(),
    "batches": {"shapes"},
    "projected_loss": BASE,
    **dict.fromkeys(sorted(BLOCKS), BASE),  # decoding too: it knows protocols, never a model
    "losses": BASE | {"projected_loss"},
    "models": BASE | {"nn"},
    "data": BASE | {"tokenizers"},
    "objectives": BASE | {"losses"},  # models only through a Protocol
    "tasks": BASE | BLOCKS - {"nn"} | {"data", "objectives"},  # models only through a Protocol
    "description": BASE | {"tokenizers", "data"},
    "config": BASE,
    "runs": BASE | BLOCKS | {"models", "data", "objectives", "tasks"},
    "export": BASE | BLOCKS | {"models", "data", "runs"},
    "callbacks": BASE | BLOCKS | {"models", "data", "objectives", "tasks", "runs"},
}
EVERYTHING_ABOVE = set(MAY_IMPORT)
MAY_IMPORT |= {
    "build": EVERYTHING_ABOVE,
    "rates": {"errors", "config", "description"},
    "preparing": EVERYTHING_ABOVE | {"build"},
    "inference": EVERYTHING_ABOVE | {"build"},
    "describing": EVERYTHING_ABOVE | {"build", "preparing"},
    "budgeting": EVERYTHING_ABOVE | {"build", "preparing", "inference"},
    "endgame": EVERYTHING_ABOVE,
    "recording": EVERYTHING_ABOVE | {"build", "preparing"},
    "app": EVERYTHING_ABOVE | {"build", "preparing", "inference", "budgeting", "endgame", "recording"},
    "starting": EVERYTHING_ABOVE | {"build", "app"},
}
"""Every part names only parts above it, so there is no cycle between parts."""


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}


def imported(text: str, package: str) -> Iterator[str]:
    """The dotted names that a module imports, at its top, in functions and for the type checker alike."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """The modules of crosslight that a file imports."""
    if SOURCE in path.parents:
        name = module_name(path)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    else:
        package = ""
    found = set()
    for name in imported(path.read_text(encoding="utf-8"), package):
        if name.partition(".")[0] == "crosslight":
            found.add(name if name in NAMES else name.rpartition(".")[0])
    return found


def part(module: str) -> str:
    """`nn` for `crosslight.nn.masks`."""
    return module.split(".")[1]


def test_imports_are_found_wherever_they_stand() -> None:
    text = "import a.b\ndef f():\n    from c import d\n    from . import e\n    from ..g import h\n"
    assert set(imported(text, "crosslight.nn")) == {"a.b", "c.d", "crosslight.nn.e", "crosslight.g.h"}
    assert "crosslight.build" in ours(SOURCE / "app.py")
    assert "crosslight.callbacks.stopping" in ours(SOURCE / "build.py")


def test_the_rule_itself_names_only_parts_above() -> None:
    seen: set[str] = set()
    for name, allowed in MAY_IMPORT.items():
        assert allowed <= seen, name
        seen.add(name)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_only_from_the_layers_above_it(path: Path) -> None:
    module = module_name(path)
    if module == "crosslight":
        assert not ours(path)
        return
    allowed = {part(module)} | MAY_IMPORT[part(module)]
    assert {name for name in ours(path) if part(name) not in allowed} == set()


def test_no_two_modules_import_each_other() -> None:
    TopologicalSorter({module_name(path): ours(path) for path in MODULES}).prepare()


def test_nothing_in_the_package_imports_the_commands() -> None:
    commands = {"train", "scripts", *(path.stem for path in SCRIPTS)}
    for path in MODULES:
        roots = {name.partition(".")[0] for name in imported(path.read_text(encoding="utf-8"), "crosslight")}
        assert not roots & commands, path


def test_only_build_instantiates() -> None:
    users = {
        path.name
        for path in (*MODULES, *SCRIPTS, ROOT / "train.py")
        if any(name.startswith("hydra.utils") for name in imported(path.read_text(encoding="utf-8"), ""))
        or "hydra.utils" in path.read_text(encoding="utf-8")
    }
    assert users == {"build.py"}


def test_inference_and_what_the_scripts_import_leave_lightning_alone() -> None:
    """What they do then is tried in tests/runs; here, what they name anywhere is imported."""
    names = {"crosslight.inference"}
    for path in SCRIPTS:
        names |= ours(path)
    assert len(names) > 3
    code = "import importlib, sys\n" + "".join(f"importlib.import_module({name!r})\n" for name in sorted(names))
    code += "print(sorted(m for m in sys.modules if m.split('.')[0] in ('lightning', 'pytorch_lightning')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


FILES = [*MODULES, *SCRIPTS, ROOT / "train.py", *sorted((ROOT / "tests").rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_has_a_name_and_says_what_it_is_for(path: Path) -> None:
    assert path.stem not in {"utils", "util", "helpers", "helper", "common", "misc"}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if tree.body:  # an empty `__init__.py` is for nothing
        first_line = (ast.get_docstring(tree) or "").partition("\n")[0]
        assert len(first_line.split()) > 3


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_module_is_longer_than_300_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def test_what_is_public_says_what_it_does() -> None:
    silent = [
        f"{module_name(path)}.{node.name}"
        for path in MODULES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_nothing_beside_a_command_hides_another_module() -> None:
    """A script's folder stands first on `sys.path`: a `copy.py` in it breaks torch."""
    taken = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions()}
    assert {"copy", "torch", "numbers", "yaml"} <= taken
    for folder in (ROOT, ROOT / "scripts"):
        own = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
        assert own
        assert not own & taken
