"""The page's figure: cells against time, and FLOPs that cells need against those of a group."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import distinct_cells
from experiments.accelerator.sizes import Size
from experiments.accelerator.waste import group_flops, needed_flops
from experiments.plotting import COLOURS, COLUMN


def draw_pace(axis: Axes, calls: pd.DataFrame) -> None:
    """Cells on disk against the minutes since each start, a line a start."""
    sessions = calls["session"].unique() if len(calls) else ()
    for number, session in enumerate(sessions, 1):
        start = calls[calls["session"] == session]
        cells = start["resumed"] + start["done"]
        axis.step(start["seconds"] / 60, cells, where="post", label=f"start {number}")
    if len(sessions) > 1:
        axis.legend()
    axis.set_xlabel("minutes since the start")
    axis.set_ylabel("cells on disk")
    axis.set_ylim(bottom=0)


def draw_waste(axis: Axes, size: Size) -> None:
    """A histogram of what the distinct cells need, and a group's constant cost."""
    space, config = size.fidelity.space, size.fidelity.config
    needed = needed_flops(distinct_cells(), space, config) / 1e9
    group = group_flops(space, config) / 1e9
    axis.hist(needed, bins=40, color=COLOURS[0], label="needed by a cell")
    axis.axvline(float(np.mean(needed)), color="black", linestyle="--", label="their mean")
    axis.axvline(group, color=COLOURS[1], label="computed in a group")
    axis.set_xlabel("GFLOP per cell")
    axis.set_ylabel("distinct cells")
    axis.legend(loc="upper right", bbox_to_anchor=(0.93, 1))


def draw(calls: pd.DataFrame, size: Size) -> Figure:
    """Both panels."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.7 * COLUMN))
    draw_pace(left, calls)
    draw_waste(right, size)
    return figure
