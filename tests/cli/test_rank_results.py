"""Ranking what a run holds, or the package's own scores, computes nothing."""

import json
import re
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny import IMAGES, invoke, refused, refuses

import ntkscore
from cells import Residual
from cells.darts import Darts
from cells.nasbench201 import Cell, canonical
from ntkscore import Table, open_run
from ntkscore.analysis.agreement import agreement
from ntkscore.config import Config
from ntkscore.paths import RECORDED
from ntkscore.results import ResultSet
from ntkscore.text import parse_fraction


def printed(*arguments: object) -> pd.DataFrame:
    text = invoke("rank", *arguments, "--format", "csv").stdout
    return pd.read_csv(StringIO(text), dtype={"digits": str, "skips": str})


@pytest.mark.thorough
def test_the_order_is_that_of_the_means_over_the_seeds() -> None:
    ranked = open_run("recorded").rank("clean.trace")
    rows = open_run("recorded").rows.query("kernel == 'clean' and score == 'trace'")
    means = rows.groupby("cell")["value"].mean()
    assert list(ranked["rank"]) == list(range(1, 6467))
    assert ranked["clean.trace"].dropna().is_monotonic_decreasing
    assert ranked["clean.trace"].notna().iloc[:6461].all()
    expected = list(means[ranked["cell"]])
    assert list(ranked["clean.trace"]) == pytest.approx(expected, nan_ok=True)
    # Costs are of the network that the benchmark trains, which is wider than the one scored.
    assert ranked.set_index("cell")["params"][1462] == 1_531_546


def test_the_command_prints_what_the_function_gives(tmp_path: Path) -> None:
    plot = tmp_path / "ranking.svg"
    by = ("--by", "clean.trace+params")
    frame = printed("recorded", "323133,333333,000000", *by, "--plot", plot)
    assert list(frame["cell"]) == [1462, 2581]  # the table has no row of its own for the third
    expected = open_run("recorded").of(["333333", 2581]).rank("clean.trace+params")
    pd.testing.assert_frame_equal(
        frame, expected, check_dtype=False, check_exact=False, check_names=False
    )
    assert plot.read_text().startswith("<?xml")
    table = " ".join(invoke("rank", "recorded", "--top", "3").stdout.split())
    assert (
        "6466 networks, 5 without this score (they come last: they lack "
        "clean.lambda_min_normalized; --by params+layers+path_pools+field orders them too), "
        "cifar10, 16 images, channels 8" in table
    )
    assert "all scores are in" in table and RECORDED.name in table


@pytest.mark.thorough
def test_a_run_that_is_opened_is_the_run_that_was_scored(tmp_path: Path) -> None:
    config = Config(rhos=(0.1, 0.2))
    how = {"space": Residual(width=8), "seeds": 2}
    run = ntkscore.score(["0", "01", "0110"], IMAGES, config, out=tmp_path / "run", **how)
    again = open_run(tmp_path / "run")
    pd.testing.assert_frame_equal(run.rows, again.rows)
    in_memory = ntkscore.score(["0", "01", "0110"], IMAGES, config, **how)
    # In memory XLA may choose another library, which rounds differently.
    pd.testing.assert_frame_equal(run.rows, in_memory.rows, rtol=1e-3, atol=1e-6)
    first = run.rank(rho=0.1)
    pd.testing.assert_frame_equal(first, again.rank(rho=0.1))
    pd.testing.assert_frame_equal(
        first, printed(tmp_path / "run", "--at-rho", "0.1"), check_dtype=False, check_names=False
    )
    assert list(again.of(["01"]).rank(rho=0.1)["skips"]) == ["01"]
    with refuses("clean.zico", expected=tmp_path / "run"):
        again.rank("clean.zico", rho=0.1)


@pytest.mark.slow
def test_costs_are_those_of_the_runs_classes(tmp_path: Path) -> None:
    data = tmp_path / "mine.npz"
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    np.savez(data, images=images, labels=np.arange(4), num_classes=4)
    space = Residual(width=8)
    out = tmp_path / "run"
    run = ntkscore.score(["0", "01"], ntkscore.load_images(data, samples=4), space=space, out=out)
    pd.testing.assert_frame_equal(run.rank(), open_run(out).rank())
    assert open_run(out).space.task.num_classes == 4


@pytest.fixture
def radii(tmp_path: Path) -> Path:
    """A run of two radii, whose orders are opposite; its attack is one of its program's own."""
    space = Residual(width=8, depth=4)
    configuration = {"dataset": "synthetic", **IMAGES.drawn, **Config().to_dict(), **space.columns}
    configuration |= {"attack": "strong", "output": "own", "rhos": [1 / 255, 8 / 255]}
    results = ResultSet.create_or_resume(tmp_path / "run", configuration, ["skips"])
    row = {"seed": 0, "steps": 1, "step_size": 0.1, "beta": None, "kernel": "robust"}
    row |= {"score": "trace", "status": "ok"}
    for place, skips in enumerate(("00", "01", "10", "11")):
        pairs = ((1 / 255, place), (8 / 255, -place))
        results.append([{"skips": skips, **row, "rho": r, "value": float(v)} for r, v in pairs])
    return tmp_path / "run"


def test_a_run_of_several_radii_is_ranked_by_the_one_that_is_named(radii: Path) -> None:
    """Also where it is the default's; its attack is read, and need not be known here."""
    by = ("--by", "robust.trace")
    for rho, best in (("8/255", "00"), ("1/255", "11")):
        found = printed(radii, *by, "--at-rho", rho)
        assert f"{found['skips'][0]:02}" == best
        assert open_run(radii).rank(by[1], rho=parse_fraction(rho))["skips"][0] == best
        table = " ".join(invoke("rank", radii, *by, "--at-rho", rho).stdout.split())
        assert f"output own, parameters all, strong, ρ = {rho}" in table
    refused("expected one of the radii 1/255, 8/255, got none; choose", "rank", radii, *by)
    refused("expected one of the radii 1/255, 8/255, got 3/255", "rank", radii, "--at-rho", "3/255")
    with refuses("none", expected=("1/255", "8/255"), remedy="--at-rho"):
        open_run(radii).rank(by[1])


def test_networks_that_lack_a_term_come_last_and_the_note_says_what_orders_them(
    radii: Path,
) -> None:
    """A term of the default that none has is left out; one that some have is not."""
    results = ResultSet.open(radii)
    row = {"seed": 0, "rho": 8 / 255, "steps": 1, "step_size": 0.1, "beta": None}
    row |= {"kernel": "clean", "score": "naswot"}
    rows = results.read().query("rho > 0.02")
    for each in results.directory.glob("part-*"):
        each.unlink()
    for skips, value in (("00", 1.0), ("01", 2.0), ("10", np.nan), ("11", np.nan)):
        status = "not_given" if np.isnan(value) else "ok"
        one = rows[rows["skips"] == skips].to_dict("records")
        results.append([*one, {"skips": skips, **row, "value": value, "status": status}])
    lines = " ".join(invoke("rank", radii).stdout.split())
    assert "Ranked by params+clean.naswot, best first" in lines
    note = "4 networks, 2 without this score (they come last: they lack clean.naswot; --by params "
    assert f"{note}orders them too)" in lines
    assert list(open_run(radii).rank()["skips"])[2:] == ["10", "11"]
    alone = " ".join(invoke("rank", radii, "--by", "clean.naswot").stdout.split())
    assert "2 without this score (they come last), synthetic" in alone


def test_an_agreement_against_the_declared_direction_is_marked(tmp_path: Path) -> None:
    """Here a larger condition goes with better networks, and a larger trace with worse ones."""
    keys = ["000", "001", "010", "011", "100", "101"]
    space = Residual(width=8, depth=5)
    configuration = {"dataset": "synthetic", **IMAGES.drawn, **Config().to_dict(), **space.columns}
    results = ResultSet.create_or_resume(tmp_path / "run", configuration, ["skips"])
    row = {"seed": 0, "rho": 8 / 255, "steps": 1, "step_size": 0.1, "beta": None, "status": "ok"}
    for place, skips in enumerate(keys):
        pairs = {"condition": place, "label_energy": -place, "trace": -place, "lambda_max": place}
        row |= {"skips": skips, "kernel": "clean"}
        results.append([{**row, "score": name, "value": float(v)} for name, v in pairs.items()])
    table = tmp_path / "table.csv"
    rows = [f"{skips},0.{place}" for place, skips in enumerate(keys)]
    table.write_text("\n".join(["skips,pgd8", *rows]))
    command = ("correlate", tmp_path / "run", "--table", table, "--dataset", "synthetic")
    command += ("--metric", "pgd8", "--resamples", 20)
    lines = invoke(*command, "--top", 99).stdout.splitlines()
    shown = {line.split()[1]: line.split()[3:5] for line in lines if line.startswith("│ clean")}
    assert {name.removeprefix("clean."): marks for name, marks in shown.items()} == {
        "condition": ["↓", "!"],
        "trace": ["↑", "!"],
        "label_energy": ["↓", "│"],
        "lambda_max": ["↑", "│"],
    }
    assert "!: here the correlation is opposite to the direction that" in " ".join(lines)
    alone = invoke(*command, "--format", "csv").stdout
    assert "!" not in alone


def test_the_command_of_before_is_refused_with_those_of_today(tmp_path: Path) -> None:
    before = ("rank", "--cells", "random:64", "--channels", 8, "--out", tmp_path / "run")
    now = f"ntkscore score random:64 --channels 8 --out {tmp_path / 'run'}"
    then = f"ntkscore rank {tmp_path / 'run'} --by params --top=3"
    refused(f"{now} && {then}", *before, "--by", "params", "--top=3")
    refused("ntkscore fits h100 all", "rank", "--cells=all", "--target", "h100")
    # Options without a value, in any place; and those to look at a run.
    flags = ("--balanced", "--proxies", "--out", "x", "--samples", 8)
    refused(
        "ntkscore score distinct --balanced --proxies --out x --samples 8 && ntkscore rank x",
        *("rank", *flags),
    )
    refused("ntkscore fits v4 distinct --samples 8", "rank", "--target", "v4", "--samples", 8)
    now = "ntkscore rank recorded 323133 --at-rho=8/255 --among r"
    before = ("rank", "recorded", "--cells", "323133", "--rho=8/255", "--reference", "r")
    refused(now, *before)
    assert not (tmp_path / "run").exists()


def test_refusals(tmp_path: Path) -> None:
    refused("expected a results directory with a run.json", "rank", tmp_path)
    refused("none of them; choose others", "rank", "recorded", "000000")
    near = "got 'robust.vkdnw'; write clean.vkdnw, or one of clean."
    refused(near, "rank", "recorded", "--by", "robust.vkdnw")
    near = "got 'lambda_min_normalized'; for example clean.lambda_min_normalized; or params"
    refused(near, "rank", "recorded", "--by", "lambda_min_normalized")
    refused(f"there is no folder {tmp_path / 'none'}; give", "rank", tmp_path / "none")


@pytest.mark.parametrize(
    "words",
    [
        "rank recorded --top 0",
        "correlate recorded --table TABLE --metric clean --top 0",
        "score random:2 --seeds 0",
        "score random:2 --batch 0",
        "score random:0",
        "correlate recorded --table TABLE --metric clean --resamples 0",
        "predict recorded --table TABLE --suggest 0",
        "predict recorded --table TABLE --suggest -1",
        "search --budget 0",
        "choose recorded --budget 0",
        "choose recorded --suggest 0",
        "train 1 --seeds 0",
        "train 1 --kernels 0",
        "measure-latency 1 --repeats 0",
        "measure-latency 1 --batch-size 0",
    ],
)
def test_counts_are_at_least_one(words: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("cell,val_acc\n1462,0.8\n9930,0.7\n6189,0.6\n2581,0.5\n")
    command, *rest = words.replace("TABLE", str(tmp_path / "table.csv")).split()
    out = ["--out", tmp_path / "run"] * (command in ("score", "search", "choose", "train"))
    said = " ".join(invoke(command, *rest, *out, code=2).stderr.split())
    assert re.search(r"(at least|or equal to|from) (1|one)\b", said), said
    assert not (tmp_path / "run").exists()
    refused("expected a table for the cells", "rank", "recorded", "table")


def test_a_space_that_the_package_does_not_have_is_named(tmp_path: Path) -> None:
    text = (RECORDED / "run.json").read_text().replace('"nasbench201"', '"stripes"')
    (tmp_path / "run.json").write_text(text)
    assert ResultSet.open(tmp_path).configuration["space"] == "stripes"
    for command in (["rank"], ["predict", "--table", "x.csv"], ["choose", "--out", "y"]):
        refused("expected a known space in", command[0], tmp_path, *command[1:])


def test_a_space_is_the_runs() -> None:
    for space, found in (("darts", "darts"), ("residual", "residual")):
        message = f"expected the space nasbench201, as in the run, got {found}; give --space"
        refused(message, "rank", "recorded", "--space", space)


def test_recorded_is_a_run_wherever_one_is_read() -> None:
    assert open_run("recorded").results.directory == ResultSet.open(RECORDED).directory
    accuracies = pd.DataFrame({"pgd8": [0.48, 0.47, 0.30]}, index=[2581, 1462, 0])
    frame = ntkscore.correlate("recorded", Table.from_frame(accuracies, dataset="cifar10"))
    assert set(frame["n"] + frame["excluded"]) == {3}


def test_copies_of_one_function_are_drawn_together() -> None:
    cells = pd.Index(range(300), name="cell")
    x, y = np.random.default_rng(0).uniform(size=(2, 300))
    table = Table.from_frame(pd.DataFrame({"pgd8": y}, cells), dataset="cifar10")
    frame = ntkscore.correlate(pd.DataFrame({"clean.trace": x}, cells), table, resamples=50)
    functions = [canonical(Cell(cell)).index for cell in cells]
    assert len(set(functions)) < 250
    found = frame.set_index("score").loc["clean.trace", ["spearman_low", "spearman_high"]]
    wanted = agreement(x, y, groups=functions, resamples=50)
    assert found.tolist() == [wanted.spearman_low, wanted.spearman_high]
    darts = Darts()
    advrush = darts.parse("AdvRush")
    assert darts.canonical(advrush).digits == "3041404140414150-2130404130333063"
    residual = Residual()
    assert residual.canonical(residual.parse("01")) == residual.parse("01")


def test_programs_get_as_many_rows_as_they_ask_for() -> None:
    by = ("recorded", "323133,333333,421211", "--by", "clean.trace")
    every = printed(*by)
    assert len(every) == 3
    pd.testing.assert_frame_equal(printed(*by, "--top", "2"), every.head(2))
    assert len(json.loads(invoke("rank", *by, "--top", 1, "--format", "json").stdout)) == 1


def test_correlations_for_programs_are_the_strongest_that_they_ask_for(tmp_path: Path) -> None:
    accuracies = open_run("recorded").rows.query("seed == 0 and kernel == 'clean'")
    traces = accuracies.query("score == 'trace'").head(40)
    table = tmp_path / "mine.csv"
    table.write_text(
        "\n".join(["cell,pgd8", *(f"{c},{i / 100}" for i, c in enumerate(traces["cell"]))])
    )
    options = ("recorded", "--table", table, "--resamples", 10, "--format", "csv")
    every, strongest = (
        pd.read_csv(StringIO(invoke("correlate", *options, *top).stdout))
        for top in ((), ("--top", 3))
    )
    assert len(every) > len(strongest) == 3
    order = every["spearman"].abs().sort_values(ascending=False, kind="stable").index
    pd.testing.assert_frame_equal(strongest, every.loc[order[:3]].reset_index(drop=True))
