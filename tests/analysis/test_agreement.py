"""Agreement with accuracy: scipy is the oracle, and invariances hold on arbitrary columns."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from tiny import refuses

from ntkscore.analysis.agreement import Agreement, agreement, agreement_table
from ntkscore.analysis.correlation import draws
from ntkscore.analysis.paired import difference

# Few distinct values, so that ties are common.
columns = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=40).map(
    lambda pairs: np.array(pairs, float).T
)


def correlated(n: int, decimals: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    x = rng.normal(size=n)
    return np.round(x, decimals), np.round(x + rng.normal(size=n), decimals)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    result: Any = stats.spearmanr(x, y)
    return result.statistic


def kendall(x: np.ndarray, y: np.ndarray) -> float:
    result: Any = stats.kendalltau(x, y)
    return result.statistic


def quick(values, accuracy, direction: int = +1) -> Agreement:
    return agreement(values, accuracy, direction, resamples=2)


@given(columns)
def test_correlations_equal_scipys(pair):
    x, y = pair
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    found = quick(x, y)
    assert found.status == "ok"
    assert found.spearman == pytest.approx(spearman(x, y), abs=1e-12)
    assert found.kendall == pytest.approx(kendall(x, y), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("transform", [np.exp, lambda x: x**3, lambda x: 7 * x - 2])
@given(columns)
def test_monotone_transform_of_the_score_changes_nothing(transform, pair):
    x, y = pair
    assert repr(agreement(transform(x), y, resamples=20)) == repr(agreement(x, y, resamples=20))


@pytest.mark.slow
@given(columns)
def test_sign_flip_negates_correlations_and_swaps_the_interval(pair):
    x, y = pair
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    up, down = (agreement(sign * x, y, resamples=20) for sign in (+1, -1))
    flipped = [-down.spearman, -down.spearman_high, -down.spearman_low, -down.kendall]
    assert flipped == pytest.approx(
        [up.spearman, up.spearman_low, up.spearman_high, up.kendall], abs=1e-12, nan_ok=True
    )
    np.testing.assert_allclose(down.spearman_top30, -up.spearman_top30)


def test_bootstrap_ranks_every_resample_anew():
    x, y = correlated(60)
    found = agreement(x, y, resamples=200, seed=5, confidence=0.8)
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(200):
        cells = rng.integers(60, size=60)
        drawn.append(spearman(x[cells], y[cells]))
    assert [found.spearman_low, found.spearman_high] == pytest.approx(
        np.quantile(drawn, [0.1, 0.9])
    )


@pytest.mark.slow
def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth = 6 / np.pi * np.arcsin(0.7 / 2)  # Spearman of a bivariate normal with correlation 0.7
    hits = 0
    for trial in range(200):
        x, noise = rng.normal(size=(2, 100))
        found = agreement(x, 0.7 * x + np.sqrt(1 - 0.49) * noise, resamples=100, seed=trial)
        hits += found.spearman_low <= truth <= found.spearman_high
    assert 0.88 <= hits / 200 <= 0.99


def test_equal_seeds_give_equal_intervals():
    x, y = correlated(50)
    assert agreement(x, y, resamples=50, seed=1) == agreement(x, y, resamples=50, seed=1)
    assert agreement(x, y, resamples=50, seed=1) != agreement(x, y, resamples=50, seed=2)


@pytest.mark.parametrize("name, count", [("spearman_top10", 20), ("spearman_top30", 60)])
def test_top_is_chosen_by_accuracy(name, count):
    x, y = correlated(200, decimals=6)
    top = np.argsort(y)[-count:]
    assert getattr(quick(x, y), name) == pytest.approx(spearman(x[top], y[top]))


def test_top_of_fewer_than_three_cells_is_nan():
    found = quick([1, 3, 2, 5, 4], [1, 2, 3, 4, 5])
    assert found.status == "ok"
    assert np.isnan([found.spearman_top10, found.spearman_top30]).all()


@pytest.mark.parametrize("direction, index, accuracy, rank", [(+1, 1, 0.3, 3), (-1, 4, 0.2, 4)])
def test_best_cell_follows_the_direction_and_ties_go_to_the_first(direction, index, accuracy, rank):
    values = [np.nan, 9, 5, 9, 1, 1]
    found = quick(values, [0.9, 0.3, 0.5, 0.4, 0.2, 0.1], direction)
    assert (found.best_index, found.best_accuracy) == (index, accuracy)
    assert found.best_accuracy_rank == rank  # the excluded cell's 0.9 does not count


def test_the_gain_of_the_first_cells_against_its_definition():
    x, y = correlated(40)
    found = quick(x, y)
    place = sorted(range(40), key=lambda i: -x[i])
    gain = (y - y.min()) / (y.max() - y.min())
    reached = sum(gain[place[j]] / math.log2(2 + j) for j in range(4))
    possible = sum(g / math.log2(2 + j) for j, g in enumerate(sorted(gain)[::-1][:4]))
    assert found.ndcg == pytest.approx(reached / possible)
    assert found.first_ten_accuracy == pytest.approx(np.mean([y[i] for i in place[:10]]))
    assert quick(y, y).ndcg == pytest.approx(1)
    assert math.isnan(quick(x[:4], y[:4]).ndcg)  # a tenth of four cells is none


def test_direction_touches_what_is_scored_best_and_nothing_else():
    x, y = correlated(30)
    up, down = vars(quick(x, y, +1)), vars(quick(x, y, -1))
    assert {name for name in up if up[name] != down[name]} == {
        "best_index",
        "best_accuracy",
        "best_accuracy_rank",
        "ndcg",
        "first_ten_accuracy",
    }


def test_failed_scores_are_counted_and_left_out():
    x, y = correlated(40)
    holes = np.insert(x, [0, 7, 7, 40], [np.nan, np.nan, np.inf, -np.inf])
    accuracy = np.insert(y, [0, 7, 7, 40], [9.0, -9.0, 9.0, -9.0])
    found, clean = vars(quick(holes, accuracy)), vars(quick(x, y))
    assert (found.pop("n"), found.pop("excluded")) == (40, 4)
    assert (clean.pop("n"), clean.pop("excluded")) == (40, 0)
    assert accuracy[found.pop("best_index")] == y[clean.pop("best_index")]
    assert found == clean


@pytest.mark.parametrize(
    "values, accuracy, status, best",
    [
        ([], [], "too_few", None),
        ([np.nan, np.nan], [0.1, 0.2], "too_few", None),
        ([1, np.nan, 2], [0.1, 0.2, 0.3], "too_few", 2),
        ([1, 1, 1, 1], [0.1, 0.2, 0.3, 0.4], "constant", 0),
        ([1, 2, 3, 4], [0.5, 0.5, 0.5, 0.5], "constant", 3),
        ([1, 1, 1, np.nan], [0.1, 0.2, 0.3, 0.4], "constant", 0),
    ],
)
def test_undefined_correlations_are_nan_with_a_status(values, accuracy, status, best):
    found = quick(values, accuracy)
    assert (found.status, found.best_index) == (status, best)
    correlations = [
        value for name, value in vars(found).items() if name.startswith(("spearman", "kendall"))
    ]
    assert len(correlations) == 6
    assert np.isnan(correlations).all()


def test_interval_is_nan_when_no_resample_says_anything():
    # Cells drawn with this seed are one and the same, so the only resample is constant.
    seed = next(s for s in range(999) if np.ptp(np.random.default_rng(s).integers(3, size=3)) == 0)
    found = agreement([1, 2, 3], [1, 2, 3], resamples=1, seed=seed)
    assert found.spearman == pytest.approx(1)
    assert np.isnan([found.spearman_low, found.spearman_high]).all()


@pytest.mark.parametrize(
    "values, accuracy, options, got",
    [
        ([1, 2, 3], [1, 2], {}, [(3,), (2,)]),
        ([[1, 2]], [[1, 2]], {}, [(1, 2), (1, 2)]),
        ([1, 2, 3], [1, np.nan, 3], {}, [1, 3]),
        ([1, 2], [1, np.inf], {}, [1, 2]),
        ([1, 2], [1, 2], {"direction": 0}, [0]),
        ([1, 2], [1, 2], {"resamples": 0}, [0]),
        ([1, 2], [1, 2], {"confidence": 95}, [95]),
    ],
)
def test_bad_input_is_refused(values, accuracy, options, got):
    with refuses(*got):
        agreement(values, accuracy, **options)


@pytest.fixture
def compared() -> dict:
    columns = {
        "robust.trace": [1.0, 2, 3, 5, 4],
        "clean.condition": [np.nan, 4, 3, 2, 1],
        "params": [4, 2, 5, 3, 1],
        "flops": [3, 5, 2, 4, 6],
    }
    return {
        "columns": pd.DataFrame(columns, pd.Index([7, 3, 11, 5, 2], name="cell")),
        "accuracy": [0.7, 0.3, 0.1, 0.5, 0.2],
        "directions": dict.fromkeys(columns, +1) | {"clean.condition": -1},
    }


def test_table_has_one_row_per_column(compared):
    table = agreement_table(**compared, resamples=20)
    assert table.index.to_list() == ["robust.trace", "clean.condition", "params", "flops"]
    assert table.index.name == "score"
    assert table["n"].to_list() == [5, 4, 5, 5]
    assert table["best_cell"].to_list() == [5, 2, 11, 2]
    assert table["best_accuracy"].to_list() == [0.5, 0.2, 0.1, 0.2]
    assert table["best_accuracy_rank"].to_list() == [2, 3, 5, 4]
    by_hand = agreement([1, 2, 3, 5, 4], [0.7, 0.3, 0.1, 0.5, 0.2], resamples=20)
    assert table.loc["robust.trace", "spearman":"spearman_high"].to_list() == [
        by_hand.spearman,
        by_hand.spearman_low,
        by_hand.spearman_high,
    ]


def test_table_leaves_the_best_cell_of_a_failed_score_empty(compared):
    compared["columns"]["robust.trace"] = np.nan
    table = agreement_table(**compared, resamples=2)
    assert table.loc["robust.trace", "status"] == "too_few"
    assert table["best_cell"].isna().to_list() == [True, False, False, False]


@pytest.fixture(scope="module")
def published(data_dir) -> pd.DataFrame:
    """CIFAR-10's clean and PGD-8 accuracy beside what orders as the parameter count."""
    texts = [
        (data_dir / "nas-robbench-201" / name).read_text()
        for name in ("NAS-RobBench-201_html.json", "ops.json")
    ]
    table, digits = (json.loads(text.partition("=")[2].rstrip("; \n")) for text in texts)
    names = table.pop("")
    own = {int(cell): row for cell, row in table.items() if isinstance(row, list)}
    frame = pd.DataFrame.from_dict(own, orient="index", columns=names)
    # Per edge and stage width: a 1x1 or 3x3 convolution with its two BN vectors.
    weights = {"2": 16 * 16 + 2 * 16, "3": 9 * 16 * 16 + 2 * 16}
    frame["params"] = [
        float(sum(weights.get(digit, 0) for digit in digits[cell])) for cell in frame.index
    ]
    return frame


def test_published_table_gives_the_known_correlations(published):
    robust = published["cifar10#val_pgd_8_acc"]
    clean = agreement(published["cifar10#val_acc"], robust)
    assert (clean.n, round(clean.spearman, 3)) == (6466, 0.985)
    assert clean.spearman_low < clean.spearman < clean.spearman_high < clean.spearman_low + 0.01
    params = agreement(published["params"], robust, resamples=1)
    assert (round(params.spearman, 3), round(params.spearman_top10, 3)) == (0.820, 0.394)


def test_cells_of_one_function_are_drawn_together() -> None:
    rng = np.random.default_rng(0)
    functions = np.repeat(np.arange(60), 4)
    x = rng.normal(size=60)[functions] + rng.normal(0, 1e-3, 240)
    y = 0.5 + 0.1 * (x + rng.normal(size=60)[functions]) + rng.normal(0, 1e-3, 240)
    for cells in draws(240, 5, 3, functions):
        assert sorted(np.bincount(functions[cells], minlength=60) % 4) == [0] * 60
        counts = np.bincount(cells, minlength=240).reshape(60, 4)
        assert (counts == counts[:, :1]).all() and counts[:, 0].sum() == 60
    apart, together = (
        agreement(x, y, groups=groups, resamples=400) for groups in (None, functions)
    )
    assert apart.spearman == together.spearman
    lengths = [found.spearman_high - found.spearman_low for found in (apart, together)]
    assert lengths[1] / lengths[0] == pytest.approx(2, rel=0.15)  # √4 times
    # Cells that are their own groups, whatever these are called, are drawn as without groups.
    names = [str(-place) for place in range(240)]
    assert agreement(x, y, groups=names, resamples=20) == agreement(x, y, resamples=20)
    # Scores that are missing take their groups along.
    x[::4], functions[::4] = np.nan, -1
    left = np.isfinite(x)
    assert repr(agreement(x, y, groups=functions, resamples=20).spearman_low) == repr(
        agreement(x[left], y[left], groups=functions[left], resamples=20).spearman_low
    )
    gaps = [difference(x, -x, y, groups=groups, resamples=20) for groups in (None, functions)]
    assert gaps[0].value == gaps[1].value and gaps[0].low != gaps[1].low
