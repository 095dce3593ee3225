"""Cells that train side by side, and the verdicts on their order before and after."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from cells.nasbench201.cell import Cell
from cells.nasbench201.network import STATISTICS
from cells.nasbench201.space import NASBench201
from cells.tasks import Task
from experiments.training import population, proof
from experiments.training.population import SCORES, scores_at, trainable, trained
from ntkscore.api.scoring import score_network
from ntkscore.config import Config
from ntkscore.model import Trainable
from ntkscore.training.evaluation import evaluate
from ntkscore.training.fit import fit
from ntkscore.training.recipe import Recipe
from ntkscore.training.steps import State, mean_loss

SPACE = NASBench201(channels=2, cells_per_stage=2).on(Task((8, 8, 3), 4))
CELLS = tuple(map(Cell.from_digits, ("323133", "304412", "000003")))
RECIPE = Recipe(epochs=2, batch=4, attack_steps=2)


def images(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    return rng.integers(0, 256, (count, 8, 8, 3)).astype(np.uint8), np.arange(count) % 4


@pytest.mark.parametrize(
    "cell", [CELLS[0], *(pytest.param(c, marks=pytest.mark.thorough) for c in CELLS[1:])]
)
def test_digits_as_data_are_the_cells_own_network(cell: Cell) -> None:
    pixels, labels = images(4)

    def slope_of(network: Trainable, statistics: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, new = network.train(params, statistics, x)
            return mean_loss(logits, jnp.asarray(labels)), (logits, new)

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)

    with jax.enable_x64(True):
        x = jnp.asarray(pixels / 255)
        own, ours = SPACE.trainable(cell, 3, np.float64), trainable(SPACE, cell, 3)
        params, running = jax.tree.map(lambda leaf: leaf + 0.1, (own.params, own.statistics))
        statistics = ours.statistics | {"running": running}
        (_, (logits, new)), gradient = slope_of(ours, statistics)
        expected = slope_of(own, running)
        close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9)  # noqa: E731
        jax.tree.map(
            close, ((0, (logits, new["running"])), gradient), ((0, expected[0][1]), expected[1])
        )
        np.testing.assert_array_equal(new["digits"], cell.operations)
        close(ours.evaluate(params, statistics, x), own.evaluate(params, running, x))


@pytest.mark.thorough
def test_population_is_each_cell_by_itself_and_a_second_call_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = images(8), images(12)
    given = (SPACE, CELLS[:2], train, test, RECIPE, 4, 1, tmp_path)
    frame = trained(*given)
    for row, cell in enumerate(CELLS[:2]):
        state = jax.tree.map(
            lambda leaf: leaf[0], fit([SPACE.trainable(cell, 1)], *train, RECIPE, (1,)).state
        )
        model = SPACE.trained_model(cell, state.params, state.statistics)
        right = evaluate(model, *test, radii=(8,)).query("`class` == -1").set_index("metric")
        for metric in ("clean", "pgd"):
            assert frame[metric][row] == pytest.approx(right["value"][metric], abs=1e-6)
        few = train[0][:4].astype(np.float32) / 255, train[1][:4]
        for when, at in (("before", SPACE.trainable(cell, 1)), ("after", state)):
            variables = {"params": at.params, STATISTICS: at.statistics}
            code = jnp.asarray(SPACE.encode(cell))
            model = SPACE.model(SPACE.shape(cell), variables, code, jnp.asarray(few[0]))
            scores = score_network(model, *few, Config(rhos=(8 / 255,)))
            values = scores.set_index(scores["kernel"] + "." + scores["score"])["value"]
            for name in SCORES:
                value = values[name]
                close = pytest.approx(value, rel=5e-3, abs=1e-5 * frame[f"{when} clean.trace"][row])
                assert frame[f"{when} {name}"][row] == close
    steps: list[object] = []
    monkeypatch.setattr(
        population, "fit", lambda *a: fit(*a, after=lambda epoch, state: steps.append(epoch))
    )
    pd.testing.assert_frame_equal(trained(*given), frame)
    assert not steps


@pytest.mark.thorough
def test_scores_follow_the_weights() -> None:
    cell, pairs = CELLS[0], images(4)
    start = trainable(SPACE, cell, 0)
    state = State(start.params, start.statistics, ())
    doubled = state.params | {"head": {**state.params["head"]}}
    doubled["head"]["scale"] = 2 * doubled["head"]["scale"]
    frame = scores_at(SPACE, [cell, cell], [state, state._replace(params=doubled)], *pairs)
    assert list(frame) == list(SCORES)
    assert frame["clean.trace"][1] > 1.5 * frame["clean.trace"][0] > 0


def table(order: np.ndarray) -> pd.DataFrame:
    """Forty cells whose scores after training have an order, given as numbers."""
    rng, count = np.random.default_rng(0), len(order)
    before = np.sort(rng.uniform(1, 2, count))
    columns = {f"before {name}": before for name in SCORES} | {f"after {n}": order for n in SCORES}
    pgd = np.linspace(0.3, 0.1, count)
    others = {"pgd": pgd, "clean": pgd, "table": pgd[::-1], "params": before, "default": before}
    return pd.DataFrame({"cell": np.arange(count)} | columns | others)


def test_verdicts_on_orders_that_survive_turn_around_and_vanish() -> None:
    count = np.arange(1.0, 41)
    shuffled = np.random.default_rng(5).permutation(count)
    for order, verdict in (
        (count, "reproduced"),
        (-count, "not reproduced"),
        (shuffled, "not decidable"),
    ):
        *survived, agreed, best = proof.findings(table(order))
        assert {f.verdict for f in survived} == {verdict}
        assert agreed.verdict == "not reproduced"
        assert best.verdict == "reproduced" and "rank 1 of 40" in best.why


def test_summary_has_each_measure_beside_the_count() -> None:
    summary = proof.summarise(table(np.arange(40.0))).set_index("measure")
    assert list(summary.index[:2]) == ["params", "default"] and len(summary) == 2 + 2 * len(SCORES)
    small, benchmark = summary.loc["params"]
    assert small.startswith("-1.00") and benchmark.startswith("1.00")


def test_halved_images_are_means_of_four_pixels() -> None:
    pixels, _ = images(2)
    wide = pixels.astype(float)
    means = (wide[:, ::2, ::2] + wide[:, 1::2, ::2] + wide[:, ::2, 1::2] + wide[:, 1::2, 1::2]) / 4
    assert np.abs(population.halved(pixels) - means).max() <= 0.5


def test_population_is_the_best_the_largest_and_others_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from experiments.study import Study
    from ntkscore.analysis.score_names import DEFAULT

    cells = pd.Index([Cell.from_digits("333333").index, 5, 6, 7, 8], name="cell")
    values = [[1.0, 2, 3, 4, 9]] * len(DEFAULT.terms)
    scores = pd.DataFrame(dict(zip(DEFAULT.terms, values, strict=True)), cells)
    scores["path_pools"] = 0.0
    monkeypatch.setattr(proof, "scores_of_distinct", lambda study: scores)
    monkeypatch.setattr(proof, "CELLS", 4)
    found = proof.chosen(Study(tmp_path))
    assert list(found.index[:2]) == [8, cells[0]] and len(set(found.index)) == 4
    assert not found.isna().any(axis=None)
    again = proof.chosen(replace(Study(tmp_path), seed=0))
    assert list(again.index) == list(found.index)
