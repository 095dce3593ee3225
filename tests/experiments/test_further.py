"""Studies of what follows from scores, on recorded scores and accuracies that are made up."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.data import SPACE, Data
from experiments.frame import Verdict
from experiments.further import few_labels, training_beta
from experiments.page import PAGE, sections_of
from experiments.paper.measures import with_counts
from experiments.plotting import DATASET_LABELS
from experiments.recordings import PROXIES

DOCS = Path(__file__).parents[2] / "docs" / "prediction.md"


def verdicts(study: Any, frame: pd.DataFrame) -> list[Verdict]:
    return [claim.verdict for claim in study.claims(frame)]


SOUND = {("clean", 0): 0.6, ("pgd", 3): 0.4, ("pgd", 8): 0.3, ("pgd", 32): 0.1, ("pgd", 255): 0.0}
SOUND |= {("fgsm", 3): 0.4, ("fgsm", 8): 0.3, ("draws", 3): 0.6, ("draws", 8): 0.5}


def trained(changed: Mapping[tuple[str, int], float]) -> pd.DataFrame:
    """Accuracies of networks of β = 0 and 1 and three seeds; those of β = 1 are given."""
    rows = []
    for seed, noise in enumerate((0.0, 0.01, 0.02)):
        fragile = {key: value - 0.2 * (key[0] != "clean") + 0.1 for key, value in SOUND.items()}
        for beta, found in ((0.0, fragile), (1.0, {**SOUND, **changed})):
            rows += [
                {"beta": beta, "seed": seed, "attack": attack, "radius": radius}
                | {"accuracy": value + noise * (attack == "clean")}
                for (attack, radius), value in found.items()
            ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("changed", "place", "verdict"),
    [
        ({("pgd", 8): 0.2}, 0, "false"),
        ({("clean", 0): 0.8}, 1, "false"),
        ({("fgsm", 8): 0.2}, 2, "false"),
        ({("draws", 3): 0.1}, 3, "false"),
        ({("pgd", 255): 0.01}, 4, "false"),
        ({("pgd", 32): 0.35}, 5, "false"),
    ],
)
def test_accuracies_by_beta_decide_six_claims(
    changed: dict[tuple[str, int], float], place: int, verdict: str
) -> None:
    study = training_beta.STUDY
    expected = ["holds"] * 4 + ["holds when corrected"] * 2
    assert verdicts(study, trained({})) == expected
    found = verdicts(study, trained(changed))
    assert found[place] == verdict
    assert study.figure is not None and len(study.figure(trained({})).axes) == 2


def test_an_interval_of_seeds_is_their_range() -> None:
    found = training_beta.seed_range(pd.Series([0.1, 0.2, 0.6]))
    assert tuple(found) == pytest.approx((0.3, 0.1, 0.6))


@pytest.mark.thorough
def test_small_trainings_end_in_their_claims(data_dir: Path) -> None:
    sizes = {"cell": "000300", "train": 32, "test": 16, "epochs": 1, "batch": 16, "channels": 2}
    study = training_beta.STUDY.at(seed=(0,), **sizes)
    frame = study.frame(Data(data_dir))
    assert frame["accuracy"].between(0, 1).all() and len(frame) == 3 * len(SOUND)
    assert len(verdicts(study, frame)) == 6


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


def predicted(shift: float) -> pd.DataFrame:
    """Medians that lie at each aim, and FLAN's with intervals above it, but for a shift."""
    rows = []
    for name, aims in few_labels.AIMS.items():
        rows += [(name, "spearman", size, aim) for size, aim in aims.items()]
        rows += [(name, "top10", 50, few_labels.AIM_TOP[50]), (name, "covered", 50, 0.9)]
    rows += [(few_labels.CLEAN, "spearman", n, at + 0.01) for n, at in few_labels.FLAN.items()]
    rows = [(*row, few_labels.BY_ORDER) for row in rows]
    gain = "gain", 20, -0.005, "a mean in the default order"
    rows += [(name, *gain) for name in DATASET_LABELS]
    rows += [(few_labels.DARTS, "kendall", 20, 0.415, few_labels.BY_ORDER)]
    frame = pd.DataFrame(rows, columns=["accuracies", "quantity", "labels", "median", "way"])
    frame["median"] += shift
    params = {"accuracies": few_labels.DARTS, "quantity": "kendall", "labels": 20}
    params |= {"median": 0.42, "way": few_labels.FIXED["params"]}
    frame = pd.concat([frame, pd.DataFrame([params])], ignore_index=True)
    return frame.assign(low=frame["median"] - 0.005, high=frame["median"] + 0.005)


def test_aims_are_reached_or_not() -> None:
    assert verdicts(few_labels.STUDY, predicted(1e-9)) == ["holds"] * 16
    missed = verdicts(few_labels.STUDY, predicted(-1e-4))
    assert missed == ["false"] * 8 + ["holds"] * 4 + ["false"] * 4
    assert verdicts(few_labels.STUDY, predicted(-0.01))[9:12] == ["open"] * 3


def test_the_documentations_table_is_the_pages() -> None:
    section = sections_of(PAGE).get("few-labels", "")
    if "| --- |" not in section:
        pytest.skip(
            f"{PAGE.name} has no table of few-labels: python -m experiments report few-labels"
        )
    pattern = r"^\| (\w[\w-]+, .+?) \| ((?:0\.\d{3} \| ){4}0\.\d{3}) \|$"
    rows = re.findall(pattern, DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 16
    assert set(rows) <= set(re.findall(pattern, section, re.MULTILINE))
