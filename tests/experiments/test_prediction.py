"""The studies of predictions from few labels, on recorded scores and made-up accuracies."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cells import SIZE, Cell, canonical
from experiments.ours.measures import recorded, with_counts
from experiments.prediction import few_across, few_calibration, few_labels, few_trained
from experiments.study import RECORDED, Study, functions_of
from ntkscore.analysis.prediction import Predictor

ROOT = Path(__file__).parents[2]
PAGE = (RECORDED.parent / "PREDICTION.md").read_text(encoding="utf-8")
DOCS = (ROOT / "docs" / "prediction.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    return with_counts(recorded(Study(Path())))


@pytest.fixture(scope="module")
def accuracy(scores: pd.DataFrame) -> np.ndarray:
    """Accuracies that rise with the parameters, and with a kernel's trace."""
    logs = np.log(scores[["params", "clean.trace"]].fillna(1))
    rng = np.random.default_rng(0)
    return (0.3 + 0.02 * logs["params"] + 0.01 * logs["clean.trace"]).to_numpy() + rng.normal(
        0, 1e-3, len(scores)
    )


@pytest.mark.slow
def test_what_the_accuracies_follow_is_learnt(scores: pd.DataFrame, accuracy: np.ndarray) -> None:
    targets = {"cifar10": (accuracy, (10, 20))}
    ways = few_labels.ways(scores)
    functions = functions_of(scores.index)
    rows = pd.DataFrame(few_labels.of_draw(ways, targets, functions, 0, 0))
    assert set(rows["way"]) == set(ways) and len(rows) == 2 * len(ways)
    by_way = rows[rows["labels"] == 20].set_index("way")
    whole = by_way.loc[few_labels.EVERYTHING]
    assert whole["spearman"] > 0.95 > by_way.loc[few_labels.COUNTS_ALONE, "spearman"]
    assert 0.7 < whole["covered"] <= 1 and whole["width"] > 0
    assert by_way["spearman"].notna().all() and by_way["top10"].notna().all()
    assert by_way["spearman"].abs().max() <= 1
    again = pd.DataFrame(few_labels.of_draw(ways, targets, functions, 0, 0))
    pd.testing.assert_frame_equal(rows, again)
    for part in (few_labels.table(rows, "cifar10"), few_labels.calibration(rows)):
        assert len([*part])


def test_a_label_does_not_test(scores: pd.DataFrame) -> None:
    seen: list[Any] = []

    def guess(places: np.ndarray, accuracies: np.ndarray) -> pd.DataFrame:
        seen.append((places, accuracies))
        mean = np.zeros(100)
        mean[places] = mean[places ^ 1] = accuracies
        return pd.DataFrame({"mean": mean})

    true = np.random.default_rng(0).uniform(size=100)
    # Cells 2k and 2k + 1 are one function, of one accuracy.
    true, functions = np.repeat(true[:50], 2), np.arange(100) // 2
    (row,) = few_labels.of_draw({"way": guess}, {"cifar10": (true, (30,))}, functions, 3, 0)
    places, told = seen[0]
    assert len(set(places)) == 30 and (told == true[places]).all()
    assert row["spearman"] == 0  # a way that only repeats its labels knows nothing


def test_kernels_are_told_from_other_measures(scores: pd.DataFrame) -> None:
    assert few_labels.of_kernel("robust.frobenius") and few_labels.of_kernel("cross.sigma_min")
    assert few_labels.of_kernel("joint_clean@0.5.trace")
    assert not few_labels.of_kernel("clean.naswot") and not few_labels.of_kernel("params")
    parts = few_labels.parts(scores)
    everything = set(parts[few_labels.EVERYTHING])
    kernels = {name for name in everything if few_labels.of_kernel(name)}
    assert set(parts[few_labels.KERNELS_ADD[0]]) == everything - kernels
    assert (
        set(parts[few_labels.KERNELS_AND_COUNTS]) - set(parts[few_labels.COUNTS_ALONE]) == kernels
    )
    assert parts[few_labels.STRUCTURE].to_numpy().sum(1).tolist() == [6] * len(scores)


def test_intervals_hold_the_share_of_known_errors() -> None:
    errors = np.random.default_rng(0).normal(size=(3, 50_000))
    errors[:, 0] = np.nan
    reach = np.full_like(errors, 1.6448536)
    found = few_calibration.Errors(-errors, reach, np.zeros(50_000))
    for level in (0.1, 0.5, 0.9):
        assert few_calibration.held(found, level) == pytest.approx([level] * 3, abs=0.01)


@pytest.mark.slow
def test_the_cell_that_failed_is_named(
    scores: pd.DataFrame, accuracy: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_calibration, "DRAWS", 2)
    collapsed = accuracy.copy()
    collapsed[scores.index.get_loc(2581)] = 0.1
    predictor = Predictor(few_labels.parts(scores)[few_labels.EVERYTHING])
    errors = few_calibration.errors_of(predictor, collapsed, 0)
    # The labels and their copies, and five cells whose input does not reach the output.
    none, functions = (scores["paths"] == 0).to_numpy(), functions_of(scores.index)
    for draw, mean in enumerate(errors.mean):
        labels = few_labels.order_of(0, draw, len(mean))[: few_calibration.SIZE]
        assert (np.isnan(mean) == none | np.isin(functions, functions[labels])).all()
    worst = few_calibration.failures("cifar10", errors, scores.index).iloc[0]
    assert worst["cell"] == "323133" and worst["measured"] == 0.1
    assert worst["error in half widths"] > 3


@pytest.mark.thorough
def test_the_best_is_found_and_counted(scores: pd.DataFrame, accuracy: np.ndarray) -> None:
    known = pd.Series(accuracy, scores.index)
    given = {few_labels.EVERYTHING: Predictor(few_labels.parts(scores)[few_labels.EVERYTHING])}
    # Cells without a training of their own share that of the first.
    same = {cell: cell if cell in known.index else known.index[0] for cell in range(SIZE)}
    found = few_trained.of_start(given, {"cifar10": known}, same, 0, 0)
    rows = pd.DataFrame(found).set_index("way")
    assert rows.loc[few_trained.ONE_BY_ONE, "trained"] < 15
    assert rows.loc[few_trained.RANDOM, "trained"] > 15
    for best in rows["best"]:
        assert len(best) == few_trained.SHOWN and best == sorted(best)
    fixed = few_trained.of_orders(scores, given[few_labels.EVERYTHING], {"cifar10": known})
    assert {row["way"] for row in fixed} >= set(few_labels.FIXED.values())
    order = sorted(accuracy, reverse=True)
    assert few_trained.until_found(order[20:] + order[9:10], known) == len(order) - 19
    assert few_trained.until_found(order[10:], known) == np.inf


def test_a_search_is_led_by_cells_that_share_the_best_training() -> None:
    own = [cell for cell in range(SIZE) if canonical(Cell(cell)).index == cell and cell % 9]
    accuracy = pd.Series(0.5, own)
    accuracy[own[0]] = 1.0
    same = {cell: cell if cell in accuracy.index else own[0] for cell in range(SIZE)}
    trained = few_trained.searched("local", accuracy, same, 0)
    assert trained.index(1.0) < 100 and trained.count(1.0) == 1


@pytest.mark.slow
def test_what_is_learnt_elsewhere_is_an_input(
    scores: pd.DataFrame, accuracy: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_across, "DRAWS", 2)
    monkeypatch.setattr(few_across, "LABELS", (10, 20))
    half = len(scores) // 2
    places = {"source": slice(None, half), "target": slice(half, None)}
    known = {
        name: few_across.Known(scores[at], pd.Series(accuracy[at], scores.index[at]))
        for name, at in places.items()
    }
    frame = pd.DataFrame(few_across.of_target("target", known["source"], known["target"], 0))
    assert frame["kendall"].notna().all()
    median = frame.groupby(["way", "labels"])["kendall"].median()
    assert median["learnt elsewhere", 0] > 0.9
    assert median[few_across.BOTH, 10] > median[few_across.OWN, 10]
    assert few_across.helps(frame, "target", 10).verdict == "reproduced"
    assert len([*few_across.table(frame)]) == 5


def test_a_median_of_what_was_not_found_is_no_number() -> None:
    assert few_labels.spread(pd.Series([3.0, 4, np.inf]), 0) == "4 [3, inf]"


def test_the_documentations_table_is_the_reports() -> None:
    rows = re.findall(
        r"^\| ([\w16 -]+), (.+?) \| ((?:0\.\d{3} \| ){4}0\.\d{3}) \|$", DOCS, re.MULTILINE
    )
    assert len(rows) == 14
    for target, way, numbers in rows:
        part = PAGE.partition(f"| {target} | 10 labels")[2].partition("\n\n")[0]
        (line,) = re.findall(rf"^\| {re.escape(way)} \| (.*)$", part, re.MULTILINE)
        medians = [entry.split()[0] for entry in line.split(" | ")[:5]]
        assert [number.strip() for number in numbers.split("|")] == medians


def test_a_finding_needs_its_aim() -> None:
    assert few_labels._aimed("what", 0.94, 0.94).verdict == "reproduced"
    assert few_labels._aimed("what", 0.9399, 0.94).verdict == "not reproduced"
