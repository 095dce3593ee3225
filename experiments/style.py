"""What every figure shares: size, fonts, colours that colour-blind readers can tell apart."""

from pathlib import Path

import matplotlib

from ntkscore.names import metric_name

matplotlib.use("agg")
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

COLUMN = 3.4
"""Width of a paper's column in inches."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette."""

DATASET_LABELS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet16-120": "ImageNet16-120",
}

plt.rcParams |= {
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.hashsalt": "ntkscore",
}


def metric_label(metric: str) -> str:
    """How a figure names a metric: `val_pgd_8_acc` is "PGD 8/255"."""
    name = metric_name(metric)
    attack, _, levels = name.removeprefix("val_").removesuffix("_acc").partition("_")
    known = {"val_acc": "clean", "autoattack": "AutoAttack", "robust_mean": "mean robust"}
    return known.get(name, f"{attack.upper()} {levels}/255")


SCORE_LABELS = {
    "frobenius": "Frobenius",
    "lambda_min": "λ_min",
    "lambda_min_normalized": "λ_min/trace",
    "condition": "condition",
    "effective_rank": "effective rank",
    "label_energy": "label energy",
}


def score_label(name: str) -> str:
    """How a figure names a score or a sum: `params+clean.lambda_min` is "params + clean λ_min"."""
    terms = [term.rpartition(".") for term in name.split("+")]
    return " + ".join(
        f"{kernel} {SCORE_LABELS.get(score, score)}".strip() for kernel, _, score in terms
    )


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG.

    Args:
        figure: to write; it is closed.
        stem: path without the ending.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return paths
