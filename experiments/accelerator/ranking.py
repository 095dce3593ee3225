"""The whole space ranked by the clock: `python -m experiments.accelerator.ranking SIZE FOLDER`.

`python -m experiments.accelerator` runs it. The ranking goes to stdout as CSV. What is finished is
on disk whatever ends the run, and the same command goes on from there.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.benchmark.work import peak_bytes
from experiments.recordings import FULL_FIDELITY, SMALL, Recording
from experiments.study import BENCHMARK, DATASET
from ntkscore import InputError, load_images, load_table, rank
from ntkscore.cli.display import progress_display
from ntkscore.paths import data_home
from ntkscore.results.atomic import publish
from ntkscore.run.engine import Progress

SIZES = {
    "full": Recording(FULL_FIDELITY),
    "small": Recording(SMALL),
    "tiny": Recording({"samples": 4, "channels": 4, "cells_per_stage": 1}),
}
"""Images and networks of the ranking, by the size of a measurement."""
TINY_CELLS = 24
"""Cells that the size `tiny` ranks; the others rank all of them."""


def read_json(path: Path) -> Any:
    """The content of a file; an empty dict where it is missing or not finished."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def write_json(path: Path, content: Any) -> None:
    """Replace a file atomically."""
    publish(path, json.dumps(content, indent=1).encode())


def clock(path: Path) -> Callable[[Progress], None]:
    """A function that keeps the state of this start in a file, beside those of earlier starts."""
    earlier, began, start = read_json(path), time.monotonic(), time.strftime("%F %T")

    def note(progress: Progress) -> None:
        if progress.started is None:
            return
        state = {
            "networks": progress.resumed + progress.done,
            "total": progress.total,
            "seconds": time.monotonic() - began,
            "first_call": progress.started - began,
            "per_second": progress.rate,
            "peak_bytes": max(map(peak_bytes, progress.plan.devices)),
            "plan": str(progress.plan),
        }
        write_json(path, {**earlier, start: state})

    return note


def main(size: str, folder: Path) -> None:
    """Rank the cells of a measurement on all local devices.

    Images are CIFAR-10 and cells those of the table where these lie in the data folder, else the
    embedded images and the distinct cells.
    """
    home, note = data_home(), clock(folder / "pace.json")
    table = load_table(home / BENCHMARK) if (home / BENCHMARK).is_dir() else None
    cells = "table" if table else "distinct"
    if size == "tiny":
        cells = f"{'table' if table else 'random'}:{TINY_CELLS}"
    try:
        images = load_images(DATASET)
    except InputError as error:
        print(f"{error}; embedded images stand in for them", file=sys.stderr)
        images = load_images("synthetic")
    config, space = SIZES[size].config, SIZES[size].space
    with progress_display() as show:

        def report(progress: Progress) -> None:
            note(progress)
            show(progress)

        out = folder / "space"
        frame = rank(cells, images, out, config, space=space, table=table, report=report)
    print(frame.to_csv(index=False), end="")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
