"""What is known beyond counting: τ at equal counts, partial coefficients, small pools, settings."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau, rankdata, spearmanr

from experiments.ours import kernel_settings, setting_tables, small_pools
from experiments.ours.equal_counts import contrast_of, pairs_of, partials, taus, with_interval
from experiments.ours.kernel_settings import KERNEL, REFERENCES, Settings
from experiments.study import Outcome, functions_of, shuffled
from ntkscore.analysis.paired import partial_spearman


def numbers(count: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three measures, one with ties, accuracies that the first tells, and two counts."""
    rng = np.random.default_rng(0)
    values, counts = rng.normal(size=(count, 3)), rng.integers(4, size=(count, 2))
    values[:, 1] = values[:, 1].round()
    accuracy = values[:, 0] + counts[:, 0] ** 2 + 0.1 * rng.normal(size=count)
    return values, (rankdata(accuracy) / count), counts.astype(float)


def test_tau_within_groups_counts_pairs_of_equal_counts_alone() -> None:
    values, accuracy, _ = numbers()
    scores = pd.DataFrame({"params": np.repeat([1, 2], 30)})
    pairs = pairs_of(scores, ["params"], resamples=20, seed=0)
    assert len(pairs.group) == 2 * 30 * 29 / 2
    shifted = accuracy + 10 * (scores["params"] == 1)  # between the groups the order is reversed
    measure = values[:, 1]
    tau, low, high = with_interval(taus(measure, shifted.to_numpy(), pairs))
    parts = [kendalltau(measure[half], accuracy[half])[0] for half in (slice(30), slice(30, 60))]
    assert min(parts) - 1e-9 <= low <= tau <= high <= max(parts) + 1e-9
    one = pairs_of(pd.DataFrame({"params": np.ones(60)}), ["params"], 20, 0)
    assert taus(measure, accuracy, one)[0] == pytest.approx(kendalltau(measure, accuracy)[0])
    assert np.isnan(with_interval(taus(np.ones(60), accuracy, one))).all()
    measure = np.where(np.arange(60) < 30, np.inf, measure)  # failed scores
    assert taus(measure, accuracy, pairs)[0] == pytest.approx(parts[1])


def test_partial_coefficients_are_those_of_the_package() -> None:
    values, accuracy, counts = numbers()
    found = partials(values, accuracy, counts, resamples=5, seed=3)
    assert found.shape == (6, 3)
    wanted = [partial_spearman(one, accuracy, counts, squares=True) for one in values.T]
    np.testing.assert_allclose(found[0], wanted)
    cells = np.random.default_rng(3).integers(60, size=60)
    again = partial_spearman(values[cells, 0], accuracy[cells], counts[cells], squares=True)
    assert found[1, 0] == pytest.approx(again)
    assert np.isnan(partials(counts[:, :1], accuracy, counts)).all()  # a count is held equal


def test_a_verdict_asks_for_the_interval_and_every_seed() -> None:
    first, second = np.full(50, 0.5), np.full(50, 0.4)
    assert contrast_of(first, second, (0.1, 0.1, 0.1), 9).verdict[0] == "reproduced"
    assert contrast_of(first, second, (0.1, -0.1, 0.1), 9).verdict[0] == "not decidable"
    assert contrast_of(first, second + 0.09, (0.01, 0.01, 0.01), 9).verdict[0] == "direction only"
    assert contrast_of(second, first, (-0.1, -0.1, -0.1), 9).verdict[0] == "not reproduced"


def test_a_pool_is_ranked_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_pools, "DRAWS", 4)
    values, accuracy, _ = numbers(400)
    pools = small_pools.pools_of(values[:, 0], "the largest tenth", 10, seed=0)
    assert pools.shape == (4, 10) and len(np.unique(pools[0])) == 10
    assert set(pools.ravel()) <= set(np.argsort(-values[:, 0])[:40])
    oriented = {"a": values[:, 0], "b": values[:, 1]}
    total = small_pools.total(oriented, "a+b", pools)
    one = np.sum([np.log(rankdata(oriented[term][pools[1]])) for term in "ab"], axis=0)
    np.testing.assert_allclose(total[1], one, atol=1e-8)
    found = small_pools.worth(total, accuracy[pools])
    assert found["spearman"][1] == pytest.approx(spearmanr(one, accuracy[pools[1]])[0])
    picked = accuracy[pools][np.arange(4), total.argmax(1)]
    assert found["loss"] == pytest.approx(accuracy[pools].max(1) - picked)
    assert len(set(accuracy[pools].max(1))) > 1
    tied = small_pools.worth(np.ones((1, 2)), np.array([[0.2, 0.4]]))
    assert tied["loss"] == pytest.approx([0.1]) and tied["spearman"] == [0]


def settings(best: int) -> Settings:
    """Three settings of noise, of which one half of the cells may find any the best."""
    rng = np.random.default_rng(best)
    index = pd.Index(range(600), name="cell")
    counts = pd.DataFrame({"layers": rng.normal(size=600)}, index)
    accuracy = rng.normal(size=600)
    tables = [pd.DataFrame(rng.normal(size=(600, 3)), index, list("abc")) for _ in range(4)]
    references = [
        pd.DataFrame(rng.normal(size=(600, len(REFERENCES))), index, list(REFERENCES))
        for _ in range(4)
    ]
    if best:
        for table in tables:
            table["b"] += 2 * accuracy
    return Settings(tables, references, counts, accuracy)


def test_partial_coefficients_draw_groups_together() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(50), 4)
    accuracy, noise, counts = rng.normal(size=(3, 50))
    values = (accuracy + noise)[groups] + rng.normal(0, 1e-3, 200)
    columns = values[:, None], accuracy[groups], counts[groups][:, None]
    apart, together = (partials(*columns, 300, 0, of) for of in (None, groups))
    assert apart[0] == together[0]
    assert together[1:].std() / apart[1:].std() == pytest.approx(2, rel=0.2)  # √4 times


def test_one_half_chooses_and_the_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_settings, "RESAMPLES", 30)
    found = settings(best=1)
    name, gaps = kernel_settings.chosen_on_half(found, 0)
    assert name == "b" and gaps[KERNEL].verdict[0] == "reproduced"
    testing = shuffled(np.random.default_rng(0), functions_of(range(600)))[300:]
    wanted = partial_spearman(
        found.tables[0]["b"].to_numpy()[testing],
        found.accuracy[testing],
        found.counts.to_numpy()[testing],
        squares=True,
    )
    assert gaps[KERNEL].means.first == pytest.approx(wanted)
    _, gaps = kernel_settings.chosen_on_half(settings(best=0), 0)
    assert abs(gaps[KERNEL].means.value) < 0.3


def test_joint_kernels_have_their_smallest_eigenvalue_over_the_trace() -> None:
    keys = {"cell": 1, "seed": 0, "rho": 0.1, "kernel": "joint_clean", "beta": 0.5}
    rows = pd.DataFrame(
        [
            keys | {"score": "trace", "value": 8.0},
            keys | {"score": "lambda_min", "value": 2.0},
            keys | {"kernel": "clean", "score": "trace", "value": 3.0, "beta": np.nan},
        ]
    )
    found = kernel_settings.with_shape(rows)
    (value,) = found.loc[found["score"] == kernel_settings.SHAPE, "value"]
    assert value == 0.25 and len(found) == 4


@pytest.mark.thorough
def test_kernels_beside_counts(outcome_of: Callable[[str], Outcome]) -> None:
    outcome = outcome_of("within-counts")
    frame = outcome.frame
    assert set(frame["table"]) == {"groups", "beside", "pools", "settings"}
    beside = frame[frame["table"] == "beside"].set_index(["measure", "given"])["beside"]
    assert beside[KERNEL, "counts"] == pytest.approx(0.489, abs=5e-4)
    assert beside["robust.expressivity", "counts"] > beside[KERNEL, "counts"]
    of = frame[frame["table"] == "settings"]
    assert not len(setting_tables.higher(of))
    # At β = 0 K_all is the clean kernel.
    joint = of.set_index("setting").loc["space 8/255 joint_clean@0.lambda_min_normalized"]
    assert joint["beside"] == pytest.approx(beside[KERNEL, "counts"], abs=1e-4)
    assert len(outcome.more) == 5 and len(outcome.findings) > 20
