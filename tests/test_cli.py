"""The commands as a person runs them."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ntkscore.cli import app
from ntkscore.joint import KERNELS

TINY = ["--channels", "4", "--cells-per-stage", "1", "--samples", "4"]
runner = CliRunner()


def invoke(*arguments: object, code: int = 0):
    result = runner.invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def refused(message: str, *arguments: object) -> None:
    """The command ends with exit code 2 and one sentence on stderr, and nothing on stdout."""
    result = invoke(*arguments, code=2)
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranked") / "run"
    invoke("rank", "--cells", "random:6", "--out", out, *TINY)
    return out


def test_help_names_every_command_and_no_placeholder() -> None:
    text = invoke("--help").stdout
    for command in ("score", "rank", "correlate", "lookup", "verify", "fetch"):
        assert command in text
        assert "--help" in invoke(command, "--help").stdout
    assert "todo" not in text.lower()


def test_score_prints_json_alone() -> None:
    result = invoke("score", "2581", "421211", *TINY, "--format", "json")
    rows = json.loads(result.stdout)
    assert {row["cell"] for row in rows} == {2581, 0}
    assert {row["kernel"] for row in rows} == set(KERNELS)
    assert next(row["beta"] for row in rows if row["kernel"] == "clean") is None


def test_score_prints_a_sheet() -> None:
    text = invoke("score", "323133", *TINY, "--rho", "3/255", "--rho", "8/255").stdout
    assert "323133 (index 2581), 1,073,466 parameters, 153.3 M multiply-adds" in text
    assert "ρ = 3/255" in text and "ρ = 8/255" in text
    assert "lambda_min_normalized" in text


def test_rank_prints_every_cell_and_its_parameters(ranked: Path) -> None:
    by = ("--by", "robust.trace", "--format", "csv")
    text = invoke("rank", "--cells", "random:6", "--out", ranked, *TINY, *by).stdout
    frame = pd.read_csv(StringIO(text))
    assert len(frame) == 6
    assert frame["robust.trace"].is_monotonic_decreasing
    assert frame["params"].between(73_306, 1_531_546).all()


def test_rank_goes_on_with_more_cells(ranked: Path) -> None:
    result = invoke(
        "rank", "--cells", "random:8", "--out", ranked, *TINY, "--by", "clean.condition"
    )
    assert "6 from an earlier run" in result.stderr
    assert "Ranked by clean.condition, best first" in result.stdout
    provenance = json.loads((ranked / "run.json").read_text())
    assert provenance["configuration"]["data_checksum"]


def test_rank_refuses_another_configuration(ranked: Path) -> None:
    refused(
        "channels: stored 4, asked 8",
        *("rank", "--cells", "random:6", "--out", ranked, *TINY, "--channels", "8"),
    )


def test_rank_refuses_a_damaged_part(ranked: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in ranked.iterdir():
        content = path.read_bytes()
        (copy / path.name).write_bytes(content[:100] if path.suffix == ".parquet" else content)
    refused("delete", "rank", "--cells", "random:6", "--out", copy, *TINY)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("expected a cell index from 0 to 15624, got 15625", ["score", "15625"]),
        ("dil_conv", ["score", "|dil_conv~0|+|none~0|none~1|+|none~0|none~1|none~2|"]),
        ("expected six edges", ["score", "|none~0|+|none~0|none~1|"]),
        ("expected rho from 0 to 1, got -1", ["score", "0", "--rho", "-1"]),
        ("expected rho from 0 to 1, got 2", ["score", "0", "--rho", "2"]),
        ("expected beta from 0 to 1, got 1.5", ["score", "0", "--beta", "1.5"]),
        ("expected a number or a fraction such as 8/255", ["score", "0", "--rho", "eight"]),
        ("1001", ["score", "0", "--samples", "1001"]),
        ("ntkscore fetch cifar10", ["score", "0", "--data", "cifar10", "--data-dir", "nowhere"]),
        ("expected KERNEL.SCORE", ["rank", "--out", "x", "--by", "robust.norm"]),
        ("expected a table for the cells 'table'", ["rank", "--out", "x", "--cells", "table"]),
    ],
)
def test_bad_input(
    message: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(message, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_labels_outside_the_classes(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    images = np.zeros((4, 8, 8, 3), np.uint8)
    np.savez(path, images=images, labels=np.arange(4), num_classes=3)
    refused("label", "score", "0", "--data", path, *TINY)


def test_an_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(str(tmp_path / "file"), "rank", "--cells", "0", "--out", tmp_path / "file" / "x", *TINY)


def test_a_truncated_table(tmp_path: Path, data_dir: Path, ranked: Path) -> None:
    source = data_dir / "nas-robbench-201" / "NAS-RobBench-201_html.json"
    cut = tmp_path / "cut.json"
    cut.write_bytes(source.read_bytes()[:100_000])
    refused("cut.json", "correlate", ranked, "--table", cut)
    refused("cut.json", "lookup", "0", "--table", cut)


def test_a_table_without_the_asked(data_dir: Path, ranked: Path) -> None:
    table = data_dir / "nas-robbench-201"
    refused("svhn", "correlate", ranked, "--table", table, "--dataset", "svhn")
    refused("pgd_100", "correlate", ranked, "--table", table, "--metric", "val_pgd_100_acc")
    refused("seed", "lookup", "0", "--table", table, "--seed", "2")


def test_correlate_puts_the_baselines_beside(ranked: Path, data_dir: Path) -> None:
    table = data_dir / "nas-robbench-201"
    result = invoke("correlate", ranked, "--table", table, "--format", "json")
    rows = {row["score"]: row for row in json.loads(result.stdout)}
    assert {"params", "flops", "robust.frobenius", "joint_robust@0.5.trace"} <= rows.keys()
    assert all(row["n"] + row["excluded"] == 8 for row in rows.values())


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


def test_a_foreign_package_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "attacks").mkdir()
    (tmp_path / "attacks" / "__init__.py").write_text("")
    result = subprocess.run(
        [sys.executable, "-c", "import ntkscore"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[1]}"},
        capture_output=True,
        text=True,
    )
    last = result.stderr.strip().splitlines()[-1]
    assert "expected ntkscore's own package 'attacks' at" in last
    assert str(tmp_path / "attacks") in last
