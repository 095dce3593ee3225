"""The commands as a person runs them."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import OPTIONS, REPOSITORY, RESIDUAL_OPTIONS, invoke, refused

from ntkscore.analysis import frames
from ntkscore.kernels.joint import KERNELS
from ntkscore.measures.registry import NETWORK
from ntkscore.results import ResultSet
from ntkscore.run import engine

COUPLED = [*OPTIONS, "--bn", "batch", "--implementation", "layerwise"]
"""Options that do not fit together."""


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranked") / "run"
    invoke("score", "random:6", "--out", out, *OPTIONS)
    return out


def images_file(path: Path, classes: int, shape: tuple[int, ...] = (4, 32, 32, 3)) -> Path:
    """A `.npz` file of random images, for `--data`."""
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    np.savez(path, images=images, labels=np.arange(len(images)), num_classes=classes)
    return path


def test_help_names_every_command() -> None:
    text = invoke().stdout
    assert text == invoke("--help").stdout
    for command in ("score", "rank", "correlate", "lookup", "verify", "fetch"):
        assert command in text
        assert "--help" in invoke(command, "--help").stdout


@pytest.mark.thorough
def test_score_prints_json_alone() -> None:
    result = invoke("score", "2581", "421211", *OPTIONS, "--format", "json")
    rows = json.loads(result.stdout)
    assert {row["cell"] for row in rows} == {2581, 0}
    assert {row["kernel"] for row in rows} == {*KERNELS, NETWORK}
    assert next(row["beta"] for row in rows if row["kernel"] == "clean") is None


@pytest.mark.slow
def test_score_prints_a_sheet_of_the_network_that_it_scored() -> None:
    text = invoke("score", "2581", "323133", *OPTIONS).stdout
    assert text.count("cell 2581, digits 323133") == 1
    assert "cell 2581, digits 323133, 17,606 parameters (1,073,466 as trained)" in text
    assert "ρ = 8/255" in text and "lambda_min_normalized" in text
    assert "channels 4, cells_per_stage 1" in " ".join(text.split())


@pytest.mark.slow
def test_a_sheet_is_of_one_radius() -> None:
    text = invoke("score", "01", *RESIDUAL_OPTIONS, "--rho", "3/255", "--rho", "8/255").stdout
    assert text.count("skips 01, ") == 2
    assert "ρ = 3/255" in text and "ρ = 8/255" in text


@pytest.mark.slow
def test_rank_prints_every_cell_and_its_parameters(ranked: Path) -> None:
    by = ("--by", "robust.trace", "--format", "csv")
    text = invoke("rank", ranked, "random:6", *by).stdout
    frame = pd.read_csv(StringIO(text))
    assert len(frame) == 6
    assert frame["robust.trace"].is_monotonic_decreasing
    assert frame["params"].between(73_306, 1_531_546).all()


@pytest.mark.thorough
def test_rank_prints_the_parameters_of_the_benchmarks_network_for_these_classes(
    tmp_path: Path,
) -> None:
    data = images_file(tmp_path / "mine.npz", 100)
    invoke("score", "323133", *OPTIONS, "--data", data, "--out", tmp_path / "run")
    text = invoke("rank", tmp_path / "run", "--format", "json").stdout
    (row,) = json.loads(text)
    assert row["params"] == 1_073_466 + 90 * 65


@pytest.mark.slow
def test_a_run_goes_on_with_more_cells(ranked: Path) -> None:
    result = invoke("score", "random:8", "--out", ranked, *OPTIONS)
    assert "6 from an earlier run" in result.stderr
    assert f"8 networks are scored; `ntkscore rank {ranked}` ranks them" in result.stderr
    assert result.stdout == ""
    table = invoke("rank", ranked, "--by", "clean.condition").stdout
    assert "Ranked by clean.condition, best first" in table and "8 networks" in table
    run = ResultSet.open(ranked)
    assert run.configuration["data_checksum"]
    assert [session["networks"] for session in run.sessions] == ["random:6", "random:8"]


@pytest.mark.slow
def test_score_refuses_another_configuration(ranked: Path) -> None:
    refused(
        "channels: stored 4, asked 8",
        *("score", "random:6", "--out", ranked, *OPTIONS, "--channels", "8"),
    )
    refused(
        "space: stored nasbench201, asked residual",
        *("score", "0", "--out", ranked, *RESIDUAL_OPTIONS),
    )


@pytest.mark.slow
def test_rank_refuses_a_damaged_part(ranked: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in ranked.iterdir():
        content = path.read_bytes()
        (copy / path.name).write_bytes(content[:100] if path.suffix == ".parquet" else content)
    refused("delete", "score", "random:6", "--out", copy, *OPTIONS)
    refused("delete", "rank", copy)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (
            "expected a cell index from 0 to 15624, or six digits such as 323133, got 15625",
            ["score", "15625"],
        ),
        ("dil_conv", ["score", "|dil_conv~0|+|none~0|none~1|+|none~0|none~1|none~2|"]),
        ("expected six edges", ["score", "|none~0|+|none~0|none~1|"]),
        (
            "expected a radius in linf from 0 to 1 on the pixel scale, got -1",
            ["score", "0", "--rho", "-1"],
        ),
        (
            "expected a radius in linf from 0 to 1 on the pixel scale, got 2",
            ["score", "0", "--rho", "2"],
        ),
        ("expected beta from 0 to 1, got 1.5", ["score", "0", "--beta", "1.5"]),
        (
            "expected every rho once, got 0.0313725 again; leave it out",
            ["score", "0", "--rho", "8/255", "--rho", "8/255"],
        ),
        (
            "expected every beta once, got 0.5 again; leave it out",
            ["score", "0", "--out", "x", "--beta", "0.5", "--beta", "1/2"],
        ),
        ("expected a number or a fraction such as 8/255", ["score", "0", "--rho", "eight"]),
        ("1001", ["score", "0", "--samples", "1001"]),
        ("1001", ["score", "0", "--out", "x", "--samples", "1001"]),
        (
            "expected at least one seed, got none",
            ["score", "0", "--out", "x", "--seeds", "0"],
        ),
        ("ntkscore fetch cifar10", ["score", "0", "--data", "cifar10", "--data-dir", "nowhere"]),
        ("expected KERNEL.SCORE", ["search", "--out", "x", "--by", "robust.norm"]),
        ("or params, flops, shortcuts", ["search", "--out", "x", "--by", "x", *RESIDUAL_OPTIONS]),
        ("expected a table for the cells 'table'", ["score", "table", "--out", "x"]),
        pytest.param(
            "implementation",
            ["score", "0", "--out", "x", *COUPLED],
            marks=pytest.mark.slow,
        ),
        pytest.param("implementation", ["score", "0", *COUPLED], marks=pytest.mark.slow),
        (
            "expected norm to be one of linf, l2, got 'l3'",
            ["score", "0", "--out", "x", "--norm", "l3"],
        ),
    ],
)
def test_bad_input(
    message: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(message, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_labels_outside_the_classes(tmp_path: Path) -> None:
    path = images_file(tmp_path / "mine.npz", 3)
    refused("label", "score", "0", "--data", path, *OPTIONS)


@pytest.mark.parametrize("command", [("score", "0"), ("score", "0", "--out", "x")])
def test_images_whose_sides_4_does_not_divide(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = images_file(tmp_path / "mine.npz", 4, (4, 7, 9, 3))
    refused("got 7×9; crop or pad the sides", *command, "--data", path, *OPTIONS)
    assert not Path("x").exists()


def test_images_of_any_sides_fit_residual_networks(tmp_path: Path) -> None:
    path = images_file(tmp_path / "mine.npz", 4, (4, 7, 9, 3))
    text = invoke("score", "0", "--data", path, *RESIDUAL_OPTIONS, "--format", "csv").stdout
    assert len(pd.read_csv(StringIO(text))) == 73


def test_an_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "x"
    refused(str(tmp_path / "file"), "score", "0", "--out", out, *OPTIONS)


@pytest.mark.thorough
def test_every_norm_of_an_attack_is_an_option() -> None:
    options = (*RESIDUAL_OPTIONS, "--rho", "0.5", "--format", "csv")
    l2, linf = (
        pd.read_csv(StringIO(invoke("score", "01", *options, "--norm", norm).stdout))
        for norm in ("l2", "linf")
    )
    assert set(l2["norm"]) == {"l2"}
    clean = l2["kernel"] == "clean"
    np.testing.assert_allclose(l2["value"][clean], linf["value"][clean], rtol=1e-5)
    robust_loss = "kernel == 'robust' and score == 'loss'"
    losses = [frame.query(robust_loss)["value"].item() for frame in (l2, linf)]
    # A ball of the same radius is much smaller in the Euclidean norm.
    assert losses[0] < losses[1]
    sheet = invoke("score", "01", *RESIDUAL_OPTIONS, "--norm", "l2").stdout
    assert "fgsm in l2" in sheet


@pytest.fixture
def accuracies(tmp_path: Path) -> Path:
    """A table of a person's own: made-up accuracies of residual networks."""
    path = tmp_path / "accuracies.csv"
    path.write_text("skips,clean,pgd8\n0,0.5,0.30\n01,0.6,0.35\n0110,0.55,0.40\n")
    return path


@pytest.mark.thorough
def test_residual_networks_from_score_to_correlation(tmp_path: Path, accuracies: Path) -> None:
    """Networks of several depths in one list, from the command line alone."""
    out = tmp_path / "run"
    sheets = invoke("score", "0", "01", "0110", *RESIDUAL_OPTIONS).stdout
    for pattern, params in (("0", "24,720"), ("01", "24,784"), ("0110", "24,912")):
        assert f"skips {pattern}, {params} parameters" in sheets
    invoke("score", "0,01", "--out", out, *RESIDUAL_OPTIONS)
    first = invoke("rank", out)
    # Two of the four images are alike to the rectifiers of `0`, which leaves it without NASWOT.
    assert "2 networks, 1 without this score" in " ".join(first.stdout.split())
    again = invoke("score", "0,01,0110", "--out", out, *RESIDUAL_OPTIONS, "--format", "json")
    assert "2 from an earlier run" in again.stderr
    assert {row["skips"] for row in json.loads(again.stdout)} == {"0", "01", "0110"}
    by = ("--by", "params+shortcuts", "--format", "json")
    ranked = json.loads(invoke("rank", out, *by).stdout)
    assert [row["skips"] for row in ranked] == ["0110", "01", "0"]
    assert [row["shortcuts"] for row in ranked] == [2, 1, 0]
    assert ResultSet.open(out).finished() == {("0", 0), ("01", 0), ("0110", 0)}

    options = ("--table", accuracies, "--format", "json")
    rows = {row["score"]: row for row in json.loads(invoke("correlate", out, *options).stdout)}
    assert rows["params"]["spearman"] == rows["shortcuts"]["spearman"] == 1
    assert rows["params"]["best_cell"] == "0110"
    assert rows["robust.trace"]["n"] == 3
    table = ("correlate", out, "--table", accuracies, "--top")
    assert "robust.trace" in invoke(*table, 200).stdout
    few = invoke(*table, 3).stdout
    assert "robust.trace" not in few and "71 more with --top 74" in " ".join(few.split())
    named = ("--space", "residual", "--dataset", "cifar10", "--table", accuracies)
    (found,) = json.loads(invoke("lookup", "0110", *named, "--format", "json").stdout)
    assert (found["skips"], found["val_pgd_8_acc"]) == ("0110", 0.4)


@pytest.mark.slow
def test_a_truncated_table(tmp_path: Path, data_dir: Path, ranked: Path) -> None:
    source = data_dir / "nas-robbench-201" / "NAS-RobBench-201_html.json"
    cut = tmp_path / "cut.json"
    cut.write_bytes(source.read_bytes()[:100_000])
    refused("cut.json", "correlate", ranked, "--table", cut)
    refused("cut.json", "lookup", "0", "--table", cut)


@pytest.mark.slow
def test_a_table_without_the_asked(data_dir: Path, ranked: Path) -> None:
    table = data_dir / "nas-robbench-201"
    refused("svhn", "correlate", ranked, "--table", table, "--dataset", "svhn")
    refused("pgd_100", "correlate", ranked, "--table", table, "--metric", "val_pgd_100_acc")
    refused("seed", "lookup", "0", "--table", table, "--seed", "2")


@pytest.mark.slow
def test_correlate_puts_the_baselines_beside(ranked: Path, data_dir: Path) -> None:
    table = data_dir / "nas-robbench-201"
    count = len(ResultSet.open(ranked).finished())
    result = invoke("correlate", ranked, "--table", table, "--format", "json")
    rows = {row["score"]: row for row in json.loads(result.stdout)}
    assert {"params", "flops", "robust.frobenius", "joint_robust@0.5.trace"} <= rows.keys()
    assert count >= 6
    assert all(row["n"] + row["excluded"] == count for row in rows.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "metric", "expected"),
    [
        ("cifar10", "clean", {"val_pgd_8_acc": 0.985, "val_fgsm_8_acc": 0.989, "params": 0.778}),
        ("cifar10", "pgd8", {"val_fgsm_8_acc": 0.998, "params": 0.820}),
        ("cifar10", "autoattack", {"params": 0.814}),
        ("cifar100", "pgd8", {"params": 0.798}),
        ("imagenet16-120", "pgd8", {"params": 0.609}),
    ],
)
def test_correlate_reproduces_the_tables_facts(
    dataset: str, metric: str, expected: dict[str, float], data_dir: Path
) -> None:
    table = data_dir / "nas-robbench-201"
    options = ["--dataset", dataset, "--metric", metric, "--format", "json", "--resamples", 10]
    rows = json.loads(invoke("correlate", table, "--table", table, *options).stdout)
    found = {row["score"]: row["spearman"] for row in rows}
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=5e-4), name


@pytest.mark.slow
def test_correlate_with_the_older_table(data_dir: Path) -> None:
    older, table = data_dir / "robustness-dataset", data_dir / "nas-robbench-201"
    options = ["--metric", "clean", "--format", "json", "--resamples", 10]
    rows = json.loads(invoke("correlate", older, "--table", table, *options).stdout)
    found = {row["score"]: row["spearman"] for row in rows}
    assert found["val_acc"] == pytest.approx(0.977, abs=5e-4 + 1e-4)


def test_lookup_shows_the_best_cell(data_dir: Path) -> None:
    options = ["--table", data_dir / "nas-robbench-201", "--dataset", "cifar10", "--format", "json"]
    (row,) = json.loads(invoke("lookup", "323133", *options).stdout)
    values = [row[name] for name in list(row) if name.startswith(("val_", "auto"))]
    np.testing.assert_allclose(values, [0.7937, 0.6955, 0.6893, 0.5351, 0.4811, 0.4434], atol=5e-5)


def test_lookup_names_the_cell_whose_results_it_shows(data_dir: Path) -> None:
    options = ["--table", data_dir / "nas-robbench-201", "--dataset", "cifar10", "--format", "json"]
    (row,) = json.loads(invoke("lookup", "3599", *options).stdout)
    assert (row["cell"], row["results of"]) == (3599, 0)


@pytest.mark.slow
def test_a_foreign_package_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "attacks").mkdir()
    (tmp_path / "attacks" / "__init__.py").write_text("")
    result = subprocess.run(
        [sys.executable, "-c", "import ntkscore"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"},
        capture_output=True,
        text=True,
    )
    last = result.stderr.strip().splitlines()[-1]
    assert "expected ntkscore's own package 'attacks' at" in last
    assert str(tmp_path / "attacks") in last


def test_a_run_is_checked_once_and_its_networks_table_formed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(module: Any, name: str) -> None:
        function = getattr(module, name)
        wrapped = lambda *given: calls.append(name) or function(*given)  # noqa: E731
        monkeypatch.setattr(module, name, wrapped)

    counted(engine, "check")
    counted(frames, "score_table")
    out = tmp_path / "run"
    invoke("score", "all", "--out", out, "--depth", 3, *RESIDUAL_OPTIONS)
    invoke("rank", out, "--by", "params+clean.trace")
    assert calls == ["check", "score_table"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", [["lookup", "--help"], ["score", "--help"]], ids=" ".join)
def test_a_full_disk_is_a_sentence(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        program = [sys.executable, "-c", "from ntkscore.cli import main; main()", *words]
        done = subprocess.run(program, cwd=REPOSITORY, stdout=full, stderr=-1, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1
