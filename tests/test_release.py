"""What a release says of itself: one version, recorded scores that are the recordings'."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from tiny import invoke

import ntkscore
from experiments.paper.measures import RECORDINGS
from ntkscore.paths import RECORDED, results_path
from ntkscore.results import ResultSet, provenance

ROOT = Path(__file__).parents[1]


def test_there_is_one_version() -> None:
    """Of the changes the newest released one; while others wait for a release, a version of
    development of that, so that what is recorded now is not taken for what was released."""
    cited = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    changes = re.findall(r"^## (\S+)(.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    released = [version for version, note in changes if not note]
    assert cited == released[:1]
    (newest, note), *_ = changes
    assert note in ("", " (unreleased)")
    assert ntkscore.__version__ == newest + (".dev0" if note else "")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_an_older_python_is_refused_before_it_makes_anything(tmp_path: Path) -> None:
    older, made = tmp_path / "python3.9", tmp_path / "made"
    code = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[2])"
    older.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{code}' \"$@\"\n")
    older.chmod(0o755)
    command = ["make", "rank", f"PYTHON={older}", f"VENV={made}"]
    # These tests are run by a make, which would say so.
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=outside)
    said, *_ = result.stderr.splitlines()
    assert result.returncode == 2 and f"{older} is 3.9" in said and result.stdout == ""
    assert not made.exists()


def test_version_names_versions_and_devices() -> None:
    first, packages, devices = invoke("--version").stdout.splitlines()
    assert first == f"ntkscore {ntkscore.__version__}"
    assert re.match(r"Python 3\.\d+\.\d+, jax [\d.]+, jaxlib ", packages)
    assert provenance()["packages"]["ntkscore"] == ntkscore.__version__
    assert devices.startswith("cpu ")


def test_recorded_scores_are_the_recordings_at_one_beta() -> None:
    rows = ntkscore.open_run("recorded").rows
    recorded = [
        ResultSet.open(ROOT / "experiments" / "results" / name).read() for name in RECORDINGS
    ]
    wanted = pd.concat(recorded, ignore_index=True)
    wanted = wanted[wanted["beta"].isna() | (wanted["beta"] == 0.5)]
    keys = ["cell", "seed", "kernel", "score"]
    columns = [*keys, "beta", "value", "status"]
    one, other = (
        frame[columns].sort_values(keys).reset_index(drop=True) for frame in (rows, wanted)
    )
    pd.testing.assert_frame_equal(one, other)
    card = (RECORDED.parent / "README.md").read_text(encoding="utf-8")
    assert f"{len(rows):,} rows" in card and f"{rows['cell'].nunique():,} cells" in card


def test_a_folder_named_recorded_goes_before_the_package(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert results_path("recorded") == RECORDED
    Path("recorded").mkdir()
    assert results_path("recorded") == Path("recorded")
