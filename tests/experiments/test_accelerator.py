"""A machine measured with one command: the parts, the clock, the FLOPs and the page."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cells import Cell
from experiments.accelerator.__main__ import measure
from experiments.accelerator.folder import Folder
from experiments.accelerator.pace import Pace
from experiments.accelerator.page.__main__ import write
from experiments.accelerator.parts import Part, parts_of, run
from experiments.accelerator.sizes import SIZES
from experiments.accelerator.waste import group_flops, needed_flops
from experiments.study import RECORDED
from ntkscore.errors import InputError


def call(session: str, seconds: float, done: int, plan: str = "16 side by side") -> dict:
    """A line of the clock."""
    return {
        "session": session,
        "seconds": seconds,
        "done": done,
        "resumed": 60 if session == "b" else 0,
        "total": 100,
        "devices": 1,
        "group": 16,
        "plan": plan,
        "peak_bytes": 2**30,
    }


CALLS = [
    *(call("a", *point) for point in ((5.0, 0), (65.0, 20), (75.0, 40), (85.0, 60))),
    *(call("b", *point) for point in ((5.0, 0), (15.0, 10))),
    # A smaller plan, which compiled again.
    *(call("b", *point, "8 side by side") for point in ((60.0, 20), (65.0, 25))),
]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder as a tiny measurement leaves it, on a recorded run."""
    folder = Folder(tmp_path / "machine")
    folder.begin("tiny")
    folder.write(
        "machine",
        {
            "device": "NVIDIA H1",
            "count": 2,
            "free_bytes": 2**36,
            "runtime": "cuda 13",
            "python": "3.11",
            "packages": {"jax": "0.10"},
            "time": "2026-01-01",
        },
    )
    summary = {
        "samples": 50,
        "channels": 16,
        "cells_per_stage": 5,
        "clean_seconds_median": 0.012,
        "stack_seconds_median": 0.034,
        "compile_seconds": 56.0,
        "peak_bytes": 2**31,
        "matrix_product_flops": 5e13,
        "fraction_of_matrix_product": 0.25,
    }
    folder.write("benchmark", [summary])
    folder.write("parts", {"machine": ("done", 2.0, ""), "benchmark": ("failed", 3.0, "no | luck")})
    check = {"error": 1e-7, "tolerance": 1e-3, "kink bound": np.nan, "result": "pass"}
    checks = [
        {"quantity": name} | check for name in ("logits", "k_all_beta_0.5", "ntk_sum_weights")
    ]
    checks[1] |= {"error": 2e-2, "result": "FAIL"}
    frame = pd.DataFrame(checks).assign(file="cell.npz")
    frame.to_csv(folder.path / "verify-cell-float32.csv", index=False)
    (folder.path / "verify-other-float64.csv").touch()
    folder.clock.write_text("".join(json.dumps(line) + "\n" for line in CALLS) + '{"torn": ')
    shutil.copytree(RECORDED / "conventions" / "tiny", folder.space)
    return folder


def test_the_pace_leaves_compilation_out(folder: Folder) -> None:
    pace = Pace.of(folder.calls())
    assert pace is not None
    assert pace.rate == pytest.approx((40 + 5) / (20 + 5))
    assert (pace.first, pace.again, pace.spent) == (60.0, 10.0, 150.0)
    assert (pace.done, pace.total, pace.complete) == (85, 100, False)
    assert pace.projected == pytest.approx(60 + 100 / 1.8)


def test_a_clock_without_a_finished_call_has_no_pace(tmp_path: Path) -> None:
    assert Pace.of(Folder(tmp_path).calls()) is None
    assert Pace.of(pd.DataFrame([call("a", 5.0, 0)])) is None
    pace = Pace.of(pd.DataFrame([call("a", 5.0, 0), call("a", 9.0, 3)]))
    assert pace is not None and np.isnan(pace.rate) and np.isnan(pace.again)


@pytest.mark.parametrize("size", SIZES)
def test_a_group_computes_what_one_of_its_cells_has(size: str) -> None:
    space, config = SIZES[size].fidelity.space, SIZES[size].fidelity.config
    # Costs are sums over edges, so that five uniform cells have the mean of all.
    cells = [Cell.from_digits(6 * digit) for digit in "01234"]
    needed = needed_flops(cells, space, config)
    assert group_flops(cells, space, config, 1) == pytest.approx(needed)
    group, shared = group_flops(cells, space, config, 5), needed[0]
    assert (group - shared) / (needed - shared).mean() == pytest.approx(np.full(5, 5))
    # Like with like: the 3×3 convolutions are in one pair, the 1×1 in none of the other.
    mixed = [Cell.from_digits(digits) for digits in ("300000", "000000", "304000", "100000")]
    assert group_flops(mixed, space, config, 2) == pytest.approx(
        needed_flops([mixed[1], mixed[1], mixed[0], mixed[0]], space, config)
    )


@pytest.mark.slow
def test_the_page_says_what_was_measured(
    folder: Folder, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NTKSCORE_DATA", str(data_dir))
    write(folder)
    page = folder.page.read_text(encoding="utf-8")
    assert page.startswith("# 2 × NVIDIA H1\n")
    for text in (
        "85 of 100 cells; 8 side by side.",
        "1.8 cells a second",
        "The first call took 60 s, nearly all of it compilation, 10 s at the last start.",
        "In one go: 1 min 56 s projected; so far it has taken 2 min 30 s.",
        "| 50, 16, 5 | 0.012 s | 0.034 s | 56 s | 2 GiB | 50 TFLOP/s | 0.25 |",
        "| cell.npz | float32 | 2 of 3 | k_all_beta_0.5 | 2.0e-02 | 1e-03 | – |",
        "k_all_beta_0.5 of cell.npz in float32: error 2.0e-02, tolerance 1e-03.",
        "no \\| luck",
        "Spearman with val_pgd_8_acc on cifar10",
    ):
        assert text in page
    assert re.search(r"by the FLOPs that cells need, \S+ by those that are computed", page)
    assert re.search(r"\| `params` \| 100 \| 0\.\d+ \|", page)
    (picture,) = re.findall(r"\]\((.+?\.png)\)", page)
    assert (folder.path / picture).stat().st_size < 200_000
    assert not list(folder.path.glob("*.svg"))


@pytest.mark.thorough
def test_the_page_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(InputError, match=r"^expected a folder with a settings.json, got .*; give"):
        write(folder)
    folder.begin("full")
    write(folder)
    page = folder.page.read_text(encoding="utf-8")
    assert page.count("Not measured.") == 4
    assert "112 GFLOP a cell in groups of 16 alike, 1.15 times as much" in page
    assert "every operation of every edge it would be 3.54 times." in page
    monkeypatch.setenv("NTKSCORE_DATA", str(tmp_path))
    shutil.copytree(RECORDED / "conventions" / "tiny", folder.space)
    write(folder)
    assert "Not held against a table: expected" in folder.page.read_text(encoding="utf-8")


def test_a_folder_has_one_size(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^expected a size out of full, small, tiny, got 'huge'; choose one"
    ):
        Folder(tmp_path).begin("huge")
    Folder(tmp_path).begin("tiny")
    Folder(tmp_path).begin("tiny")
    with pytest.raises(
        InputError,
        match=r"^expected the size tiny, with which .* was begun, got full; choose another --out",
    ):
        Folder(tmp_path).begin("full")


@pytest.mark.parametrize(
    ("module", "limit", "ending", "why"),
    [
        (("platform",), 60, "done", ""),
        (("ntkscore_that_is_not_there",), 60, "failed", "No module named"),
        (("timeit", "-n1", "-r1", "import time; time.sleep(60)"), 1, "stopped", "its time was up"),
    ],
)
def test_a_part_ends_alone(
    folder: Folder, module: tuple[str, ...], limit: float, ending: str, why: str
) -> None:
    outcome = run(Part("part", module, "part.txt"), folder, folder.path, limit)
    assert outcome.ending == ending and why in outcome.why
    assert outcome.seconds < 30
    assert bool((folder.path / "part.txt").read_text()) == (ending == "done")


def test_every_parity_file_is_verified_in_both_precisions(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "parity").mkdir()
    for name, content in (("large", "12"), ("small", "1")):
        (tmp_path / "parity" / f"{name}.npz").write_text(content)
    names = [part.name for part in parts_of("full", folder, tmp_path)["verify"]]
    assert names == [
        f"verify {f} in {p}" for p in ("float32", "float64") for f in ("small", "large")
    ]
    assert len(parts_of("tiny", folder, tmp_path)["verify"]) == 2


@pytest.mark.thorough
def test_the_command_ranks_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any data: no parity file, embedded images, no table."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    folder = Folder(tmp_path / "out")
    kinds = {"machine", "verify", "space"}
    early = measure("tiny", folder, tmp_path, kinds, 0.0)
    assert [outcome.ending for outcome in early] == ["stopped", "stopped", "done"]
    later = measure("tiny", folder, tmp_path, kinds, 10.0)
    assert [outcome.ending for outcome in later] == ["done"] * 3, folder.log.read_text()
    said = capsys.readouterr().out
    assert "verify: expected .npz files in" in said and "no time was left" in said
    assert "24 of 24 cells" in folder.page.read_text(encoding="utf-8")
    assert len(pd.read_csv(folder.path / "ranking.csv")) == 24
    assert "embedded images stand in" in folder.log.read_text()
    again = measure("tiny", folder, tmp_path, kinds, 10.0)
    assert again[:2] == later[:2]
