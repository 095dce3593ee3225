"""A machine measured with one command: its parts, and the report of what they left."""

import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

from experiments.data import RECORDED
from experiments.tools.accelerator import (
    accelerator,
    parts_of,
    read_json,
    run,
    sections,
    write_json,
)

SUMMARY = {
    "samples": 50,
    "channels": 16,
    "peak_bytes": 2**31,
    "matrix_product_flops": 5e13,
}
START = {
    "networks": 60,
    "total": 100,
    "seconds": 85.0,
    "first_call": 60.0,
    "per_second": 2.0,
    "peak_bytes": 2**30,
    "plan": "16 side by side",
}


def test_the_report_says_what_was_measured(tmp_path: Path, data_dir: Path) -> None:
    checks = pd.DataFrame(
        {
            "quantity": ["logits", "k_all_beta_0.5", "ntk_sum_weights"],
            "error": [1e-7, 2e-2, 1e-7],
            "tolerance": 1e-3,
            "kink bound": np.nan,
            "result": ["pass", "FAIL", "pass"],
        }
    )
    checks.to_csv(tmp_path / "verify-cell-float32.csv", index=False)
    (tmp_path / "verify-other-float64.csv").touch()
    write_json(tmp_path / "benchmark.json", [SUMMARY])
    second = START | {"networks": 85, "per_second": 0.0}
    write_json(tmp_path / "pace.json", {"monday": START, "tuesday": second})
    write_json(tmp_path / "parts.json", {"a part": {"ending": "failed: no luck", "seconds": 3.0}})
    shutil.copytree(RECORDED / "conventions" / "tiny", tmp_path / "space")
    page = "\n\n".join(sections(tmp_path, data_dir))
    for text in (
        # What ran before in this process may have made each core a device.
        f"# {len(jax.devices())} × cpu",
        "| cell-float32 | 2 of 3 | 2.0e-02 of k_all_beta_0.5 | k_all_beta_0.5 |",
        "| 50 | 16 | 2 | 5e+13 |",
        "| monday | 60 | 100 | 85 | 60 | 2 | 1 | 16 side by side |",
        "| tuesday | 85 | 100 |",
        "The whole space in one go: 1 min 50 s",
        "| params | 100 | 0.",
        "| `a part` | failed: no luck | 3 |",
    ):
        assert text in page


@pytest.mark.parametrize(
    ("command", "limit", "ending"),
    [
        (("platform",), 60, "done"),
        (("ntkscore_that_is_not_there",), 60, "failed: .*No module named"),
        (("timeit", "-n1", "-r1", "import time; time.sleep(60)"), 1, "stopped: its time was up"),
    ],
)
def test_a_part_ends_alone(
    tmp_path: Path, command: tuple[str, ...], limit: float, ending: str
) -> None:
    assert re.match(ending, run(command, tmp_path / "part.txt", tmp_path, limit))


def test_every_parity_file_is_verified_in_both_precisions(tmp_path: Path) -> None:
    (tmp_path / "parity").mkdir()
    for name, content in (("large", "12"), ("small", "1")):
        (tmp_path / "parity" / f"{name}.npz").write_text(content)
    *verify, benchmark, ranking = parts_of("full", tmp_path, tmp_path)
    assert verify == [
        f"verify-{file}-{precision}.csv"
        for precision in ("float32", "float64")
        for file in ("small", "large")
    ]
    assert (benchmark, ranking) == ("benchmark.json", "ranking.csv")
    assert len(parts_of("tiny", tmp_path, tmp_path)) == 4


@pytest.mark.thorough
def test_the_command_ranks_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any data: no parity file, embedded images, no table."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    folder = tmp_path / "out"

    def endings(minutes: float) -> list[str]:
        accelerator(folder, "tiny", minutes, tmp_path)
        return [each["ending"] for each in read_json(folder / "parts.json").values()]

    assert [each[:7] for each in endings(0.0)] == ["stopped", "stopped"]
    assert capsys.readouterr().out.count("Not measured.") == 4
    assert endings(20.0) == ["done", "done"], (folder / "ranking.log").read_text()
    said = capsys.readouterr().out
    assert "| 24 | 24 |" in said and "Not compared with a table: expected" in said
    assert len(pd.read_csv(folder / "ranking.csv")) == 24
    assert "embedded images stand in" in (folder / "ranking.log").read_text()
    before = read_json(folder / "parts.json")
    endings(20.0)
    assert read_json(folder / "parts.json") == before
