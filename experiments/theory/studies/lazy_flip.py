"""L2: how short a step flips networks that were trained without leaving their ball."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.stats import binom

from experiments.plotting import COLOURS, panels
from experiments.study import Outcome, Study, Verdict, verdict
from experiments.theory.ball import Reduction, train_inside
from experiments.theory.lazy import flip_along_gradient
from experiments.theory.seeds import Interval, over_seeds
from experiments.theory.studies.digits import drawn, split
from experiments.theory.studies.setting import Rows, grid, lines_by_group
from experiments.theory.studies.statistics import Findings, means_by_seed, slope
from experiments.theory.tasks import Points

SIDES, WIDTHS = (5, 7, 10, 14, 20, 28), (500, 1000)
DEVIATION, SEEDS, IMAGES = 10.0, 5, 60
KAPPAS = (0.9, 1.0, 1.05, 1.1, 1.25, 2.0)
"""Lengths of a step along the gradient, in units of that of a linear function."""
SHARES = [f"κ = {kappa:g}" for kappa in KAPPAS]
"""Columns: whether a step of that length flips the sign."""
SCALES = ("unit",)
LEAST = 100
"""Dimension from which slopes are asked for."""
SKEWED = 0.5
"""Skewness of a histogram beyond which it is not called Gaussian."""
QUANTITIES = {"length": ("‖δ‖", -0.5), "gradient": ("‖∇f‖", 0.5), "step": ("η", -1.0)}
"""An image's quantities: symbol, and the theory's slope in d."""
SYMBOLS = {name: symbol for name, (symbol, _) in QUANTITIES.items()}
SLACK = 0.1
"""How far an interval may reach from the theory's slope."""
FULL = {
    "SIDES": (5, 7, 10, 14, 20, 25, 28),
    "WIDTHS": (1000, 10_000, 100_000),
    "IMAGES": 10_000,
    "SCALES": ("unit", "pixel"),
}


def flips(w: np.ndarray, a: np.ndarray, points: np.ndarray) -> pd.DataFrame:
    """The smallest flipping step of each point, and whether steps of other lengths flip it."""
    out = []
    for x in points:
        flip = flip_along_gradient(w, a, x)
        gradient = (a * (w @ x > 0)) @ w / len(a) ** 0.5
        steps = np.array(KAPPAS) * -flip.output / max(flip.gradient, 1e-300) ** 2
        moved = np.maximum((x + steps[:, None] * gradient) @ w.T, 0) @ a
        row = {
            "status": flip.status,
            "output": flip.output,
            "gradient": flip.gradient,
            "step": flip.step,
            "length": flip.length / np.linalg.norm(x),
            "over linear": flip.length / flip.linear,
        }
        out.append(row | dict(zip(SHARES, moved * flip.output <= 0, strict=True)))
    return pd.DataFrame(out)


def error(w: np.ndarray, a: np.ndarray, points: Points) -> float:
    """Share of the points that are on the wrong side."""
    return float((points.y * (np.maximum(points.x @ w.T, 0) @ a) <= 0).mean())


def flip_rows(
    study: Study, cases: Rows, deviations: tuple[float, ...], reduction: Reduction, images: int
) -> Iterator[pd.DataFrame]:
    """Rows of test images for each case (scale, side, width, seed) and ball.

    One run of training serves the balls of all deviations C₀.
    """
    for case in cases:
        scale, side, width, seed = case.values()
        train, test = split(study, side, seed, scale)
        start, signs, order = drawn(side**2, width, seed)
        x, y = (jnp.asarray(each, jnp.float32) for each in train)
        run = train_inside(order, start, signs, x, y, jnp.asarray(deviations), reduction=reduction)
        a = np.asarray(signs, float)
        for ball, deviation in enumerate(deviations):
            w = np.asarray(run.weights[ball], float)
            yield flips(w, a, test.x[:images]).assign(
                scale=scale,
                d=side**2,
                m=width,
                seed=seed,
                C0=deviation,
                left=run.status[ball],
                steps=int(run.steps[ball]),
                reached=float(run.deviation[ball]),
                error=error(w, a, test),
                tests=len(test.y),
            )


def label(scale: str, width: object) -> str:
    """The legend's text for networks of a width on points of a scale."""
    return f"m = {width}" + ("" if scale == "unit" else f", {scale}")


def below(errors: pd.DataFrame, tests: int, limit: float = 0.01) -> Verdict:
    """The verdict on every network's test error lying below a limit, judged on so many images."""
    wrong, level = (errors * tests).round().to_numpy(), 0.05 / errors.size
    above = binom.sf(wrong - 1, tests, limit) < level
    return verdict((binom.cdf(wrong, tests, limit) < level).all(), above.any())


def of_histograms(findings: Findings, part: pd.DataFrame) -> None:
    """Figure 7: the distributions over the images, at the largest dimension and width."""
    for name, sign in SYMBOLS.items():
        skews = part.groupby("seed")[name].skew().to_numpy()
        findings.measure(
            f"the histogram of {sign} over the images is Gaussian (figure 7)",
            "Gaussian",
            over_seeds(skews, np.mean),
            -SKEWED,
            SKEWED,
            f"skewness, d = {part['d'].iloc[0]}, m = {part['m'].iloc[0]}; the paper has m = 10⁵",
        )
    step = means_by_seed(part, "d", "step", lambda _, steps: float(steps[0]))
    findings.measure(
        "10³ η at the largest d (figure 7)",
        "about 45",
        Interval(*(1000 * each for each in step)),
        15,
        135,
        "a factor of 3 allowed; at length 1 η is at most (|f_0| + C₀)/(d/2), about .03",
    )


def run(study: Study) -> Outcome:
    """Slopes in the dimension, steps that flip, and the gradient against its formula."""
    cases = grid(scale=SCALES, side=SIDES, m=WIDTHS, seed=range(SEEDS))
    frame = pd.concat(flip_rows(study, cases, (DEVIATION,), "mean", IMAGES), ignore_index=True)
    frame["squared"] = frame["gradient"] ** 2
    findings = Findings()
    judged = frame[frame["scale"] == "unit"]
    for width, part in judged.groupby("m"):
        line = [
            means_by_seed(part, "d", "squared", lambda d, g, k=k: float(np.polyfit(d, g, 1)[k]))
            for k in (0, 1)
        ]
        equation = f"m = {width}: ‖∇f‖² = d/2 + c²"
        of_means = "regression of means on d"
        findings.measure(f"{equation}, slope", "1/2", line[0], 0.45, 0.55, of_means)
        most = DEVIATION**2 / 4
        findings.measure(f"{equation}, c²", "c at most C₀/2", line[1], 0, most, of_means)
        for name, (sign, limit) in QUANTITIES.items():
            for where, least in ((f"d ≥ {LEAST}", LEAST), ("all d", 0)):
                fitted = slope(part[part["d"] >= least], "d", name)
                findings.measure(
                    f"m = {width}: slope of {sign} in d, {where}",
                    f"{limit:g}",
                    fitted,
                    limit - SLACK,
                    limit + SLACK,
                    "of logarithms of means",
                )
        flipped = part.groupby("d")[SHARES].mean()
        first, second = flipped["κ = 1.25"], flipped["κ = 2"]
        findings.add(
            f"m = {width}: a step of 1.25 |f|/‖∇f‖² flips the sign (theorem 3.1)",
            "for all points",
            ", ".join(f"d = {d}: {share:.1%}" for d, share in first.items()),
            verdict((first >= 0.99).all(), (second < 0.99).any()),
            "99 % of the test images at every d",
        )
        wrong = 100 * part.groupby(["d", "seed"])["error"].first().unstack("seed")
        findings.add(
            f"m = {width}: test error in %",
            "below 1 % for each trained model",
            ", ".join(f"d = {d}: {seeds.max():.2f}" for d, seeds in wrong.iterrows()),
            below(wrong / 100, int(part["tests"].iloc[0])),
            f"the largest over {wrong.shape[1]} seeds, {part['tests'].iloc[0]} test images; each "
            "network's binomial test at 5 %, corrected for their number",
        )
    last = judged[(judged["d"] == judged["d"].max()) & (judged["m"] == WIDTHS[-1])]
    of_histograms(findings, last)
    figure, axes = panels(4, 0.75)
    lines_by_group(axes, frame, ["scale", "m"], "d", SYMBOLS, label, "dimension d")
    first = judged[judged["m"] == WIDTHS[0]].groupby("d")
    for axis, (name, (*_, limit)) in zip(axes, QUANTITIES.items(), strict=False):
        means = first[name].mean()
        at = means.index.to_numpy(float)
        axis.loglog(at, means.iloc[-1] * (at / at[-1]) ** limit, "--", color="grey", lw=0.8)
    largest = frame[frame["d"] == frame["d"].max()]
    for colour, (group, part) in enumerate(largest.groupby(["scale", "m"], sort=False)):
        style = {"color": COLOURS[colour], "histtype": "step", "density": True}
        axes[3].hist(part["length"].dropna(), 30, label=label(*group), **style)
    axes[3].set(title=f"d = {SIDES[-1] ** 2}", xlabel="‖δ‖/‖x‖", ylabel="density")
    table = frame.groupby(["scale", "m", "d"])
    summary = table[["length", "gradient", "step", "over linear", "error", *SHARES]].mean()
    stuck = int((frame["status"] != "ok").sum())
    inside = int((frame.groupby(["scale", "m", "d", "seed"])["left"].first() == "inside").sum())
    by_width = summary.loc["unit"]["length"].unstack("m")
    ratios = by_width[WIDTHS[-1]] / by_width[WIDTHS[0]]
    sizes = frame[["d", "m"]].drop_duplicates().sort_values(["d", "m"])
    wide = sizes[sizes["m"] >= sizes["d"] ** 2.4]
    return Outcome(
        frame,
        figure,
        {"deviation": DEVIATION, "seeds": SEEDS, "images": IMAGES},
        (
            f"Zeros and ones of MNIST; descent at rate 0.1 in batches of 8 until a neuron is "
            f"further than C₀/√m from its start, C₀ = {DEVIATION:g}; the last weights before it. "
            f"{inside} runs never left; {stuck} of {len(frame)} images have no flipping step. "
            "Dashed: the limits' slopes.",
            "The theorem asks for m ≥ d^2.4, which holds for "
            + (", ".join(f"d = {d}, m = {m}" for d, m in wide.to_numpy()) or "none of these")
            + f"; ‖δ‖ at m = {WIDTHS[-1]} is {ratios.min():.2f} to {ratios.max():.2f} of that at "
            f"m = {WIDTHS[0]}.",
        ),
        tuple(findings),
        summary.round(4).reset_index(),
    )
