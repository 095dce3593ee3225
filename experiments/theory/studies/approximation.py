"""G6: functions near a network's start: by degree, by random features, and reached by descent."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jaxtyping import Array, PRNGKeyArray

from attacks import project_to_sphere
from cells.residual.activations import ACTIVATIONS
from experiments.plotting import COLOURS, panels
from experiments.study import Outcome, Study, verdict
from experiments.theory.convergence import Arcs, descend_until, theorem51_width
from experiments.theory.energies import margin_energy
from experiments.theory.networks import draw_two_layer
from experiments.theory.random_features import (
    SQUARED_RELU,
    eigenvalues,
    mean_square_bound,
    random_features,
    random_sum,
    tangent_kernel,
)
from experiments.theory.seeds import log_slope
from experiments.theory.studies.setting import Rows, grid, lines_by_group
from experiments.theory.studies.statistics import Findings, slope
from experiments.theory.training import mean_loss
from ntkscore.model import Model

DIMENSIONS, TERMS, POINTS, DRAWS = (3, 5, 10), 5, 2000, 50
FEATURES = (64, 256, 1024, 4096)
DEGREES = (21, 41)
"""Degrees between which the eigenvalues' exponent is taken, odd ones."""
SIGMAS = ("tanh", SQUARED_RELU)
GAPS, WIDTHS, SEEDS = (0.4, 0.2), (16, 64, 256, 1024), 3
"""ε in nats, at most what the robust loss is to be."""
NARROW = 16
"""The width that is shown, not judged: a control that can miss."""
ARCS = Arcs(radius=0.15, grid=11)
FULL = {"DRAWS": 500, "GAPS": (0.4, 0.2, 0.1), "WIDTHS": (64, 256, 1024, 4096, 16384), "SEEDS": 10}


drawn = jax.jit(random_features, static_argnames=("count", "activation"))
"""`random_features`, compiled."""


def feature_rows() -> Rows:
    """A row for each dimension, number of features and draw: errors and sizes of h_M."""
    for case in grid(part=["features"], d=DIMENSIONS):
        d = case["d"]
        arrays = random_sum(d, POINTS, TERMS)
        x, centres, signs = (np.asarray(each, float) for each in arrays)
        wanted = tangent_kernel(SQUARED_RELU, x @ centres.T) @ signs
        norm_squared = float(signs @ tangent_kernel(SQUARED_RELU, centres @ centres.T) @ signs)
        for draw in grid(M=FEATURES, seed=range(DRAWS)):
            key, count = jax.random.key(draw["seed"]), draw["M"]
            found, size = drawn(key, *arrays, count, SQUARED_RELU)
            error = np.asarray(found, float) - wanted
            square = np.mean(error**2) / mean_square_bound(norm_squared, d, count)
            sizes = {"square / bound": float(square), "size / norm": float(size) / norm_squared}
            yield case | draw | {"error": float(np.abs(error).max())} | sizes


def degree_rows() -> Rows:
    """A row for each dimension and degree: the eigenvalue of the kernel of σ = relu²."""
    for d in DIMENSIONS:
        values = eigenvalues(partial(tangent_kernel, SQUARED_RELU), d, DEGREES[1] + 1)
        for k, value in enumerate(values):
            yield {"part": "degrees", "d": d, "k": k, "eigenvalue": float(value)}


def network(key: PRNGKeyArray, width: int, sigma: str) -> Model:
    """The two-layer network of points in three dimensions that begins as zero, by pairs."""
    w, a = draw_two_layer(key, 3, width, antisymmetric=True)
    if sigma != SQUARED_RELU:
        activation = ACTIVATIONS[sigma]
    else:
        w, activation = 3**0.5 * project_to_sphere(w), lambda z: jax.nn.relu(z) ** 2
    return Model(lambda w, x: activation(x @ w.T) @ a[:, None] / width**0.5, w)


@partial(jax.jit, static_argnames=("width", "sigma"))
def steps_until(
    key: PRNGKeyArray, gap: Array, most: Array, width: int, sigma: str
) -> tuple[Array, Array, Array]:
    """Steps of length ε until L_*(W_t) ≤ ε, or `most`; the loss there, and ‖W_t − W_0‖."""
    model = network(key, width, sigma)
    y = jnp.asarray(ARCS.y, jnp.float32)

    def robust_loss(w: Array) -> Array:
        return mean_loss(model, w, ARCS.worst(model, lax.stop_gradient(w)), y)

    t, w, loss = descend_until(robust_loss, model.params, gap, gap, most)
    return t, loss, jnp.linalg.norm(w - model.params)


def robust_norm(sigma: str, gap: float) -> float:
    """R: the norm of the kernel's smallest function of robust loss ε/2 on the arcs' grids.

    The network of theorem 5.2 that has this function to first order is R away from its start.
    """
    points, y = ARCS.points.reshape(-1, 3), np.repeat(ARCS.y, ARCS.grid)
    energy = margin_energy(tangent_kernel(sigma, points @ points.T), y)
    return float(-np.log(np.expm1(gap / 2)) * energy.value**0.5)


def descent_rows() -> Rows:
    """A row for each activation, ε, width and seed: steps that descent takes."""
    for case in grid(part=["descent"], sigma=SIGMAS, gap=GAPS):
        _, sigma, gap = case.values()
        radius = robust_norm(sigma, gap)
        allowed = int(np.ceil(radius**2 / gap**2))
        for run in grid(m=WIDTHS, seed=range(SEEDS)):
            key, most = jax.random.key(run["seed"]), jnp.asarray(allowed)
            t, loss, way = steps_until(key, jnp.float32(gap), most, run["m"], sigma)
            yield (
                case
                | run
                | {
                    "R": radius,
                    "allowed": allowed,
                    "steps": int(t),
                    "reached": bool(loss <= gap),
                    "way / R": float(way) / radius,
                    "width required / used": theorem51_width(radius, gap) / run["m"],
                }
            )


def of_features(findings: Findings, frame: pd.DataFrame) -> None:
    """Theorem C.1 and lemma C.2."""
    for d, part in frame.groupby("d"):
        fitted, allowed = slope(part, "M", "error"), -1 / (int(str(d)) + 1)
        findings.measure(
            f"relu², d = {d}: the largest error falls with the features (theorem C.1)",
            f"as M^{allowed:.2f} or faster",
            fitted,
            -np.inf,
            allowed,
            "M = ε^−(d+1) suffices there; slope in M",
        )
    means = frame.groupby(["d", "M"])[["square / bound", "size / norm"]].agg(["mean", "sem"])
    square, size = means["square / bound"]["mean"], means["size / norm"]
    findings.add(
        "relu²: E ‖h − h_M‖² ≤ 6 ‖h‖²/((d + 2) M) (for lemma C.2)",
        "M = exp(Ω(d)) ‖h‖²/ε log(…)",
        f"{square.min():.2f} to {square.max():.2f} of it",
        (square <= 1).all(),
        f"means of {DRAWS} draws in every dimension and number; neither factor is needed",
    )
    off = ((size["mean"] - 1).abs() / size["sem"]).max()
    findings.add(
        "relu²: M Σ ‖c_r‖² is ‖h‖² (equation 23)",
        "at most exp(O(d)) ‖h‖²",
        f"{size['mean'].min():.3f} to {size['mean'].max():.3f} times ‖h‖²",
        off <= 4,
        f"1 in expectation; at most {off:.1f} standard errors off, 4 allowed",
    )


def of_degrees(findings: Findings, frame: pd.DataFrame) -> None:
    """Lemma C.3."""
    even = frame[(frame["k"] % 2 == 0) & (frame["k"] > 2)]["eigenvalue"].abs().max()
    least = frame[frame["k"].isin((3, 5))]["eigenvalue"].min()
    findings.add(
        "relu²: the kernel's space holds smooth even functions (lemma C.3)",
        "all of them",
        f"eigenvalues of even degrees above 2 at most {even:.0e}; of 3 and 5 at least {least:.0e}",
        verdict(even > 1e-13),
        "a zonal polynomial of degree 4 is smooth, even and outside",
    )
    for d, part in frame[(frame["k"] % 2 == 1) & (frame["k"] >= DEGREES[0])].groupby("d"):
        dimension = int(str(d))
        # The asymptotic expansion of a ratio of gamma functions is in k + d/2 − 1.
        found = log_slope((part["k"] + dimension / 2 - 1).to_numpy(), part["eigenvalue"].to_numpy())
        findings.add(
            f"relu², d = {d}: odd functions with (d + 3)/2 derivatives (lemma C.3, corrected)",
            f"exponent {-(dimension + 3)} or above",
            f"{found:.2f}",
            found >= -(dimension + 3),
            f"of the eigenvalues of degrees {DEGREES[0]} to {DEGREES[1]}; −(d + 2) in the limit, "
            "so that (d + 2)/2 derivatives suffice",
        )


def of_descent(findings: Findings, frame: pd.DataFrame) -> None:
    """Corollaries 5.1 and C.1."""
    for sigma, every in frame.groupby("sigma", sort=False):
        narrow = every["m"] <= NARROW
        control, part = every[narrow], every[~narrow]
        share = part["steps"] / part["allowed"]
        radii = part.groupby("gap", sort=False)["R"].first()
        findings.add(
            f"{sigma}: descent reaches a robust loss ε in R²/(εα) steps "
            f"(corollary {'C.1' if sigma == SQUARED_RELU else '5.1'})",
            "of a width of R⁴/ε² and more",
            f"{part['reached'].sum()} of {len(part)} runs, in {share.min():.2g} to "
            f"{share.max():.2g} of the steps; {control['reached'].sum()} of {len(control)} of "
            f"width {NARROW}",
            verdict(part["reached"].all(), False),
            "α = ε; "
            + ", ".join(f"ε = {gap:g}: R = {radius:.1f}" for gap, radius in radii.items())
            + f"; width {part['width required / used'].min():.0e} times smaller and more",
        )


def run(study: Study) -> Outcome:
    """Errors of random features, eigenvalues by degree, and the steps that descent takes."""
    features, degrees, descents = (
        pd.DataFrame(each()) for each in (feature_rows, degree_rows, descent_rows)
    )
    findings = Findings()
    of_features(findings, features)
    of_degrees(findings, degrees)
    of_descent(findings, descents)
    figure, axes = panels(3, 0.8)
    largest, steps = {"error": "largest error"}, {"steps": "steps to a loss of ε"}
    lines_by_group(axes, features, ["d"], "M", largest, "d = {}".format, "features M")
    for colour, (_, values) in enumerate(degrees[degrees["k"] % 2 == 1].groupby("d")):
        axes[1].loglog(values["k"], values["eigenvalue"], "o-", ms=3, color=COLOURS[colour])
    axes[1].set(title="eigenvalue of relu²", xlabel="degree k, odd")
    label = "{}, ε = {:g}".format
    lines_by_group(axes[2:], descents, ["sigma", "gap"], "m", steps, label, "width m")
    summary = descents.groupby(["sigma", "gap", "m"], sort=False)[
        ["R", "allowed", "steps", "reached", "way / R"]
    ].mean()
    return Outcome(
        pd.concat([features, degrees, descents], ignore_index=True),
        figure,
        {"draws": DRAWS, "points": POINTS, "terms": TERMS, "seeds": SEEDS, "radius": ARCS.radius},
        (
            "σ = relu², w uniform on the sphere of radius √d: random features of a sum of "
            f"{TERMS} kernel functions, {DRAWS} draws; the kernel's eigenvalues by quadrature. "
            f"Descent: ten arcs of the circle of radius {ARCS.radius}, no projection, each step "
            "against the worst case; R is the least norm in the kernel's space of a function with "
            "the robust loss ε/2, which is what theorem 5.2 takes.",
        ),
        tuple(findings),
        summary.reset_index(),
    )
