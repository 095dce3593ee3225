"""Networks that an executor's workers compute: the same rows, one writer, and what is lost."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from pathlib import Path
from typing import Any

import jax
import pandas as pd
import pytest
from tiny import IMAGES, RESIDUAL, refuses, rows_in

import ntkscore
from ntkscore.candidates import Candidates
from ntkscore.errors import InputError
from ntkscore.results import ResultSet
from ntkscore.run import chunks
from ntkscore.spaces import space_class


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    out = tmp_path_factory.mktemp("alone") / "run"
    ntkscore.score("all", IMAGES, space=RESIDUAL, seeds=2, out=out)
    return rows_in(out)


class Elsewhere(Executor):
    """Computes what it is given as Dask sends it, and keeps the chunks."""

    def __init__(self) -> None:
        self.chunks: list[chunks.Chunk] = []
        self.pickle = pytest.importorskip("cloudpickle")

    def submit(self, fn: Callable, /, *given: Any, **_: Any) -> Future:
        (chunk,) = received = self.pickle.loads(self.pickle.dumps(given))
        self.chunks.append(chunk)
        future: Future = Future()
        try:
            future.set_result(fn(*received))
        except InputError as error:
            future.set_exception(error)
        return future


class Inline(Executor):
    """Computes a few chunks at once, and is lost then."""

    def __init__(self, most: int, error: BaseException) -> None:
        self.left, self.error = most, error

    def submit(self, fn: Callable, /, *given: Any, **_: Any) -> Future:
        future: Future = Future()
        if self.left <= 0:
            future.set_exception(self.error)
            return future
        future.set_result(answer := fn(*given))
        self.left -= answer.rows_by_network is not None  # and does not only ask for the images
        return future


def test_workers_compute_the_rows_of_one_process(tmp_path: Path, alone: pd.DataFrame) -> None:
    said: list[tuple[int, str]] = []
    with ThreadPoolExecutor(2) as executor:
        ntkscore.score(
            "all", IMAGES, space=RESIDUAL, seeds=2, out=tmp_path / "run",
            executor=executor, report=lambda p: said.append((p.finished, str(p.plan))),
        )  # fmt: skip
        found = ntkscore.search(
            IMAGES, tmp_path / "search", space=RESIDUAL, budget=3, executor=executor
        ).networks
    pd.testing.assert_frame_equal(rows_in(tmp_path / "run"), alone, check_exact=True)
    assert len(found) == 3
    units = len(ResultSet.open(tmp_path / "run").finished())
    assert said[0] == (0, "0 workers") and said[-1][0] == units
    assert said[-1][1] in ("1 worker: cpu", "2 workers: cpu")
    (session,) = ResultSet.open(tmp_path / "run").sessions
    assert session["devices"] == ["cpu"]


@pytest.mark.slow
def test_processes_compute_the_rows_of_one_process(
    tmp_path: Path, alone: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many as here: how many networks are in a call decides how they are rounded.
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", str(len(jax.local_devices())))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        how = {"space": RESIDUAL, "seeds": 2, "out": tmp_path / "run", "executor": executor}
        ntkscore.score("all", IMAGES, **how)
    pd.testing.assert_frame_equal(rows_in(tmp_path / "run"), alone, check_exact=True)


def test_what_is_finished_is_kept_when_the_workers_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "FIRST", 1)
    out = tmp_path / "run"

    def go_on(executor: Executor | None, out: Path = out) -> None:
        how: dict[str, Any] = {"space": RESIDUAL, "seeds": 2, "batch": 1, "executor": executor}
        ntkscore.score("all", IMAGES, out=out, **how)

    with refuses("gone", expected="workers"):
        go_on(Inline(1, BrokenExecutor("gone")))
    first = len(ResultSet.open(out).finished())
    assert first == 1
    with pytest.raises(ZeroDivisionError):
        go_on(Inline(1, ZeroDivisionError()))
    assert len(ResultSet.open(out).finished()) > first
    go_on(None)
    # Another number of networks in a call is rounded otherwise.
    go_on(None, tmp_path / "alone")
    pd.testing.assert_frame_equal(rows_in(out), rows_in(tmp_path / "alone"), check_exact=True)


def test_a_worker_with_other_functions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another version, say: its rows would stand among those of this one."""
    monkeypatch.setattr(chunks, "functions_of", lambda *_: {"ours": object()})
    how: dict[str, Any] = {"space": RESIDUAL, "out": tmp_path, "executor": Inline(1, Exception())}
    with refuses(expected="worker"):
        ntkscore.score("all", IMAGES, **how)


@pytest.mark.parametrize("by_dask", [False, True])
def test_a_worker_without_a_module_is_told_where_it_belongs(tmp_path: Path, by_dask: bool) -> None:
    """Dask's error is of another kind, with this one as its cause."""
    error: Exception = ModuleNotFoundError("No module named 'mine'", name="mine")
    if by_dask:
        cause, error = error, RuntimeError("Error during deserialization of the task graph.")
        error.__cause__ = cause
    how: dict[str, Any] = {"space": RESIDUAL, "out": tmp_path, "executor": Inline(0, error)}
    with refuses("mine", expected="worker", remedy="PYTHONPATH"):
        ntkscore.score("all", IMAGES, **how)


@pytest.mark.parametrize("by_dask", [False, True])
def test_what_cannot_be_sent_to_workers_is_refused(tmp_path: Path, by_dask: bool) -> None:
    error: Exception = AttributeError("Can't pickle local object 'make.<locals>.<lambda>'")
    if by_dask:
        cause, error = TypeError("cannot pickle '_thread.lock' object"), TypeError("Could not …")
        error.__cause__ = cause
    how: dict[str, Any] = {"space": RESIDUAL, "out": tmp_path, "executor": Inline(0, error)}
    with refuses("object", expected="pickled", remedy="Dask"):
        ntkscore.score("all", IMAGES, **how)


def test_images_are_sent_to_a_worker_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_PARTS", {})
    monkeypatch.setattr(chunks, "FIRST", 1)
    sent = []

    class Watched(Inline):
        def submit(self, fn: Callable, /, *given: Any, **named: Any) -> Future:
            (chunk,) = given
            sent.append(chunk.images in chunk.parts)
            return super().submit(fn, chunk)

    how: dict[str, Any] = {"space": RESIDUAL, "out": tmp_path, "batch": 1}
    ntkscore.score("all", IMAGES, executor=Watched(99, Exception()), **how)
    # The first chunks ask for them before the first has them.
    assert sum(sent) <= chunks.AHEAD < len(sent) - sum(sent)


FILE = """
import os
from pathlib import Path

import jax
from ntkscore import Model

def networks(images):
    with Path(__file__).with_suffix(".log").open("a") as log:
        log.write("made\\n")
    first, last = jax.random.split(jax.random.key(SEED))
    shapes = (first, (images[0].size, 4)), (last, (4, 10))
    weights = [jax.random.normal(key, shape) / 10 for key, shape in shapes]
    return {"mine": Model(lambda w, x: jax.nn.relu(x.reshape(len(x), -1) @ w[0]) @ w[1], weights)}
"""


def space_in(folder: Path, seed: str) -> Candidates:
    """The space of a file of networks."""
    file = folder / "mine.py"
    file.write_text(FILE.replace("SEED", seed))
    space = space_class(str(file))()
    assert isinstance(space, Candidates)
    return space


def test_a_worker_makes_the_networks_of_a_file_once(tmp_path: Path) -> None:
    space, there = space_in(tmp_path, "3"), Elsewhere()
    run = ntkscore.score("all", IMAGES, space=space, seeds=3, executor=there)
    made = (tmp_path / "mine.log").read_text().count("made")
    assert made == 2  # here once, and there once
    # Models go there too, and both have the rows of this process.
    mine = space.models
    by_name = ntkscore.score(mine, IMAGES, seeds=3, executor=Elsewhere())
    alone = ntkscore.score(mine, IMAGES, seeds=3)
    for each in (run, by_name):
        pd.testing.assert_frame_equal(each.rows, alone.rows, check_exact=True)


def test_a_worker_that_makes_other_weights_is_refused(tmp_path: Path) -> None:
    space = space_in(tmp_path, 'int.from_bytes(os.urandom(3), "big")')
    with refuses(expected="mine", remedy="seed"):
        ntkscore.score("all", IMAGES, space=space, executor=Elsewhere())
