"""From architectures to rows, alone and in a directory that survives whatever ends the run."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import chex
import jax
import numpy as np
import pandas as pd
import pytest
from tiny import IMAGES, RESIDUAL, RESIDUAL_OPTIONS, SPACE, refuses, rows_in, scored, start

import ntkscore
import ntkscore.run.scorer as scorer_module
from cells.nasbench201 import Cell, NASBench201
from cells.nasbench201.parity import load_parity, network_in, sizes_of
from ntkscore.config import Config
from ntkscore.data.images import ImageSet
from ntkscore.kernels import joint
from ntkscore.kernels.stack import stack
from ntkscore.measures.registry import NETWORK, NOT_GIVEN, OK, STATUSES, measures_at
from ntkscore.results.result_set import CELL, ResultSet
from ntkscore.results.rows import VARYING
from ntkscore.run import calls, engine
from ntkscore.run.devices import Plan
from ntkscore.run.scorer import Batch, Scorer, one_device
from ntkscore.run.scoring import Scoring
from ntkscore.run.selection import select
from ntkscore.verify.checks import relative_error

pytestmark = pytest.mark.slow

CELLS = tuple(map(Cell, (2581, 1462, 0, 7)))


@pytest.fixture(scope="module")
def data() -> ImageSet:
    return IMAGES


@pytest.fixture(scope="module")
def scorer(data: ImageSet) -> Scorer:
    return Scorer(SPACE.on(data.task), Config(), one_device(), layout_independent=True)


@pytest.fixture(scope="module")
def batch(data: ImageSet, scorer: Scorer) -> Batch:
    return scorer.batch(*data.draw(0), 0)


def rows_of(scorer: Scorer, batch: Batch, cell: Cell) -> pd.DataFrame:
    return pd.DataFrame(*scorer.rows([cell], batch, scorer.start([cell], batch)))


def count_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second trace of the stack, which is what a compilation begins with, be an error."""
    chex.clear_trace_counter()
    counted = chex.assert_max_traces(fn=stack, n=1)
    monkeypatch.setattr(scorer_module, "stack", counted)


@pytest.mark.thorough
def test_one_compilation_serves_all_cells_radii_and_scorers(
    data: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_traces(monkeypatch)
    space = replace(SPACE, channels=2)
    for rho in (8 / 255, 3 / 255):
        # A program is kept for each space and config; no other test has these.
        mine = Scorer(space.on(data.task), Config(rhos=(rho,), parameters="conv_linear"))
        batch = mine.batch(*replace(data, samples=5).draw(0), 0)
        for cell in CELLS:
            rows_of(mine, batch, cell)
    with pytest.raises(AssertionError, match="traced > 1 times"):
        other = Scorer(space.on(data.task), Config(output="label"))
        rows_of(other, batch, CELLS[0])


@pytest.mark.thorough
def test_three_calls_of_score_compile_once(data: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call makes its own `Scorer`; the program is shared between them."""
    count_traces(monkeypatch)
    config = Config(output="trace", parameters="conv_linear")
    rows = {}
    for seed, cell in enumerate(CELLS[:3]):
        images, labels = data.draw(seed)
        task = {"mean": data.mean, "std": data.std, "num_classes": data.num_classes}
        rows[cell] = scored(cell.digits, images, labels, config, space=SPACE, seed=seed, **task)
    what = ["kernel", "score", "beta"]
    for seed, cell in enumerate(CELLS[:3]):
        own = Scorer(SPACE.on(data.task), config)
        batch = own.batch(*data.draw(seed), seed)
        expected = rows_of(own, batch, cell)
        found, expected = (
            each[list(expected)].sort_values(what, ignore_index=True)
            for each in (rows[cell], expected)
        )
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, obj=cell.digits)


def test_rows_have_every_kernel_and_score(scorer: Scorer, batch: Batch) -> None:
    rows = rows_of(scorer, batch, Cell(2581))
    assert tuple(rows.columns) == (*CELL, *VARYING)
    assert set(rows["kernel"]) == {*joint.KERNELS, NETWORK}
    assert (rows["status"] == OK).all()
    assert np.isfinite(rows["value"]).all()
    assert rows["beta"].notna().equals(rows["kernel"].isin(joint.JOINT))
    for kernel, part in rows.groupby("kernel"):
        assert set(part["score"]) == {
            name for name, m in measures_at(kernel).items() if not m.of.own_passes
        }
    loss = rows[rows["score"] == "loss"].set_index("kernel")["value"]
    assert loss["clean"] < loss["robust"] < loss["twice"]


def test_a_cell_without_a_path_fails_by_name(scorer: Scorer, batch: Batch) -> None:
    rows = rows_of(scorer, batch, Cell.from_digits("000000"))
    failed = rows[rows["status"] != OK]
    assert failed["value"].isna().all()
    assert not failed.empty
    assert set(failed["status"]) <= set(STATUSES)


def test_a_score_does_not_depend_on_its_company(
    data: ImageSet, scorer: Scorer, batch: Batch
) -> None:
    alone = rows_of(scorer, batch, CELLS[1])
    job = Scoring.of(data, space=SPACE, seeds=1)
    work = calls.Work(job.space, job.config, job.draws, CELLS[::-1])
    computed = calls.compute(work, scorer.plan)
    together = {
        rows[0]["cell"]: pd.DataFrame(rows) for _, by_network in computed for rows in by_network
    }
    pd.testing.assert_frame_equal(alone, together[CELLS[1].index])


def test_the_library_call_agrees_with_the_engine(
    data: ImageSet, scorer: Scorer, batch: Batch, tmp_path: Path
) -> None:
    images, labels = data.draw(0)
    task = {"mean": data.mean, "std": data.std, "num_classes": 10, "name": data.name}
    rows = scored("323133", images, labels, space=SPACE, **task)
    expected = rows_of(scorer, batch, Cell(2581))
    keys = ["kernel", "rho", "beta", "score"]
    found = rows[list(expected)].sort_values(keys, ignore_index=True)
    expected = expected.sort_values(keys, ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    told: list[engine.Progress] = []
    how = {"space": SPACE, "out": tmp_path / "run", "report": told.append}
    ended = ntkscore.score(Cell(2581), data, seeds=1, **how)
    assert (told[-1].total, told[-1].done) == (1, 1)
    pd.testing.assert_frame_equal(ended.rows, rows, rtol=1e-4)
    pd.testing.assert_frame_equal(ended.rows, rows_in(tmp_path / "run"))


def test_zero_radius_makes_all_kernels_equal(data: ImageSet) -> None:
    images, labels = data.draw(0)
    still = Config(rhos=(0.0,))
    task = {"mean": data.mean, "std": data.std, "num_classes": 10}
    rows = scored(2581, images, labels, still, space=SPACE, **task)
    traces = rows[rows["score"] == "trace"].set_index("kernel")["value"]
    np.testing.assert_allclose(traces, traces["clean"], rtol=1e-5)


def test_a_network_or_seed_that_is_named_twice_is_computed_once(tmp_path: Path) -> None:
    named = ["2581", "323133", Cell(2581)]
    how = {"space": SPACE, "out": tmp_path}
    run = ntkscore.score(named, IMAGES, seeds=[0, 0], **how)
    assert run.rank()["cell"].tolist() == [2581]
    run = ntkscore.score([Cell(7), Cell(7)], IMAGES, **how)
    assert run.rank()["cell"].tolist() == [7]
    assert set(ntkscore.open_run(tmp_path).rank()["cell"]) == {2581, 7}


@pytest.mark.thorough
def test_batch_mode_runs_through(data: ImageSet) -> None:
    images, labels = data.draw(0)
    coupled = replace(SPACE, bn="batch")
    rows = scored(2581, images, labels, space=coupled, num_classes=10)
    # Nobody looks inside a network whose images are coupled.
    inside = ["naswot", "expressivity", "progressivity", "flips", "synflow"]
    inner = rows["score"].isin(inside)
    assert (rows["status"] == np.where(inner, NOT_GIVEN, OK)).all()


@pytest.mark.parametrize("space", [SPACE, RESIDUAL], ids=lambda space: space.name)
def test_a_broken_run_keeps_what_is_finished_and_goes_on(
    data: ImageSet, space: ntkscore.Space, tmp_path: Path
) -> None:
    chosen = CELLS if space is SPACE else tuple(map(space.parse, ("0", "01", "0110", "1001")))
    job = Scoring.of(data, space=space, seeds=2)
    whole = engine.run(job, chosen, tmp_path / "whole")

    def interrupt(progress: engine.Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    def go_on(report=lambda progress: None) -> ResultSet:
        return engine.run(job, chosen, tmp_path / "broken", report=report, batch=1)

    with pytest.raises(KeyboardInterrupt):
        go_on(interrupt)
    broken = ResultSet.open(tmp_path / "broken")
    assert len(broken.finished()) == 2
    told: list[engine.Progress] = []
    results, progress = go_on(told.append), told[-1]
    assert (progress.resumed, progress.done, progress.total) == (2, 6, 8)
    assert results == replace(ResultSet.open(tmp_path / "broken"), directory=results.directory)
    pd.testing.assert_frame_equal(broken.read(), whole.read())
    traces = whole.read().query("kernel == 'clean' and score == 'trace'")
    assert (traces.groupby(whole.identity[0])["value"].nunique() == 2).all()


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(n, marks=pytest.mark.thorough) for n in (signal.SIGKILL, signal.SIGTERM)),
    ],
)
def test_a_killed_command_leaves_its_finished_networks(number: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    space = replace(RESIDUAL, depth=14)
    process = start("score", "all", "--out", out, "--depth", 14, *RESIDUAL_OPTIONS)
    deadline = time.monotonic() + 300
    while not list(out.glob("*.parquet")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    results = ResultSet.open(out)
    finished = results.finished()
    every = {(space.key(each), 0) for each in select("all", space)}
    assert finished and finished < every
    assert (results.read().groupby("skips").size() == 73).all()
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert "the same command goes on from there" in errors


@pytest.mark.thorough
def test_parity_holds_through_the_engine(data_dir: Path) -> None:
    """Two cells in one call: the file's kernel, attacks included, from the engine's program."""
    arrays = load_parity(data_dir / "parity" / "cell_01462_c4_n1.npz")
    with jax.enable_x64(True):
        cell, variables = network_in(arrays)
        variables = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables)
    plan = Plan(tuple(jax.local_devices()[:1]), 1, 2)
    scorer = Scorer(NASBench201(**sizes_of(arrays)), Config(x64=True), plan)
    batch = scorer.batch(arrays["images"] / 255, arrays["labels"], 0)
    with jax.enable_x64(True):
        stacks = scorer.start([cell, Cell(7)], replace(batch, variables=variables))
    assert relative_error(stacks.gram[0, 0], arrays["ntk_sum_all_stack"]) < 1e-6


def test_a_config_that_does_not_fit_is_refused_before_anything_is_written(
    data: ImageSet, tmp_path: Path
) -> None:
    coupled, layerwise = replace(SPACE, bn="batch"), Config(implementation="layerwise")
    with refuses("layerwise", expected="ntvp"):
        engine.run(Scoring.of(data, layerwise, space=coupled), CELLS, tmp_path / "run")
    assert not (tmp_path / "run").exists()
