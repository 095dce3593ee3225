"""T2: theorem 2's lower bound of the least eigenvalue, as printed and corrected."""

from collections.abc import Iterator
from functools import partial
from math import nan
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, PyTree
from matplotlib.figure import Figure

from cells.residual import Residual
from experiments.frame import NONE, Claim, Corrected, Study, Within, exact
from experiments.plotting import COLOURS, annotate, panels
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.least_eigenvalue import KERNELS, lower_bound, lower_bound_at, printed_bound
from experiments.theory.sphere import CapAttack, project_to_cap
from experiments.theory.studies.setting import network, singles
from experiments.theory.tasks import margin, on_sphere
from experiments.theory.training import attacked_stack
from ntkscore.kernels.joint import joint_kernel
from ntkscore.model import Model

SKIPS = {True: "all skips", False: "a skip missing"}
BOUNDS = ("printed", "corrected", "at the points")


@partial(jax.jit, static_argnames="attack_steps")
def attacked(start: tuple[Any, PyTree], x: Array, y: Array, rho: Array, attack_steps: int) -> Array:
    """X, X_ρ and X_2ρ by PGD."""
    model = Model(*start)
    return attacked_stack(CapAttack(rho, attack_steps), model, model.params, x, y)


def stack_of(at: SimpleNamespace, n: int, d: int) -> np.ndarray:
    """X, X_ρ and X_2ρ, one below the other, at random in their caps or by PGD."""
    rng = np.random.default_rng(at.seed)
    x, y = margin(n, d, 0.0, rng)
    directions = singles(*(margin(n, d, 0.0, rng).x for _ in range(2)))
    points, labels, rho = singles(x, y, at.rho)
    if at.points == "random":
        once = project_to_cap(directions[0], points, at.rho)
        stack = np.concatenate([x, once, project_to_cap(directions[1], once, at.rho)])
    else:
        start = network(Residual(activation=at.activation, width=at.m), at.skips, x, at.seed)
        moved = attacked(start, points, labels, rho, at.attack_steps)[n:]
        stack = np.concatenate([x, moved])
    return on_sphere(stack)


def coherence(x: np.ndarray) -> float:
    """max_{i≠j} |⟨x_i, x_j⟩|."""
    inner = np.abs(x @ x.T)
    return float(np.max(inner - np.diag(np.diag(inner))))


def measure(at: SimpleNamespace) -> Iterator[dict[str, float | str]]:
    """A row for each kernel of one network and set of points: least eigenvalue and bounds."""
    n, d = map(int, at.size.split("x"))
    space, stack = Residual(activation=at.activation), stack_of(at, n, d)
    c, gram = coherence(stack[:n]), infinite_ntk(space, at.skips, stack)
    for i, kernel in enumerate(KERNELS):
        part = slice(i * n, (i + 1) * n)
        joint = kernel.startswith("joint")
        matrix = joint_kernel(gram, kernel, at.beta, n) if joint else gram[part, part]
        spectrum = np.linalg.eigvalsh(matrix)
        yield {
            "kernel": kernel,
            "least": float(spectrum[0]),
            "rounding": float(at.tolerance * spectrum[-1]),
            "printed": printed_bound(at.activation, n, c + 2 * at.rho + at.rho**2),
            "corrected": lower_bound(kernel, space, at.skips, n, c, at.rho),
            "at the points": nan if joint else lower_bound_at(space, at.skips, stack[part]),
        }


def meeting_points() -> tuple[np.ndarray, float]:
    """Two points of the circle, a chord of 1.4 apart, that two attacks move to their midpoint.

    Returns:
        X, X_ρ and X_2ρ, one below the other (6, 2), and ρ.
    """
    quarter = np.arcsin(1.4 / 2) / 2
    angles = np.array([-2, 2, -1, 1, 0, 0]) * quarter
    return np.stack([np.cos(angles), np.sin(angles)], 1), float(2 * np.sin(quarter / 2))


def counterexample(beta: float) -> tuple[float, float]:
    """Theorem 2's bound for K̃_all at the meeting points (one skip, ReLU), and λ_min."""
    stack, rho = meeting_points()
    bound = printed_bound("relu", 2, coherence(stack[:2]) + 2 * rho + rho**2, r=1)
    kernel = joint_kernel(infinite_ntk(Residual(), "1", stack), "joint_robust", beta, 2)
    return bound, float(abs(np.linalg.eigvalsh(kernel)[0]))


def too_large(frame: pd.DataFrame, bound: str) -> pd.Series:
    """Whether a bound lies above the least eigenvalue, beyond rounding."""
    return frame[bound] > frame["least"] + frame["rounding"]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Kernels below each bound."""
    whole = frame["skips"].str.fullmatch("1+")
    for kernel, label in (("robust", "K̂_ρ"), ("joint_robust", "K̃_all")):
        for all_skips, words in SKIPS.items():
            part = frame[(whole == all_skips) & (frame["kernel"] == kernel)]
            text = f"theorem 2, {label}, {words}: of {len(part)} kernels below the bound"
            yield Claim(text, "none", exact(too_large(part, "printed").sum()), NONE)
    bound, least = counterexample(beta=1.0)
    text = "theorem 2, K̃_all, all skips, β = 1, two points that meet: λ_min less the bound"
    yield Claim(text, "0 or more", exact(least - bound), Within(low=0))
    wrong = sum(too_large(frame, name).sum() for name in BOUNDS[1:])
    count = frame[[*BOUNDS[1:]]].notna().sum().sum()
    text = f"the corrected bounds, every kernel and skip pattern: of {count} below"
    yield Claim(text, "none", exact(wrong), Corrected(NONE))


def figure(frame: pd.DataFrame) -> Figure:
    """Bounds against the least eigenvalue; those above the line are wrong."""
    drawing, axes = panels(2)
    shown = frame[(frame["least"] > 0) & (frame[["printed", "corrected"]] > 0).any(axis=1)]
    whole, least = shown["skips"].str.fullmatch("1+"), shown["least"]
    for axis, bound in zip(axes, BOUNDS, strict=False):
        for colour, (all_skips, label) in enumerate(SKIPS.items()):
            part = shown[(whole == all_skips) & (shown[bound] > 0)]
            style = {"ms": 2, "color": COLOURS[colour], "label": label}
            axis.loglog(part["least"], part[bound], ".", **style)
        axis.plot((1e-8, 10), (1e-8, 10), color="black", lw=0.8, label="bound = λ_min")
        axis.set(title=bound, ylabel="lower bound", ylim=(1e-8, 3))
        axis.set_xlim(least.min() / 2, least.max() * 2)
    annotate(drawing, axes[0], "least eigenvalue λ_min of the kernel of infinite width", 3)
    return drawing


STUDY = Study(
    "Lower bounds of the least eigenvalue, printed and corrected (T2)",
    measure,
    cases={"size": ("20x128", "50x1024", "50x32"), "activation": ("relu", "tanh", "swish")}
    | {"skips": ("1", "0", "111", "101", "011", "000"), "points": ("random", "PGD")}
    | {"rho": (0.0, 0.1)},
    fixed={"beta": 0.5, "m": 128, "attack_steps": 10, "seed": 0, "tolerance": 1e-9},
    full={"size": ("20x128", "50x1024", "50x32", "200x3072"), "rho": (0.0, 0.05, 0.1, 0.2)}
    | {"activation": ("relu", "leaky_relu", "tanh", "sigmoid", "swish")},
    claims=claims,
    figure=figure,
    note="N points in d dimensions (`size` is NxD), at random in their caps, and by PGD on a "
    "network of width m. With all skips no sampled kernel lies below the printed bound; the two "
    "points that meet are a counterexample for K̃_all.",
)
