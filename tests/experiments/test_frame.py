"""Studies: their rows, claims, pages and records; a tiny one stands for all."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from tiny import refuses
from typer.testing import CliRunner

from experiments import page
from experiments.__main__ import STUDIES, app, chosen_settings
from experiments.data import Data
from experiments.frame import Claim, Corrected, Interval, Stronger, Study, Within, exact
from experiments.plotting import panels

runner = CliRunner()
INTERVALS = st.tuples(st.floats(-2, 2), st.floats(0, 1)).map(
    lambda pair: Interval(pair[0] + pair[1] / 2, pair[0], pair[0] + pair[1])
)


def squares(at: Any) -> dict[str, float]:
    return {"y": at.scale * at.x**2}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    yield Claim("y grows", "above", exact(np.ptp(frame["y"])), Within(low=1))
    yield Claim("y | x is negative", "", exact(frame["y"].max()), Within(high=0), ours=True)


def drawing(frame: pd.DataFrame) -> Figure:
    figure, (axis,) = panels(1)
    axis.plot(frame["x"], frame["y"])
    return figure


TINY = Study(
    "Squares",
    squares,
    cases={"x": (1, 2, 3), "seed": (0, 1)},
    fixed={"scale": 0.5},
    full={"x": (1, 10)},
    claims=claims,
    figure=drawing,
    table=lambda frame: frame.groupby("x", as_index=False)["y"].mean(),
    note="A parabola.",
)


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """An empty folder."""
    return Data(tmp_path)


def test_a_grid_is_measured_case_by_case(data: Data) -> None:
    frame = TINY.frame(data)
    assert list(frame.columns) == ["x", "seed", "y"] and len(frame) == 6
    assert TINY.at(x=4, scale=2.0).frame(data)["y"].tolist() == [32, 32]
    assert TINY.settings == {"x": (1, 2, 3), "seed": (0, 1), "scale": 0.5}
    with refuses("z", expected="(x, seed, scale)"):
        TINY.at(z=1)


def test_a_run_that_was_killed_goes_on(data: Data, tmp_path: Path) -> None:
    kept, calls = tmp_path / "kept", []

    def measure(at: Any) -> dict[str, Any]:
        calls.append(at.x)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"y": np.float32(at.x), "z": float("nan")}

    study = Study("", measure, cases={"x": (1, 2, 3)})
    with pytest.raises(KeyboardInterrupt):
        study.frame(data, kept)
    kept.write_text(kept.read_text() + '\n["{\\"x\\": 3}", [{"y"')
    frame = study.frame(data, kept)
    assert calls == [1, 2, 3, 3] and frame["y"].tolist() == [1, 2, 3] and frame["z"].isna().all()
    study.at(x=(2, 3)).frame(data, kept)  # of other settings: all anew
    assert calls[4:] == [2, 3]


@given(st.lists(INTERVALS, min_size=1, max_size=3), st.sampled_from([(-1.0, 1.0), (0.5, np.inf)]))
def test_a_claim_has_the_worst_verdict(found: list[Interval], between: tuple[float, float]) -> None:
    claim = Claim("", "", found, Within(*between))
    inside = [between[0] <= each.low and each.high <= between[1] for each in found]
    apart = [each.high < between[0] or between[1] < each.low for each in found]
    assert claim.verdict == ("holds" if all(inside) else "false" if any(apart) else "open")
    corrected = claim._replace(rule=Corrected(claim.rule)).verdict
    assert corrected == ("holds when corrected" if all(inside) else claim.verdict)


@given(INTERVALS)
def test_a_stronger_correlation_is_above_zero_and_worth_a_note(found: Interval) -> None:
    verdict = Stronger(0.02)(found)
    assert (verdict == "holds") == (found.low > 0 and found.value >= 0.02)
    assert (verdict == "false") == (found.high < 0.02)


def test_what_is_not_known_decides_nothing() -> None:
    unknown = Interval(*[float("nan")] * 3)
    assert Within(0)(unknown) == Stronger(0.02)(unknown) == "not computed"
    assert Claim("", "", [exact(1), unknown], Within(0)).verdict == "not computed"


def test_a_section_has_figure_claims_table_and_note(data: Data) -> None:
    text = "\n\n".join(page.section("tiny", TINY, TINY.frame(data), "tiny.png", "tiny.csv"))
    for part in (
        "## Squares",
        "![Squares](tiny.png)",
        "`python -m experiments tiny` · [data](tiny.csv)",
        "| y grows | above | 4 | holds (1 or more) |",
        "| y \\| x is negative (ours) |  | 4.500 | false (0 or less) |",
        "| 3 | 4.500 |",
        "A parabola.",
    ):
        assert part in text


def test_a_page_is_replaced_section_by_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "CASES", tmp_path / "cases")
    out = tmp_path / "RESULTS.md"
    lacking = Study("Lacks", squares, needs=("nas-robbench-201",))
    studies = {"tiny": TINY, "lacks": lacking, "last": Study("Last", lambda at: {"a": 1})}
    assert page.report(studies, ["last", "lacks"], tmp_path, out) == ["lacks"]
    assert list(page.sections_of(out)) == ["last"]
    page.report(studies, ["tiny"], tmp_path, out)
    assert list(page.sections_of(out)) == ["tiny", "last"]
    assert (tmp_path / "figures" / "tiny.png").exists() and (tmp_path / "tables/last.csv").exists()
    first = out.read_bytes()
    page.report(studies, ["tiny"], tmp_path, out)
    assert out.read_bytes() == first


def test_a_study_that_would_lack_rows_leaves_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "CASES", tmp_path / "cases")
    out = tmp_path / "RESULTS.md"
    page.report({"tiny": TINY}, ["tiny"], tmp_path, out)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    poor = replace(TINY.at(scale=2.0), lacks=lambda data: f"no more.json in {data.data_dir}")
    assert len(before) == 3 and page.report({"tiny": poor}, ["tiny"], tmp_path, out) == ["tiny"]
    assert {path: path.read_bytes() for path in files} == before
    words = capsys.readouterr().err.splitlines()[-1]
    assert f"no more.json in {tmp_path}" in words and "python -m experiments tiny" in words
    page.write_files("tiny", poor, Data(tmp_path), tmp_path / "alone")
    assert f"no more.json in {tmp_path}" in capsys.readouterr().err
    assert (tmp_path / "alone" / "tiny.csv").exists()


def test_a_report_of_no_study_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "CASES", tmp_path / "cases")
    for name, study in (("lacks", Study("Lacks", squares, needs=("cifar10",))), ("tiny", TINY)):
        monkeypatch.setitem(STUDIES, name, study)
    options = ["--data-dir", str(tmp_path), "--out", str(tmp_path / "RESULTS.md")]
    for names, code in ((["lacks"], 2), (["lacks", "tiny"], 0)):
        result = runner.invoke(app, ["report", *names, *options])
        assert result.exit_code == code and "`ntkscore fetch cifar10`" in result.stderr


def test_a_record_makes_the_same_files(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STUDIES, "tiny", TINY)
    first, second = tmp_path / "first", tmp_path / "second"
    paths = page.write_files("tiny", TINY.at(scale=3.0), data, first)
    assert [path.suffix for path in paths] == [".png", ".svg", ".csv", ".md", ".json"]
    record = json.loads(paths[-1].read_text())
    assert record["settings"] == {"x": [1, 2, 3], "seed": [0, 1], "scale": 3}
    assert record["claims"][0]["verdict"] == "holds (1 or more)" and "platform" not in record
    assert page.read_record(paths[-1])[1] == TINY.at(scale=3.0).settings
    result = runner.invoke(app, ["rerun", str(paths[-1]), "--out", str(second)])
    assert result.exit_code == 0, result.output
    for name in ("tiny.csv", "tiny.svg"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    broken = tmp_path / "broken.json"
    broken.write_text('{"study": "tiny"}')
    with refuses(broken, "KeyError", expected="JSON"):
        page.read_record(broken)


def test_settings_of_a_command_line() -> None:
    assert chosen_settings(TINY, ["x=4,5", "scale=2"], False) == {"x": (4, 5), "scale": 2.0}
    assert chosen_settings(TINY, [], True) == {"x": (1, 10)}
    for text, got, expected in (("y=1", "y=1", "x=(1, 2, 3)"), ("scale=a", "a", ("float", 0.5))):
        with refuses(got, expected=expected):
            chosen_settings(TINY, [text], False)
    result = runner.invoke(app, ["top-operations", "--results", "runs/mine"])
    assert "no --results beside top-operations, which reads no runs" in result.stderr
    with refuses("--full", expected="Other"):
        chosen_settings(Study("Other", squares), [], True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, study in STUDIES.items() if study.ours])
def test_a_section_of_the_page_is_what_its_table_says(name: str) -> None:
    """Claims, their verdicts, table and note as the code has them, of the rows that are stored."""
    study, table, figure = STUDIES[name], f"tables/{name}.csv", f"figures/{name}.png"
    frame = pd.read_csv(page.PAGE.parent / table, dtype={"skips": str})
    if "rho" in frame:  # A table has six digits of a radius, its name needs all.
        frame["rho"] = (255 * frame["rho"]).round(3) / 255
    text = "\n\n".join(page.section(name, study, frame, figure, table))
    assert text == page.sections_of(page.PAGE)[name]
    assert study.figure is not None
    drawn = study.figure(frame)
    assert drawn.axes
    plt.close(drawn)


def test_list_names_studies_and_recordings() -> None:
    lines = runner.invoke(app, ["list"]).stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [*STUDIES]
    assert lines[-1].startswith("recordings: space, space-pgd")


def test_what_is_missing_is_named_before_anything_runs(tmp_path: Path) -> None:
    needs = ("nas-robbench-201", "cifar10", "runs/none")
    fetch = "`ntkscore fetch nas-robbench-201`", "`ntkscore fetch cifar10`"
    with refuses(*fetch, "runs/none", "`ntkscore score`", remedy="--data-dir"):
        Data(tmp_path).check(needs)
