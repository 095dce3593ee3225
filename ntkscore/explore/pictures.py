"""Pictures of what a command prints, each a .png, .svg or .pdf file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ntkscore.errors import InputError
from ntkscore.explore.graphs import Graph, draw
from ntkscore.results.atomic import writing_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#9AA0A6")
"""Colours from Okabe and Ito's palette: scores, what they are compared with, and lines."""
FIRST, SHOWN = 10, 30
STYLE: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "savefig.dpi": 200,
    "svg.hashsalt": "ntkscore",
}
"""Matplotlib settings of every figure, those of the experiments too."""


def check_picture(path: Path | None) -> None:
    """Refuse a file that has no picture's ending or no folder, before anything is computed."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"a picture that ends in {', '.join(ENDINGS)}", path.name, "rename --plot")
    if not path.parent.is_dir():
        raise InputError(f"a folder at {path.parent} for --plot", "none", "make it")


def ranking_picture(
    frame: pd.DataFrame,
    value: str,
    cost: str,
    names: Sequence[str],
    path: Path,
    *,
    by: str = "",
    first: int = FIRST,
    graphs: Sequence[Graph] = (),
) -> None:
    """Draw every network's score beside its cost, the first in another colour.

    Args:
        frame: a ranking, best first.
        cost: the column of the baseline that needs no scoring, such as `params`.
        names: columns that name a network; the last that it has is written at the first.
        by: what the value is the sum of, where it does not say so itself.
    """
    figure, axis, *beside = _blank(4.8 if graphs else 4.2, len(graphs))
    for each, graph in zip(beside, graphs, strict=True):
        draw(each, graph)
    known = frame[np.isfinite(frame[value])]
    rest, best = known.iloc[first:], known.head(first)
    axis.plot(rest[cost], rest[value], ".", color=COLOURS[0], ms=4, alpha=0.6)
    axis.plot(best[cost], best[value], "D", color=COLOURS[1], ms=4)
    middle = float(known[cost].median())
    for row in best.head(1).to_dict("records"):
        _name(axis, row, names, (cost, value), row[cost] > middle, 4)
    absent = len(frame) - len(known)
    note = f"{len(known):,} networks" + (f", {absent:,} without this score" if absent else "")
    axis.set(xlabel=cost, ylabel=value)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    heading = f"{value} of {by}\n" if by else ""
    axis.set_title(f"{heading}{note}; the first {len(best)} in orange", fontsize=8)
    _write(figure, path)


def front_picture(
    frame: pd.DataFrame,
    front: pd.DataFrame,
    value: str,
    costs: Sequence[str],
    names: Sequence[str],
    path: Path,
    *,
    by: str = "",
) -> None:
    """Draw every network's score beside each cost, those that none beats in another colour.

    Args:
        frame: a ranking.
        front: the networks of it that none beats, best first.
        costs: columns of which less is better, a panel each.
        names: columns that name a network; the last that it has is written beside the cheapest and
            the best-scored of the front.
        by: what the value is the sum of, where it does not say so itself.
    """
    from matplotlib.ticker import EngFormatter

    figure, *panels = _panels(len(costs))
    known = frame[np.isfinite(frame[[value, *costs]]).all(axis=1)]
    for axis, cost in zip(panels, costs, strict=True):
        along = front.sort_values(cost)
        axis.plot(known[cost], known[value], ".", color=COLOURS[0], ms=3, alpha=0.3, lw=0)
        if len(costs) == 1:
            axis.step(along[cost], along[value], color=COLOURS[1], lw=0.8, where="post")
        axis.plot(along[cost], along[value], "D", color=COLOURS[1], ms=4)
        ends = pd.concat([along.head(1), front.head(1)])
        for right, row in enumerate(ends[~ends.index.duplicated()].to_dict("records")):
            _name(axis, row, names, (cost, value), bool(right), 6 if right else -2, fontsize=8)
        axis.set(xlabel=cost)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[0].set(ylabel=value)
    absent = len(frame) - len(known)
    note = f"{len(known):,} networks" + (f", {absent:,} without all of these" if absent else "")
    heading = f"{value} of {by}\n" if by else ""
    figure.suptitle(f"{heading}{note}; {len(front)} that none beats in orange", fontsize=8)
    _write(figure, path)


def agreement_picture(frame: pd.DataFrame, costs: Sequence[str], of: str, path: Path) -> None:
    """Draw each Spearman that `correlate` gives with its interval, costs and counts in orange."""
    known = frame[frame["status"] == "ok"]
    order = known["spearman"].abs().sort_values(ascending=False).index
    is_cost = known["score"].isin(list(costs))
    # Costs and counts are always shown.
    shown = known.loc[[i for place, i in enumerate(order) if place < SHOWN or is_cost[i]][::-1]]
    figure, axis = _blank(1.2 + 0.16 * len(shown))
    for place, row in enumerate(shown.to_dict("records")):
        colour = COLOURS[1] if row["score"] in costs else COLOURS[0]
        ends = [row["spearman_low"], row["spearman_high"]]
        axis.plot(ends, [place, place], color=colour, lw=1)
        axis.plot(row["spearman"], place, "o", color=colour, ms=3.5)
    axis.axvline(0, color=COLOURS[2], lw=0.6)
    axis.set_yticks(range(len(shown)), [_short(name) for name in shown["score"]])
    axis.set(ylim=(-0.7, len(shown) - 0.3), xlim=(-1, 1))
    axis.grid(axis="x", color=COLOURS[2], lw=0.3)
    axis.set_xlabel(f"Spearman with {of}")
    number = len(shown) if len(shown) == len(known) else f"{len(shown)} of {len(known)}"
    axis.set_title(
        f"{number} scores, 95 % intervals; costs and counts, all of them, in orange", fontsize=8
    )
    _write(figure, path)


def prediction_picture(frame: pd.DataFrame, of: str, path: Path) -> None:
    """Draw what `predict` gives of all networks, with intervals, and what was measured."""
    figure, axis = _blank(3.4)
    axis.fill_between(frame["rank"], frame["low"], frame["high"], color=COLOURS[2], alpha=0.4, lw=0)
    axis.plot(frame["rank"], frame["mean"], color=COLOURS[0], lw=1)
    axis.plot(frame["rank"], frame["measured"], "D", color=COLOURS[1], ms=4)
    axis.set(xlabel="rank by prediction", ylabel=of)
    told = int(frame["measured"].notna().sum())
    axis.set_title(
        f"{len(frame):,} networks, 90 % intervals; {told} measured ones in orange", fontsize=8
    )
    _write(figure, path)


def kernels_picture(frame: pd.DataFrame, path: Path) -> None:
    """Draw how the kernels of a `KernelHistory` move along a training, the mean of the seeds."""
    drawn = {
        "distance": "distance from the beginning",
        "distance_from_clean": "distance from the clean kernel",
        "alignment": "alignment with the labels",
        "effective_rank": "effective rank",
    }
    kernels = "clean", "robust", "joint_clean"
    figure, *axes = _panels(len(drawn), sharey=False)
    for axis, (column, label) in zip(axes, drawn.items(), strict=True):
        # K_all is dashed: at β = 1 it is the robust kernel, at β = 0 the clean one.
        for kernel, colour, line in zip(kernels, COLOURS, ("-", "-", "--"), strict=True):
            mean = frame[frame["kernel"] == kernel].groupby("epoch")[column].mean()
            axis.plot(mean.index, mean, line, color=colour, lw=1, marker=".", ms=4, label=kernel)
        axis.set_xlabel("epoch")
        axis.set_title(label, fontsize=8)
    axes[0].legend()
    _write(figure, path)


def security_picture(frame: pd.DataFrame, path: Path) -> None:
    """Draw the accuracy after the last attack of `evaluate` by radius, a line for each network."""
    figure, axis = _panels(1)
    names = [*frame.columns[: frame.columns.get_loc("attack")]]
    names = [name for name in names if frame[name].nunique() > 1] or names[:1]
    for at, (name, rows) in enumerate(frame.groupby(names, sort=False)):
        clean = rows[rows["after"] == "clean"]["accuracy"].iloc[0]
        last = rows.groupby("rho").last()["accuracy"]
        x, y = [0.0, *last.index], [clean, *last]
        label = " ".join(map(str, name))
        axis.plot(x, y, color=COLOURS[at % len(COLOURS)], lw=1, marker=".", ms=4, label=label)
    first = frame.iloc[0]
    axis.set_xlabel(f"radius ρ in {first['norm']}, pixels in [0, 1]")
    axis.set_ylabel(f"accuracy under {first['attack']}")
    axis.set_ylim(0, None)
    axis.legend()
    _write(figure, path)


def _name(
    axis: "Axes",
    row: Mapping[Any, Any],
    names: Sequence[str],
    place: tuple[str, str],
    right: bool,
    up: float,
    **text: Any,
) -> None:
    """Write a network's name, the last that it has, beside its point."""
    axis.annotate(
        next(str(row[name]) for name in reversed(names) if row[name] != ""),
        (row[place[0]], row[place[1]]),
        (-6 if right else 6, up),
        textcoords="offset points",
        ha="right" if right else "left",
        **text,
    )


def _short(name: str) -> str:
    """A score's name; of a long sum its first term and how many follow."""
    terms = name.split("+")
    return name if len(terms) < 3 else f"{terms[0]} + {len(terms) - 1} more"


def _blank(height: float, beside: int = 0) -> "tuple[Figure, Axes, *tuple[Axes, ...]]":
    """A figure with its axis, and others in a column at its right."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        from matplotlib.figure import Figure

        widths = (6.2, 3.4) if beside else (6.2,)
        figure = Figure(figsize=(sum(widths), height))
        grid = figure.add_gridspec(max(beside, 1), len(widths), width_ratios=widths)
        others = (figure.add_subplot(grid[row, 1]) for row in range(beside))
        return figure, figure.add_subplot(grid[:, 0]), *others


def _panels(count: int, sharey: bool = True) -> "tuple[Figure, *tuple[Axes, ...]]":
    """A figure with axes side by side; whether they share what is upward."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(max(4.4, 3.1 * count), 3.6))
        return figure, *figure.subplots(1, count, sharey=sharey, squeeze=False)[0]


def _write(figure: "Figure", path: Path) -> None:
    import matplotlib

    dates = {".png": None, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with matplotlib.rc_context(STYLE), writing_to(path):
        figure.savefig(path, metadata=dates[path.suffix.lower()])
