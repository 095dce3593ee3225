"""L4: how far adversarial training inside the lazy ball goes, by dimension and radius."""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array
from matplotlib.figure import Figure

from experiments.frame import INVERSE_ROOT, Claim, Interval, Study, Within, exact
from experiments.plotting import lines, panels
from experiments.statistics import crossing, log_slope, mean, over_seeds
from experiments.theory.lazy import adversarial_training, ball_attack
from experiments.theory.networks import draw_two_layer, two_layer
from experiments.theory.studies.setting import singles
from experiments.theory.tasks import Points, area_means, on_sphere
from experiments.theory.training import input_gradient, margins
from ntkscore.data.images import load_images

LEAST = 100
"""Dimension from which on the claims are made."""
BEYOND = 7.0
"""Radius R√d at which corollary 3.2 leaves no robust network."""
MEANT = 0.75
"""Radius up to which clean accuracy must stay: points of length 1 that may move as far as they
are long cannot be told apart."""


@lru_cache(maxsize=1)
def digits(data_dir: Path, side: int) -> Points:
    """Zeros, labelled −1, and ones of MNIST, reduced to side² pixels, of length 1."""
    images = load_images("mnist", data_dir)
    (rows,) = np.nonzero(np.isin(images.labels, (0, 1)))
    pixels = area_means(images.pixels[rows].astype(float), side).reshape(len(rows), -1)
    return Points(on_sphere(pixels), np.where(np.asarray(images.labels)[rows] == 1, 1.0, -1.0))


@partial(jax.jit, static_argnames="steps")
def accuracies(
    w: Array, a: Array, x: Array, y: Array, radius: Array, steps: int
) -> tuple[Array, Array]:
    """Shares of points on their side: clean, and under PGD."""
    model = two_layer(w, a)
    attacked = ball_attack(radius, steps)(input_gradient(model, w, y), x)
    clean, robust = (jnp.mean(margins(model, w, z, y) > 0) for z in (x, attacked))
    return clean, robust


def measure(at: SimpleNamespace) -> dict[str, float]:
    """Clean and robust test accuracy after adversarial training in a ball."""
    points, d = digits(at.data.data_dir, at.side), at.side**2
    order = np.random.default_rng(at.seed).permutation(len(points.x))
    x, z = jnp.split(jnp.float32(points.x[order]), [at.train])
    y, labels = jnp.split(jnp.float32(points.y[order]), [at.train])
    weights, key = jax.random.split(jax.random.fold_in(jax.random.key(at.seed), d * at.m))
    w, a = draw_two_layer(weights, d, at.m)
    radius, ball, rate = singles(at.scaled / at.side, at.deviation / at.m**0.5, at.rate)
    sizes = {"steps": at.train_steps, "batch": at.batch, "epochs": at.epochs}
    end = adversarial_training(key, w, a, x, y, radius, ball, rate, **sizes)
    clean, robust = accuracies(end, a, z, labels, radius, at.test_steps)
    return {"d": d, "R": at.scaled / at.side, "clean": float(clean), "robust": float(robust)}


def over_dimensions(
    frame: pd.DataFrame, level: float, statistic: Callable[[np.ndarray, np.ndarray], float]
) -> Interval:
    """A statistic of the dimensions, and of the R√d at which robust accuracy falls to a level."""
    table = frame.pivot_table(index="seed", columns=["d", "scaled"], values="robust")
    d, scaled = (values.to_numpy(float) for values in table.columns.levels)
    rows = table.to_numpy().reshape(len(table), len(d), len(scaled))
    places = lambda rows: np.array([crossing(scaled, at, level) for at in rows.mean(0)])  # noqa: E731
    return over_seeds(rows, lambda rows: statistic(d, places(rows)))


def radius_slope(d: np.ndarray, scaled: np.ndarray) -> float:
    """The slope of log R in log d, where R√d is known."""
    known = np.isfinite(scaled)
    return log_slope(d[known], (scaled / d**0.5)[known])


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Radii where robust accuracy is lost, and how they fall with the dimension."""
    large = frame[frame["d"] >= LEAST]
    counted = range(large["d"].nunique())
    found = [over_dimensions(large, 0.05, lambda _, scaled, k=k: scaled[k]) for k in counted]
    text = f"R√d at which robust accuracy falls to .05, d ≥ {LEAST}"
    yield Claim(text, "about 5", found, Within(3, 7))
    for where, part in ((f"d ≥ {LEAST}", large), ("all d", frame)):
        text = f"the radius of half the accuracy: slope in d, {where}"
        yield Claim(text, "−1/2", over_dimensions(part, 0.5, radius_slope), INVERSE_ROOT)
    clean = frame[frame["R"] <= MEANT].groupby(["d", "R"])["clean"].mean()
    text = f"clean accuracy at R ≤ {MEANT:g}, the least"
    yield Claim(text, "the failure is of robustness", exact(clean.min()), Within(low=0.9))
    beyond = large[large["scaled"] == BEYOND]
    errors = [mean(1 - part["robust"]) for _, part in beyond.groupby("d")]
    text = f"robust error at R√d = {BEYOND:g} (corollary 3.2), d ≥ {LEAST}"
    yield Claim(text, "no robust network", errors, Within(low=0.9))


def figure(frame: pd.DataFrame) -> Figure:
    """Robust accuracy by the radius, and by the radius times √d."""
    drawing, axes = panels(2, together=True)
    labels = {"R": "radius R, lengths of a point", "scaled": "R√d"}
    for axis, (x, label) in zip(axes, labels.items(), strict=True):
        lines(axis, frame, x, "robust", "d", "d = {}")
        axis.set_xlabel(label)
    axes[0].set_ylabel("robust test accuracy (PGD)")
    axes[1].legend()
    return drawing


STUDY = Study(
    "Adversarial training in the lazy ball, by radius and dimension (L4)",
    measure,
    cases={"side": (5, 7, 10, 14, 20, 28), "scaled": (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0)}
    | {"seed": (0, 1, 2)},
    fixed={"m": 500, "deviation": 10.0, "train": 600, "train_steps": 7, "test_steps": 20}
    | {"epochs": 6, "batch": 32, "rate": 4.0},
    full={"side": tuple(range(5, 29)), "scaled": (*(i / 2 for i in range(1, 21)), 14.0, 28.0)}
    | {"seed": tuple(range(5)), "m": 1000, "train_steps": 100, "epochs": 200, "rate": 0.32},
    claims=claims,
    figure=figure,
    note="Zeros and ones of MNIST in d pixels, points of length 1, rows of W within "
    "`deviation`/√m of their start; R√d is `scaled`. PGD's errors are from below.",
    needs=("mnist",),
)
