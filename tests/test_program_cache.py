"""What one start traced, another finds, and nobody finds what another program left."""

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import RESIDUAL, SPACE, scored

import cells
import ntkscore
from cells import cell_space
from ntkscore import program_cache
from ntkscore.config import Config
from ntkscore.run import scorer

pytest.importorskip("flatbuffers", reason="traces are kept only where flatbuffers is installed")

VALUES = jnp.arange(3.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where traces are kept during the test."""
    monkeypatch.setattr(program_cache, "_folder", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    """Be as a new process is, which has compiled nothing."""
    scorer._program.cache_clear()
    cell_space._drawing.cache_clear()


def counting() -> tuple[Callable, list[int]]:
    """A function of a number and arrays, and a list that is longer with every trace of it."""
    traces: list[int] = []

    def power(exponent: int, given: dict[str, jax.Array]) -> jax.Array:
        traces.append(exponent)
        return given["x"] ** exponent

    return power, traces


def run(described: tuple, exponent: int = 2, x: jax.Array = VALUES) -> int:
    """Traces that a new start needs for a program."""
    function, traces = counting()
    result = program_cache.compiled(function, described, {})(exponent, {"x": x})
    np.testing.assert_array_equal(result, x**exponent)
    return len(traces)


def test_functions_that_are_described_alike_have_programs_of_their_own(folder: Path) -> None:
    functions = (lambda _, x: x + 1, lambda _, x: x * 100, lambda _, x: x * 10)
    for function, expected in zip(functions, (VALUES + 1, VALUES * 100, VALUES * 10), strict=True):
        for _ in range(2):
            found = program_cache.compiled(function, (Config(),), {})((), VALUES)
            np.testing.assert_array_equal(found, expected)
    assert len(list(folder.iterdir())) == 3


def test_a_second_start_traces_nothing(folder: Path) -> None:
    assert run((Config(),)) == 1
    assert run((Config(),)) == 0
    assert len(list(folder.iterdir())) == 1


def test_another_program_has_another_name(folder: Path) -> None:
    assert run((Config(), SPACE, scorer.stack)) == 1
    assert run((Config(output="loss"), SPACE, scorer.stack)) == 1
    assert run((Config(), RESIDUAL, scorer.stack)) == 1
    assert run((Config(), SPACE, scorer.precision)) == 1
    assert run((Config(), SPACE, scorer.stack), exponent=3) == 1
    assert run((Config(), SPACE, scorer.stack), x=jnp.arange(4.0)) == 1
    with jax.default_matmul_precision("highest"):
        assert run((Config(), SPACE, scorer.stack)) == 1
    assert run((Config(), SPACE, scorer.stack)) == 0


def test_other_source_has_another_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(()) == 1
    monkeypatch.setattr(program_cache, "_source", lambda: "an edited module")
    assert run(()) == 1


def test_what_is_not_ours_is_traced_anew(folder: Path) -> None:
    class Mine(cells.NASBench201):
        pass

    for described in (Mine(), lambda x: x, jnp.tanh, np.ones(2)):
        assert run((described,)) == 1
        assert run((described,)) == 1
    assert list(folder.iterdir()) == []


def test_a_damaged_file_is_written_again(folder: Path) -> None:
    run(())
    (file,) = folder.iterdir()
    for damaged in (b"", b"no trace", file.read_bytes()[:-100]):
        file.write_bytes(damaged)
        assert run(()) == 1
        assert run(()) == 0


def test_a_folder_that_cannot_be_written_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(program_cache, "_folder", tmp_path / "file" / "traced")
    assert run(()) == 1


@pytest.mark.thorough
def test_scores_are_the_same_to_the_last_bit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(attack="pgd", random_start=True, x64=True)
    images, labels = np.random.default_rng(0).random((4, 8, 8, 3)), np.array([0, 1, 2, 0])
    task = ntkscore.Task((8, 8, 3), 3)
    space = cells.NASBench201(task=task, channels=2, cells_per_stage=1)

    def rows() -> np.ndarray:
        forget()
        frame = scored(
            "323133",
            images,
            labels,
            config,
            space=space,
            mean=task.mean,
            std=task.std,
            num_classes=3,
        )
        return frame["value"].to_numpy()

    first = rows()
    assert len(list(folder.iterdir())) == 2  # the weights and the kernels

    def untraceable(*_: object) -> None:
        raise AssertionError("traced again")

    with monkeypatch.context() as patched:
        patched.setattr(scorer, "stack", untraceable)
        second = rows()
    monkeypatch.setattr(program_cache, "_folder", None)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, rows())


def test_what_cannot_be_written_is_traced_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("no compatibility guarantees")

    monkeypatch.setattr("jax.export.export", refuse)
    assert run(()) == 1
    assert list(folder.iterdir()) == []
