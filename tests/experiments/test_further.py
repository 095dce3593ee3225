"""Studies of what follows from scores, on recorded scores and accuracies that are made up."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.data import SPACE, Data
from experiments.further import few_labels, training_beta
from experiments.page import PAGE, sections_of
from experiments.paper.measures import with_counts
from experiments.recordings import PROXIES

DOCS = Path(__file__).parents[2] / "docs" / "prediction.md"


@pytest.mark.thorough
def test_small_trainings_end_in_their_claims(data_dir: Path) -> None:
    sizes = {"cell": "000300", "train": 32, "test": 16, "epochs": 1, "batch": 16, "channels": 2}
    study = training_beta.STUDY.at(seed=(0,), **sizes)
    frame = study.frame(Data(data_dir))
    assert frame["accuracy"].between(0, 1).all() and len(frame) == 3 * 9
    assert len(list(study.claims(frame))) == 6


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return pd.concat([Data(Path()).rows(name) for name in ("space", *PROXIES)])


@pytest.fixture(scope="module")
def scores(rows: pd.DataFrame) -> pd.DataFrame:
    return with_counts(rows)


@pytest.mark.thorough
def test_what_the_accuracies_follow_is_learnt(rows: pd.DataFrame, scores: pd.DataFrame) -> None:
    """Accuracies rise with the parameters, and with a kernel's trace."""
    logs = np.log(scores[["params", "clean.trace"]].fillna(1))
    noise = np.random.default_rng(0).normal(0, 1e-3, len(scores))
    accuracy = (0.3 + 0.02 * logs["params"] + 0.01 * logs["clean.trace"]).to_numpy() + noise
    table = SimpleNamespace(accuracies=lambda dataset, metric, cells: accuracy)
    data = SimpleNamespace(rows=lambda name: rows, table=table)
    at = SimpleNamespace(accuracies="cifar10", labels=(10, 20), draws=2, seed=0, runs=("all",))
    frame = pd.DataFrame(few_labels.measure(SimpleNamespace(**vars(at), data=data)))
    found = frame.set_index(["quantity", "labels", "way"])["median"]
    whole = found["spearman", 20, few_labels.EVERYTHING]
    assert whole > 0.95 > found["spearman", 20, few_labels.COUNTS]
    assert 0.7 < found["covered", 20, few_labels.EVERYTHING] <= 1
    gain = found["gain", 20, "kernels, beside counts"]
    assert gain > 0 and abs(gain - (whole - found["spearman", 20, few_labels.COUNTS])) < 0.1
    assert (frame["low"] <= frame["median"]).all() and (frame["median"] <= frame["high"]).all()
    assert set(frame["way"]) == {*few_labels.ways(scores, SPACE), *few_labels.PARTS}


def test_a_label_does_not_test() -> None:
    seen: list[Any] = []

    def guess(places: np.ndarray, accuracies: np.ndarray) -> pd.DataFrame:
        seen.append((places, accuracies))
        mean = np.zeros(100)
        mean[places] = mean[places ^ 1] = accuracies
        return pd.DataFrame({"mean": mean})

    # Cells 2k and 2k + 1 are one function, of one accuracy.
    true = np.repeat(np.random.default_rng(0).uniform(size=50), 2)
    (row,) = few_labels.of_draw({"way": guess}, true, (30,), np.arange(100) // 2, 3, 0)
    places, told = seen[0]
    assert len(set(places)) == 30 and (told == true[places]).all()
    assert row["spearman"] == 0  # a way that only repeats its labels knows nothing


def test_kernels_are_told_from_other_measures(scores: pd.DataFrame) -> None:
    names = "robust.frobenius", "joint_clean@0.5.trace", "clean.naswot", "params"
    assert [*map(few_labels.kind_of, names)] == ["kernels", "kernels", "others", "counts"]
    given = {way: set(columns) for way, columns in few_labels.inputs(scores).items()}
    everything, counts = given[few_labels.EVERYTHING], given[few_labels.COUNTS]
    kernels = {name for name in everything if few_labels.kind_of(name) == "kernels"}
    assert everything == set(scores)
    assert given[few_labels.BUT_KERNELS] == everything - kernels
    assert given[few_labels.KERNELS_AND_COUNTS] - counts == kernels
    structure = few_labels.inputs(scores)[few_labels.STRUCTURE]
    assert structure.to_numpy().sum(1).tolist() == [6] * len(scores)


def test_the_documentations_table_is_the_pages() -> None:
    section = sections_of(PAGE)["few-labels"]
    pattern = r"^\| (\w[\w-]+, .+?) \| ((?:0\.\d{3} \| ){4}0\.\d{3}) \|$"
    rows = re.findall(pattern, DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 16
    assert set(rows) <= set(re.findall(pattern, section, re.MULTILINE))
