"""What every figure shares: size, fonts, colours that colour-blind readers can tell apart."""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

COLUMN = 3.4
"""Width of a paper's column in inches."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette."""

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
