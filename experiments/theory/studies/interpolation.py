"""G5: the width at which a network fits points with balls around them (theorem 6.1)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import lax
from jaxtyping import Array, Key, PRNGKeyArray, PyTree
from matplotlib.ticker import NullLocator
from scipy.spatial.distance import pdist

from experiments.plotting import COLOURS, panels
from experiments.study import Outcome, Study, verdict
from experiments.theory.studies.setting import Rows, ball_attack, grid
from experiments.theory.studies.statistics import Findings
from experiments.theory.tasks import on_sphere
from experiments.theory.training import input_gradient, margins, mean_loss
from ntkscore.model import Model

N, STEPS, RATE, TRIES, SEEDS = 80, 3000, 0.02, 3, 3
DIMENSIONS = (4, 8, 16)
SHARES = (0.0, 0.5, 0.9)
"""Radii, as shares of half the smallest distance of two points."""
WIDTHS = (2, 4, 8, 16, 32, 64)
FULL = {"WIDTHS": (2, 4, 8, 16, 32, 64, 128), "SEEDS": 10}


def network(key: PRNGKeyArray, dimension: int, width: int) -> Model:
    """Σ a_r relu(w_r·x + b_r) + c, all of it trained."""
    enter, leave = jax.random.split(key)
    params = {
        "w": jax.random.normal(enter, (dimension, width)) * (2 / dimension) ** 0.5,
        "b": jnp.zeros(width),
        "a": jax.random.normal(leave, (width, 1)) / width**0.5,
        "c": jnp.zeros(1),
    }
    return Model(lambda p, x: jax.nn.relu(x @ p["w"] + p["b"]) @ p["a"] + p["c"], params)


@partial(jax.jit, static_argnames="width")
def fitted(keys: Key[Array, " n"], x: Array, y: Array, radius: Array, width: int) -> Array:
    """The best accuracy under attack of some networks of a width."""

    def one(key: PRNGKeyArray) -> Array:
        model = network(key, x.shape[1], width)
        adam = optax.adam(optax.cosine_decay_schedule(RATE, STEPS))

        def attacked(params: PyTree, steps: int) -> Array:
            return ball_attack(radius, steps)(input_gradient(model, params, y), x)

        def step(carry: PyTree, _: None) -> tuple[PyTree, None]:
            params, moments = carry
            z = attacked(params, 10)
            gradient = jax.grad(lambda p: mean_loss(model, p, z, y))(params)
            with jax.numpy_dtype_promotion("standard"):  # optax counts steps by integers.
                updates, moments = adam.update(gradient, moments, params)
            return (optax.apply_updates(params, updates), moments), None

        start = (model.params, adam.init(model.params))
        (params, _), _ = lax.scan(step, start, None, length=STEPS)
        return jnp.mean(margins(model, params, attacked(params, 40), y) > 0)

    return jnp.max(jax.vmap(one)(keys))


def rows() -> Rows:
    """A row for each dimension, seed, radius and width: the best accuracy under attack."""
    for case in grid(d=DIMENSIONS, seed=range(SEEDS), share=SHARES):
        d, seed, share = case.values()
        rng = np.random.default_rng(seed)
        x = on_sphere(rng.standard_normal((N, d)))
        y = rng.choice([-1.0, 1.0], N)
        radius = share * (float(pdist(x).min()) / 2)
        points, labels = (jnp.asarray(each, jnp.float32) for each in (x, y))
        keys = jax.random.split(jax.random.key(seed), TRIES)
        for width in WIDTHS:
            accuracy = float(fitted(keys, points, labels, jnp.float32(radius), width))
            yield case | {"radius": radius, "m": width, "accuracy": accuracy}
            if accuracy == 1:
                break


def smallest(part: pd.DataFrame) -> float:
    """The smallest width with accuracy 1; NaN where none has it."""
    return float(part.loc[part["accuracy"] == 1, "m"].min())


def run(study: Study) -> Outcome:
    """Smallest widths by dimension and radius."""
    frame = pd.DataFrame(rows())
    least = frame.groupby(["d", "seed", "share"]).apply(smallest, include_groups=False)
    table = least.unstack("share")
    figure, (axis,) = panels(1, 1.4)
    findings = Findings()
    for colour, d in enumerate(DIMENSIONS):
        widths = table.loc[d]
        for i, (_, row) in enumerate(widths.iterrows()):
            label = f"d = {d}" if i == 0 else None
            axis.semilogy(row.index, row, "o-", ms=3, color=COLOURS[colour], alpha=0.7, label=label)
        ratio = widths[max(SHARES)] / widths[0.0]
        words = ", ".join(" → ".join(f"{value:g}" for value in row) for row in widths.to_numpy())
        findings.add(
            f"d = {d}: balls need a wider network than points",
            "VC dimension ⌊n/2⌋ d against n log n",
            f"{words} (radius 0, .5, .9, by seed)",
            verdict((ratio >= 2).all(), ratio.notna().all()),
            "smallest width that fits; twice the width or more in every seed",
        )
    axis.set(xlabel="radius / half the smallest distance", ylabel="smallest width that fits")
    axis.set_yticks(WIDTHS, [str(width) for width in WIDTHS])
    axis.yaxis.set_minor_locator(NullLocator())
    axis.legend(fontsize="x-small")
    return Outcome(
        frame,
        figure,
        {"n": N, "steps": STEPS, "tries": TRIES, "seeds": SEEDS},
        (
            f"{N} random unit points and labels, Adam over {STEPS} steps, PGD-10 in training and "
            f"PGD-40 in the test, best of {TRIES} starts. Theorem 6.1 is about the worst data set: "
            "training on some cannot confirm it, only show its direction.",
        ),
        tuple(findings),
        table.reset_index(),
    )
