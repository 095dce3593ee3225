"""Outcomes of experiments, each run once for all tests."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from experiments.__main__ import EXPERIMENTS
from experiments.ours import default_score, measures, score_combinations
from experiments.paper import ntk_correlation
from experiments.study import Outcome, Study


@pytest.fixture(scope="session")
def study(data_dir: Path) -> Study:
    return Study(data_dir)


@pytest.fixture(scope="session")
def scores(study: Study) -> pd.DataFrame:
    """Scores and baselines of the recording of the whole table, a row per cell."""
    return score_combinations.mean_scores(study)


@pytest.fixture(scope="session")
def outcome_of(study: Study) -> Iterator[Callable[[str], Outcome]]:
    """An experiment's outcome by its name.

    Few resamples stand behind the intervals that are only shown; those that verdicts rest on are
    as in the report.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (ntk_correlation, score_combinations):
            patch.setattr(module, "RESAMPLES", 20)
        patch.setattr(measures, "RESAMPLES", 2)
        patch.setattr(default_score, "SPLITS", 2)
        yield cache(lambda name: EXPERIMENTS[name].run(study))
