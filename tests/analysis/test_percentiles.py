"""Percentiles among a whole space: alone, among few, among all; and refusals of what differs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny import CONFIG, RESIDUAL, RESIDUAL_OPTIONS, invoke, refused

import ntkscore
from cells.nasbench201.space import NASBench201
from ntkscore.analysis import percentiles
from ntkscore.analysis.score_names import ScoreSum, below
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.results import ResultSet

pytestmark = pytest.mark.slow

BY = "params+shortcuts+clean.trace"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over all sixteen networks with two seeds."""
    out = tmp_path_factory.mktemp("whole") / "run"
    ntkscore.rank("all", "synthetic", out, CONFIG, space=RESIDUAL, seeds=2)
    return out


def scored(names: list[str], seed: int) -> pd.DataFrame:
    data = ntkscore.load_images("synthetic")
    images, labels = ntkscore.draw_images(data, CONFIG.samples, seed, CONFIG.balanced)
    return ntkscore.score(
        names,
        images,
        labels,
        CONFIG,
        space=RESIDUAL,
        seed=seed,
        mean=data.mean,
        std=data.std,
        num_classes=data.num_classes,
        dataset=data.name,
    )


def places(rows: pd.DataFrame, whole: Path, by: str | None = BY) -> pd.Series:
    data = ntkscore.load_images("synthetic")
    return ntkscore.percentiles(rows, data, CONFIG, space=RESIDUAL, by=by, reference=whole)


MORE = ("robust.frobenius", "clean.condition")


@pytest.mark.parametrize(
    "by",
    [BY, None, *(pytest.param(by, marks=pytest.mark.thorough) for by in MORE)],
)
def test_a_network_lies_where_it_does_in_the_whole_space(whole: Path, by: str | None) -> None:
    rows = ntkscore.open_results(whole).read()
    one_seed = rows[rows["seed"] == 1]
    among_all = places(one_seed, whole, by)
    assert len(among_all) == 16
    assert among_all.mean() == pytest.approx(50)
    for names in (["0110"], ["1111", "0000", "0110"]):
        few = places(scored(names, 1), whole, by)
        # Runs and `score` round differently, which moves a network past at most one other here.
        np.testing.assert_allclose(few[names], among_all[names], atol=100 / 16 + 1e-9)
    both = places(rows, whole, by)
    assert len(both) == 16
    if by == "robust.frobenius":  # Here a percentile is a rank, and two seeds are a mean of two.
        table = rows[(rows["kernel"] == "robust") & (rows["score"] == "frobenius")]
        ranks = table.groupby("skips")["value"].mean().rank()
        np.testing.assert_allclose(both, (ranks - 0.5) / 16 * 100)


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
    ("choices", "message"),
    [
        ({"samples": 8}, "got samples: stored 4, asked 8; score alike, or leave"),
        ({"output": "loss"}, "got output: stored sum, asked loss"),
        ({"rhos": (3 / 255,)}, "expected one of the radii 8/255, got 3/255"),
    ],
)
def test_scores_made_otherwise_are_refused(
    whole: Path, choices: dict[str, object], message: str
) -> None:
    data = ntkscore.load_images("synthetic")
    config = replace(CONFIG, **choices)
    job = ntkscore.Job.of(data, config, space=RESIDUAL)
    with pytest.raises(InputError, match=message):
        job.ranked_by("clean.trace", whole, RESIDUAL.parse("0"))


def test_other_images_seeds_and_scores_are_refused(whole: Path) -> None:
    other = replace(ntkscore.load_images("synthetic"), checksum="0")
    rows = scored(["0110"], 1)
    with pytest.raises(InputError, match="got data_checksum: stored"):
        ntkscore.percentiles(rows, other, CONFIG, space=RESIDUAL, reference=whole)
    with pytest.raises(InputError, match="got seed 7, of which it has 0, 1; score alike"):
        places(scored(["0110"], 7), whole)
    with pytest.raises(InputError, match=r"got joint_robust@0\.25\.trace, which it does not have"):
        percentiles.population(
            whole,
            ntkscore.open_results(whole).configuration,
            [0],
            CONFIG.rhos[0],
            ScoreSum(("joint_robust@0.25.trace",)),
            RESIDUAL,
        )
    with pytest.raises(InputError, match="a reference in the package, got 4 images of synthetic"):
        ntkscore.percentiles(rows, ntkscore.load_images("synthetic"), CONFIG, space=RESIDUAL)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("samples", 50),
        ("width", 16),
        ("attack", "pgd"),
        ("dataset", "cifar10"),
        ("space", "nasbench201"),
        ("steps", 7),
        ("step_size", 2 / 255),
        ("random_start", True),
        ("num_classes", 100),
        ("mean", "[0.1, 0.1, 0.1]"),
    ],
)
def test_rows_that_say_themselves_that_they_were_scored_otherwise_are_refused(
    whole: Path, column: str, value: object
) -> None:
    """Not the arguments alone count, which may be those of the reference; nor one row alone."""
    rows = ntkscore.open_results(whole).read().assign(num_classes=10, mean="[0.5, 0.5, 0.5]")
    data = ntkscore.load_images("synthetic")
    rows["mean"] = str(list(data.mean))
    places(rows, whole, "clean.trace")
    other = rows.astype({column: object})
    other.loc[rows["skips"] == "1111", column] = value
    with pytest.raises(InputError, match=f"expected rows scored with {column} .*, got {column}"):
        places(other, whole, "clean.trace")


def test_of_the_packages_references_one_that_differs_is_passed_over_and_a_damaged_one_told(
    tmp_path: Path,
) -> None:
    ResultSet.create_or_resume(tmp_path / "other", {"samples": 3}, {})
    asked = ({"samples": 4}, [0], CONFIG.rhos[0], None, RESIDUAL, tmp_path)
    assert percentiles.shipped_population(*asked) is None
    (tmp_path / "other" / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json is damaged"):
        percentiles.shipped_population(*asked)


def test_commands_rank_among_a_reference(whole: Path, tmp_path: Path) -> None:
    options = [*RESIDUAL_OPTIONS, "--reference", whole]
    sheet = " ".join(invoke("score", "0110", "--seed", 1, *options).stdout.split())
    expected = places(scored(["0110"], 1), whole, None)["0110"]
    assert f"Better than {expected:.1f} % of 16 networks in" in sheet
    out = tmp_path / "few"
    table = invoke("rank", "--cells", "0110,1111", "--out", out, "--seeds", 2, *options).stdout
    assert "percentile" in table and "Percentiles are among 16 networks" in " ".join(table.split())
    message = "expected scores made like those of"
    refused(message, "score", "0110", *RESIDUAL_OPTIONS, "--reference", whole, "--samples", 5)
    few = [*RESIDUAL_OPTIONS, "--reference", whole, "--seeds", 3]
    refused("got seed 2, of which it has 0, 1", "rank", "--out", tmp_path / "more", *few)
    refused(
        "expected a results directory", "score", "0", *RESIDUAL_OPTIONS, "--reference", out.parent
    )


@pytest.mark.thorough
def test_the_package_has_a_reference_for_the_first_steps(tmp_path: Path) -> None:
    """Two cells scored alone lie where they do in the whole space that came with the package."""
    config, space = Config(samples=16), NASBench201(channels=8, cells_per_stage=1)
    rows = ntkscore.open_results(percentiles.SHIPPED / "small-synthetic").read()
    data = ntkscore.load_images("synthetic")
    whole = ntkscore.percentiles(rows[rows["seed"] == 1], data, config, space=space)
    assert len(whole) == 5_234
    assert whole.mean() == pytest.approx(50)
    out = tmp_path / "run"
    cells = ["312323", "303223"]
    found = ntkscore.rank(cells, "synthetic", out, config, space=space, seeds=[1])
    np.testing.assert_allclose(found["percentile"], whole[found["cell"]], atol=0.05)
