"""The theory's studies: statistics, claims of frames that are known, and each at a small size."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from experiments import page
from experiments.data import Data
from experiments.plotting import lines, mark_values
from experiments.statistics import difference, slope
from experiments.theory.studies import STUDIES

SMALL: dict[str, dict[str, Any]] = {
    "theory-eigenvalue": {
        "size": ("20x128",),
        "activation": ("relu",),
        "skips": ("1", "000"),
        "m": 16,
    },
    "theory-tradeoff": {"network": ("relu 1",), "beta": (0.0, 1.0), "seed": (0, 1), "points": 300}
    | {"test": 100, "m": 32, "energy_points": 40},
    "theory-lazy": {"activation": ("tanh",), "m": (16, 64), "seed": (0, 1), "points": 30},
}


def grid(**axes: Any) -> pd.DataFrame:
    return pd.DataFrame(itertools.product(*axes.values()), columns=[*axes])


def test_slopes_and_differences_are_of_means_over_seeds() -> None:
    rng = np.random.default_rng(0)
    frame = grid(m=(16, 64, 256), seed=range(8))
    frame["y"] = 3 * frame["m"] ** -0.5 * np.exp(0.02 * rng.standard_normal(len(frame)))
    fitted = slope(frame, "m", "y")
    assert fitted.value == pytest.approx(-0.5, abs=0.01)
    assert fitted.low < fitted.value < fitted.high < fitted.low + 0.05
    means = frame.groupby("m")["y"].mean()
    assert difference(frame, "m", "y").value == pytest.approx(means[256] - means[16])
    assert np.isnan(difference(frame[frame["m"] == 16], "m", "y").value)


def test_lines_show_means_and_intervals_in_an_order_of_colours_and_labels_apart() -> None:
    figure, axis = plt.subplots()
    frame = grid(m=(16, 256, 300), depth=(2, 8), seed=(0, 1))
    lines(axis, frame.assign(y=frame["depth"] + frame["seed"]), "m", "y", "depth", "L = {}", "x")
    shallow, deep = axis.containers
    np.testing.assert_array_equal(deep[0].get_ydata(), [8.5] * 3)
    (segment, *_), *_ = (bars.get_segments() for bars in deep[2])
    np.testing.assert_array_equal(segment[:, 1], [8, 9])
    # The larger value is the darker one.
    light, dark = (sum(to_rgb(one[0].get_color())) for one in (shallow, deep))
    assert dark < light
    assert [text.get_text() for text in axis.get_xticklabels()] == ["16", "256", ""]
    axis.set_xscale("linear")
    mark_values(axis, [0, 1, 2, 3])
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0", "1", "2", "3"]
    plt.close(figure)


@pytest.mark.thorough
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_gives_its_files(name: str, data_dir: Path, tmp_path: Path) -> None:
    study = STUDIES[name].at(**SMALL[name])
    paths = page.write_files(name, study, Data(data_dir), tmp_path)
    assert {path.suffix for path in paths} == {".png", ".svg", ".csv", ".md", ".json"}
    section = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    frame = pd.read_csv(tmp_path / f"{name}.csv", dtype={"skips": str})
    claims = list(study.claims(frame))
    assert 1 < len(claims) <= 12 and all(claim.text in section for claim in claims)
    assert set(study.full) <= set(study.settings)
    if name == "theory-tradeoff":  # K_all at β = 1 is K̃_all at β = 0, at points attacked alike
        by_beta = frame.set_index("beta").filter(like="initialisation")
        clean, robust = by_beta.columns
        assert by_beta[clean][1.0].tolist() == by_beta[robust][0.0].tolist()
        assert by_beta[clean][0.0].tolist() != by_beta[robust][1.0].tolist()
    if name == "theory-eigenvalue":
        assert [claim.verdict for claim in claims][4:] == ["false", "holds when corrected"]
