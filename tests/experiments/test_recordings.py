"""Recorded scores, and the experiments that read them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from figures import check_written, near
from typer.testing import CliRunner

from experiments import recordings
from experiments.__main__ import EXPERIMENTS, app
from experiments.contrasts import Contrast, Pair, contrast
from experiments.ours import conventions, fidelity, measures
from experiments.ours.sweep import peaks
from experiments.recordings import (
    RECORDINGS,
    Recording,
    drop_unused_rows,
    record,
    recordings_named,
    round_mantissa,
)
from experiments.report import markdown_table, overall
from experiments.study import RECORDED, Finding, Outcome, Study
from ntkscore.analysis.paired import Difference
from ntkscore.analysis.percentiles import SHIPPED
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.errors import InputError
from ntkscore.results.result_set import ResultSet
from ntkscore.run.job import choices_of

FROM_SCORES = {
    "sweep": {"space", "radii"},
    "measures": set(measures.RECORDINGS),
    "conventions": set(recordings.CONVENTIONS),
    "fidelity": set(recordings.FIDELITIES),
    "search": {"space", "fidelity/moderate"},
}
TINY = {"channels": 4, "cells_per_stage": 1, "samples": 4, "betas": (0.0, 0.5)}
runner = CliRunner()


def contrast_of(
    first: float, second: float, low: float, high: float, seeds: tuple[float, ...] = ()
) -> Contrast:
    return Contrast(Difference("ok", 9, 0, first - second, low, high, first, second), seeds)


def test_a_contrast_is_paired_and_has_its_seeds() -> None:
    rng = np.random.default_rng(0)
    accuracy = rng.normal(size=500)
    good, bad = (Pair(accuracy + noise * rng.normal(size=500), accuracy) for noise in (0.3, 1.0))
    result = contrast(good, bad, [(good, bad), (bad, good)])
    assert 0 < result.means.low < result.means.value < result.means.high
    assert result.seeds == (
        pytest.approx(result.means.value),
        pytest.approx(-result.means.value),
    )


@pytest.mark.parametrize(
    ("result", "verdict", "why"),
    [
        ((0.7, 0.5, 0.1, 0.3, (0.2, 0.1, 0.3)), "reproduced", "all 3 seeds above 0"),
        ((0.51, 0.5, 0.01, 0.02, (0.1, 0.1, 0.1)), "reproduced", "but by less than 0.02"),
        ((0.5, 0.7, -0.3, -0.1, (-0.2, -0.1, -0.2)), "not reproduced", "seeds below 0"),
        ((0.7, 0.5, 0.1, 0.3, (0.2, -0.1, 0.3)), "not decidable", "both sides of 0"),
        ((0.7, 0.5, -0.1, 0.3, (0.2, 0.1, 0.3)), "not decidable", "both sides of 0"),
        ((0.7, 0.5, 0.1, 0.3, (0.2,)), "not decidable", "fewer than 3 seeds"),
        ((-0.2, -0.4, 0.1, 0.3, (0.2, 0.2, 0.2)), "not decidable", "no positive"),
    ],
)
def test_verdicts(result: tuple, verdict: str, why: str) -> None:
    given, reason = contrast_of(*result).verdict
    assert given == verdict
    assert why in reason


def test_a_contrast_in_words() -> None:
    assert str(contrast_of(0.7, 0.5, 0.1, 0.3)) == "0.700 − 0.500 = +0.200 [+0.100, +0.300]"
    assert str(contrast_of(0.7, 0.5, 0.1, 0.3, (0.25,))).endswith("; by seed +0.250")


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
    with pytest.raises(
        InputError, match="expected one of space, trainability, perturbations, weights"
    ):
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
    assert len(drop_unused_rows(full)) == len(rows)
    same = full.merge(rows, on=[c for c in rows.columns if c != "value"])
    np.testing.assert_allclose(same["value_x"], same["value_y"], rtol=1e-4)


def test_missing_recording_says_how_to_make_it(data_dir: Path, tmp_path: Path) -> None:
    options = ["--data-dir", str(data_dir), "--results", str(tmp_path)]
    missing = runner.invoke(app, ["sweep", *options])
    assert missing.exit_code == 2
    assert "python -m experiments record radii makes it" in missing.output.replace("\n", " ")


def test_kept_recordings_are_those_that_the_code_describes() -> None:
    for name, recording in RECORDINGS.items():
        home = SHIPPED if name in recordings.REFERENCES else RECORDED
        kept = ResultSet.open(home / name)
        wanted = choices_of(recording.space, recording.config)
        assert {key: kept.configuration[key] for key in wanted} == wanted, name
        assert kept.sessions[-1]["cells"] == recording.cells, name
        assert kept.sessions[-1]["command"].endswith(f" record {name}")
        units = kept.finished()
        assert len({seed for _, seed in units}) == recording.seeds, name
        assert len(units) % recording.seeds == 0
    size = sum(path.stat().st_size for path in RECORDED.rglob("*") if path.is_file())
    assert size < 25e6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] * (name != "fidelity"))
        for name in FROM_SCORES
    ],
)
def test_leaves_figure_data_and_record(
    name: str, outcome_of: Callable[[str], Outcome], study: Study, tmp_path: Path
) -> None:
    check_written(outcome_of(name), study, name, FROM_SCORES[name], tmp_path)


@pytest.mark.thorough
def test_the_sweep_over_beta_and_rho(outcome_of: Callable[[str], Outcome]) -> None:
    outcome = outcome_of("sweep")
    assert set(outcome.frame["cells"]) == {998, 6461}
    rows = outcome.summary.set_index(["kernel", "accuracy", "score"])
    clean = rows.loc["K_all", "clean", "frobenius"]
    assert (clean["highest"], clean["lowest"]) == (near(0.402), near(0.349))
    assert (clean["at β"], clean["at ρ × 255"], clean["flat"]) == ("1", "16", "3 of 88 points")
    robust = rows.loc["K̃_all", "PGD 8/255", "trace"]
    assert (robust["highest"], robust["lowest"]) == (near(0.551), near(0.499))
    assert (robust["at β"], robust["at ρ × 255"], robust["flat ρ × 255"]) == ("1", "16", "1 to 16")


@pytest.mark.thorough
def test_conventions_that_flip_or_move_a_correlation(
    outcome_of: Callable[[str], Outcome],
) -> None:
    rows = outcome_of("conventions").frame.set_index(["convention", "score"])
    default = rows.loc["default", "robust.lambda_min_normalized"]
    assert default["spearman"] == near(0.704) and default["change"] == 0
    assert not default["flips"] and not default["matters"]
    untrained = rows.loc["bn-init", "clean.frobenius"]
    assert untrained["spearman"] == near(-0.544) and untrained["flips"]
    assert rows.loc["bn-init", "clean.condition"]["failed"] == 12
    moved = rows.loc["tiny-tenas", "robust.frobenius"]
    assert moved["spearman"] == near(-0.129) and moved["matters"] and not moved["flips"]
    assert rows.loc["tiny", "robust.frobenius"]["spearman"] == near(0.156)


@pytest.mark.slow
def test_fidelities_that_agree_and_that_do_not(outcome_of: Callable[[str], Outcome]) -> None:
    frame = outcome_of("fidelity").frame
    rows = frame[frame["seeds"] == 3].set_index(["setting", "score"])
    assert rows.loc["full", "robust.frobenius"]["agreement"] == 1
    assert rows.loc["full", "robust.lambda_min_normalized"]["spearman"] == near(0.692)
    assert rows.loc["moderate", "robust.frobenius"]["agreement"] == near(0.944)
    assert rows.loc["small", "robust.frobenius"]["agreement"] == near(-0.004)
    assert rows.loc["small", str(DEFAULT)]["agreement"] == near(0.978)
    assert rows.loc["samples-16", "robust.lambda_min_normalized"]["agreement_low"] == near(0.925)


def test_conventions_and_fidelities_compare_with_their_base() -> None:
    assert f"conventions/{conventions.BASE}" in recordings.CONVENTIONS
    assert f"fidelity/{fidelity.BASE}" in recordings.FIDELITIES
    assert {f"conventions/{name}" for name in recordings.PRESETS} <= set(recordings.CONVENTIONS)


def test_flat_regions_are_named() -> None:
    rows = [
        {"metric": "val_acc", "score": "trace", "rho": rho, "beta": beta, "spearman": value}
        for rho, beta, value in (
            (1 / 255, 0.0, 0.50),
            (1 / 255, 1.0, 0.10),
            (8 / 255, 0.0, 0.505),
            (8 / 255, 1.0, 0.20),
        )
    ]
    (peak,) = peaks(pd.DataFrame(rows)).to_dict("records")
    assert (peak["highest"], peak["at β"], peak["at ρ × 255"]) == (0.505, "0", "8")
    assert (peak["flat"], peak["flat β"]) == ("2 of 4 points", "0")
    assert peak["flat ρ × 255"] == "any"


def test_overall_verdicts() -> None:
    yes, no = (Finding("", "", "", verdict, "") for verdict in ("reproduced", "not reproduced"))
    assert overall([yes, yes]) == "**reproduced** (2 of 2 comparisons)"
    assert overall([yes, no, yes]) == ("**mixed**: of 3 comparisons 2 reproduced, 1 not reproduced")


def test_tables_escape_bars() -> None:
    table = markdown_table(("a", "b"), [("x|y", 1)])
    assert table.splitlines() == ["| a | b |", "| --- | --- |", "| x\\|y | 1 |"]


def test_the_report_has_every_experiment() -> None:
    page = (RECORDED.parent / "REPORT.md").read_text(encoding="utf-8")
    for name, experiment in EXPERIMENTS.items():
        assert f"## {experiment.title}" in page
        assert (RECORDED.parent / "figures" / f"{name}.png").exists()
    assert "The paper's three findings" in page
