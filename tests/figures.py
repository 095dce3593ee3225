"""What an experiment's outcome must leave, and how near its numbers are to be."""

import json
from collections.abc import Set
from pathlib import Path

import pandas as pd
import pytest

from experiments.study import Outcome, Study, write_outcome


def near(value: float) -> object:
    """Equal to three digits, as the report states numbers."""
    return pytest.approx(value, abs=6e-4)


def check_written(
    outcome: Outcome, study: Study, name: str, recordings: Set[str], folder: Path
) -> None:
    """Figure, data and record are written, and the record names the recordings."""
    paths = write_outcome(outcome, study, name, folder)
    assert [path.suffix for path in paths] == [".png", ".svg", ".csv", ".json"]
    assert all(path.stat().st_size > 100 for path in paths)
    content = json.loads(paths[-1].read_text())
    assert content["results"] is None
    assert set(content["configuration"]["recordings"]) == recordings
    assert len(pd.read_csv(paths[-2])) == len(outcome.frame)
