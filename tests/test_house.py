"""Imports run one way, and the rooms know no more than they should."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from functools import lru_cache
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

import ntkscore
from ntkscore.grams import square
from ntkscore.run import fingerprints

ROOT = Path(__file__).parents[1]
PACKAGES = ("attacks", "ntkscore", "cells", "experiments")
"""From the ground up: a folder knows those before it alone."""

# From the ground up: a room may import from itself and from the rooms before it.
FLOORS = (
    ("attacks", "ntkscore.errors"),
    ("ntkscore.paths", "ntkscore.memory", "ntkscore.threads", "ntkscore.disk"),
    ("ntkscore.names", "ntkscore.options", "ntkscore.registry", "ntkscore.task"),
    ("ntkscore.results.atomic",),
    ("ntkscore.results.checkpoints",),
    ("ntkscore.platforms",),
    ("ntkscore.compiler",),
    ("ntkscore.grams", "ntkscore.program_cache", "ntkscore.text", "ntkscore.kernels.joint"),
    ("ntkscore.model", "ntkscore.convolutions"),
    ("ntkscore.trace",),
    ("ntkscore.space",),
    ("ntkscore.measures",),
    ("ntkscore.kernels", "ntkscore.data", "ntkscore.regression"),
    ("ntkscore.bridges", "ntkscore.config", "ntkscore.results"),
    ("ntkscore.candidates",),
    ("ntkscore.analysis", "ntkscore.spaces"),
    ("ntkscore.run",),
    ("ntkscore.verify", "ntkscore.training", "ntkscore.explore"),
    ("ntkscore.api",),
    ("ntkscore",),
    ("ntkscore.cli",),
    ("ntkscore.__main__", "cells"),
    ("experiments.theory", "experiments.data"),
    ("experiments.frame",),
    ("experiments.statistics",),
    ("experiments.plotting",),
    ("experiments.theory.studies",),
    ("experiments",),
)
OF_ANY_NETWORK = ("ntkscore.kernels", "ntkscore.kernels.joint", "ntkscore.measures")
NO_JAX = ("ntkscore.data", "ntkscore.results", "ntkscore.analysis")


def modules() -> dict[str, Path]:
    """Every module of the four packages by name; a package is its `__init__`."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULES = modules()


@lru_cache
def imports(module: str, first: bool = False) -> frozenset[str]:
    """The modules that this one imports, as it stands in the file, ours by their full name.

    Args:
        module: by its name.
        first: leave out what a function imports when it is called.
    """
    names = set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    # What only a type checker reads is no import.
    tree.body = [node for node in tree.body if "TYPE_CHECKING" not in ast.dump(node)[:60]]
    for node in tree.body if first else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            ours = inside & MODULES.keys()
            names |= ours or {node.module}
    return frozenset(names)


def known(path: Path) -> set[str]:
    """Modules that a file names anywhere: for type checkers alone, within functions, in texts."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            names.add(str(node.args[0].value))
        elif isinstance(node, ast.Constant):
            names |= {
                text for text in [str(node.value)] if re.fullmatch(r"\w+(\.\w*)+(:\w+)?", text)
            }
    return names


def is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def floor(module: str) -> tuple[int, str]:
    """The floor and the room of a module: the room with the longest name that holds it."""
    rooms = [(len(room), i, room) for i, rooms in enumerate(FLOORS) for room in rooms]
    held = max((size, i, room) for size, i, room in rooms if is_in(module, room))
    return held[1], held[2]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_knows_one_above_it(package: str) -> None:
    above = PACKAGES[PACKAGES.index(package) + 1 :]
    for path in (ROOT / package).rglob("*.py*"):
        # Runs have recorded modules by the names that they had then.
        found = known(path) - set(fingerprints._MOVED.values()) if path.suffix != ".pyc" else ()
        assert not [name for name in found if name.split(".")[0] in above], path


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_one_way(module: str) -> None:
    here, room = floor(module)
    for name in imports(module):
        if name in MODULES:
            there, other = floor(name)
            assert there < here or other == room, f"{module} imports {name} from above or beside it"


def test_there_is_no_circle() -> None:
    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path, module])
        for name in sorted(imports(module) & MODULES.keys()):
            if name not in done:
                visit(name, (*path, module))
        done.add(module)

    done: set[str] = set()
    for module in sorted(MODULES):
        visit(module, ())


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if floor(m)[1] in OF_ANY_NETWORK])
def test_kernels_and_measures_know_neither_a_space_nor_the_config(module: str) -> None:
    forbidden = ("ntkscore.space", "ntkscore.config")
    assert not [name for name in imports(module) if any(is_in(name, f) for f in forbidden)]


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if is_in(m, "ntkscore.trace")])
def test_a_trace_knows_no_space_no_config_and_no_files(module: str) -> None:
    forbidden = ("ntkscore.space", "ntkscore.config")
    files = ("os", "io", "pathlib", "pickle", "ntkscore.paths", "ntkscore.data", "ntkscore.results")
    known = [name for name in imports(module) if any(is_in(name, f) for f in forbidden + files)]
    assert not known


@pytest.mark.parametrize(
    "module", [m for m in sorted(MODULES) if any(is_in(m, room) for room in NO_JAX)]
)
def test_data_results_and_analysis_need_no_jax(module: str) -> None:
    """Through every module of ours on the way; a package's own re-exports are left aside."""
    pending, seen = [module], set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        assert name.split(".")[0] not in ("jax", "flax", "optax"), f"{module} needs {name}"
        if name == module or (name in MODULES and MODULES[name].name != "__init__.py"):
            pending += imports(name, first=name != module)


def test_no_module_is_long() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: n for name, n in lengths.items() if n > 400} == {}


@pytest.mark.slow
def test_the_wheel_works_from_an_empty_folder(tmp_path: Path) -> None:
    """Built from the source and installed beside our dependencies, it scores and names itself."""

    def run(*command: object) -> str:
        texts = list(map(str, command))
        own = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
        return subprocess.check_output(texts, cwd=tmp_path, env=own, text=True)

    wheels = tmp_path / "wheels"
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", wheels, ROOT)
    (wheel,) = wheels.glob("ntkscore-*.whl")
    # Our own environment lends the dependencies; what is installed here comes first.
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target", site, wheel)
    place = run(sys.executable, "-c", "import ntkscore; print(ntkscore.__file__)")
    assert Path(place.strip()).is_relative_to(site)
    for package in ("experiments", "tests"):
        assert not (site / package).exists()
    command = [site / "bin" / "ntkscore", "score", "010", "--space", "residual"]
    printed = run(*command, "--width", "8", "--samples", "4", "--format", "csv")
    assert printed.count("\n") == 74 and "lambda_min" in printed


def test_an_editable_install_puts_the_clone_on_the_path() -> None:
    """The rule that the next test tries: without it the clone's folder hides the package."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert build["setuptools"]["package-dir"] == {"": "."}


@pytest.mark.thorough
def test_the_package_is_found_beside_its_clone(tmp_path: Path) -> None:
    """A script in the folder above a clone `ntkscore` that pip installed as the README says."""
    clone = tmp_path / "ntkscore"
    for package in ("ntkscore", "cells", "attacks", "experiments"):
        (clone / package).mkdir(parents=True)
        (clone / package / "__init__.py").touch()
    for name in (
        *("pyproject.toml", "README.md", "LICENSE"),
        *("ntkscore/__init__.py", "ntkscore/__init__.pyi"),
    ):
        shutil.copy(ROOT / name, clone / name)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: object, folder: Path = tmp_path) -> str:
        return subprocess.check_output(list(map(str, command)), cwd=folder, env=own, text=True)

    run(python, "-m", "pip", "install", "--no-deps", "-q", "--editable", clone)
    named = "import ntkscore, experiments; print(ntkscore.__version__, ntkscore.__file__)"
    assert run(python, "-c", named).split() == [
        ntkscore.__version__,
        str(clone / "ntkscore" / "__init__.py"),
    ]


def test_shapes_in_annotations_are_checked_while_the_tests_run() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="rows"):
        square(np.zeros(3))
