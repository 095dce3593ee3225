"""R2: a small cell's clean and robust accuracy, by the weight β of adversarial training."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import jax
import pandas as pd
from matplotlib.figure import Figure

from cells.nasbench201.space import NASBench201
from experiments.data import DATASET
from experiments.frame import NONE, Claim, Corrected, Interval, Study, Within
from experiments.plotting import COLOURS, lines, panels
from ntkscore.run import devices
from ntkscore.training.evaluation import CHECKS, rights
from ntkscore.training.fit import fit, split
from ntkscore.training.recipe import Recipe

APART = 0.05
"""Least difference of PGD accuracy between the largest β and the smallest."""
NEAR = 3, 8
"""Radii of FGSM and of the uniform draws in grey levels."""


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """Accuracies of one network by attack and its radius in grey levels."""
    devices.keep_compiled()
    data = at.data.images()
    train, test = split(len(data.labels), at.test)
    train = train[: at.train]
    space = NASBench201(channels=at.channels, cells_per_stage=at.cells_per_stage).on(data.task)
    recipe = Recipe(beta=at.beta, epochs=at.epochs, batch=at.batch)
    network = space.trainable(at.cell, at.seed)
    fitted = fit([network], data.images[train], data.labels[train], recipe, (at.seed,))
    state = jax.tree.map(lambda leaf: leaf[0], fitted.state)
    model = space.trained_model(at.cell, state.params, state.statistics)
    found = rights(model, data.images[test], data.labels[test], radii=at.radii)
    for (attack, radius), right in found.items():
        yield {"attack": attack, "radius": radius, "accuracy": float(right.mean())}


def seed_range(values: pd.Series) -> Interval:
    """The mean over the seeds, from the least to the largest."""
    return Interval(values.mean(), values.min(), values.max())


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What β does, and signs of masked gradients on the networks of the largest β."""
    wide = frame.pivot(index="seed", columns=["beta", "attack", "radius"], values="accuracy")
    least, most = wide[frame["beta"].min()], wide[frame["beta"].max()]
    gain, pgd = most - least, most["pgd"]
    text, rule = "PGD 8/255 accuracy is larger at β = 1 than at β = 0, by .05", Within(low=APART)
    yield Claim(text, "larger", seed_range(gain["pgd", 8]), rule)
    text = "clean accuracy is not larger at β = 1"
    yield Claim(text, "not larger", seed_range(gain["clean", 0]), Within(high=0))
    for check, attack, item in (
        ("fgsm_not_below_pgd", "fgsm", "a"),
        ("draws_not_below_pgd", "draws", "e"),
    ):
        above = [seed_range(most[attack, r] - pgd[r]) for r in NEAR if r in pgd]
        yield Claim(CHECKS[check], f"holds (Table 4 {item})", above, Within(low=0))
    falls = [seed_range(pgd[low] - pgd[high]) for low, high in pairwise(pgd)]
    for check, found, rule, item in (
        ("pgd_255_is_zero", [seed_range(pgd[255])], NONE, "c"),
        ("pgd_falls", falls, Within(low=0), "d"),
    ):
        printed = f"the opposite (Table 4 {item}); Table 5 has this"
        yield Claim(CHECKS[check], printed, found, Corrected(rule))


def figure(frame: pd.DataFrame) -> Figure:
    """PGD accuracy over the radius by β, and clean and PGD accuracy over β."""
    drawn, (over_radius, over_beta) = panels(2, 1.1)
    pgd = frame[(frame["attack"] == "pgd") & (frame["radius"] <= 64)]
    lines(over_radius, pgd, "radius", "accuracy", "beta", "β = {:g}")
    lines(over_beta, frame[frame["attack"] == "clean"], "beta", "accuracy", label="clean")
    at_8, colour = pgd[pgd["radius"] == 8], COLOURS[1]
    lines(over_beta, at_8, "beta", "accuracy", label="PGD 8/255", color=colour)
    over_radius.set(xlabel="radius of PGD, grey levels", ylabel="accuracy (fraction)")
    over_beta.set(xlabel="weight β of adversarial training")
    for axis in (over_radius, over_beta):
        axis.legend(fontsize="x-small")
    return drawn


STUDY = Study(
    "Clean and robust accuracy of a small cell over β (R2)",
    measure,
    cases={"beta": (0.0, 0.5, 1.0), "seed": (0, 1, 2)},
    fixed={
        "cell": "341231",
        "train": 2000,
        "test": 500,
        "epochs": 10,
        "batch": 64,
        "channels": 4,
        "cells_per_stage": 1,
        "radii": (3, 8, 32, 255),
    },
    claims=claims,
    figure=figure,
    note="Trainings this small show a sign, not the benchmark's accuracies; another run moves one "
    "by up to .028. Intervals are the range of the seeds, in the figure 95 % of draws of seeds. "
    "Masked gradients are looked for in the networks of the largest β.",
    needs=(DATASET,),
)
