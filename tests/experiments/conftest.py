"""Outcomes of experiments, each run once for all tests."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from experiments.__main__ import EXPERIMENTS
from experiments.ours import default_score, measures, train_free_search
from experiments.paper import ntk_correlation
from experiments.study import Outcome, Study


@pytest.fixture(scope="session")
def study(data_dir: Path) -> Study:
    return Study(data_dir)


@pytest.fixture(scope="session")
def scores(study: Study) -> pd.DataFrame:
    """Measures, costs and counts of the recording of the whole table, a row per cell."""
    return measures.measured(study)


@pytest.fixture(scope="session")
def outcome_of(study: Study) -> Iterator[Callable[[str], Outcome]]:
    """An experiment's outcome by its name.

    Few resamples stand behind the intervals that are only shown; those that verdicts rest on are
    as in the report.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ntk_correlation, "RESAMPLES", 20)
        patch.setattr(measures, "RESAMPLES", 2)
        patch.setattr(default_score, "SPLITS", 1)
        patch.setattr(train_free_search, "STARTS", 2)
        yield cache(lambda name: EXPERIMENTS[name].run(study))
