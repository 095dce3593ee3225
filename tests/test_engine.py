"""From cells to rows, alone and in a directory that survives whatever ends the run."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import ntkscore
from cells import Cell
from ntkscore import engine, joint, scores
from ntkscore.config import Config
from ntkscore.devices import Plan
from ntkscore.errors import InputError
from ntkscore.images import choose, load
from ntkscore.parts import COLUMNS
from ntkscore.results import ResultSet
from ntkscore.scorer import Batch, Scorer
from ntkscore.selection import select_cells
from ntkscore.verification import (
    CIFAR10_MEAN,
    CIFAR10_STD,
    Reference,
    load_parity,
    relative_error,
)

TINY = Config(channels=4, cells_per_stage=1, samples=4)
CELLS = tuple(map(Cell, (2581, 1462, 0, 7)))


@pytest.fixture(scope="module")
def data():
    return load("synthetic")


@pytest.fixture(scope="module")
def scorer(data) -> Scorer:
    return Scorer(TINY, data.mean, data.std, data.num_classes, data.name)


@pytest.fixture(scope="module")
def batch(data, scorer) -> Batch:
    return scorer.batch(*choose(data, TINY.samples, 0, False), 0)


def rows_of(scorer: Scorer, batch: Batch, cell: Cell) -> pd.DataFrame:
    return pd.DataFrame(*scorer.finish([cell], 0, batch, scorer.start([cell], batch)))


def test_one_compilation_serves_all_cells_and_radii(scorer, batch) -> None:
    for cell in CELLS:
        rows_of(scorer, batch, cell)
    assert scorer.compilations == 1


def test_rows_have_every_kernel_and_score(scorer, batch) -> None:
    rows = rows_of(scorer, batch, Cell(2581))
    assert tuple(rows.columns) == COLUMNS
    assert set(rows["kernel"]) == set(joint.KERNELS)
    assert (rows["status"] == scores.OK).all()
    assert np.isfinite(rows["value"]).all()
    assert rows["beta"].notna().equals(rows["kernel"].isin(joint.JOINT))
    for kernel, part in rows.groupby("kernel"):
        expected = scores.ASYMMETRIC_SCORES if kernel in joint.ASYMMETRIC else scores.SCORES
        assert set(part["score"]) - {"loss"} == set(expected)
    loss = rows[rows["score"] == "loss"].set_index("kernel")["value"]
    assert loss["clean"] < loss["robust"] < loss["twice"]


def test_a_cell_without_a_path_fails_by_name(scorer, batch) -> None:
    rows = rows_of(scorer, batch, Cell.from_digits("000000"))
    failed = rows[rows["status"] != scores.OK]
    assert failed["value"].isna().all()
    assert not failed.empty
    assert set(failed["status"]) <= set(scores.STATUSES)


def test_a_score_does_not_depend_on_its_company(data, scorer, batch) -> None:
    alone = rows_of(scorer, batch, CELLS[1])
    together = {
        rows[0]["cell"]: pd.DataFrame(rows)
        for _, chunk in engine.compute(CELLS[::-1], [0], data, TINY, set(), scorer.plan)
        for rows in chunk
    }
    pd.testing.assert_frame_equal(alone, together[CELLS[1].index])


def test_the_library_call_agrees_with_the_engine(data, scorer, batch) -> None:
    images, labels = choose(data, TINY.samples, 0, False)
    rows = ntkscore.score(
        "323133", images, labels, TINY, mean=data.mean, std=data.std, num_classes=10
    )
    expected = rows_of(scorer, batch, Cell(2581))
    pd.testing.assert_frame_equal(rows.drop(columns="dataset"), expected.drop(columns="dataset"))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 3, 8, 8)), np.zeros(2, int), "put the channels last"),
        (np.zeros((2, 9, 9, 3)), np.zeros(2, int), "with sides that 4 divides"),
        (np.full((2, 8, 8, 3), 255.0), np.zeros(2, int), "expected pixels from 0 to 1, got 255"),
        (np.zeros((2, 8, 8, 3)), np.array([0, 3]), "expected 2 labels from 0 to 1"),
        (np.zeros((2, 8, 8, 3)), np.array([0]), "expected 2 labels"),
    ],
)
def test_bad_images_are_refused(images: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ntkscore.score(0, images, labels, TINY, num_classes=2)


def test_zero_radius_makes_all_kernels_equal(data) -> None:
    images, labels = choose(data, 4, 0, False)
    still = Config(channels=4, cells_per_stage=1, samples=4, rhos=(0.0,))
    rows = ntkscore.score(2581, images, labels, still, mean=data.mean, std=data.std, num_classes=10)
    traces = rows[rows["score"] == "trace"].set_index("kernel")["value"]
    np.testing.assert_allclose(traces, traces["clean"], rtol=1e-5)


def test_batch_mode_runs_through(data) -> None:
    images, labels = choose(data, 4, 0, False)
    coupled = Config(channels=4, cells_per_stage=1, samples=4, bn="batch")
    rows = ntkscore.score(2581, images, labels, coupled, num_classes=10)
    assert (rows["status"] == scores.OK).all()


def test_a_broken_run_keeps_what_is_finished_and_goes_on(data, tmp_path: Path) -> None:
    whole = ResultSet.create_or_resume(tmp_path / "whole", engine.identity(data, TINY), {})
    engine.run(CELLS, [0, 1], data, TINY, whole)

    broken = ResultSet.create_or_resume(tmp_path / "broken", engine.identity(data, TINY), {})

    def interrupt(progress: engine.Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.run(CELLS, [0, 1], data, TINY, broken, interrupt)
    assert len(broken.finished()) == 2
    progress = engine.run(CELLS, [0, 1], data, TINY, broken)
    assert (progress.resumed, progress.done, progress.total) == (2, 6, 8)
    pd.testing.assert_frame_equal(broken.read(), whole.read())
    seeds = whole.read().query("kernel == 'clean' and score == 'trace'").groupby("cell")["value"]
    assert (seeds.nunique() == 2).all()


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_command_leaves_its_finished_cells(number: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    # A shell's background job ignores Ctrl-C, and so would its children.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    start += "from ntkscore.cli import main; main()"
    command = [sys.executable, "-c", start, "rank", "--cells", "random:3000", "--out", str(out)]
    command += ["--channels", "4", "--cells-per-stage", "1", "--samples", "4"]
    cache = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    process = subprocess.Popen(
        command, env=os.environ | cache, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300
    while not list(out.glob("*.parquet")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    results = ResultSet.open(out)
    finished = results.finished()
    assert 0 < len(finished) < 3000
    assert finished <= {(cell.index, 0) for cell in select_cells("random:3000")}
    assert (results.read().groupby("cell").size() == 49).all()
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert "the same command goes on from there" in errors


def test_parity_holds_through_the_engine(data_dir: Path) -> None:
    """Two cells in one call: the file's kernel, attacks included, from the engine's program."""
    arrays = load_parity(data_dir / "parity" / "cell_01462_c4_n1.npz")
    with jax.enable_x64(True):
        reference = Reference.of(arrays, np.float64)
    config = Config(channels=4, cells_per_stage=1, x64=True)
    plan = Plan(tuple(jax.local_devices()), 1, 2)
    scorer = Scorer(config, CIFAR10_MEAN, CIFAR10_STD, 10, "cifar10", plan)
    batch = scorer.batch(arrays["images"] / 255, arrays["labels"], 0)
    with jax.enable_x64(True):
        batch = replace(batch, variables=jax.tree.map(np.asarray, dict(reference.variables)))
        stacks = scorer.start([reference.cell, Cell(7)], batch)
    assert relative_error(stacks.gram[0, 0], arrays["ntk_sum_all_stack"]) < 1e-6
