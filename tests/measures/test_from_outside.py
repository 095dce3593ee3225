"""Measures that a person adds with one call: in rows, by name, in sheets, in compiled programs."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from tiny import refuses, scored

import cells
import ntkscore
from ntkscore import Config, Model
from ntkscore.analysis.score_names import ScoreSum
from ntkscore.cli.sheets import score_sheet
from ntkscore.kernels.joint import ASYMMETRIC, POINTS, Stack
from ntkscore.measures import MEASURES
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import NETWORK, Measure, Quantity, declare
from ntkscore.measures.report import measurements

RHOS = (0.05, 0.1)
X, Y = np.random.default_rng(0).uniform(size=(4, 6)), np.array([0, 1, 1, 0])
W = np.random.default_rng(1).normal(size=(6, 2))


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Measures that a test adds go with it."""
    before = dict(MEASURES)
    yield
    MEASURES.clear()
    MEASURES.update(before)


def measured_rows() -> pd.DataFrame:
    model = Model(lambda w, x: x @ w, jnp.asarray(W))
    return scored(model, X, Y, Config(rhos=RHOS, x64=True))


def value(rows: pd.DataFrame, kernel: str, name: str, rho: float = RHOS[0]) -> float:
    found = rows[(rows["rho"] == rho) & (rows["kernel"] == kernel) & (rows["score"] == name)]
    return float(found["value"].iloc[0])


def moved(before: Pass, after: Pass) -> dict[str, jnp.ndarray]:
    return {"largest": jnp.max(jnp.abs(after.points - before.points))}


def test_a_measure_of_ones_own_is_in_rows_names_and_sheets() -> None:
    before = measured_rows()
    ntkscore.add_score("log_trace", lambda s: np.log(s.values.sum()), direction=+1, formula="ln Σ")
    ntkscore.add_measure(
        "spread",
        lambda at: jnp.std(at.logits),
        direction=-1,
        formula="std f",
        at=["clean", "twice"],
    )
    ntkscore.add_measure(
        "moved",
        moved,
        direction=+1,
        formula="max |x_ρ − x|",
        at=["cross"],
        value=lambda found: found["largest"],
    )
    rows = measured_rows()
    own = rows["score"].isin(["log_trace", "spread", "moved"])
    pd.testing.assert_frame_equal(rows[~own].reset_index(drop=True), before)
    assert value(rows, "clean", "spread") == pytest.approx(np.std(X @ W))
    assert value(rows, "twice", "spread") > value(rows, "clean", "spread")
    assert value(rows, "clean", "log_trace") == pytest.approx(np.log(np.sum(X**2) * 2))
    for rho in RHOS:
        assert value(rows, "cross", "moved", rho) == pytest.approx(rho)
    chosen = ScoreSum.parse("clean.spread+robust.log_trace+cross.moved")
    assert str(chosen) == "clean.spread+robust.log_trace+cross.moved"
    falling = ScoreSum.parse("clean.spread").of(pd.DataFrame({"clean.spread": [1.0, 2.0]}))
    assert list(falling) == [-1.0, -2.0]
    sheet = score_sheet(rows[rows["rho"] == RHOS[0]]).set_index("score")
    assert sheet.loc["spread", "clean"] and not sheet.loc["spread", "robust"]
    assert sheet.loc["moved", "better"] == "↑"


def test_a_program_that_was_compiled_before_learns_of_it() -> None:
    images = np.random.default_rng(0).uniform(size=(2, 5))
    space = cells.Residual(width=4)
    measured = lambda: scored("0110", images, Y[:2], space=space)  # noqa: E731
    assert "largest" not in set(measured()["score"])
    ntkscore.add_measure(
        "largest", lambda at: jnp.max(at.logits), direction=+1, formula="max f", at=["network"]
    )
    rows = measured()
    assert list(rows.loc[rows["score"] == "largest", "kernel"]) == ["network"]
    assert (rows.loc[rows["score"] == "largest", "status"] == "ok").all()


@pytest.mark.parametrize(
    ("name", "at", "got", "expected"),
    [
        ("loss", ["clean"], "loss", "name"),
        ("slopes", ["clean"], "slopes", "name"),
        ("mine", ["joint_clean"], "joint_clean", ("places", "clean", "network")),
    ],
)
def test_what_is_no_new_measure_is_refused(
    name: str, at: list[str], got: str, expected: object
) -> None:
    with refuses(got, expected=expected):
        ntkscore.add_measure(name, jnp.sum, direction=+1, formula="?", at=at)
    assert name == "loss" or name not in MEASURES


def test_a_matrix_is_measured_wherever_it_is_taken() -> None:
    """At one point alone, between two, or once a network; between two it need not be symmetric."""
    before = len(every(Stack(np.eye(9), np.eye(9), {})))
    matrix = np.array([[1.0, 2, 0], [0, 3, 0], [0, 0, 5]])
    for place in (*POINTS, *ASYMMETRIC, NETWORK):
        quantity = Quantity("mine", (place,), lambda *at: None)
        declare(Measure("largest", +1, "λ_max", quantity, lambda s: s.values[-1]))
        given = matrix if place in ASYMMETRIC else matrix + matrix.T
        found = every(Stack(np.eye(9), np.eye(9), {place: {"mine": given}}))
        del MEASURES["largest"]
        expected = np.linalg.svd(given)[1][0]
        assert found.pop((place, None, "largest")) == pytest.approx(expected)
        assert len(found) == before


def every(stack: Stack) -> dict[tuple, float]:
    rows = measurements(stack, np.arange(3), (0.5,))
    return {(kernel, beta, name): found.value for kernel, beta, name, found in rows}
