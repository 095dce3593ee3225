"""Search by scores: what it costs, what it finds, and that it looks at nothing else."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from experiments.ours import train_free_search
from experiments.study import DATASET, METRIC, Outcome, Study
from ntkscore.analysis.score_names import DEFAULT

CELLS = [3, 5, 7, 11, 2581]
SCORES = pd.DataFrame(
    {term: np.arange(5.0) for term in DEFAULT.terms}, index=pd.Index(CELLS, name="cell")
).assign(path_pools=-np.arange(5.0))


def test_the_cell_taken_is_the_best_scored_or_the_most_accurate_of_those_looked_up() -> None:
    accuracy = pd.Series([0.9, 0.1, 0.5, 0.4, 0.3], index=CELLS)
    picked = [
        train_free_search.picked(SCORES, accuracy, CELLS[:4], queries) for queries in (0, 1, 2, 3)
    ]
    assert picked == [11, 11, 7, 7]
    assert train_free_search.picked(SCORES, accuracy, CELLS, 5) == 3


@pytest.mark.thorough
def test_every_way_of_choosing(study: Study, outcome_of: Callable[[str], Outcome]) -> None:
    frame = outcome_of("train-free-search").frame
    assert frame["scored"].max() == 5_234
    accuracy = study.table.accuracies(DATASET, METRIC, [int(c) for c in frame["cell"]])
    np.testing.assert_array_equal(frame[DATASET], accuracy)
    best = max(study.table.accuracies(DATASET, METRIC))
    assert (frame.loc[frame["rank"] == 1, DATASET] == best).all()
    # More accuracies to choose from never make a choice worse.
    asked = frame[frame["queries"] > 0].sort_values("queries")
    for _, part in asked.groupby(["method", "start", "scored"]):
        assert part[DATASET].is_monotonic_increasing
    whole = frame[frame["method"] == train_free_search.EVERYTHING].set_index("queries")
    assert whole.loc[0, "rank"] == 2 and whole.loc[10, "rank"] == 1
