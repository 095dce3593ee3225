"""From rank to proof: about forty cells trained small, their kernels before and after."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cells import distinct_cells
from cells.nasbench201.cell import Cell
from experiments.ours.measures import measured
from experiments.plotting import COLOURS, panels, score_label
from experiments.study import SPACE, Finding, Outcome, Study
from experiments.theory.seeds import Interval
from experiments.theory.studies.statistics import within
from experiments.training.population import SCORES, halved, trained
from experiments.training.setting import SIZES, SmallTraining, correlation
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.training.recipe import Recipe

CELLS, SEED, IMAGES = 40, 0, 32
"""Cells, the seed of all, images of a kernel."""
TRAIN, TEST = 4096, 1024
"""Images, of half the height and width."""
RECIPE = Recipe(epochs=24, batch=64, attack_steps=3, attack_step=4 / 255)
"""The benchmark's, with β = 1, less its length; its attack has seven steps of 2/255."""
WORK = Path("runs/training-proof")
"""Folder for the state after each epoch. A stopped experiment goes on from there."""
ACCURACIES = {"pgd": "trained small", "table": "the benchmark's"}
"""Accuracies under PGD 8/255: columns, and what they are."""


def chosen(study: Study) -> pd.DataFrame:
    """The default score and the number of parameters of the cells that are trained, by cell.

    They are the best-scored one, the largest, and others drawn from the table.
    """
    cells = [cell.index for cell in distinct_cells()]
    own = [study.table.representative(cell) for cell in cells]
    rows = measured(study).loc[own, list(DEFAULT.terms)]
    scores = DEFAULT.of(rows.set_axis(pd.Index(cells, name="cell"))).dropna()
    drawn = np.random.default_rng(study.seed).permutation(scores.index.to_numpy())
    first = (int(scores.idxmax()), Cell.from_digits("333333").index)
    cells = list(dict.fromkeys((*first, *map(int, drawn))))[:CELLS]
    params = [SPACE.costs(Cell(cell))["params"] for cell in cells]
    return pd.DataFrame({"params": params, "default": scores.loc[cells]}, cells)


def measure(study: Study) -> pd.DataFrame:
    """A row per cell: its counts and scores, and its accuracies, trained small and the table's."""
    small = SmallTraining(study, SIZES | {"train": TRAIN, "test": TEST})
    population = chosen(study)
    (train, labels), (test, answers) = small.train, small.test
    task = small.space.task._replace(image_shape=halved(train[:1]).shape[1:])
    frame = trained(
        small.space.on(task),
        [Cell(cell) for cell in population.index],
        (halved(train), labels),
        (halved(test), answers),
        RECIPE,
        IMAGES,
        SEED,
        WORK,
    )
    return frame.assign(table=study.accuracy(frame["cell"])).join(population, on="cell")


def lead(frame: pd.DataFrame) -> Interval:
    """PGD accuracy of the first cell less the mean of the others, and its interval.

    It counts the number of test images and the spread of the others.
    """
    best, others = frame["pgd"].iloc[0], frame["pgd"].iloc[1:]
    error = 1.96 * (best * (1 - best) / TEST + others.var() / len(others)) ** 0.5
    gain = best - others.mean()
    return Interval(gain, gain - error, gain + error)


def findings(frame: pd.DataFrame) -> Iterator[Finding]:
    """What of an order before training is left after it."""
    for name in SCORES:
        kept = correlation(frame, f"before {name}", f"after {name}")
        change = (frame[f"after {name}"] / frame[f"before {name}"]).median()
        yield Finding(
            f"the order by {name} at initialisation survives training",
            "Spearman above 0",
            f"Spearman {kept}",
            within([kept], 0, np.inf),
            f"{len(frame)} cells; median change of the score {change:.2g}-fold",
        )
    agreed = correlation(frame, "pgd", "table")
    yield Finding(
        "small trainings order cells as the benchmark does, PGD 8/255",
        "Spearman above 0",
        f"Spearman {agreed}",
        within([agreed], 0, np.inf),
        f"{len(frame)} cells",
    )
    gain, pgd = lead(frame), frame["pgd"]
    yield Finding(
        "the best-scored cell is more robust than a random one",
        "what the score is for",
        f"PGD 8/255 {pgd.iloc[0]:.3f} against {pgd.iloc[1:].mean():.3f} on average",
        within([gain], 0, np.inf),
        f"difference {gain}; rank {int(pgd.rank(ascending=False, method='min').iloc[0])} of "
        f"{len(frame)}; {TEST} test images, one seed",
    )


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Spearman with both accuracies of counts and of every score, before training and after."""
    measures = [
        "params",
        "default",
        *(f"{when} {s}" for s in SCORES for when in ("before", "after")),
    ]
    rows = [
        {"measure": measure}
        | {f"PGD 8/255, {of}": str(correlation(frame, measure, y)) for y, of in ACCURACIES.items()}
        for measure in measures
    ]
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame) -> Figure:
    """Each score after training over the one before, clean and robust together."""
    names = [name.removeprefix("robust.") for name in SCORES if name.startswith("robust.")]
    figure, axes = panels(len(names), 0.8)
    for axis, name in zip(axes, names, strict=True):
        for colour, kernel in zip(COLOURS, ("clean", "robust"), strict=False):
            before, after = (frame[f"{when} {kernel}.{name}"] for when in ("before", "after"))
            axis.loglog(before, after, "o", ms=3, alpha=0.7, color=colour, label=kernel)
        axis.set(title=score_label(f".{name}").strip(), xlabel="before training")
    axes[0].set_ylabel("after training")
    axes[0].legend(fontsize="x-small")
    return figure


def run(study: Study) -> Outcome:
    """Orders before and after training, and how both go with accuracies."""
    frame = measure(study)
    best, largest = frame["cell"].iloc[0], frame.loc[frame["params"].idxmax(), "cell"]
    also = ", which is the largest" if best == largest else ""
    pgd, clean = frame["pgd"], frame["clean"]
    noise = (pgd.mean() * (1 - pgd.mean()) / TEST) ** 0.5
    return Outcome(
        frame,
        draw(frame),
        {
            "seed": SEED,
            "images": IMAGES,
            "train": TRAIN,
            "test": TEST,
            "epochs": RECIPE.epochs,
            "batch": RECIPE.batch,
            "attack_steps": RECIPE.attack_steps,
        },
        (
            f"{len(frame)} cells: the best-scored one by the default, {Cell(best).digits}{also}, "
            "and others drawn at random from the table. Intervals are of resampled cells.",
            f"Trained from one seed with β = 1, 4 channels, one cell per stage, {TRAIN} images of "
            f"16 × 16 pixels, {RECIPE.epochs} epochs, attacks of {RECIPE.attack_steps} steps. "
            f"Clean accuracy is {clean.min():.3f} to {clean.max():.3f}, under PGD 8/255 "
            f"{pgd.min():.3f} to {pgd.max():.3f}. The latter's standard deviation over cells is "
            f"{pgd.std():.3f}; {TEST} test images drawn anew for each cell would alone give "
            f"{noise:.3f}.",
            f"Kernels are of {IMAGES} training images, before and after by calibrated statistics, "
            "our default: each normalisation has its mean and variance over these images.",
        ),
        tuple(findings(frame)),
        summarise(frame),
    )
