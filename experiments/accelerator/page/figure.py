"""The page's figure: cells against time, and FLOPs that cells need against those of groups."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import distinct_cells
from experiments.accelerator.sizes import Size
from experiments.accelerator.waste import group_flops, needed_flops
from experiments.plotting import COLOURS, COLUMN
from ntkscore.run.devices import GROUP


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
    """Histograms of what the distinct cells need, and of what is computed in groups."""
    space, config = size.fidelity.space, size.fidelity.config
    needed = needed_flops(distinct_cells(), space, config) / 1e9
    computed = group_flops(distinct_cells(), space, config, GROUP) / 1e9
    bins = np.linspace(0, computed.max(), 41)
    axis.hist(needed, bins, color=COLOURS[0], label="needed by a cell")
    label = f"computed in groups of {GROUP}"
    axis.hist(computed, bins, color=COLOURS[1], histtype="step", label=label)
    axis.set_xlabel("GFLOP per cell")
    axis.set_ylabel("distinct cells")
    axis.legend(loc="upper right", bbox_to_anchor=(0.93, 1))


def draw(calls: pd.DataFrame, size: Size) -> Figure:
    """Both panels."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.7 * COLUMN))
    draw_pace(left, calls)
    draw_waste(right, size)
    return figure
