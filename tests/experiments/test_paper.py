"""The paper's figures and tables: ranks, operations, sparsity, contrasts and searches."""

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from experiments.ours.sweep import peaks
from experiments.paper.picks import Picks, summary
from hypothesis import given
from hypothesis import strategies as st

from cells import EDGES, SIZE, Cell
from experiments.data import functions_of
from experiments.paper import search, sparsity
from experiments.paper.accuracies import peak_findings
from experiments.paper.contrasts import NOTABLE, SEEDS, Contrast, contrast
from experiments.paper.ranks import agreements, ranks
from experiments.paper.sparsity import best_by_sparsity
from experiments.paper.top_operations import best_accuracies, commonest, top_operations
from ntkscore.analysis.paired import Difference, difference


def contrast_of(
    first: float, second: float, low: float, high: float, seeds: tuple[float, ...] = ()
) -> Contrast:
    return Contrast(Difference("ok", 9, 0, first - second, low, high, first, second), seeds)


def test_a_contrast_is_paired_and_has_its_seeds() -> None:
    rng = np.random.default_rng(0)
    accuracy = rng.normal(size=500)
    good, bad = ((accuracy + noise * rng.normal(size=500), accuracy) for noise in (0.3, 1.0))
    result = contrast(good, bad, [(good, bad), (bad, good)], range(500))
    assert 0 < result.means.low < result.means.value < result.means.high
    assert result.seeds == (
        pytest.approx(result.means.value),
        pytest.approx(-result.means.value),
    )


def test_a_contrast_draws_copies_of_one_function_together() -> None:
    rng = np.random.default_rng(0)
    cells = np.array([0] * 5 + [2581] * 5 + [1462] * 5 + [15624] * 5)  # each five times
    accuracy, noise, other = rng.normal(size=(3, 4))
    places = np.repeat(np.arange(4), 5)
    good, bad = ((of[places], accuracy[places]) for of in (accuracy + noise, other))
    found = contrast(good, bad, [], cells).means
    # Of four functions some resample has one alone, whose coefficients are not defined.
    apart = difference(*(pair[0] for pair in (good, bad)), good[1], resamples=500)
    assert found.value == apart.value
    assert found.high - found.low > 1.3 * (apart.high - apart.low)


@pytest.mark.parametrize(
    ("result", "verdict", "why"),
    [
        ((0.7, 0.5, 0.1, 0.3, (0.2, 0.1, 0.3)), "reproduced", "all 3 seeds above 0"),
        ((0.51, 0.5, 0.01, 0.02, (0.1, 0.1, 0.1)), "direction only", "but by less than 0.02"),
        ((0.501, 0.5, -0.004, 0.005, (0.0, 0.001, -0.01)), "equivalent", "seeds within ±0.02"),
        ((0.501, 0.5, -0.004, 0.005, (0.0, 0.001, -0.03)), "not decidable", "both sides of 0"),
        ((0.5, 0.501, -0.005, -0.001, (-0.01, -0.01, -0.01)), "not reproduced", "below 0"),
        ((0.5, 0.7, -0.3, -0.1, (-0.2, -0.1, -0.2)), "not reproduced", "seeds below 0"),
        ((0.7, 0.5, 0.1, 0.3, (0.2, -0.1, 0.3)), "not decidable", "both sides of 0"),
        ((0.7, 0.5, -0.1, 0.3, (0.2, 0.1, 0.3)), "not decidable", "both sides of 0"),
        ((0.7, 0.5, 0.1, 0.3, (0.2,)), "not decidable", "fewer than 3 seeds"),
        ((-0.2, -0.4, 0.1, 0.3, (0.2, 0.2, 0.2)), "not decidable", "no positive"),
    ],
)
def test_verdicts(result: tuple, verdict: str, why: str) -> None:
    found, reason = contrast_of(*result).verdict
    assert found == verdict
    assert why in reason


@given(
    st.floats(-0.5, 0.5),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=4),
)
def test_only_a_sure_and_notable_difference_is_reproduced(
    value: float, below: float, above: float, seeds: list[float]
) -> None:
    low, high = value - below, value + above
    found, _ = contrast_of(0.6 + value, 0.6, low, high, tuple(seeds)).verdict
    sure = len(seeds) >= SEEDS and low > 0 and min(seeds) > 0
    assert (found == "reproduced") == (sure and contrast_value(value) >= NOTABLE)
    if found == "equivalent":
        assert -NOTABLE < low <= high < NOTABLE


def contrast_value(value: float) -> float:
    """The difference as rounded on its way through two coefficients."""
    return 0.6 + value - 0.6


def test_a_contrast_in_words() -> None:
    assert str(contrast_of(0.7, 0.5, 0.1, 0.3)) == "0.700 − 0.500 = +0.200 [+0.100, +0.300]"
    assert str(contrast_of(0.7, 0.5, 0.1, 0.3, (0.25,))).endswith("; by seed +0.250")


def test_flat_regions_are_named() -> None:
    rows = [
        {"metric": "val_acc", "score": "trace", "rho": rho, "beta": beta, "spearman": value}
        for rho, beta, value in (
            (1 / 255, 0.0, 0.50),
            (1 / 255, 1.0, 0.10),
            (8 / 255, 0.0, 0.505),
            (8 / 255, 1.0, 0.20),
        )
    ]
    (peak,) = peaks(pd.DataFrame(rows)).to_dict("records")
    assert (peak["highest"], peak["at β"], peak["at ρ × 255"]) == (0.505, "0", "8")
    assert (peak["flat"], peak["flat β"]) == ("2 of 4 points", "0")
    assert peak["flat ρ × 255"] == "any"


def test_ranks_and_their_agreement() -> None:
    frame = pd.DataFrame({"a": [0.9, 0.5, 0.7], "b": [0.6, 0.8, 0.8]}, index=[4, 2, 7])
    places = ranks(frame.rename_axis("cell"), "a")
    assert places.to_dict("list") == {"cell": [4, 7, 2], "a": [1, 2, 3], "b": [3, 1, 1]}
    statistics = agreements(places, "a").loc["b"]
    assert statistics["spearman"] == pytest.approx(-np.sqrt(3) / 2)
    assert statistics["shared_best"] == 3


def test_top_operations_and_the_commonest() -> None:
    digits = ["323133", "333133", "000000"]
    cells = [Cell.from_digits(text).index for text in digits]
    accuracy = pd.DataFrame({"robust_mean": [0.6, 0.59, 0.1]}, index=cells)
    frame = top_operations(accuracy, top=2)
    assert list(frame["digits"].unique()) == digits[:2]
    assert list(frame["nodes"][:6]) == [f"{source}→{target}" for source, target in EDGES]
    most = commonest(frame).set_index("edge")
    assert most.loc[4].tolist() == ["skip_connect", 2]
    assert most.loc[1].tolist() == ["nor_conv_3x3", 2]


def test_sparsity_counts_empty_edges() -> None:
    cells = [Cell.from_digits(text).index for text in ("333333", "323133", "030102")]
    best = best_by_sparsity(pd.DataFrame({"robust_mean": [0.5, 0.6, 0.4]}, index=cells))
    assert best["empty"].tolist() == [0, 3]
    assert best["cells"].tolist() == [2, 1]
    assert best["digits"].tolist() == ["323133", "030102"]


def ring(size: int) -> np.ndarray:
    """Two neighbours of every cell on a ring, shape (size, 2)."""
    places = np.arange(size)
    return np.stack([(places - 1) % size, (places + 1) % size], axis=1)


@pytest.mark.thorough
def test_neighbours_differ_on_one_edge() -> None:
    neighbours = search.cell_neighbours()
    assert neighbours.shape == (SIZE, 24)
    for index in (0, 2581, 15624):
        digits = Cell(index).digits
        for other in neighbours[index]:
            changed = zip(digits, Cell(int(other)).digits, strict=True)
            assert sum(a != b for a, b in changed) == 1


def test_first_distinct_keeps_order_and_stops_in_time() -> None:
    def stream() -> Iterator[int]:
        yield from (3, 1, 3, 2)
        raise AssertionError("asked for more than the budget")

    assert search.first_distinct(stream(), 3).tolist() == [3, 1, 2]
    assert search.first_distinct([5, 5], 3).tolist() == [5]
    assert search.first_distinct(itertools.repeat(5), 3, patience=4).tolist() == [5]


@pytest.mark.parametrize("method", search.SEARCHERS)
@pytest.mark.parametrize("queries", [1, 7, 40, 50])
def test_searches_keep_to_their_budget(method: str, queries: int) -> None:
    accuracy = np.random.default_rng(0).random(40)
    options = {"queries": queries, "runs": 5, "seed": 3}
    picks = search.run_search(method, "val_acc", accuracy, ring(40), **options)
    assert (picks.queries <= queries).all()
    assert (picks.found_after <= picks.queries).all() and (picks.found_after >= 1).all()
    if method != "regularised evolution":  # which may be stuck between the hills of a ring
        assert (picks.queries == min(queries, 40)).all()
        assert queries < 40 or (picks.cells == accuracy.argmax()).all()
    again = search.run_search(method, "val_acc", accuracy, ring(40), **options)
    np.testing.assert_array_equal(picks.cells, again.cells)


def test_evolution_replaces_the_oldest() -> None:
    accuracy = np.arange(20) / 20
    rng = np.random.default_rng(0)
    cells = []
    stream = search.regularised_evolution(accuracy, ring(20), rng, population=2, tournament=1)
    for cell in stream:
        cells.append(cell)
        if len(cells) == 200:
            break
    for place in range(2, 200):
        parents = ring(20)[cells[place - 2 : place]]
        assert cells[place] in parents


def test_summary_holds_interval_and_paper() -> None:
    accuracy = {"val_acc": np.array([0.1, 0.2, 0.4]), "val_pgd_8_acc": np.zeros(3)}
    one = np.ones(2)
    picks = [Picks("val_acc", "a", np.array([1, 2]), 5 * one, 3 * one, 0.1)]
    frame = summary(picks, accuracy, {("val_acc", "a"): (0.6,)})
    row = frame.iloc[0]
    assert row["mean"] == pytest.approx(0.3)
    assert row["low"] == pytest.approx(0.205) and row["high"] == pytest.approx(0.395)
    assert row["standard_error"] == pytest.approx(0.1)
    assert (row["queries"], row["found_after"], row["runs"]) == (5, 3, 2)
    assert row["near"] is False
    assert pd.isna(frame.iloc[1]["near"]) and pd.isna(frame.iloc[1]["paper"])
    assert summary(picks, accuracy, {("val_acc", "a"): (0.5,)}).iloc[0]["near"] is True


def test_seed_spread_is_the_spread_of_equal_cells() -> None:
    rng = np.random.default_rng(0)
    function = pd.Series(np.repeat(np.arange(400), 3))
    level = np.repeat(np.linspace(0.3, 0.5, 400), 3)
    seeds = rng.normal(0, np.where(level < 0.4, 0.01, 0.002), (3, len(level)))
    accuracy = pd.Series(level + seeds.mean(0))
    assert sparsity.seed_spread(accuracy, function, 0.32) == pytest.approx(0.01, rel=0.25)
    assert sparsity.seed_spread(accuracy, function, 0.48) == pytest.approx(0.002, rel=0.25)
    alone = pd.concat([accuracy, pd.Series([0.9, 0.1])], ignore_index=True)
    names = pd.concat([function, pd.Series([900, 901])], ignore_index=True)
    found = sparsity.seed_spread(alone, names, 0.48)
    assert found == sparsity.seed_spread(accuracy, function, 0.48)


@pytest.mark.parametrize(
    ("errors", "seeds", "verdict"),
    [
        ((0.1, 1.9), 3, "reproduced"),
        ((0.1, 2.5), 3, "not decidable"),
        ((0.1, 2.9), 3, "not reproduced"),
        ((0.1, 2.5), 9, "not reproduced"),
    ],
)
def test_a_row_of_table_5_is_judged_by_the_spread_of_seeds(
    errors: tuple[float, ...], seeds: int, verdict: str
) -> None:
    assert sparsity.verdict_by_seeds(pd.Series(errors), seeds) == verdict


def test_equal_cells_share_a_function() -> None:
    cells = [Cell.from_digits(text).index for text in ("200020", "200021", "200024", "200022")]
    same = functions_of(cells)
    assert (same[:3] == same[0]).all() and same[3] != same[0]


def best_of(accuracy: float) -> pd.DataFrame:
    return pd.DataFrame({"robust_mean": [accuracy, 0.1]})


@pytest.mark.parametrize(("best", "verdict"), [(0.62, "reproduced"), (0.5, "not reproduced")])
def test_only_the_newer_tables_best_accuracy_is_judged(best: float, verdict: str) -> None:
    newer, older = best_accuracies(best_of(best), best_of(0.3))
    assert newer.verdict == verdict and f"{best:.3f}" in newer.ours
    assert older.verdict == "not decidable" and older.ours.startswith("0.300")


def test_each_reading_of_a_peak_has_its_verdict() -> None:
    shares = {"clean": 0.1, "FGSM 3/255": 0.09, "PGD 8/255": 0.12}
    peaks = {"equal": pd.Series(shares), "own": pd.Series({**shares, "PGD 8/255": 0.08})}
    equal, own = peak_findings(peaks)
    assert (equal.verdict, own.verdict) == ("not reproduced", "reproduced")
    assert "0.120 (PGD 8/255)" in equal.ours and "0.090 (FGSM 3/255)" in own.ours
