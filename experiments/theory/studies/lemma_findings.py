"""Verdicts on the lemmas behind theorem 1 and corollary 1, from what `lemmas` measured (T7)."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.plotting import panels
from experiments.study import Finding
from experiments.theory.studies.setting import curve, lines
from experiments.theory.studies.statistics import Findings, slope


def tightness(part: pd.DataFrame) -> float:
    """The median of the bound over what was measured, where that is above zero."""
    positive = part[part["measured"] > 0]
    return float((positive["bound"] / positive["measured"]).median())


WORDS = {
    "all sizes and ζ": "singular values within √m_1 ± √m_2 ± ζ",
    "all sizes": "‖W‖ ≤ 3",
    "W_L": "‖W_L‖ ≤ 3√p",
    "2 + √κ for 3": "corrected, ‖W_l‖ ≤ 2 + √κ with probability 1 − 2e^(−m/2)",
    "features": "change of f_(L−1) in the ball",
    "output": "error of the linearisation at x",
    "attacked output": "error of the linearisation at x̂",
    "loss": "lack of convexity at x",
    "attacked loss": "lack of convexity at x̂",
    "spread": "f as printed, difference of any two losses of the ball",
}
"""Settings of bounds in words."""


def by_lemma(frame: pd.DataFrame) -> list[tuple[Any, pd.DataFrame]]:
    """The rows that have a bound, by lemma and setting, in the order of the lemmas."""
    groups = frame[frame["bound"].notna()].groupby(["lemma", "setting"], sort=False)
    return sorted(groups, key=lambda group: int(group[0][0].split()[0]))


def of_bounds(findings: Findings, frame: pd.DataFrame) -> None:
    """Statements that are inequalities: how many are violated, and how far they are from tight."""
    for (lemma, setting), part in by_lemma(frame[frame["lemma"].str.fullmatch("[0-9]+")]):
        wrong, norms = int(part["above"].sum()), part["norm"].dropna()
        quantity = "‖W_l‖ ≤ 3" if lemma == "9" else "‖W̃ − W‖ ≤ (3 + τ)ρ"
        what = WORDS.get(setting, f"{quantity}, {setting}")
        least = (part["bound"] / part["measured"]).min()
        findings.add(
            f"lemma {lemma}: {what}",
            "measured ≤ bound",
            f"{wrong} of {len(part)} above",
            not wrong,
            f"median norm {norms.min():.2f} to {norms.max():.2f}"
            if len(norms)
            else f"bound over measured: median {tightness(part):.3g}, least {least:.3g}",
        )


def of_identities(findings: Findings, frame: pd.DataFrame) -> None:
    """Lemma 4: what is equal, how far W̃ is, and that there is none for convolutions."""
    inputs = frame[frame["lemma"] == "4"]
    left = float(inputs["left"].max())
    findings.add(
        "lemma 4: features of (x̂, W) and (x, W̃) are equal",
        "equal",
        f"within {left:.0e}",
        left < 1e-12,
        "float64, all layers, pre-activations too",
    )
    wrong = int((inputs["measured"] > inputs["corrected"]).sum())
    findings.add(
        "lemma 4: corrected, ‖W̃ − W‖ ≤ (2 + √(d/m) + τ)ρ for every d",
        "measured ≤ bound",
        f"{wrong} of {len(inputs)} above",
        not wrong,
        f"bound {(inputs['corrected'] / inputs['measured']).median():.2f} times too large",
    )
    shares = frame[frame["lemma"] == "4 for convolutions"].groupby("setting")["measured"].median()
    findings.add(
        "lemma 4 for convolutions, as lemma 12's proof has it",
        "some W̃_1 does it",
        ", ".join(f"{size}: {each:.2f}" for size, each in shares.items()),
        shares.max() < 1e-9,
        "share of W_1 φ(X̂) out of reach of W̃_1 φ(X); zero only for κd ≥ p",
    )


def of_lengths(findings: Findings, frame: pd.DataFrame) -> None:
    """Lemmas 3 and 10: what the lengths of features depend on; and what lemma 12 adds."""
    for lemma in ("3", "10"):
        for setting, part in frame[frame["lemma"] == lemma].groupby("setting"):
            findings.measure(
                f"lemma {lemma}: ‖f_(L−1)‖ does not depend on m" + (f", {setting}" * bool(setting)),
                "slope 0",
                {str(of): slope(one, "m", "measured") for of, one in part.groupby("network")},
                -0.1,
                0.1,
                "slope in m",
            )
    bare = frame[(frame["lemma"] == "3") & frame["network"].str.fullmatch("relu 0+")]
    means = bare.groupby("network")["measured"].mean()
    findings.add(
        "lemma 3: nor on L, without skips",
        "Θ(1)",
        ", ".join(f"L = {len(str(name)) - 3}: {value:.1e}" for name, value in means.items()),
        means.min() > means.max() / 10,
        "each layer divides by about √2 L",
    )
    first = frame[(frame["lemma"] == "10") & frame["κ"].notna()]
    findings.measure(
        "lemma 10: ‖F_1‖ does not depend on κ",
        "slope 0",
        slope(first, "κ", "first"),
        -0.1,
        0.1,
        "√κ but for the ends of the image, so C_fmax has a factor √κ",
    )
    output = first["output"]
    findings.add(
        "lemma 12: its first inequality as printed, at W̃ = W, where it says |f(X, W)| ≤ 0",
        "measured ≤ bound",
        f"{(output > 0).sum()} of {len(output)} above",
        not (output > 0).any(),
        f"mean {output.mean():.2g}; a further −f(x, W) stands in it, which other rows leave out",
    )


def of_orders(findings: Findings, frame: pd.DataFrame) -> None:
    """Orders in τ of lemma 6, and in m of what lemma 7 leaves of √m f."""
    output = frame[(frame["lemma"] == "6") & (frame["setting"] == "output")]
    output = output[output["tau"] < 1]
    for beta, words in ((0.0, "second order: the bound is not tight"), (0.5, "first order")):
        findings.measure(
            f"lemma 6: the error is of order τ, β = {beta:g}",
            "at most τ: a slope of 1 or more",
            slope(output[output["beta"] == beta], "tau", "measured"),
            0.9,
            np.inf,
            f"slope in τ, τ < 1; {words}",
        )
    lazy = frame[frame["lemma"] == "7 for √m f"]
    cases = [*itertools.product(("loss", "attacked loss"), (0.0, 0.5, 1.0)), ("mixture", 0.5)]
    for loss, beta in cases:
        part = lazy[(lazy["beta"] == beta) & (lazy["setting"] == loss)]
        widest = part[part["m"] == part["m"].max()]["measured"].mean()
        findings.measure(
            f"lemma 7 for √m f, τ = R/√m: ε of the {loss} falls with m, β = {beta:g}",
            "falls",
            slope(part, "m", "measured"),
            -np.inf,
            -0.1,
            f"slope in m; {widest:.2g} nats at the largest",
        )


def of_runs(findings: Findings, frame: pd.DataFrame) -> None:
    """Lemmas 8 and 14 for √m f, and corollary 1."""
    for lemma, (beta, loss) in itertools.product(
        ("8", "14"), [*itertools.product((0, 0.5, 1), ("clean", "attacked")), (None, "mixture")]
    ):
        part = frame[(frame["lemma"] == f"{lemma} for √m f") & (frame["setting"] == loss)]
        part = part if beta is None else part[part["beta"] == beta]
        wrong = int(part["above"].sum())
        worst = part.loc[part["measured"].idxmax()]
        findings.add(
            f"lemma {lemma} for √m f: the {loss} loss, "
            + ("every β" if beta is None else f"β = {beta:g}"),
            "excess ≤ 3ε",
            f"{wrong} of {len(part)} above",
            not wrong,
            f"largest {worst['measured']:.2f} nats, 3ε = {worst['bound']:.2f}, "
            f"m = {worst['m']:.0f}, N = {worst['N']:.0f}",
        )
    part = frame[frame["lemma"] == "corollary 1"]
    vacuous, wrong = int((part["bound"] >= 1).sum()), int(part["above"].sum())
    findings.add(
        "corollary 1: error at its step, printed or with a root",
        "O(√(L²q/N)) for m ≥ m*",
        f"{wrong} of {len(part)} above √(L²q/N), which is above 1 in {vacuous}",
        "not decidable",
        f"no constants; m* is {part['width required'].min():.0e} and more, here m = "
        f"{part['m'].max()}; the printed step is {part['q'].min() ** 0.5:.2g} to "
        f"{part['q'].max() ** 0.5:.2g} times that with a root",
    )


def summary_of(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each lemma and setting that have a bound: cases, violations, and tightness."""
    return pd.DataFrame(
        {
            "lemma": lemma,
            "setting": setting,
            "m": " ".join(f"{m:g}" for m in sorted(part["m"].unique())),
            "cases": len(part),
            "above the bound": int(part["above"].sum()),
            "measured, largest": f"{part['measured'].max():.3g}",
            "bound/measured, median": f"{tightness(part):.3g}",
        }
        for (lemma, setting), part in by_lemma(frame[frame["lemma"] != "corollary 1"])
    ).replace("nan", "")


def findings_of(frame: pd.DataFrame) -> tuple[Finding, ...]:
    """The verdicts on all lemmas."""
    findings = Findings()
    for add in (of_bounds, of_identities, of_lengths, of_orders, of_runs):
        add(findings, frame)
    return tuple(findings)


def drawn(frame: pd.DataFrame) -> Figure:
    """How far the bounds are from tight, by radius, and lemma 7's ε by width."""
    figure, axes = panels(2, 1.0)
    for colour, lemma in enumerate(("5", "6", "7", "11", "12", "13")):
        part = frame[frame["lemma"] == lemma]
        ratio = (part["bound"] / part["measured"].clip(lower=1e-12)).groupby(part["tau"]).median()
        curve(axes[0], ratio, f"lemma {lemma}", colour)
    axes[0].set(xlabel="radius τ", ylabel="bound over measured, median")
    lazy = frame[(frame["lemma"] == "7 for √m f") & (frame["network"] == "tanh")]
    for colour, (beta, loss) in enumerate(((0.0, "loss"), (0.5, "loss"), (0.5, "mixture"))):
        part = lazy[(lazy["beta"] == beta) & (lazy["setting"] == loss)]
        lines(axes[1], part, "m", "measured", f"{loss}, β = {beta:g}", colour)
    axes[1].set(xlabel="width m", ylabel="ε of lemma 7, √m f, τ = R/√m")
    axes[0].legend(fontsize="x-small", loc="lower left", ncols=2)
    axes[1].legend(fontsize="x-small")
    return figure
