"""Recorded scores, and the experiments that read them."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import refuses

from experiments import recordings
from experiments.data import RECORDED
from experiments.recordings import (
    RECORDINGS,
    Recording,
    kept_rows,
    record,
    recordings_named,
    round_mantissa,
)
from ntkscore.analysis.percentiles import SHIPPED
from ntkscore.results.result_set import ResultSet
from ntkscore.run.scoring import choices_of

TINY = {"channels": 4, "cells_per_stage": 1, "samples": 4, "betas": (0.0, 0.5)}


def test_rounding_keeps_the_leading_bits() -> None:
    values = np.array([3.14159265e8, -1.7e-12, 0.0, np.nan, np.inf])
    rounded = round_mantissa(values, 14)
    np.testing.assert_allclose(rounded[:3], values[:3], rtol=2.0**-14)
    np.testing.assert_array_equal(rounded[3:], values[3:])
    assert round_mantissa(np.array([1 + 2.0**-20]), 14) == 1


def test_names_of_recordings() -> None:
    assert recordings_named(["space"]) == ["space"]
    assert recordings_named(["conventions/bn-init"]) == ["conventions/bn-init"]
    assert set(recordings_named(["fidelity/"])) == {
        n for n in RECORDINGS if n.startswith("fidelity/")
    }
    with refuses("nothing"):
        recordings_named(["nothing"])


@pytest.mark.thorough
def test_recording_goes_on_and_keeps_what_figures_use(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECORDINGS, "tiny", Recording(TINY, "table:20", 1))
    record("tiny", data_dir, tmp_path / "work", tmp_path / "kept")
    monkeypatch.setitem(RECORDINGS, "tiny", Recording(TINY, "table:20", 2))
    kept = ResultSet.open(record("tiny", data_dir, tmp_path / "work", tmp_path / "kept"))
    assert len(kept.finished()) == 40
    assert kept.sessions[-1]["command"] == "python -m experiments record tiny"
    assert recordings.seconds_per_cell(kept) > 0
    assert "platform" not in json.dumps(kept.sessions)
    rows, full = kept.read(), ResultSet.open(tmp_path / "work" / "tiny").read()
    assert set(rows.loc[rows["beta"].notna(), "score"]) == {"frobenius", "trace", "lambda_min"}
    assert len(kept_rows(full)) == len(rows)
    same = full.merge(rows, on=[c for c in rows.columns if c != "value"])
    np.testing.assert_allclose(same["value_x"], same["value_y"], rtol=1e-4)


def test_kept_recordings_are_those_that_the_code_describes() -> None:
    for name, recording in RECORDINGS.items():
        home = SHIPPED if name == recordings.REFERENCE else RECORDED
        kept = ResultSet.open(home / name)
        wanted = choices_of(recording.space.columns, recording.config)
        assert {key: kept.configuration[key] for key in wanted} == wanted, name
        assert kept.sessions[-1]["cells"] == recording.cells, name
        assert kept.sessions[-1]["command"].endswith(f" record {name}")
        units = kept.finished()
        assert len({seed for _, seed in units}) == recording.seeds, name
        assert len(units) % recording.seeds == 0
    size = sum(path.stat().st_size for path in RECORDED.rglob("*") if path.is_file())
    assert size < 26e6
