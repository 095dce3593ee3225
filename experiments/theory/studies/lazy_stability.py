"""S2: perturbation stability of trained networks by width, depth and initialisation."""

from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree
from matplotlib.figure import Figure

from experiments.frame import Claim, Study, Within
from experiments.plotting import annotate, lines, panels
from experiments.statistics import ratio
from experiments.theory.networks import fully_connected, fully_connected_network
from experiments.theory.tasks import on_sphere
from ntkscore.data.images import load_images
from ntkscore.measures.perturbations import displacements

PIXELS, CLASSES = 784, 10
DEPTH = 4
"""Layers of the networks that the claims about the width are made of."""
TRENDS = (
    *(("ntk", "L", "rises"), ("he", "L", "rises"), ("lecun", "L", "falls")),
    *(("ntk", "m", "falls"), ("he", "m", "falls")),
)
"""What is printed of each initialisation, as the depth L or the width m grows."""
LEARNED = 0.5
"""Test accuracy below which a network has not learned."""


@lru_cache(maxsize=1)
def digits(data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """All images of MNIST as points of length 1, and their digits."""
    images = load_images("mnist", data_dir)
    x = on_sphere(images.pixels.reshape(len(images.labels), -1))
    return x.astype(np.float32), np.asarray(images.labels, np.int32)


@partial(jax.jit, static_argnames=("epochs", "batch"))
def trained(
    key: PRNGKeyArray, weights: PyTree, train: tuple[Array, Array], test: tuple[Array, Array],
    rate: Array, epochs: int, batch: int,
) -> dict[str, Array]:  # fmt: skip
    """Stability before and after training by batches, and test accuracy."""
    (x, y), (z, labels) = train, test
    order, ball = jax.random.split(key)

    def loss(w: PyTree, rows: Array) -> Array:
        logits = fully_connected(w, x[rows])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, y[rows]))

    def step(w: PyTree, rows: Array) -> tuple[PyTree, None]:
        return jax.tree.map(lambda a, g: a - rate * g, w, jax.grad(loss)(w, rows)), None

    orders = lax.map(partial(jax.random.permutation, x=len(x)), jax.random.split(order, epochs))
    whole = orders[:, : len(x) // batch * batch]
    end, _ = lax.scan(step, weights, whole.reshape(-1, batch))
    return {
        "start": jnp.mean(displacements(partial(fully_connected, weights), z, ball)),
        "end": jnp.mean(displacements(partial(fully_connected, end), z, ball)),
        "accuracy": jnp.mean(jnp.argmax(fully_connected(end, z), 1) == labels),
    }


def measure(at: SimpleNamespace) -> dict[str, float]:
    """One network, trained on the first images and tested on the last."""
    x, y = digits(at.data.data_dir)
    # The NTK's initialisation has points of length 1, and a rate that falls with the width.
    ntk = at.initialisation == "ntk"
    length, rate = (1.0, 1 / at.m) if ntk else (at.length, at.rate)
    first, last = slice(0, at.train), slice(len(x) - at.test, len(x))
    train, test = ((jnp.asarray(length * x[s]), jnp.asarray(y[s])) for s in (first, last))
    weights, key = jax.random.split(jax.random.fold_in(jax.random.key(at.seed), at.m * at.L))
    model = fully_connected_network(weights, PIXELS, at.m, CLASSES, at.L, at.initialisation)
    found = trained(key, model.params, train, test, jnp.float32(rate), at.epochs, at.batch)
    return {name: float(value) for name, value in found.items()}


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Trends in the depth and in the width, of networks that have learned."""
    by_network = frame.groupby(["initialisation", "L", "m"])
    frame = frame[by_network["accuracy"].transform("mean") >= LEARNED]
    for name, axis, way in TRENDS:
        part = frame[frame["initialisation"] == name]
        where, held = ("m", frame["m"].max()) if axis == "L" else ("L", DEPTH)
        if len(part := part[part[where] == held]):
            rule = Within(low=1) if way == "rises" else Within(high=1)
            text = f"{name}, {where} = {held}: 𝒫 at the largest {axis} over that at the least"
            yield Claim(text, way, ratio(part, axis, "end"), rule)


def figure(frame: pd.DataFrame) -> Figure:
    """Stability by width: a line for each depth, and dashed before training."""
    groups = list(frame.groupby("initialisation", sort=False))
    drawing, axes = panels(len(groups), 0.8)
    for axis, (name, part) in zip(axes, groups, strict=True):
        lines(axis, part, "m", "start", "L", "_", log="xy", fmt="--", lw=0.8)
        lines(axis, part, "m", "end", "L", "L = {}", log="xy")
        axis.set_title(str(name))
    axes[0].set_ylabel("stability P/ε on test images, logits")
    annotate(drawing, axes[0], "width m, features (dashed: before training)", 4)
    return drawing


STUDY = Study(
    "Perturbation stability after training, by width and depth (S2)",
    measure,
    cases={"initialisation": ("ntk", "he", "lecun"), "L": (2, 4, 6, 8), "m": (16, 64, 256)}
    | {"seed": (0, 1, 2, 3, 4)},
    fixed={"train": 2000, "test": 600, "epochs": 8, "batch": 32, "length": 9.2, "rate": 0.05},
    full={"train": 60_000, "test": 10_000, "epochs": 50, "L": (2, 4, 6, 8, 10)}
    | {"m": tuple(2**i for i in range(4, 15))},
    claims=claims,
    figure=figure,
    note="The ten digits of MNIST; a smaller 𝒫 is more robust. `length` is the points' under He's "
    "and LeCun's initialisations, the mean of images in [0, 1]. Claims are about networks with a "
    "test accuracy of .5 and more.",
    needs=("mnist",),
)
