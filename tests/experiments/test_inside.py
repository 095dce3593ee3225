"""Scores of what is inside cells' networks, and which cells they are of."""

from pathlib import Path

import pandas as pd
import pytest

from cells.nasbench201 import Cell
from experiments.data import SPACE, Data, functions_of
from experiments.paper.measures import HELD_EQUAL
from experiments.recordings import PROXIES
from experiments.tools import equal_counts, inside
from ntkscore.analysis.frames import cost_table
from ntkscore.results.result_set import ResultSet
from ntkscore.run.scorer import Scorer
from ntkscore.run.scoring import Scoring


@pytest.fixture(scope="module")
def data(data_dir: Path) -> Data:
    return Data(data_dir)


@pytest.mark.slow
def test_half_of_the_groups_are_drawn_whole(data: Data) -> None:
    cells = inside.cells_of_groups(data)
    functions = functions_of(cells)
    assert len(cells) == len(set(functions)) == 2404 and cells == sorted(cells)
    every = cost_table(data.table.own, SPACE)
    keys = pd.Series([*zip(*(every[name] for name in HELD_EQUAL), strict=True)], every.index)
    drawn = keys.isin(set(keys[cells]))
    assert set(functions_of(every.index[drawn])) == set(functions)
    assert inside.cells_of_groups(data, seed=1) != cells


@pytest.mark.slow
def test_measures_of_a_recording_stand_beside_the_others_on_its_cells(data: Data) -> None:
    names = ["clean.vkdnw"]
    whole, _ = equal_counts.rows(data, names, 5)
    (same,) = equal_counts.rows(data, names, 5, among="weights")
    assert whole == same


@pytest.mark.thorough
def test_scores_are_those_of_a_run(data: Data, data_dir: Path, tmp_path: Path) -> None:
    inside.score_inside(data_dir, out=tmp_path, most=1)
    rows = ResultSet.open(tmp_path).read()
    assert set(rows["seed"]) == {0, 1, 2} and len(rows) == 18
    recording, cell = next(iter(PROXIES.values())), Cell(int(rows["cell"].iloc[0]))
    job = Scoring.of(data.images(), recording.config, space=recording.space, seeds=1)
    scorer = Scorer(job.space, job.config)
    (expected,) = scorer([cell], scorer.batch(*job.draws[0], 0))
    of_run = {row["score"]: row["value"] for row in expected if row["kernel"] == "clean"}
    for row in rows[rows["seed"] == 0].itertuples():
        assert row.value == pytest.approx(of_run[row.score], rel=1e-3), row.score
