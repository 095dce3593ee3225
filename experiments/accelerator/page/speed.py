"""The page's sections on speed: one cell at a time, and the whole space."""

import math
from collections.abc import Iterator

from cells import Cell
from experiments.accelerator.folder import Folder
from experiments.accelerator.pace import Pace
from experiments.accelerator.page.text import MISSING, bullets, gigabytes, number
from experiments.accelerator.sizes import Size
from experiments.accelerator.waste import group_flops, needed_flops
from experiments.report import markdown_table
from ntkscore.cli.display import duration
from ntkscore.run.devices import GROUP


def one_cell(folder: Folder) -> Iterator[str]:
    """The benchmark's summaries: one cell after the other on one device."""
    yield "## One cell at a time"
    summaries = folder.read("benchmark")
    if not summaries:
        yield MISSING
        return
    yield "Warm seconds on one device, medians over cells of all sizes."
    columns = {
        "images, C, N": lambda s: f"{s['samples']}, {s['channels']}, {s['cells_per_stage']}",
        "clean kernel": lambda s: number(s["clean_seconds_median"], " s"),
        "FGSM stack": lambda s: number(s["stack_seconds_median"], " s"),
        "compilation": lambda s: number(s["compile_seconds"], " s"),
        "memory peak": lambda s: gigabytes(s["peak_bytes"]),
        "matrix product": lambda s: number(s["matrix_product_flops"] / 1e12, " TFLOP/s"),
        "share of its rate": lambda s: number(s["fraction_of_matrix_product"]),
    }
    rows = [[entry(summary) for entry in columns.values()] for summary in summaries]
    yield markdown_table(tuple(columns), rows)


def whole_space(folder: Folder, size: Size, cells: list[Cell]) -> Iterator[str]:
    """Cells per second over the ranking, the time of the whole space, and what a group wastes.

    Args:
        folder: with the clock and the benchmark.
        size: what was measured.
        cells: those that have been scored.
    """
    yield "## The whole space"
    space, config = size.fidelity.space, size.fidelity.config
    pace = Pace.of(folder.calls())
    if pace is None:
        yield MISSING
    else:
        sentences = timing(pace)
        if cells and (summaries := folder.read("benchmark")):
            needed = float(needed_flops(cells, space, config).mean())
            computed = float(group_flops(cells, space, config, pace.group).mean())
            product = pace.devices * summaries[0]["matrix_product_flops"]
            sentences.append(share(pace, needed, computed, product))
        yield bullets(sentences)
    distinct = space.architectures("distinct")
    # One after the other, cells take what they need; then it is said of a usual accelerator.
    group = pace.group if pace and pace.group > 1 else GROUP
    mean = needed_flops(distinct, space, config).mean()
    together, everything = (
        group_flops(distinct, space, config, count).mean() for count in (group, len(distinct))
    )
    yield (
        f"A distinct cell needs {number(mean / 1e9)} GFLOP on average. Of networks side by side "
        f"an edge does what one of them has there: {number(together / 1e9)} GFLOP a cell in groups "
        f"of {group} alike, {number(together / mean)} times as much; with every operation of every "
        f"edge it would be {number(everything / mean)} times."
    )


def timing(pace: Pace) -> list[str]:
    """Sentences about a ranking's time and memory."""
    first = f"The first call took {number(pace.first, ' s')}, nearly all of it compilation"
    again = "" if math.isnan(pace.again) else f", {number(pace.again, ' s')} at the last start"
    actual = "it took" if pace.complete else "so far it has taken"
    return [
        f"{pace.done:,} of {pace.total:,} cells; {pace.plan}",
        f"{number(pace.rate)} cells a second, compilation left out",
        first + again,
        f"In one go: {duration(pace.projected)} projected; {actual} {duration(pace.spent)}",
        f"Memory peak {gigabytes(pace.peak_bytes)}",
    ]


def share(pace: Pace, needed: float, computed: float, product: float) -> str:
    """A sentence that compares the FLOP/s of a ranking with those of a matrix product."""
    by_need = number(pace.rate * needed / product)
    if pace.group == 1:
        return f"{by_need} of a matrix product's rate"
    return (
        f"{by_need} of a matrix product's rate by the FLOPs that cells need, "
        f"{number(pace.rate * computed / product)} by those that are computed"
    )
