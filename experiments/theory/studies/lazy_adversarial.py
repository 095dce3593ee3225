"""L4: how far adversarial training inside the lazy ball goes, by dimension and radius."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from attacks import Attack
from experiments.plotting import COLOURS, panels
from experiments.study import Outcome, Study
from experiments.theory.ball import adversarial_training
from experiments.theory.networks import two_layer
from experiments.theory.seeds import log_slope, over_seeds
from experiments.theory.studies.digits import drawn, split
from experiments.theory.studies.setting import Rows, ball_attack, curve, numbers
from experiments.theory.studies.statistics import INVERSE_ROOT, Findings, crossings
from experiments.theory.tasks import Points
from experiments.theory.training import input_gradient, margins

SIDES, WIDTH, DEVIATION, SEEDS = (5, 7, 10, 14, 20, 28), 500, 10.0, 3
SCALED = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0)
"""Radii R √d. The largest lies beyond the range, 3 to 7, that a finding asks for."""
BEYOND = 7.0
"""Radius R √d at which corollary 3.2 leaves no robust network."""
RADII: tuple[float, ...] = ()
"""Radii R; where there are none, the scaled ones count."""
TRAIN_STEPS, TEST_STEPS = 7, 20
EPOCHS, BATCH, RATE, REDUCTION = 6, 32, 4.0, "mean"
PATIENCE: int | None = None
LEAST = 100
MEANT = 0.75
"""Radius up to which clean accuracy must stay: points of length 1 that may move as far as they
are long cannot be told apart."""
FULL = {
    "SIDES": tuple(range(5, 29)),
    "WIDTH": 1000,
    "SEEDS": 5,
    "RADII": tuple(i / 20 for i in range(1, 21)),
    "TRAIN_STEPS": 100,
    "EPOCHS": 200,
    "RATE": 0.01,
    "REDUCTION": "sum",
    "PATIENCE": 5,
}


def training_attack(radius: Array) -> Attack:
    """The attack of the training points."""
    return ball_attack(radius, TRAIN_STEPS)


@jax.jit
def accuracies(w: Array, a: Array, x: Array, y: Array, radius: Array) -> tuple[Array, Array]:
    """Shares of points on their side: clean, and under PGD."""
    model = two_layer(w, a)
    attacked = ball_attack(radius, TEST_STEPS)(input_gradient(model, w, y), x)
    clean, robust = (jnp.mean(margins(model, w, z, y) > 0) for z in (x, attacked))
    return clean, robust


def defended(
    train: Points, test: Points, width: int, seed: int, radius: float, deviation: float
) -> dict[str, float]:
    """Clean and robust test accuracy after adversarial training in a ball."""
    w, a, order = drawn(train.x.shape[1], width, seed)
    x, y, z, labels = (jnp.asarray(each, jnp.float32) for each in (*train, *test))
    sizes = (jnp.float32(each) for each in (radius, deviation / width**0.5))
    choices = {"batch": BATCH, "reduction": REDUCTION, "epochs": EPOCHS, "patience": PATIENCE}
    end = adversarial_training(
        order, w, a, x, y, *sizes, training_attack, jnp.float32(RATE), **choices
    )
    clean, robust = accuracies(end.weights, a, z, labels, jnp.float32(radius))
    return numbers({"clean": clean, "robust": robust, "training": end.robust})


def rows(study: Study) -> Rows:
    """A row for each dimension, radius and seed."""
    for side in SIDES:
        for seed in range(SEEDS):
            train, test = split(study, side, seed)
            for radius in RADII or [scaled / side for scaled in SCALED]:
                case = {"d": side**2, "R": radius, "R√d": round(radius * side, 6), "seed": seed}
                yield case | defended(train, test, WIDTH, seed, radius, DEVIATION)


def run(study: Study) -> Outcome:
    """Radii where robust accuracy is lost, and how they fall with the dimension."""
    frame = pd.DataFrame(rows(study))
    dimensions, table, half = crossings(frame, "d", "R", 0.5)

    def fit(seeds: np.ndarray, least: int) -> float:
        known = np.isfinite(found := half(seeds)) & (dimensions >= least)
        sizes = dimensions[known].astype(float)
        return log_slope(sizes, found[known]) if known.sum() > 1 else np.nan

    _, by_scaled, half_scaled = crossings(frame, "d", "R√d", 0.5)
    halves = zip(dimensions, half_scaled(by_scaled), strict=True)
    words = ", ".join(f"d = {d}: {r:.1f}" for d, r in halves)
    *_, lost = crossings(frame, "d", "R√d", 0.05)
    clean = frame.groupby(["d", "R"])["clean"].mean()
    far = clean.index.get_level_values("R") > MEANT
    inside, beyond_it = clean[~far].min(), clean[far].min()
    last = frame[(frame["R√d"] >= BEYOND) & (frame["d"] >= LEAST)]
    last = last[last["R√d"] == last.groupby("d")["R√d"].transform("min")]
    beyond = 1 - last.pivot_table(index="d", columns="seed", values="robust")
    findings = Findings()
    findings.measure(
        f"R √d at which robust accuracy falls to .05, d ≥ {LEAST}",
        "about 5",
        {
            f"d = {d}": over_seeds(by_scaled, lambda seeds, k=k: lost(seeds)[k])
            for k, d in enumerate(dimensions)
            if d >= LEAST
        },
        3,
        7,
        "straight lines between the radii; nan means no crossing",
    )
    for where, least in ((f"d ≥ {LEAST}", LEAST), ("all d", 0)):
        findings.measure(
            f"the radius of half the accuracy falls with d, {where}",
            "−1/2",
            over_seeds(table, partial(fit, least=least)),
            *INVERSE_ROOT,
            f"slope of log R₅₀ in log d; R₅₀ √d {words}",
        )
    findings.add(
        f"clean accuracy stays, R ≤ {MEANT:g}",
        "the failure is of robustness",
        f"{inside:.3f} and more",
        inside >= 0.9,
        f"at least .9 on test points at every d; beyond, {beyond_it:.3f} and more",
    )
    findings.measure(
        f"robust error at R = {BEYOND:g}/√d (corollary 3.2), d ≥ {LEAST}",
        "no robust network",
        {f"d = {d}": over_seeds(seeds.to_numpy(), np.mean) for d, seeds in beyond.iterrows()},
        0.9,
        np.inf,
        "attacked by PGD, a lower bound of the error",
    )
    figure, axes = panels(2, 1.0)
    for colour, (d, part) in enumerate(frame.groupby("d")):
        if len(SIDES) > len(COLOURS) and colour % 4:
            continue
        for axis, (x, title) in zip(axes, {"R": "radius R", "R√d": "R √d"}.items(), strict=True):
            curve(axis, part.groupby(x)["robust"].mean(), f"d = {d}", colour, "plot")
            axis.set(xlabel=title, ylabel="robust test accuracy")
    axes[1].legend(fontsize="x-small")
    summary = frame.pivot_table(index="d", columns="R√d" if not RADII else "R", values="robust")
    return Outcome(
        frame,
        figure,
        {"m": WIDTH, "deviation": DEVIATION, "seeds": SEEDS, "epochs": EPOCHS, "rate": RATE},
        (
            f"Zeros and ones of MNIST, m = {WIDTH}, rows of W within C₀/√m of their start, "
            f"C₀ = {DEVIATION:g}; at most {EPOCHS} epochs in batches of {BATCH}, {TRAIN_STEPS} "
            f"steps of the attack in training and {TEST_STEPS} in the test. The table has robust "
            "accuracy by R √d.",
        ),
        tuple(findings),
        summary.round(2).reset_index(),
    )
