"""The order of cells of equal counts, and the table of docs/ranking.md that is made of it."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau, rankdata

from experiments.data import DEFAULT, Data
from experiments.tools.equal_counts import AGAIN, SHOWN, pairs_of, rows, tau

RANKING = (Path(__file__).parents[2] / "docs" / "ranking.md").read_text(encoding="utf-8")
NUMBER = r"-?\d\.\d{3} \[-?\d\.\d{3}, -?\d\.\d{3}\]"
ROW = re.compile(rf"^\| `?([\w. +]+?)`? \| ((?:{NUMBER} \| ){{3}}{NUMBER}) \|$", re.MULTILINE)


def numbers(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """A measure with ties, and accuracies that it tells with noise."""
    rng = np.random.default_rng(0)
    measure = rng.normal(size=count).round()
    return measure, rankdata(measure + rng.normal(size=count)) / count


def test_pairs_have_equal_counts_and_compute_two_functions() -> None:
    measure, accuracy = numbers()
    scores = pd.DataFrame({"params": np.repeat([1, 2], 30)})
    pairs = pairs_of(scores, ["params"], np.arange(60))
    assert (len(pairs.group), pairs.groups, pairs.same) == (2 * 30 * 29 / 2, 2, 0)
    shifted = accuracy + 10 * (scores["params"] == 1)  # between the groups the order is reversed
    found = tau(measure, shifted.to_numpy(), pairs, resamples=20)
    parts = [kendalltau(measure[half], accuracy[half])[0] for half in (slice(30), slice(30, 60))]
    assert min(parts) - 1e-9 <= found.low <= found.value <= found.high <= max(parts) + 1e-9
    # Groups of two sizes, and a third whose measure is constant.
    few = pairs_of(
        pd.DataFrame({"params": [1] * 10 + [2] * 30 + [3] * 20}), ["params"], np.arange(60)
    )
    flat = np.where(np.arange(60) < 40, measure, 0)
    parts = [kendalltau(measure[part], accuracy[part])[0] for part in (slice(10), slice(10, 40))]
    assert tau(flat, accuracy, few, 9, alike=True).value == pytest.approx(np.mean(parts))
    failed = np.where(np.arange(60) < 30, np.inf, measure)
    wanted = kendalltau(measure[30:], accuracy[30:])[0]
    assert tau(failed, accuracy, pairs, 1).value == pytest.approx(wanted)
    assert np.isnan(tau(np.ones(60), accuracy, pairs, 1).value)


def test_a_difference_is_of_the_same_draws_and_pairs() -> None:
    measure, accuracy = numbers()
    pairs = pairs_of(pd.DataFrame({"params": np.repeat(range(6), 10)}), ["params"], np.arange(60))
    alone = tau(measure, accuracy, pairs, 50)
    assert tau(measure, accuracy, pairs, 50, less=-measure) == pytest.approx(2 * np.array(alone))
    half = np.where(np.arange(60) < 30, np.nan, -measure)
    shared = tau(half, accuracy, pairs, 1).value
    assert tau(measure, accuracy, pairs, 1, less=half).value == pytest.approx(-2 * shared)


def test_two_trainings_of_a_network_have_no_order() -> None:
    """Each of 60 cells beside a copy that was trained to another accuracy."""
    measure, accuracy = numbers()
    functions, noise = np.tile(np.arange(60), 2), np.tile([0, 1e-4], (60, 1)).T.ravel()
    scores, twice = pd.DataFrame({"params": np.ones(120)}), np.tile(accuracy, 2) + noise
    values = np.tile(measure, 2) + 10 * noise  # which a copy changes too
    pairs = pairs_of(scores, ["params"], functions)
    assert (len(pairs.group), pairs.same) == (120 * 119 / 2 - 60, 60)
    first, second = np.triu_indices(120, 1)
    apart = functions[first] != functions[second]
    signs = [np.sign(of[first] - of[second])[apart] for of in (values, twice)]
    wanted = signs[0] @ signs[1] / np.sqrt((signs[0] ** 2).sum() * (signs[1] ** 2).sum())
    assert tau(values, twice, pairs, 1).value == pytest.approx(wanted)


@pytest.mark.slow
def test_measures_of_a_recording_stand_beside_the_others_on_its_cells(data: Data) -> None:
    whole, _ = rows(data, ["clean.vkdnw"], 5)
    (same,) = rows(data, ["clean.vkdnw"], 5, among="weights")
    assert whole == same


@pytest.mark.slow
def test_the_pages_table_is_what_the_command_prints(data: Data) -> None:
    section = RANKING.partition("## Cells that counting cannot tell apart")[2].partition("##")[0]
    shown = dict(ROW.findall(section))
    assert [*shown] == [*SHOWN[:-1], "the default", AGAIN]
    printed = list(rows(data, SHOWN, 1000))
    for row in printed:
        name = "the default" if row["measure"] == str(DEFAULT) else row["measure"]
        assert " | ".join([*row.values()][1:]) == shown[name]
    for text in printed[0]:
        for count in re.findall(r"\d+,\d{3}|\d{3,}", text):
            assert f"{count}" in section
