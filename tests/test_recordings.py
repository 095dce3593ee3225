"""Recorded scores, and the experiments that read them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from experiments import conventions, fidelity, ntk_correlation, recordings, score_combinations
from experiments.__main__ import EXPERIMENTS, app
from experiments.contrasts import Contrast, Pair, contrast, partial_spearman
from experiments.recordings import RECORDINGS, Recording, matching, record, rounded, thinned
from experiments.report import overall, table
from experiments.study import RECORDED, Finding, Study
from experiments.sweep import peaks
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.ranking import DEFAULT
from ntkscore.results import ResultSet

FROM_SCORES = (
    "ntk-correlation",
    "sweep",
    "conventions",
    "fidelity",
    "score-combinations",
    "search",
)
TINY = Config(channels=4, cells_per_stage=1, samples=4, betas=(0.0, 0.5))
runner = CliRunner()


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ntk_correlation, score_combinations):
        monkeypatch.setattr(module, "RESAMPLES", 20)


@pytest.fixture(scope="module")
def study(data_dir: Path) -> Study:
    return Study(data_dir)


def pairs(size: int = 500) -> tuple[Pair, Pair]:
    generator = np.random.default_rng(0)
    accuracy = generator.normal(size=size)
    good, bad = (accuracy + noise * generator.normal(size=size) for noise in (0.3, 1.0))
    return Pair(good, accuracy), Pair(bad, accuracy)


def test_spearman_is_pandas_own_and_takes_many_samples_at_once() -> None:
    good, _ = pairs()
    ties = Pair(np.round(good.score), good.accuracy)
    expected = pd.Series(ties.score).corr(pd.Series(ties.accuracy), method="spearman")
    assert ties.spearman() == pytest.approx(expected)
    cells = np.array([[0, 1, 2, 2], [3, 4, 5, 6]])
    alone = [Pair(ties.score[line], ties.accuracy[line]).spearman() for line in cells]
    np.testing.assert_allclose(ties.spearman(cells), alone)


def test_a_contrast_knows_which_score_is_better() -> None:
    good, bad = pairs()
    found = contrast(good, bad, [(good, bad)], resamples=100)
    assert 0 < found.low < found.value < found.high
    assert found.seeds == (pytest.approx(found.value),)


@pytest.mark.parametrize(
    ("found", "verdict", "why"),
    [
        (Contrast(0.7, 0.5, 0.1, 0.3, (0.2, 0.1, 0.3)), "reproduced", "all 3 seeds above 0"),
        (Contrast(0.51, 0.5, 0.01, 0.02, (0.1, 0.1, 0.1)), "reproduced", "but by less than 0.02"),
        (Contrast(0.5, 0.7, -0.3, -0.1, (-0.2, -0.1, -0.2)), "not reproduced", "seeds below 0"),
        (Contrast(0.7, 0.5, 0.1, 0.3, (0.2, -0.1, 0.3)), "not decidable", "both sides of 0"),
        (Contrast(0.7, 0.5, -0.1, 0.3, (0.2, 0.1, 0.3)), "not decidable", "both sides of 0"),
        (Contrast(0.7, 0.5, 0.1, 0.3, (0.2,)), "not decidable", "fewer than 3 seeds"),
        (Contrast(-0.2, -0.4, 0.1, 0.3, (0.2, 0.2, 0.2)), "not decidable", "no positive"),
    ],
)
def test_verdicts(found: Contrast, verdict: str, why: str) -> None:
    assert found.judged[0] == verdict
    assert why in found.judged[1]


def test_a_contrast_in_words() -> None:
    assert str(Contrast(0.7, 0.5, 0.1, 0.3)) == "0.700 − 0.500 = +0.200 [+0.100, +0.300]"
    assert str(Contrast(0.7, 0.5, 0.1, 0.3, (0.25,))).endswith("; by seed +0.250")


def test_partial_correlation_takes_out_what_is_given() -> None:
    generator = np.random.default_rng(0)
    size = generator.normal(size=4000)
    accuracy = size + generator.normal(size=4000)
    proxy, own = size + 0.1 * generator.normal(size=4000), accuracy + generator.normal(size=4000)
    assert abs(partial_spearman(proxy, accuracy, size)) < 0.08
    assert partial_spearman(own, accuracy, size) > 0.5


def test_rounding_keeps_the_leading_bits() -> None:
    values = np.array([3.14159265e8, -1.7e-12, 0.0, np.nan, np.inf])
    found = rounded(values, 14)
    np.testing.assert_allclose(found[:3], values[:3], rtol=2.0**-14)
    np.testing.assert_array_equal(found[3:], values[3:])
    assert rounded(np.array([1 + 2.0**-20]), 14) == 1


def test_names_of_recordings() -> None:
    assert matching(["space"]) == ["space"]
    assert matching(["conventions/bn-init"]) == ["conventions/bn-init"]
    assert set(matching(["fidelity/"])) == {n for n in RECORDINGS if n.startswith("fidelity/")}
    with pytest.raises(InputError, match="expected one of space, pgd-8, pgd-3, radii"):
        matching(["nothing"])


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
    assert len(thinned(full)) == len(rows)
    same = full.merge(rows, on=[c for c in rows.columns if c != "value"])
    np.testing.assert_allclose(same["value_x"], same["value_y"], rtol=1e-4)


def test_missing_recording_says_how_to_make_it(data_dir: Path, tmp_path: Path) -> None:
    options = ["--data-dir", str(data_dir), "--results", str(tmp_path)]
    missing = runner.invoke(app, ["sweep", *options])
    assert missing.exit_code == 2
    assert "python -m experiments record radii makes it" in missing.output.replace("\n", " ")


def test_kept_recordings_are_those_that_the_code_describes() -> None:
    for name, recording in RECORDINGS.items():
        known = ResultSet.open(RECORDED / name)
        wanted = replace(recording.config).to_dict()
        del wanted["implementation"]
        assert {key: known.configuration[key] for key in wanted} == wanted, name
        assert known.sessions[-1]["cells"] == recording.cells, name
        units = known.finished()
        assert len({seed for _, seed in units}) == recording.seeds, name
        assert len(units) % recording.seeds == 0
    size = sum(path.stat().st_size for path in RECORDED.rglob("*") if path.is_file())
    assert size < 10e6


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("name", FROM_SCORES)
def test_leaves_figure_data_and_record(name: str, data_dir: Path, tmp_path: Path) -> None:
    found = runner.invoke(app, [name, "--out", str(tmp_path), "--data-dir", str(data_dir)])
    assert found.exit_code == 0, found.output + repr(found.exception)
    for ending in ("png", "svg", "csv", "json"):
        assert (tmp_path / f"{name}.{ending}").stat().st_size > 100
    known = json.loads((tmp_path / f"{name}.json").read_text())
    assert known["results"] is None
    assert len(pd.read_csv(tmp_path / f"{name}.csv")) >= 20
    assert known["configuration"]["recordings"] if name != "search" else known["findings"]


@pytest.mark.usefixtures("few_resamples")
def test_the_default_score_beats_the_parameter_count(study: Study) -> None:
    scores = score_combinations.known_scores(study)
    assert len(scores) > 6_400
    for dataset, count in (("cifar10", 0.820), ("cifar100", 0.798), ("imagenet16-120", 0.609)):
        found = score_combinations.examine(study, scores, dataset, ["params", DEFAULT])
        size, default = pd.DataFrame(found).to_dict("records")
        assert size["spearman"] == pytest.approx(count, abs=2e-3)
        assert default["spearman"] > count
        assert default["top10"] > size["top10"] or dataset != "cifar10"


@pytest.mark.usefixtures("few_resamples")
def test_the_default_is_what_the_rule_selects(study: Study) -> None:
    scores = score_combinations.known_scores(study)
    names = score_combinations.CANDIDATES
    frame = pd.DataFrame(score_combinations.examine(study, scores, "cifar10", names))
    assert score_combinations.select(frame) == DEFAULT


def test_conventions_and_fidelities_compare_with_their_base() -> None:
    assert f"conventions/{conventions.BASE}" in recordings.CONVENTIONS
    assert f"fidelity/{fidelity.BASE}" in recordings.FIDELITIES
    assert {f"conventions/{name}" for name in recordings.PRESETS} <= set(recordings.CONVENTIONS)


def test_flat_regions_are_named() -> None:
    lines = [
        {"metric": "val_acc", "score": "trace", "rho": rho, "beta": beta, "spearman": value}
        for rho, beta, value in (
            (1 / 255, 0.0, 0.50),
            (1 / 255, 1.0, 0.10),
            (8 / 255, 0.0, 0.505),
            (8 / 255, 1.0, 0.20),
        )
    ]
    (peak,) = peaks(pd.DataFrame(lines)).to_dict("records")
    assert (peak["highest"], peak["at β"], peak["at ρ × 255"]) == (0.505, "0", "8")
    assert (peak["flat"], peak["flat β"]) == ("2 of 4 points", "0")
    assert peak["flat ρ × 255"] == "any"


def test_overall_verdicts() -> None:
    yes, no = (Finding("", "", "", verdict, "") for verdict in ("reproduced", "not reproduced"))
    assert overall([yes, yes]) == "**reproduced** (2 of 2 comparisons)"
    assert overall([yes, no, yes]) == ("**mixed**: of 3 comparisons 2 reproduced, 1 not reproduced")


def test_tables_escape_bars() -> None:
    assert list(table([("a", "b"), ("x|y", 1)])) == ["| a | b |", "| --- | --- |", "| x\\|y | 1 |"]


def test_the_report_has_every_experiment() -> None:
    page = (RECORDED.parent / "REPORT.md").read_text(encoding="utf-8")
    for name, title in EXPERIMENTS.items():
        assert f"## {title}" in page
        assert (RECORDED.parent / "figures" / f"{name}.png").exists()
    assert "The paper's three findings" in page
