"""Every `Example:` of a docstring runs and prints what it says."""

import doctest
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator

import jax
import pytest

import attacks
import cells
import experiments.theory
import ntkscore

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
SLOW = {"ntkscore.api.runs", "ntkscore.api.scoring"}
"""Modules whose examples compile a network."""
NEEDS = {"ntkscore.bridges": "torchax"}
"""Modules whose examples take a package that is not always installed: see `make oracles`."""


def modules() -> Iterator[str]:
    """The names of all modules of the three packages, and of the theory."""
    for package in (attacks, cells, ntkscore, experiments.theory):
        yield package.__name__
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # What is in a package of `NEEDS` imports what it needs.
            if not found.name.endswith("__main__") and found.name.rpartition(".")[0] not in NEEDS:
                yield found.name


def examples(name: str) -> list[doctest.DocTest]:
    """The examples in a module's docstrings."""
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder().find(module, name) if test.examples]


WITH_EXAMPLES = [name for name in modules() if examples(name)]


def marks(name: str) -> list[pytest.MarkDecorator]:
    """The marks of a module's examples."""
    wanted = {"slow": name in SLOW, "oracle": name in NEEDS}
    return [getattr(pytest.mark, mark) for mark, applies in wanted.items() if applies]


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks(n)) for n in WITH_EXAMPLES])
def test_examples_print_what_they_say(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed: see make oracles")
    # What an example writes belongs nowhere else.
    monkeypatch.chdir(tmp_path)
    runner, said = doctest.DocTestRunner(optionflags=FLAGS), []
    # Examples are written as a user runs them, without this suite's strictness about dtypes.
    with jax.numpy_dtype_promotion("standard"):
        for test in examples(name):
            runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
