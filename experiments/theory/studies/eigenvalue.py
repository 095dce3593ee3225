"""T2: theorem 2's lower bound of the least eigenvalue, as printed and corrected."""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from attacks import twice
from cells.residual import Residual
from experiments.plotting import COLOURS, panels
from experiments.study import Outcome, Study
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.least_eigenvalue import KERNELS, lower_bound, lower_bound_at, printed_bound
from experiments.theory.sphere import CapAttack, project_to_cap
from experiments.theory.studies.setting import LABELS, Rows, on_points
from experiments.theory.studies.statistics import Findings
from experiments.theory.tasks import margin, on_sphere
from experiments.theory.training import input_gradient
from ntkscore.data.images import load_images
from ntkscore.errors import InputError
from ntkscore.kernels.joint import joint_kernel

SIZES = ((20, 128), (50, 1024), (50, 32))
RADII = (0.0, 0.05, 0.1, 0.2)
ACTIVATIONS = ("relu", "leaky_relu", "tanh", "sigmoid", "swish")
PATTERNS = ("1", "0", "111", "101", "011", "000")
SKIPS = {True: "all skips", False: "a skip missing"}
WIDTH, BETA, SEED = 128, 0.5, 0
TOLERANCE = 1e-9
"""Share of the largest eigenvalue that rounding may take from the least."""
FULL = {"SIZES": ((20, 128), (50, 1024), (50, 32), (200, 3072))}


def stacks(
    n: int, d: int, activation: str, layers: int
) -> Iterator[tuple[str, str, float, np.ndarray]]:
    """Kind of points, skip pattern, ρ and the stack X, X_ρ, X_2ρ, at random and by PGD."""
    rng = np.random.default_rng(SEED)
    x, y = margin(n, d, 0.0, rng)
    directions = [margin(n, d, 0.0, rng).x for _ in range(2)]
    space = on_points(Residual(activation=activation, width=WIDTH), x)
    shape = (activation,) * (layers - 1)
    weights = space.draw(shape, SEED, jnp.float32)
    points, labels = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    @jax.jit
    def attacked(code: jax.Array, rho: jax.Array) -> tuple[jax.Array, jax.Array]:
        model = space.model(shape, weights, code, points)
        return twice(CapAttack(rho), input_gradient(model, weights, labels), points)

    for rho in RADII:
        once = project_to_cap(jnp.asarray(directions[0], jnp.float32), points, rho)
        again = project_to_cap(jnp.asarray(directions[1], jnp.float32), once, rho)
        for pattern in PATTERNS:
            if len(pattern) == layers - 2:
                yield "random", pattern, rho, on_sphere(np.concatenate([x, once, again]))
                by_attack = attacked(jnp.asarray(space.encode(space.parse(pattern))), rho)
                yield "PGD", pattern, rho, on_sphere(np.concatenate([x, *by_attack]))


def coherence(x: np.ndarray) -> float:
    """max_{i≠j} |⟨x_i, x_j⟩|."""
    inner = np.abs(x @ x.T)
    return float(np.max(inner - np.diag(np.diag(inner))))


def cases() -> Rows:
    """A row for each network, set of points and kernel: its least eigenvalue and the bounds."""
    for (n, d), activation, layers in itertools.product(SIZES, ACTIVATIONS, (3, 5)):
        space = Residual(activation=activation)
        for kind, pattern, rho, stack in stacks(n, d, activation, layers):
            c, gram = coherence(stack[:n]), infinite_ntk(space, pattern, stack)
            printed = printed_bound(activation, n, c + 2 * rho + rho**2)
            for i, kernel in enumerate(KERNELS):
                of_points = kernel in KERNELS[:3]
                part = slice(i * n, (i + 1) * n)
                matrix = gram[part, part] if of_points else joint_kernel(gram, kernel, BETA, n)
                spectrum = np.linalg.eigvalsh(matrix)
                known = lower_bound_at(space, pattern, stack[part]).value if of_points else np.nan
                yield {
                    "N": n,
                    "d": d,
                    "activation": activation,
                    "skips": pattern,
                    "points": kind,
                    "rho": rho,
                    "kernel": kernel,
                    "least": float(spectrum[0]),
                    "tolerance": TOLERANCE * float(spectrum[-1]),
                    "printed": printed.value,
                    "corrected": lower_bound(kernel, space, pattern, n, c, rho).value,
                    "at the points": known,
                }


def meeting_points() -> tuple[np.ndarray, float]:
    """Two points of the circle, a chord of 1.4 apart, that two attacks move to their midpoint.

    Returns:
        X, X_ρ and X_2ρ, one below the other (6, 2), and ρ.
    """
    quarter = np.arcsin(1.4 / 2) / 2
    angles = np.array([-2, 2, -1, 1, 0, 0]) * quarter
    return np.stack([np.cos(angles), np.sin(angles)], 1), float(2 * np.sin(quarter / 2))


def counterexample() -> tuple[float, dict[float, float]]:
    """Theorem 2's bound for K̃_all at the meeting points (one skip, ReLU), and λ_min by β."""
    stack, rho = meeting_points()
    bound = printed_bound("relu", 2, coherence(stack[:2]) + 2 * rho + rho**2, r=1).value
    gram = infinite_ntk(Residual(), "1", stack)
    kernels = {beta: joint_kernel(gram, "joint_robust", beta, 2) for beta in (0.7, 0.9, 1.0)}
    return bound, {beta: abs(np.linalg.eigvalsh(k)[0]) for beta, k in kernels.items()}


def of_images(study: Study) -> tuple[str, ...]:
    """The printed bound at 50 images; nothing where they are missing."""
    try:
        images = load_images("cifar10", study.data_dir)
    except InputError:
        return ()
    pixels = images.pixels[:50].astype(float)
    normalised = (pixels - images.mean) / images.std
    texts = []
    for what, points in (("raw", pixels), ("with their channels normalised", normalised)):
        x = on_sphere(points.reshape(50, -1))
        c = coherence(x)
        bound = printed_bound("relu", 50, c)
        least = np.linalg.eigvalsh(infinite_ntk(Residual(), "1", x))[0]
        texts.append(
            f"{what}: largest inner product {c:.3f}, bound {bound.value:.0e} (order "
            f"{bound.order}), λ_min {least:.3f}"
        )
    return (f"50 images of CIFAR-10, relu, one skip, unattacked: {'; '.join(texts)}.",)


def run(study: Study) -> Outcome:
    """Count the violations of each bound, and compare it with the eigenvalue."""
    frame = pd.DataFrame(cases())
    whole, most = frame["skips"].str.fullmatch("1+"), frame["least"] + frame["tolerance"]
    findings = Findings()
    for kernel, (all_skips, words) in itertools.product(("robust", "joint_robust"), SKIPS.items()):
        part = frame[(whole == all_skips) & (frame["kernel"] == kernel)]
        wrong = (part["printed"] > most[part.index]).sum()
        findings.add(
            f"theorem 2 for {LABELS[kernel]}, {words}, points sampled",
            "bound ≤ λ_min",
            f"{wrong} of {len(part)} above",
            not wrong,
            f"the bound is above 0 in {(part['printed'] > 0).sum()}",
        )
    bound, least = counterexample()
    findings.add(
        f"theorem 2 for {LABELS['joint_robust']}, all skips, two points that meet",
        "bound ≤ λ_min",
        f"bound {bound:.4f}; λ_min "
        + ", ".join(f"{value:.4f} at β = {beta:g}" for beta, value in least.items()),
        all(bound <= value for value in least.values()),
        "a chord of 1.4 apart, each moved twice by ρ = 0.385 to their midpoint",
    )
    bounds = [frame[name].dropna() for name in ("corrected", "at the points")]
    wrong = sum((values > most[values.index]).sum() for values in bounds)
    findings.add(
        "the corrected bound, every kernel and skip pattern",
        "bound ≤ λ_min",
        f"{wrong} of {sum(map(len, bounds))} above",
        not wrong,
        "both from what is known before the attack and from the points in hand",
    )
    summary = []
    for (kernel, all_skips), part in frame.groupby(["kernel", whole], sort=False):
        row: dict[str, object] = {"kernel": kernel, "skips": "all" if all_skips else "not all"}
        for bound in ("printed", "corrected", "at the points"):
            above = part[part[bound] > 0]
            row[f"{bound}: above 0"] = f"{len(above)} of {part[bound].notna().sum()}"
            row[f"{bound}: λ_min/bound, median"] = float((above["least"] / above[bound]).median())
        summary.append(row)
    figure, axes = panels(2)
    for axis, bound in zip(axes, ("printed", "corrected"), strict=True):
        for colour, (all_skips, label) in enumerate(SKIPS.items()):
            part = frame[(whole == all_skips) & (frame[bound] > 0) & (frame["least"] > 0)]
            axis.loglog(part["least"], part[bound], ".", ms=2, color=COLOURS[colour], label=label)
        ends = (frame["least"].clip(lower=1e-8).min(), frame["least"].max())
        axis.plot(ends, ends, color="black", lw=0.8)
        axis.set(title=bound, xlabel="least eigenvalue", ylabel="bound", ylim=(1e-10, 3))
    axes[0].legend()
    return Outcome(
        frame,
        figure,
        {"sizes": SIZES, "radii": RADII, "activations": ACTIVATIONS, "skips": PATTERNS},
        (
            "Kernels of infinite width; a bound above the line is wrong. Points at random in their "
            "caps, and by PGD on a network of width 128.",
            *of_images(study),
        ),
        tuple(findings),
        pd.DataFrame(summary),
    )
