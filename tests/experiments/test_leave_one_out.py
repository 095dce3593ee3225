"""Regression with the joint kernel, tested without a point at images that are attacked."""

import numpy as np
import pandas as pd
import pytest

from experiments.data import Data
from experiments.further import leave_one_out
from experiments.further.leave_one_out import CHOSEN, OTHERS, RISKS_STUDY, STUDY, risks

BETA, RIDGE = 0.3, 0.05


def test_risks_are_those_of_fits_without_each_point() -> None:
    rng, n = np.random.default_rng(0), 12
    clean, attacked = rng.normal(size=(2, n, 30))
    rows = np.concatenate([clean, attacked])
    labels = np.arange(n) % 3
    found = pd.DataFrame(risks(rows @ rows.T, labels, (BETA,), (RIDGE,))).set_index("images")
    # The features that regression with K_all is linear in, written out.
    joint, targets = (1 - BETA) * clean + BETA * attacked, np.eye(3)[labels] - 0.1
    alpha = RIDGE * np.mean(np.sum(joint**2, 1))
    for images, tested in (("clean", clean), ("attacked", attacked)):
        errors = np.empty((n, 3))
        for out in range(n):
            rest = np.delete(np.arange(n), out)
            gram = joint[rest] @ joint[rest].T + alpha * np.eye(n - 1)
            errors[out] = targets[out] - tested[out] @ joint[rest].T @ np.linalg.solve(
                gram, targets[rest]
            )
        assert found["risk"][images] == pytest.approx(np.mean(errors**2))
        right = np.argmax(targets - errors, 1) == labels
        assert found["accuracy"][images] == pytest.approx(right.mean())


@pytest.mark.slow
def test_the_study_measures_cells_and_judges_what_they_order(
    data_dir, monkeypatch, tmp_path
) -> None:
    data = Data(data_dir)
    tiny = RISKS_STUDY.at(place=(0,), samples=20, channels=2)
    one = tiny.frame(data)
    assert len(one) == 18 and one["risk"].between(0, 2).all()
    # Risks that fall with accuracy know more than counts; the others are chance.
    cells = leave_one_out.cells_of(data, 200, 0)
    rng, accuracy = np.random.default_rng(1), data.accuracy(leave_one_out.cells_of(data, 200, 0))
    parts = []
    for cell, right in zip(cells, accuracy, strict=True):
        chance = rng.uniform(size=len(one))
        is_robust = (one["beta"] == 0.5) & (one["images"] == "attacked")
        risk = np.where(is_robust, 1 - right, chance)
        parts.append(one.assign(cell=cell, risk=risk, accuracy=chance))
    monkeypatch.setattr(leave_one_out, "RECORDED", tmp_path / "results")
    (tmp_path / "tables").mkdir()
    pd.concat(parts).to_csv(tmp_path / "tables" / f"{leave_one_out.RISKS}.csv", index=False)
    study = STUDY.at(resamples=20)
    frame = study.frame(data)
    verdicts = [claim.verdict for claim in study.claims(frame)]
    assert len(verdicts) == 5 and len({*CHOSEN, *OTHERS}) == 5
    # Of networks trained adversarially the first of each pair holds; of others it need not.
    first = [study_rule(claim) for claim in study.claims(frame)]
    assert first == ["holds"] * 5


def study_rule(claim) -> str:
    return claim.rule(claim.each[0])
