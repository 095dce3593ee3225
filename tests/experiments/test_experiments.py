"""Experiments by name: what they leave, their records, and the report that holds what they find."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from experiments import recordings
from experiments.__main__ import ALL, EXPERIMENTS, app
from experiments.ours import measures
from experiments.ours.kernel_settings import SAMPLES
from experiments.report import by_statement, overall_text, section, three_findings, verdict_counts
from experiments.study import (
    OURS,
    RECORDED,
    Finding,
    Outcome,
    Study,
    markdown_table,
    read_record,
    write_outcome,
)
from ntkscore.errors import InputError

REPORT = (RECORDED.parent / "REPORT.md").read_text(encoding="utf-8")
QUICK = (
    "benchmark-boxplots",
    "accuracy-distribution",
    "rank-by-metric",
    "rank-across-datasets",
    "top-operations",
    "benchmark-agreement",
    "sparsity",
)
READ = {
    "ntk-correlation": {"space", "radii", *recordings.FINDINGS},
    "sweep": {"space", "radii"},
    "conventions": set(recordings.CONVENTIONS),
    "fidelity": {*recordings.FIDELITIES, "signs", "space"},
    "search": {"space", "fidelity/moderate"},
    "measures": set(measures.RECORDINGS),
    "within-counts": {*measures.RECORDINGS, *(r for of in SAMPLES.values() for r in of)},
}
"""Recordings that experiments read."""
WHOLE = (*QUICK, "sweep", "conventions", "fidelity", "within-counts")
"""Experiments that the tests run as the report does: without fewer resamples, and no clocks."""
runner = CliRunner()


def invoke(*arguments: object) -> str:
    result = runner.invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def mostly_thorough(*names: str) -> list[object]:
    """Parameters of a test: experiments, of which the long ones are left to `make thorough`."""
    return [
        pytest.param(name, marks=[pytest.mark.thorough] * (name not in (*QUICK, "fidelity")))
        for name in names
    ]


def test_list_names_them_all() -> None:
    lines = invoke("list").splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [*ALL]
    assert lines[-1].startswith("recordings: space, space-pgd, trainability, perturbations")


@pytest.mark.parametrize(
    ("page", "there", "ways"),
    [
        ("report", (), ("`ntkscore fetch nas-robbench-201`", "acc.json of Jung")),
        ("report", ("nas-robbench-201",), ("got no robustness-dataset/: put acc.json of Jung",)),
        ("training", ("cifar-10-batches-py",), ("got no nas-robbench-201/:",)),
        ("darts", ("nas-robbench-201",), ("`ntkscore fetch tiny-robustbench`",)),
        ("top-operations", (), ("`ntkscore fetch nas-robbench-201`",)),
    ],
)
def test_data_that_is_missing_is_named_before_anything_runs(
    tmp_path: Path, page: str, there: tuple[str, ...], ways: tuple[str, ...]
) -> None:
    for folder in there:
        (tmp_path / folder).mkdir()
    result = runner.invoke(app, [page, "--data-dir", str(tmp_path), "--out", str(tmp_path / "p")])
    assert result.exit_code == 2 and result.stderr.startswith("error: expected ")
    assert all(way in result.stderr for way in ways) and result.stderr.count("\n") == 1
    assert not (tmp_path / "p").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_thorough(*QUICK, *READ))
def test_leaves_figure_data_and_record(
    name: str, outcome_of: Callable[[str], Outcome], study: Study, tmp_path: Path
) -> None:
    outcome = outcome_of(name)
    paths = write_outcome(outcome, study, name, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".svg", ".csv", ".json"]
    assert all(path.stat().st_size > 100 for path in paths)
    assert len(pd.read_csv(paths[-2])) == len(outcome.frame) >= 5
    configuration = json.loads(paths[-1].read_text())["configuration"]
    assert set(configuration.get("recordings", ())) == READ.get(name, set())
    if name in QUICK:
        assert configuration["table"].startswith("nas-robbench-201")


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_thorough(*WHOLE))
def test_the_report_has_what_comes_out(name: str, outcome_of: Callable[[str], Outcome]) -> None:
    figure = Path(f"figures/{name}.png")
    assert (RECORDED.parent / figure).exists()
    for part in section(name, EXPERIMENTS[name].title, outcome_of(name), figure):
        assert part in REPORT


@pytest.mark.thorough
def test_the_reports_verdicts(study: Study, outcome_of: Callable[[str], Outcome]) -> None:
    findings: list[Finding] = []
    statements: dict[str, list[Finding]] = {}
    for name, experiment in EXPERIMENTS.items():
        assert f"## {experiment.title}" in REPORT
        if experiment.run.__module__.startswith("experiments.paper") or name == "within-counts":
            findings += outcome_of(name).findings
            statements |= by_statement(experiment.title, outcome_of(name).findings)
    for finding in findings:
        entries = (finding.what, finding.paper, finding.ours, finding.verdict, finding.why)
        assert markdown_table(entries, []).splitlines()[0] in REPORT
    assert verdict_counts(statements) in REPORT
    for part in three_findings(study, findings):
        assert part in REPORT


def test_a_statement_counts_once() -> None:
    yes, no = (Finding("", "", "", verdict, "") for verdict in ("reproduced", "not reproduced"))
    assert overall_text([yes, yes]) == "**reproduced** (2 reproduced)"
    assert overall_text([yes, no, yes]) == "**mixed** (2 reproduced, 1 not reproduced)"
    other = [replace(yes, of="second", under=name) for name in ("a", "a", "b")]
    statements = by_statement("first", [yes, no, *other])
    assert [len(rows) for rows in statements.values()] == [2, 2, 1]
    text = verdict_counts(statements)
    assert text == "The 3 statements below, of 5 rows: 2 reproduced, 1 mixed."
    assert not by_statement("first", [replace(yes, paper=OURS)])


def test_a_section_has_all_of_its_tables() -> None:
    frames = [pd.DataFrame({name: [0.5]}) for name in "ab"]
    lines = "\n".join(
        section("x", "X", Outcome(frames[0], summary=frames[0], more=(frames[1],)), None)
    )
    assert "| a |" in lines and "| b |" in lines and lines.count("| 0.500 |") == 2


def test_tables_escape_bars() -> None:
    table = markdown_table(("a", "b"), [("x|y", 1)])
    assert table.splitlines() == ["| a | b |", "| --- | --- |", "| x\\|y | 1 |"]


@pytest.mark.slow
def test_reruns_from_its_record(data_dir: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    printed = invoke("sparsity", "--out", first, "--data-dir", data_dir)
    assert str(first / "sparsity.svg") in printed
    invoke("rerun", first / "sparsity.json", "--out", second, "--data-dir", data_dir)
    for ending in ("csv", "svg"):
        file = f"sparsity.{ending}"
        assert (first / file).read_bytes() == (second / file).read_bytes()


def test_a_record_holds_the_size(tmp_path: Path) -> None:
    study, record = Study(tmp_path, seed=3, full=True), tmp_path / "name.json"
    write_outcome(Outcome(pd.DataFrame({"a": [1]})), study, "name", tmp_path)
    assert read_record(record, tmp_path) == ("name", study, study.checksums())
    record.write_text('{"experiment": "name"}')
    with pytest.raises(InputError, match=r"expected the JSON .*, got .*give"):
        read_record(record, tmp_path)


def test_says_where_tables_and_recordings_are_missing(data_dir: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, ["sparsity", "--data-dir", str(tmp_path), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "got no nas-robbench-201/: run `ntkscore fetch nas-robbench-201`" in result.stderr
    options = ["--data-dir", str(data_dir), "--results", str(tmp_path)]
    missing = runner.invoke(app, ["sweep", *options])
    assert missing.exit_code == 2
    assert "python -m experiments record radii makes it" in missing.output.replace("\n", " ")
