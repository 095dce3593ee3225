"""T3: whether the leading terms of theorem 1 rank networks by their errors.

Theorem 1 bounds errors and does not say so: the question is ours. Networks of ten layers have 256
patterns of skips. Each missing skip divides the kernel by L² and more, so that all terms grow with
the number of missing skips; among networks that miss as many, they depend on which are missing.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jaxtyping import Array, PyTree
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import fcluster, linkage

from cells.residual import ACTIVATIONS, Residual
from experiments.plotting import panels
from experiments.study import OURS, Outcome, Study, verdict
from experiments.theory.energies import label_energy_binary, margin_energy
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.sphere import CapAttack
from experiments.theory.studies.setting import Rows, grid, stacked, start
from experiments.theory.studies.statistics import (
    Agreement,
    Findings,
    agreement,
    positive,
    slope,
)
from experiments.theory.tasks import Points, margin, on_sphere, two_classes
from experiments.theory.training import steps
from experiments.theory.trials import bound_terms, step_size
from ntkscore.data.images import load_images
from ntkscore.errors import InputError

N, DIMENSION, MU, RHO, WIDTH, SEEDS = 200, 10, 0.25, 0.15, 128, 3
BETA = 0.5
"""At 0 nothing is attacked, so that there is no PGD error."""
SIDE = 10
"""Pixels of a side of the digits."""
LAYERS = 10
"""Of the networks with every pattern of skips."""
SIGMAS = ("relu", "leaky_relu", "tanh", "swish", "sigmoid")
PATTERNS = ("1", "0", "11", "00", "10", "111", "000", "110")
"""Depths 3, 4 and 5: all skips, none, and the last one missing."""
EVERY, SHALLOW = "every pattern", "five activations"
FACTORS = {
    EVERY: {"theorem": 1.0, "scaled": 1.0, "constant": 1.0},
    SHALLOW: {"theorem": 4.0, "scaled": 1.0, "constant": 1.0},
}
"""ν of each rule. With 4, deep networks without skips overflow under the theorem's rule, and
under scaled steps most networks of ten layers do with 1."""
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
ENERGIES = {"label": "q", "margin": "s"}
"""The energies of the theorem's term and of its proof's."""
MISSING, OTHER = "missing skips", "another seed's error"
SAYS = {
    "all": "ranks networks by error",
    "given": "says more than the number of missing skips",
    "equals": "ranks networks that miss as many skips",
}
"""Networks that are compared, and what a correlation over them says of a term."""
SIZES = (100, 300, 1000)
FULL = {"N": 1000, "WIDTH": 1024, "SEEDS": 10}


def populations() -> dict[str, list[tuple[str, str]]]:
    """Activations and skip patterns of the networks that are compared with each other."""
    every = Residual(depth=LAYERS).architectures("all")
    return {
        EVERY: [("relu", skips.pattern) for skips in every],
        SHALLOW: list(product(SIGMAS, PATTERNS)),
    }


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
    gammas: Array,
) -> tuple[Array, Array, Array]:
    """Progressive errors of Algorithm 1, clean and attacked, for step sizes γ.

    The third array is the share of margins that are not finite; they count as wrong.
    """
    model = space.model(shape, weights, code, x)

    def one(gamma: Array) -> tuple[Array, Array, Array]:
        _, clean, robust = steps(model, CapAttack(RHO), weights, x, y, jnp.float32(BETA), gamma)
        wrong_clean, wrong_robust = (jnp.mean(~(each >= 0)) for each in (clean, robust))
        return wrong_clean, wrong_robust, jnp.mean(~jnp.isfinite(clean))

    return lax.map(one, gammas)


def tasks(study: Study) -> dict[str, list[Points]]:
    """Points by seed of the two tasks; digits only where their files are."""
    rngs = lambda: map(np.random.default_rng, range(SEEDS))  # noqa: E731
    drawn = {"margin": [margin(N, DIMENSION, MU, rng) for rng in rngs()]}
    with suppress(InputError):
        digits = load_images("mnist", study.data_dir)
        drawn["digits 0 and 1"] = [two_classes(digits, (0, 1), N, rng, SIDE) for rng in rngs()]
    return drawn


def rows(study: Study) -> Rows:
    """A row for each population, task, network, seed and rule."""
    for (population, networks), (task, points) in product(
        populations().items(), tasks(study).items()
    ):
        for sigma, pattern in networks:
            for row in of_network(sigma, pattern, points, FACTORS[population]):
                yield {"population": population, "task": task} | row


def of_network(
    sigma: str, pattern: str, points: list[Points], factors: dict[str, float]
) -> Iterator[dict[str, Any]]:
    """A network's errors and terms, for each seed and rule.

    Patterns are data: networks of one depth and activation share a compiled program.
    """
    space = Residual(activation=sigma, output_scale="sqrt_width", width=WIDTH)
    layers, lipschitz = space.parse(pattern).layers, ACTIVATIONS[sigma].lipschitz
    for seed, (x, y) in enumerate(points):
        network = (*start(space, pattern, x, seed), jnp.float32(x), jnp.float32(y))
        gram = infinite_ntk(space, pattern, on_sphere(np.asarray(attacked(*network))))
        found = bound_terms(gram, y, layers, BETA)
        gammas = [step_size(r, found, N, WIDTH, lipschitz, nu) for r, nu in factors.items()]
        errors = np.asarray(trained(*network, jnp.float32(gammas)), float)
        errors = np.where(np.isfinite(gammas), errors, np.nan)
        for rule, gamma, (clean, robust, overflow) in zip(factors, gammas, errors.T, strict=True):
            yield {
                "network": f"{sigma} {pattern}",
                MISSING: pattern.count("0"),
                "depth": layers,
                "seed": seed,
                "rule": rule,
                "gamma": gamma,
                "clean error": clean,
                "PGD error": robust,
                "overflow": overflow,
                **found,
                **{f"{k}_smallness": -float(found[f"{k}_largest"]) for k in OF},
            }


def among_equals(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Columns as ranks among networks with as many missing skips, from −½ to ½, by seed."""
    keys = [frame["seed"], frame[MISSING]]
    ranks = frame[columns].groupby(keys).rank(pct=True)
    return frame.assign(**(ranks - ranks.groupby(keys).transform("mean")))


def correlation(frame: pd.DataFrame, error: str, column: str, among: str = "all") -> Agreement:
    """Spearman of an error and a predictor over the networks that `SAYS` names."""
    if among == "equals":
        frame = among_equals(frame, [error, column])
    return agreement(frame, error, column, MISSING if among == "given" else None)


def with_other_seed(frame: pd.DataFrame, error: str) -> pd.DataFrame:
    """With a network's error of the seed before: how far errors repeat bounds any correlation."""
    ordered = frame.sort_values(["network", "seed"])
    rolled = ordered.groupby("network")[error].transform(lambda each: np.roll(each, 1))
    return ordered.assign(**{OTHER: rolled})


def ranked(frame: pd.DataFrame) -> Findings:
    """Whether terms rank networks, by population, task and rule, for both errors at once."""
    findings = Findings()
    for (population, task, rule), part in frame.groupby(["population", "task", "rule"], sort=False):
        asked = product(ENERGIES, SAYS) if rule == "theorem" else [("margin", "all")]
        for term, among in asked:
            found = [correlation(part, e, f"{of}_{term}_term", among) for e, of in ERRORS.items()]
            seeds = [f"{each.seeds.min():.2f} to {each.seeds.max():.2f}" for each in found]
            lost = (part["overflow"] > 0).mean() > 0.5
            findings.add(
                f"{population}, {task}, {rule} steps: the {term} term {SAYS[among]}",
                OURS,
                "; ".join(str(each.mean) for each in found),
                "not decidable" if lost else positive(found),
                f"Spearman with clean and PGD error, {found[0].networks} networks; "
                f"single seeds {', '.join(seeds)}; each interval and all seeds must lie above 0"
                + ("; most runs overflow" if lost else ""),
            )
    return findings


def bounded(frame: pd.DataFrame) -> Findings:
    """Whether errors are below the terms: below the bound, whose constants are above 1."""
    findings = Findings()
    theorem = frame[frame["rule"] == "theorem"]
    for population, (term, energy) in product(FACTORS, ENERGIES.items()):
        part = theorem[theorem["population"] == population]
        errors = part[list(ERRORS)].to_numpy(float)
        terms = part[[f"{of}_{term}_term" for of in OF]].to_numpy(float)
        known = np.isfinite(errors) & np.isfinite(terms)
        above, speaks = int((errors > terms)[known].sum()), int((terms[known] < 1).sum())
        findings.add(
            f"{population}: errors are at most the {term} term, √(L²{energy}/N)",
            "at most constants times it" if term == "label" else "its proof",
            f"{above} of {known.sum()} above; least term {np.nanmin(terms):.2f}",
            verdict(above == 0 and speaks > 0, wrong=False),
            f"a term of 1 or more says nothing, as {known.sum() - speaks} do",
        )
    return findings


def of_sizes() -> Rows:
    """q/N and s/N of growing samples, for the networks of three layers with their skip."""
    for case in grid(sigma=("relu", "swish"), seed=range(SEEDS), N=SIZES):
        sigma, seed, n = case.values()
        x, y = margin(n, DIMENSION, MU, np.random.default_rng(seed))
        kernel = infinite_ntk(Residual(activation=sigma, output_scale="sqrt_width"), "1", x)
        q, s = label_energy_binary(kernel, y).value, margin_energy(kernel, y).value
        yield case | {"q/N": q / n, "s/N": s / n}


def falling() -> Findings:
    """Whether the terms fall with the number of points, and how fast."""
    findings = Findings()
    for sigma, part in pd.DataFrame(of_sizes()).groupby("sigma", sort=False):
        for name in ("s/N", "q/N"):
            found = slope(part, "N", name)
            what, why = f"{sigma}, one skip: {name} falls", f"slope in N, {SIZES[0]} to {SIZES[-1]}"
            needed = "else the bound does not fall with N"
            findings.measure(f"{what} with N", needed, found, -np.inf, 0, why)
            if name == "s/N":
                findings.measure(f"{what} as 1/N", OURS, found, -1.1, -0.9, why)
    return findings


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Every predictor's correlation with both errors, over all networks and among equals."""
    table = []
    for (population, task, rule), part in frame.groupby(["population", "task", "rule"], sort=False):
        names = [*TERMS, MISSING, "depth", OTHER] if rule == "theorem" else ["margin", OTHER]
        for name in names:
            row = {"networks": population, "task": task, "steps": rule, "by": name}
            for error, of in ERRORS.items():
                column = f"{of}_{TERMS[name]}" if name in TERMS else name
                for among in ("all", "equals"):
                    one = with_other_seed(part, error)
                    groups = [one["seed"], one[MISSING]] if among == "equals" else one["seed"]
                    alike = one[column].groupby(groups).nunique().max() <= 1
                    head = error if among == "all" else f"{error}, as many missing"
                    row[head] = "" if alike else str(correlation(one, error, column, among).mean)
            table.append(row)
    return pd.DataFrame(table)


def distinct(study: Study) -> str:
    """How many of all patterns' kernels differ, up to their scale and by more than a share."""
    x = tasks(study)["margin"][0].x
    space, (above, right) = Residual(), np.triu_indices(len(x))
    kernels = np.array([infinite_ntk(space, p, x)[above, right] for _, p in populations()[EVERY]])
    scaled = kernels / kernels.max(1, keepdims=True)
    joined = linkage(scaled, "complete", "chebyshev")
    groups = [fcluster(joined, each, "distance").max() for each in (1e-4, 0.01)]
    return (
        f"The {len(kernels)} patterns' kernels, each over its largest entry, form {groups[0]} "
        f"groups whose entries agree to 0.0001, and {groups[1]} that agree to 0.01; their "
        f"largest entries range from {kernels.max(1).min():.1e} to {kernels.max():.2g}."
    )


def drawn(frame: pd.DataFrame) -> Figure:
    """Errors of every pattern against the margin term, by the number of missing skips."""
    figure, axes = panels(2, 1.2)
    chosen = (frame["population"] == EVERY) & (frame["rule"] == "theorem")
    shown = frame[chosen & (frame["task"] == "margin")]
    for axis, (error, of) in zip(axes, ERRORS.items(), strict=True):
        term = f"{of}_margin_term"
        means = shown.groupby(["network", MISSING])[[error, term]].mean().reset_index()
        points = axis.scatter(means[term], means[error], 6, means[MISSING], cmap="viridis")
        axis.set(xlabel="leading term, margin form", ylabel=error, xscale="log")
    figure.colorbar(points, ax=axes, label=MISSING)
    return figure


def run(study: Study) -> Outcome:
    """Agreement of the terms with the errors, beside counting skips."""
    frame = pd.DataFrame(rows(study))
    counts = frame.groupby(["population", "rule"], sort=False)["overflow"]
    overflows = [
        f"{population}, {rule}: {int((part > 0).sum())} of {len(part)}"
        for (population, rule), part in counts
    ]
    unknown = int(frame[[f"{of}_margin_term" for of in OF]].isna().any(axis=1).sum())
    return Outcome(
        frame,
        drawn(frame),
        {"n": N, "d": DIMENSION, "mu": MU, "rho": RHO, "m": WIDTH, "seeds": SEEDS}
        | {"beta": BETA, "layers": LAYERS, "nu": FACTORS},
        (
            f"{EVERY.capitalize()}: {2 ** (LAYERS - 2)} ReLU networks of {LAYERS} layers. "
            f"{SHALLOW.capitalize()}: {len(SIGMAS) * len(PATTERNS)} networks of 3 to 5 layers, all "
            f"skips, none, the last one missing. Algorithm 1 over {N} points at β = {BETA:g}, its "
            "progressive errors; kernels at infinite width, at points attacked at initialisation.",
            distinct(study),
            f"Runs whose margins overflow: {'; '.join(overflows)}.",
            f"Of {len(frame)} rows {unknown} have no margin energy (not_converged, singular); "
            "their networks are left out of that term's correlations.",
        ),
        (*ranked(frame), *bounded(frame), *falling()),
        summary(frame),
    )
