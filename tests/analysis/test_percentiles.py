"""Percentiles among a whole space: alone, among few, among all; and refusals of what differs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import IMAGES, RESIDUAL, RESIDUAL_OPTIONS, invoke, refused, refuses

import ntkscore
from cells.nasbench201.space import NASBench201
from ntkscore import ImageSet
from ntkscore.analysis import percentiles
from ntkscore.analysis.score_names import ScoreSum, below
from ntkscore.config import Config
from ntkscore.results import ResultSet

pytestmark = pytest.mark.slow

BY = "params+shortcuts+clean.trace"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over all sixteen networks with two seeds."""
    out = tmp_path_factory.mktemp("whole") / "run"
    ntkscore.score("all", IMAGES, space=RESIDUAL, seeds=2, out=out)
    return out


def scored(
    names: list[str], seed: int, config: Config | None = None, data: ImageSet = IMAGES
) -> ntkscore.Run:
    return ntkscore.score(names, data, config, space=RESIDUAL, seeds=[seed])


def places(run: ntkscore.Run, whole: Path, by: str | None = BY) -> pd.Series:
    return run.rank(by, among=whole).set_index("skips")["percentile"]


MORE = ("robust.frobenius", "clean.condition")


@pytest.mark.parametrize(
    "by",
    [BY, None, *(pytest.param(by, marks=pytest.mark.thorough) for by in MORE)],
)
def test_a_network_lies_where_it_does_in_the_whole_space(whole: Path, by: str | None) -> None:
    run = ntkscore.open_run(whole)
    rows = run.rows
    among_all = places(replace(run, seeds=(1,)), whole, by)
    assert len(among_all) == 16
    assert among_all.mean() == pytest.approx(50)
    for names in (["0110"], ["1111", "0000", "0110"]):
        few = places(scored(names, 1), whole, by)
        # Runs and `score` round differently, which moves a network past at most one other here.
        np.testing.assert_allclose(few[names], among_all[names], atol=100 / 16 + 1e-9)
    both = places(run, whole, by)
    assert len(both) == 16
    if by == "robust.frobenius":  # Here a percentile is a rank, and two seeds are a mean of two.
        table = rows[(rows["kernel"] == "robust") & (rows["score"] == "frobenius")]
        ranks = table.groupby("skips")["value"].mean().rank()
        np.testing.assert_allclose(both[ranks.index], (ranks - 0.5) / 16 * 100)


def test_a_sum_ranks_among_the_population() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 6, (30, 2)).astype(float), columns=["params", "flops"])
    some, by = frame.iloc[[3, 17]], ScoreSum(("params", "flops"))
    pd.testing.assert_series_equal(by.of(some, frame), by.of(frame).iloc[[3, 17]])
    assert by.of(pd.DataFrame({"params": [9.0], "flops": [-1.0]}), frame)[0] == pytest.approx(
        np.log(30.5) + np.log(0.5)
    )
    assert np.isnan(by.of(pd.DataFrame({"params": [np.nan], "flops": [1.0]}), frame)[0])
    naive = [np.mean([(x < v) + (x == v) / 2 for x in frame["params"]]) for v in frame["params"]]
    np.testing.assert_allclose(below(frame["params"], frame["params"]) / 30, naive)


@pytest.mark.parametrize(
    ("choices", "got"),
    [
        ({"data": replace(IMAGES, samples=8)}, ["samples", 4, 8]),
        ({"config": Config(output="loss")}, ["output", "sum", "loss"]),
        ({"config": Config(rhos=(3 / 255,))}, ["3/255"]),
    ],
)
def test_scores_made_otherwise_are_refused(whole: Path, choices: dict[str, Any], got: list) -> None:
    run = scored(["0"], 0, **choices)
    with refuses(*got):
        run.rank("clean.trace", among=whole)


def test_other_images_seeds_and_scores_are_refused(whole: Path) -> None:
    other = replace(IMAGES, checksum="0")
    run = ntkscore.score("0110", other, space=RESIDUAL)
    with refuses("data_checksum", 0, expected=whole):
        run.rank(among=whole)
    with refuses(7, 0, 1):
        places(scored(["0110"], 7), whole)
    with refuses("joint_robust@0.25.trace"):
        percentiles.population(
            whole,
            ntkscore.open_run(whole).results.configuration,
            [0],
            Config().rhos[0],
            ScoreSum(("joint_robust@0.25.trace",)),
            RESIDUAL,
        )
    assert "percentile" not in run.rank()


def test_of_the_packages_references_one_that_differs_is_passed_over_and_a_damaged_one_told(
    tmp_path: Path,
) -> None:
    ResultSet.create_or_resume(tmp_path / "other", {"samples": 3})
    asked = ({"samples": 4}, [0], Config().rhos[0], None, RESIDUAL, tmp_path)
    assert percentiles.shipped_population(*asked) is None
    (tmp_path / "other" / "run.json").write_text("{")
    with refuses(tmp_path / "other" / "run.json"):
        percentiles.shipped_population(*asked)


def test_the_command_ranks_among_another_run(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "few"
    invoke("score", "0110,1111", "--out", out, "--seeds", 2, *RESIDUAL_OPTIONS)
    table = invoke("rank", out, "--among", whole).stdout
    assert "percentile" in table and "Percentiles are among 16 networks" in " ".join(table.split())
    five = tmp_path / "five"
    invoke("score", "0110", "--out", five, *RESIDUAL_OPTIONS, "--samples", 5)
    refused("expected scores made like those of", "rank", five, "--among", whole)
    refused("expected a results directory", "rank", out, "--among", out.parent)


@pytest.mark.thorough
def test_the_package_has_a_reference_for_the_first_steps() -> None:
    """Two cells scored alone lie where they do in the whole space that came with the package."""
    images = ntkscore.load_images("synthetic", samples=16)
    space = NASBench201(channels=8, cells_per_stage=1)
    run = ntkscore.open_run(percentiles.SHIPPED / "small-synthetic")
    whole = replace(run, seeds=(1,)).rank().set_index("cell")["percentile"]
    assert len(whole) == 5_234
    assert whole.mean() == pytest.approx(50)
    cells = ["312323", "303223"]
    found = ntkscore.score(cells, images, space=space, seeds=[1]).rank()
    np.testing.assert_allclose(found["percentile"], whole[found["cell"]], atol=0.05)
