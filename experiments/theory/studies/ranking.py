"""T3: whether the leading terms of theorem 1 rank networks by their errors."""

from contextlib import suppress
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jaxtyping import Array, PyTree

from cells.residual import ACTIVATIONS, Residual
from experiments.plotting import COLOURS, panels
from experiments.study import Outcome, Study
from experiments.theory.energies import label_energy_binary, margin_energy
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.sphere import CapAttack
from experiments.theory.studies.setting import Rows, grid, of_width, stacked
from experiments.theory.studies.statistics import Findings, agreement, positive, slope
from experiments.theory.tasks import Points, margin, on_sphere, two_classes
from experiments.theory.training import steps
from experiments.theory.trials import RULES, bound_terms, step_size
from ntkscore.data.images import load_images
from ntkscore.errors import InputError

N, DIMENSION, MU, RHO, WIDTH, SEEDS = 300, 10, 0.25, 0.15, 256, 3
SIDE = 10
"""Pixels of a side of the digits."""
BETAS = (0.0, 0.5, 1.0)
SIGMAS = ("relu", "leaky_relu", "tanh", "swish", "sigmoid")
PATTERNS = ("1", "0", "11", "00", "10", "111", "000", "110")
"""Depths 3, 4 and 5: all skips, none, and the last one missing."""
FACTORS = {"theorem": 4.0, "scaled": 1.0, "constant": 1.0}
"""ν of each rule."""
ERRORS = {"clean error": "clean", "PGD error": "robust"}
"""Errors, and whose terms bound them."""
OF = tuple(ERRORS.values())
TERMS = {
    "margin": "margin_term",
    "label": "label_term",
    "scaled": "scaled_term",
    "eigenvalue": "eigen_term",
    "−max diagonal": "smallness",
}
"""Predictors of an error, and their columns for it."""
COUNTS = ("missing skips", "depth")
SIZES = (100, 300, 1000)
FULL = {"N": 1000, "WIDTH": 1024, "SEEDS": 10}


@partial(jax.jit, static_argnames=("space", "shape"))
def attacked(
    space: Residual, shape: tuple[str, ...], weights: PyTree, code: Array, x: Array, y: Array
) -> Array:
    """X, X_ρ and X_2ρ of a network at initialisation."""
    return stacked(CapAttack(RHO), space.model(shape, weights, code, x), weights, x, y)


@partial(jax.jit, static_argnames=("space", "shape"))
def trained(
    space: Residual,
    shape: tuple[str, ...],
    weights: PyTree,
    code: Array,
    x: Array,
    y: Array,
    runs: tuple[Array, Array],
) -> tuple[Array, Array]:
    """Progressive errors of Algorithm 1, clean and attacked, for pairs (β, γ)."""
    model = space.model(shape, weights, code, x)

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        beta, gamma = pair
        _, clean, robust = steps(model, CapAttack(RHO), weights, x, y, beta, gamma)
        # What is not finite counts as wrong.
        return jnp.mean(~(clean >= 0)), jnp.mean(~(robust >= 0))

    return lax.map(one, runs)


def tasks(study: Study) -> dict[str, list[Points]]:
    """Points by seed of the two tasks; digits only where their files are."""
    rngs = lambda: map(np.random.default_rng, range(SEEDS))  # noqa: E731
    drawn = {"margin": [margin(N, DIMENSION, MU, rng) for rng in rngs()]}
    with suppress(InputError):
        digits = load_images("mnist", study.data_dir)
        drawn["digits 0 and 1"] = [two_classes(digits, (0, 1), N, rng, SIDE) for rng in rngs()]
    return drawn


def rows(study: Study) -> Rows:
    """A row for each task, network, seed, β and rule."""
    for (task, points), sigma, pattern in product(tasks(study).items(), SIGMAS, PATTERNS):
        space = Residual(activation=sigma, output_scale="sqrt_width")
        wide = of_width(space, WIDTH, points[0].x)
        skips, lipschitz = wide.parse(pattern), ACTIVATIONS[sigma].lipschitz
        shape, code = wide.shape(skips), jnp.asarray(wide.encode(skips))
        for seed, (x, y) in enumerate(points):
            weights = wide.draw(shape, seed, jnp.float32)
            network = (wide, shape, weights, code, jnp.float32(x), jnp.float32(y))
            gram = infinite_ntk(space, pattern, on_sphere(np.asarray(attacked(*network))))
            found = {beta: bound_terms(gram, y, skips.layers, beta) for beta in BETAS}
            runs = [
                (beta, rule, step_size(rule, of, N, WIDTH, lipschitz, FACTORS[rule]))
                for beta, of in found.items()
                for rule in RULES
            ]
            betas, _, gammas = zip(*runs, strict=True)
            errors = trained(*network, (jnp.float32(betas), jnp.float32(gammas)))
            for (beta, rule, gamma), clean, robust in zip(runs, *errors, strict=True):
                known = bool(np.isfinite(gamma))
                yield {
                    "task": task,
                    "beta": beta,
                    "network": f"{sigma} {pattern}",
                    "missing skips": pattern.count("0"),
                    "depth": skips.layers,
                    "seed": seed,
                    "rule": rule,
                    "gamma": gamma,
                    "clean error": float(clean) if known else np.nan,
                    "PGD error": float(robust) if known else np.nan,
                    **found[beta],
                    **{f"{k}_smallness": -float(found[beta][f"{k}_largest"]) for k in OF},
                }


def of_sizes() -> pd.DataFrame:
    """q/N and s/N of growing samples, for the networks of three layers with their skip."""
    found = []
    for case in grid(sigma=("relu", "swish"), seed=range(SEEDS), N=SIZES):
        sigma, seed, n = case.values()
        x, y = margin(n, DIMENSION, MU, np.random.default_rng(seed))
        kernel = infinite_ntk(Residual(activation=sigma, output_scale="sqrt_width"), "1", x)
        q, s = label_energy_binary(kernel, y).value, margin_energy(kernel, y).value
        found.append(case | {"q": q / n, "s": s / n})
    return pd.DataFrame(found)


def run(study: Study) -> Outcome:
    """Agreement of the terms with the errors, beside counting skips."""
    frame = pd.DataFrame(rows(study))
    findings, summary = Findings(), []
    theorem = frame[frame["rule"] == "theorem"]
    for task, part in theorem.groupby("task", sort=False):
        statements = product(ERRORS.items(), ("label", "margin"), (None, "missing skips"))
        for (error, of), term, control in statements:
            column, parts = f"{of}_{term}_term", part.groupby("beta")
            found = [agreement(one, error, column, control) for _, one in parts]
            says = "says more than the skips missing" if control else "ranks networks"
            findings.add(
                f"{task}, {error}: the {term} term {says}",
                "" if control else "bounds the error",
                "; ".join(str(each.mean) for each in found),
                positive(found),
                f"Spearman at β = {', '.join(f'{b:g}' for b in BETAS)}, "
                f"{found[0].networks} networks, {SEEDS} seeds",
            )
    for (task, rule), part in frame.groupby(["task", "rule"], sort=False):
        for error, of in ERRORS.items():
            predictors = {name: f"{of}_{term}" for name, term in TERMS.items()}
            predictors |= {name: name for name in COUNTS}
            if rule != RULES[0]:
                predictors = {name: predictors[name] for name in ("margin", "missing skips")}
            for name, column in predictors.items():
                found = [agreement(one, error, column) for _, one in part.groupby("beta")]
                row = {"task": task, "steps": rule, "error": error, "by": name}
                means = zip(BETAS, found, strict=True)
                summary.append(row | {f"β = {beta:g}": str(each.mean) for beta, each in means})
    sizes = of_sizes()
    for sigma, part in sizes.groupby("sigma", sort=False):
        margin_slope, label_slope = (slope(part, "N", name) for name in "sq")
        findings.add(
            f"{sigma}, one skip: s/N falls as 1/N",
            "−1",
            str(margin_slope),
            abs(margin_slope.value + 1) <= 0.2,
            "slope in N, within 0.2",
        )
        findings.add(
            f"{sigma}, one skip: q/N falls with N",
            "falls",
            str(label_slope),
            not (label_slope.low > -0.1),
            "slope in N; with exact labels the printed form does not fall",
        )
    figure, axes = panels(2, 1.2)
    shown = theorem[(theorem["task"] == "margin") & (theorem["beta"] == BETAS[1])]
    for axis, (error, of) in zip(axes, ERRORS.items(), strict=True):
        term = f"{of}_margin_term"
        means = shown.groupby(["network", "missing skips"])[[error, term]].mean()
        for colour, (missing, one) in enumerate(means.groupby("missing skips")):
            style = {"ms": 3, "color": COLOURS[colour], "label": f"{missing} missing"}
            axis.semilogx(one[term], one[error], "o", **style)
        axis.set(xlabel="leading term, margin form", ylabel=error)
    axes[0].legend(fontsize="x-small", title="skips", title_fontsize="x-small")
    unknown = int(theorem[[f"{of}_margin_term" for of in OF]].isna().any(axis=1).sum())
    return Outcome(
        frame,
        figure,
        {"n": N, "d": DIMENSION, "mu": MU, "rho": RHO, "m": WIDTH, "seeds": SEEDS, "nu": FACTORS},
        (
            f"{len(SIGMAS) * len(PATTERNS)} networks: five activations, depths 3 to 5, all skips, "
            f"none, the last one missing. Algorithm 1 over {N} points, its progressive errors; "
            "kernels at infinite width, at points attacked at initialisation.",
            f"Of {len(theorem)} rows {unknown} have no margin energy (not_converged, singular); "
            "their networks are left out of that term's correlations.",
        ),
        tuple(findings),
        pd.DataFrame(summary),
    )
