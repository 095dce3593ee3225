"""T6: what the filter size does to the kernel, and to the largest stable step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jaxtyping import Array, PyTree
from scipy.stats import spearmanr

from cells.residual import ResidualConvolutional
from experiments.plotting import panels
from experiments.study import Outcome, Study, verdict
from experiments.theory.energies import label_energy_binary, margin_energy
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.seeds import over_seeds
from experiments.theory.studies.setting import Rows, by_seed, grid, lines_by_group, pixels
from experiments.theory.studies.statistics import Findings
from experiments.theory.training import mean_loss
from ntkscore.model import Model

N, CHANNELS, PIXELS, WIDTH, STEPS, SEEDS = 64, 3, 16, 64, 200, 3
SIZES = (1, 3, 5, 7)
VARIANCES = ("1/m", "1/(κm)")
ACTIVATIONS = ("relu", "tanh")
SKIPS = "11"
REACH = 100.0
"""Factor by which the bisection goes from its first guess, up and down."""
HALVINGS = 7
FULL = {"WIDTH": 128, "SEEDS": 10}


def largest_step(scale: float) -> Callable[[Model, Array, Array], Array]:
    """A function of (model, x, y): the largest step of full-batch descent that does not diverge.

    Found by bisection of its logarithm, between `scale` over `REACH` and `scale` times it, to 7 %;
    NaN where every step in between is stable, or none.
    """

    def compute(model: Model, x: Array, y: Array) -> Array:
        loss = lambda w: mean_loss(model, w, x, y)  # noqa: E731

        def stable(gamma: Array) -> Array:
            def descends(state: PyTree) -> Array:
                done, before, value, _ = state
                # By more than rounding, a loss that descends never rises.
                return (done < STEPS) & (value <= before + 1e-4)

            def step(state: PyTree) -> PyTree:
                done, _, before, w = state
                value, gradient = jax.value_and_grad(loss)(w)
                w = jax.tree.map(lambda w, g: w - gamma * g, w, gradient)
                return done + 1, before, value, w

            start = (0, jnp.inf, loss(model.params), model.params)
            done, before, value, _ = lax.while_loop(descends, step, start)
            return (done == STEPS) & (value <= before + 1e-4)

        def halve(ends: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            low, high = ends
            middle = (low + high) / 2
            fits = stable(jnp.exp(middle))
            return (jnp.where(fits, middle, low), jnp.where(fits, high, middle)), None

        first, last = jnp.log(scale) + jnp.asarray([-1.0, 1.0]) * jnp.log(REACH)
        (low, high), _ = lax.scan(halve, (first, last), length=HALVINGS)
        return jnp.where((low > first) & (high < last), jnp.exp(low), jnp.nan)

    return compute


def measurements() -> Rows:
    """A row for each variance, activation, filter size and seed."""
    tasks = [pixels(N, PIXELS, CHANNELS, 0.0, seed) for seed in range(SEEDS)]
    for case in grid(variance=VARIANCES, activation=ACTIVATIONS, κ=SIZES):
        space = ResidualConvolutional(
            activation=case["activation"],
            filter_size=case["κ"],
            hidden_variance=case["variance"],
            output_scale="sqrt_width",
            width=WIDTH,
        )
        kernels = [infinite_ntk(space, SKIPS, points.x) for points in tasks]
        largest = [float(np.linalg.eigvalsh(kernel)[-1]) for kernel in kernels]
        compute = largest_step(4 * N / (largest[0] * WIDTH))
        for seed, step in enumerate(by_seed(space, SKIPS, tasks, compute)):
            y = tasks[seed].y
            yield case | {
                "seed": seed,
                "λ_max": largest[seed],
                "2N/λ_max": 2 * N / largest[seed],
                "q/N": label_energy_binary(kernels[seed], y).value / N,
                "s/N": margin_energy(kernels[seed], y).value / N,
                "largest stable γm": float(step) * WIDTH,
            }


def run(study: Study) -> Outcome:
    """Compare the largest stable steps of the filter sizes."""
    frame = pd.DataFrame(measurements())
    findings, rows = Findings(), []
    columns = ("λ_max", "2N/λ_max", "q/N", "s/N", "largest stable γm")
    label = "{1}, hidden variance {0}".format
    for group, part in frame.groupby(["variance", "activation"], sort=False):
        signs = [
            spearmanr(one["κ"], one["largest stable γm"])[0] for _, one in part.groupby("seed")
        ]
        found = over_seeds(np.array(signs), np.mean)
        rising, falling = found.low > 0, found.high < 0
        means = part.groupby("κ")[list(columns)].mean(skipna=False)
        findings.add(
            f"{label(*group)}: a larger filter allows larger steps",
            "yes (remark below corollary 1)",
            " → ".join(f"{value:.2f}" for value in means["largest stable γm"]),
            verdict(rising, falling) if np.isfinite(signs).all() else "not decidable",
            f"Spearman with κ {found}; by seed " + ", ".join(f"{r:.1f}" for r in signs),
        )
        rows += [
            {"networks": label(*group), "κ": size, **{name: f"{row[name]:.3g}" for name in columns}}
            for size, row in means.iterrows()
        ]
    figure, axes = panels(2, 0.9)
    quantities = {name: name for name in ("largest stable γm", "q/N")}
    lines_by_group(axes, frame, ["variance", "activation"], "κ", quantities, label, "filter size κ")
    return Outcome(
        frame,
        figure,
        {"n": N, "d": CHANNELS, "p": PIXELS, "m": WIDTH, "steps": STEPS, "seeds": SEEDS},
        (
            f"{N} points of {PIXELS} pixels and {CHANNELS} channels, L = 4, all skips. Steps of "
            f"full-batch descent on the logistic loss, {STEPS} of them, m = {WIDTH}, by bisection; "
            "stable is what never rises.",
        ),
        tuple(findings),
        pd.DataFrame(rows),
    )
