"""How sure predictions from 50 labels are, and the cells that they are confidently wrong about.

The draws are those of `few_labels`, after whose first run this was written. An error counts in half
widths of the 90 % interval. Since a review, cells of a labelled function count no more.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import norm

from cells import Cell
from experiments.ours.measures import recorded, settings, with_counts
from experiments.plotting import COLOURS, COLUMN, DATASET_LABELS
from experiments.prediction.few_labels import (
    CLEAN,
    DRAWS,
    EVERYTHING,
    by_process,
    order_of,
    parts,
    targets_of,
)
from experiments.study import Outcome, Study, functions_of
from ntkscore.analysis.prediction import COVERAGE, Predictor

SIZE = 50
SHOWN = 6
LEVELS = np.linspace(0.05, 0.99, 48)
"""Shares of accuracies that intervals should hold."""


class Errors(NamedTuple):
    """Means and half widths of the intervals of every cell in each draw, and the accuracies.

    A cell has a mean of NaN where it, or one of the same function, gave a label, or where it has no
    prediction.
    """

    mean: Float[np.ndarray, "draws cells"]
    reach: Float[np.ndarray, "draws cells"]
    accuracy: Float[np.ndarray, " cells"]

    @property
    def off(self) -> Float[np.ndarray, "draws cells"]:
        """Distance of the accuracy from the prediction, in half widths of the interval."""
        return np.abs(self.accuracy - self.mean) / self.reach


def errors_of(predictor: Predictor, accuracy: Float[np.ndarray, " cells"], seed: int) -> Errors:
    """Predictions of the cells that compute another function than the labelled ones."""
    means, reaches = [], []
    functions = functions_of(predictor.networks)
    for draw in range(DRAWS):
        places = order_of(seed, draw, len(accuracy))[:SIZE]
        found = by_process(predictor, places, accuracy[places])
        mean = found["mean"].to_numpy(copy=True)
        reach = (found["high"] - found["mean"]).to_numpy()
        mean[np.isin(functions, functions[places])] = np.nan
        means.append(mean)
        reaches.append(reach)
    return Errors(np.array(means), np.array(reaches), accuracy)


def held(errors: Errors, level: float) -> Float[np.ndarray, " draws"]:
    """Share of the accuracies inside intervals that should hold so many, in each draw."""
    scale = norm.ppf((1 + level) / 2) / norm.ppf((1 + COVERAGE) / 2)
    known = np.isfinite(errors.off)
    return (np.where(known, errors.off, np.inf) <= scale).sum(1) / known.sum(1)


def failures(name: str, errors: Errors, cells: pd.Index) -> pd.DataFrame:
    """The cells with the largest errors, in the mean over the draws."""
    off = pd.DataFrame(errors.off).mean().to_numpy()  # NaN of a cell without any prediction
    worst = np.argsort(-off)[:SHOWN]
    return pd.DataFrame(
        {
            "accuracies": DATASET_LABELS.get(name, name),
            "cell": [Cell(int(cells[place])).digits for place in worst],
            "measured": errors.accuracy[worst],
            f"predicted from {SIZE}": np.nanmean(errors.mean[:, worst], 0),
            "error in half widths": off[worst],
        }
    )


def draw(found: dict[str, Errors]) -> Figure:
    """Accuracies against their predictions in the first draw, and the share that intervals hold."""
    shown = [name for name in found if name != CLEAN]
    figure, axes = plt.subplots(2, len(shown), figsize=(len(shown) * COLUMN, 2 * COLUMN))
    for (above, below), name in zip(axes.T, shown, strict=True):
        one = found[name]
        mean, reach, true = one.mean[0], one.reach[0], one.accuracy
        inside = np.abs(true - mean) <= reach
        for colour, part, label in (
            (COLOURS[0], inside, "inside its 90 % interval"),
            (COLOURS[1], ~inside & np.isfinite(mean), "outside"),
        ):
            above.plot(mean[part], true[part], ".", color=colour, ms=2, alpha=0.5, label=label)
        ends = np.nanmin(mean), np.nanmax(mean)
        above.plot(ends, ends, color="0.3", lw=0.8)
        above.set(title=DATASET_LABELS[name], xlabel=f"predicted from {SIZE} labels")
        shares = np.array([held(one, level) for level in LEVELS])
        low, middle, high = np.quantile(shares, [0.05, 0.5, 0.95], axis=1)
        below.fill_between(LEVELS, low, high, color=COLOURS[0], alpha=0.2, lw=0)
        below.plot(LEVELS, middle, color=COLOURS[0])
        below.plot([0, 1], [0, 1], color="0.3", lw=0.8)
        below.set(xlabel="share that intervals should hold")
    axes[0, 0].set_ylabel("accuracy under attack")
    axes[1, 0].set_ylabel("share that they hold")
    axes[0, 0].legend(loc="upper left", markerscale=4)
    return figure


def run(study: Study) -> Outcome:
    """Calibration of the predictions, and their failures."""
    scores = with_counts(recorded(study))
    predictor = Predictor(parts(scores)[EVERYTHING])
    targets = targets_of(study, list(scores.index))
    found = {
        name: errors_of(predictor, values, study.seed) for name, (values, _) in targets.items()
    }
    frame = pd.DataFrame(
        {"accuracies": name, "should hold": level, "draw": place, "holds": share}
        for name, errors in found.items()
        for level in LEVELS
        for place, share in enumerate(held(errors, level))
    )
    wrong = pd.concat([failures(name, errors, scores.index) for name, errors in found.items()])
    return Outcome(
        frame,
        draw(found),
        settings(study) | {"labels": SIZE, "draws": DRAWS},
        (
            "Above the first draw, below all draws: median and middle nine tenths. The table has "
            "the cells whose accuracies lie farthest from their predictions, in the mean over the "
            "draws.",
            "Five cells have no path from input to output, and most of their measures fail: they "
            "get no prediction and are not here.",
        ),
        summary=wrong,
    )
