"""Kernels along a training: of the right networks, and the same however it was stopped."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import invoke, refused, refuses

import ntkscore
from cells.residual import Residual
from ntkscore.regression import alignment, distance
from ntkscore.results import checkpoints
from ntkscore.training.fit import split
from ntkscore.training.runs import open_trained

RECIPE = ntkscore.Recipe(beta=0.5, epochs=3, batch=50, held_out=850, attack_steps=1)
SPACE = Residual(width=8)


def trained(out: Path | None = None, kernels: int | None = 2) -> Any:
    images = ntkscore.load_images("synthetic")
    return ntkscore.train("10", images, RECIPE, space=SPACE, seeds=2, out=out, kernels=kernels)


@pytest.fixture(scope="module")
def whole() -> Any:
    """The training that nothing stops."""
    return trained()


def test_rows_are_of_the_networks_of_their_epochs(whole: Any) -> None:
    run = whole
    found = run.kernels.set_index(["seed", "epoch", "kernel"])
    assert sorted({epoch for _, epoch, _ in found.index}) == [0, 2, 3]
    assert len(found) == 2 * 3 * 3 and np.isfinite(found.to_numpy(float)).all()
    assert (found.loc[(0, 0), "distance"].abs() < 1e-9).all()
    # The last row by hand.
    images = ntkscore.load_images("synthetic")
    rows = split(len(images.labels), RECIPE.held_out)[0][:32]
    x, y = images.images[rows] / np.float32(255), images.labels[rows]
    kernel = ntkscore.ntk(run.model(1), x, output="trace")
    targets = np.eye(y.max() + 1)[y]
    last = found.loc[(1, 3, "clean")]
    assert last["trace"] == pytest.approx(float(np.trace(kernel)), rel=1e-3)
    assert last["alignment"] == pytest.approx(alignment(kernel, targets @ targets.T), abs=1e-4)
    before = SPACE.on(images.task).trainable("10", 1)
    start = ntkscore.ntk(before.at(before.params, before.statistics), x, output="trace")
    assert last["distance"] == pytest.approx(distance(kernel, start), abs=1e-4)


def test_a_stopped_training_has_the_same_rows(tmp_path: Path, monkeypatch, whole: Any) -> None:
    want = whole.kernels

    def killed(out: Path, epoch: int, state: Any) -> None:
        if epoch == 3:  # the record of epoch 2 is there, and this epoch's state is not
            raise KeyboardInterrupt

    save = checkpoints.save
    monkeypatch.setattr(checkpoints, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path)
    assert pd.read_csv(tmp_path / "kernels.csv")["epoch"].max() == 3
    monkeypatch.setattr(checkpoints, "save", save)
    for _ in range(2):
        again = trained(tmp_path).kernels
        pd.testing.assert_frame_equal(again, want, rtol=1e-5)
    kept = open_trained(tmp_path, SPACE).kernels
    pd.testing.assert_frame_equal(kept, want, rtol=1e-5)
    assert open_trained(tmp_path, SPACE).history["epoch"].max() == 3


def test_kernels_want_epochs_between_them() -> None:
    with refuses(0, expected="epoch"):
        trained(kernels=0)
    assert trained(kernels=None).kernels is None


@pytest.mark.slow
def test_the_command_draws_them(tmp_path: Path) -> None:
    out, picture = tmp_path / "run", tmp_path / "kernels.png"
    command = ["train", "10", "--space", "residual", "--width", "8", "--out", out, "--epochs", "1"]
    command += ["--held-out", "900", "--attack-steps", "1"]
    refused("expected --kernels beside --plot", *command, "--plot", picture)
    invoke(*command, "--kernels", "1", "--plot", picture)
    assert picture.stat().st_size > 10_000
    assert set(pd.read_csv(out / "kernels.csv")["epoch"]) == {0, 1}
