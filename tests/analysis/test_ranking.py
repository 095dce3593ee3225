"""What networks are ranked by."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
import pytest
from tiny import refuses

from cells.nasbench201.space import NASBench201
from cells.residual import Residual, Skips
from ntkscore.analysis.frames import cost_table, network_table
from ntkscore.analysis.ranking import Ranking, non_dominated
from ntkscore.analysis.score_names import ScoreSum, default_sum, sum_asked
from ntkscore.config import Config
from ntkscore.measures.registry import direction_of
from ntkscore.space import Space

SCORES = pd.DataFrame(
    {"params": [10, 20, 30, 40], "clean.condition": [5.0, 1.0, np.nan, 2.0]},
    index=pd.Index([1, 2, 3, 4], name="cell"),
)


def test_sums_by_name() -> None:
    assert ScoreSum.parse("robust.frobenius").terms == ("robust.frobenius",)
    assert ScoreSum.parse("flops+joint_clean.trace", (0.25,)).terms == (
        "flops",
        "joint_clean@0.25.trace",
    )
    counts = ("params", "layers", "path_pools", "field")
    parsed = ScoreSum.parse(NASBench201.order, costs=counts, fewer=("path_pools",))
    assert parsed == default_sum(NASBench201(), counts) and parsed.fewer == ("path_pools",)
    for text in ("params+", "size", "robust.frobenius+ params"):
        wrong = text.rpartition("+")[2]
        with refuses(wrong, expected="KERNEL.SCORE", remedy=("params", "flops", "+")):
            ScoreSum.parse(text)
    with refuses("params", expected="sum"):
        ScoreSum.parse("params+flops+params")


def test_costs_are_those_of_the_space() -> None:
    assert ScoreSum.parse("layers", costs=("layers",)).terms == ("layers",)
    with refuses("params", remedy=("layers", "+")):
        ScoreSum.parse("params", costs=("layers",))
    of_residual = partial(default_sum, Residual())
    assert str(of_residual(("params",))) == "params+clean.naswot"
    assert of_residual(("params",)).fewer == ()
    assert str(of_residual(())) == "clean.naswot"
    given = ["clean.lambda_min_normalized", "robust.trace"]
    assert str(of_residual(("params", "flops"), given)) == "params"
    assert str(of_residual((), given)) == "clean.lambda_min_normalized"
    assert str(default_sum(NASBench201(), ("params", "skips"))) == f"params+{given[0]}"


def test_what_takes_passes_of_its_own_is_ranked_by_only_where_it_is_measured() -> None:
    space = Residual(depth=3, width=4)
    asked = partial(sum_asked, "params+network.zen", space, space.parse("0"))
    assert str(asked(Config(proxies=True))) == "params+network.zen"
    with refuses("network.zen", remedy=("--proxies", "Config(proxies=True)")):
        asked(Config())
    assert sum_asked(None, space, space.parse("0"), Config()) is None


def test_directions() -> None:
    assert direction_of("clean.condition") == -1
    assert direction_of("cross.sigma_min") == direction_of("params") == +1


def test_one_score_keeps_its_value_up_to_the_sign() -> None:
    values = ScoreSum(("clean.condition",)).of(SCORES)
    np.testing.assert_array_equal(values, [-5, -1, np.nan, -2])


def test_several_become_a_sum_of_log_ranks_among_the_cells_that_have_all() -> None:
    values = ScoreSum(("params", "clean.condition")).of(SCORES)
    np.testing.assert_allclose(values, [np.log(1 * 1), np.log(2 * 3), np.nan, np.log(3 * 2)])


def rows_of(column: str, traces: dict[str, float] | dict[int, float]) -> pd.DataFrame:
    """Tidy rows of one score, by network."""
    row = {"seed": 0, "kernel": "clean", "beta": np.nan, "score": "trace"}
    return pd.DataFrame([{column: key, **row, "value": value} for key, value in traces.items()])


def ranked_by(
    rows: pd.DataFrame, by: ScoreSum, space: Space, pareto: Sequence[str] = ()
) -> Ranking:
    return Ranking.of(network_table(rows, space), by, space, pareto=pareto)


def test_ranking_puts_failed_cells_last() -> None:
    rows, space = rows_of("cell", {2581: 3.0, 0: 7.0, 1462: np.nan}), NASBench201()
    by_trace = ranked_by(rows, ScoreSum(("clean.trace",)), space).frame
    assert list(by_trace["cell"]) == [0, 2581, 1462]
    assert list(by_trace["rank"]) == [1, 2, 3]
    by_both = ranked_by(rows, ScoreSum(("flops", "clean.trace")), space).frame
    assert list(by_both["sum of log-ranks"])[:2] == pytest.approx([np.log(2), np.log(2)])
    assert by_both["cell"].iloc[-1] == 1462
    assert list(ranked_by(rows, ScoreSum(("params",)), space).frame["cell"]) == [1462, 2581, 0]


def test_ranking_shows_the_networks_that_are_trained() -> None:
    rows = rows_of("cell", {2581: 3.0})
    ranked = ranked_by(
        rows, ScoreSum(("clean.trace",)), NASBench201(channels=4, cells_per_stage=1)
    ).frame
    assert list(ranked.columns) == [
        *("rank", "cell", "digits", "clean.trace", "params", "flops", "string")
    ]
    assert ranked["params"].item() == 1_073_466


def test_the_costs_of_a_space_stand_beside_its_scores() -> None:
    rows, space = rows_of("skips", {"0": 3.0, "01": 7.0, "0110": 5.0}), Residual(width=8)
    ranked = ranked_by(rows, ScoreSum(("clean.trace",)), space).frame
    assert ranked.columns.is_unique
    assert dict(zip(ranked["skips"], ranked["shortcuts"], strict=True)) == {
        "01": 1,
        "0110": 2,
        "0": 0,
    }
    assert list(ranked_by(rows, ScoreSum(("shortcuts",)), space).frame["skips"]) == [
        "0110",
        "01",
        "0",
    ]


def test_the_front_is_what_no_other_network_beats() -> None:
    rng = np.random.default_rng(0)
    for k in (1, 2, 3):
        objectives = rng.integers(6, size=(60, k)).astype(float)
        objectives[rng.random(60) < 0.1, 0] = np.nan
        objectives[rng.random(60) < 0.1, -1] = -np.inf
        whole = [i for i, row in enumerate(objectives) if np.isfinite(row).all()]
        naive = [
            i
            for i in whole
            if not any(
                (objectives[j] >= objectives[i]).all() and (objectives[j] > objectives[i]).any()
                for j in whole
            )
        ]
        assert np.flatnonzero(non_dominated(objectives)).tolist() == naive


def test_a_front_keeps_the_place_in_the_ranking() -> None:
    traces = {"0": 3.0, "01": 7.0, "011": 5.0, "0111": np.nan, "00": 7.0}
    rows, space = rows_of("skips", traces), Residual(width=8)
    ranking = ranked_by(rows, ScoreSum(("clean.trace",)), space, pareto=["params"])
    # The cheapest is beaten in the score alone; equals in both stand side by side.
    assert list(ranking.front["skips"]) == ["00", "01", "0"]
    assert list(ranking.front["rank"]) == [1, 2, 4]
    assert len(ranking.frame) == 5
    with refuses("size"):
        ranked_by(rows, ScoreSum(("clean.trace",)), space, pareto=["size"])
    for by, pareto in (("clean.trace", ["params", "params"]), ("params", ["params"])):
        with refuses("params", expected="cost"):
            ranked_by(rows, ScoreSum((by,)), space, pareto=pareto)


def test_a_cost_with_the_name_of_an_identity_is_refused() -> None:
    class Clash(Residual):
        def costs(self, architecture: Skips) -> dict[str, float]:
            return {"skips": 1}

    rows = rows_of("skips", {"0": 3.0, "01": 7.0})
    with refuses("skips", expected="residual"):
        ranked_by(rows, ScoreSum(("clean.trace",)), Clash(width=8))


def test_a_count_with_the_name_of_a_cost_is_refused() -> None:
    class Twice(NASBench201):
        name = "twice"

        def structure(self, architecture: object) -> dict[str, float]:
            return {"params": 1.0}

    with refuses("params", expected="twice"):
        cost_table(["323133"], Twice())
