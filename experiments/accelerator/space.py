"""The ranking of the whole space against the clock.

Run as `python -m experiments.accelerator.space FOLDER`, on a folder that
`python -m experiments.accelerator` began; the ranking goes to stdout as CSV. What is finished is on
disk whatever ends the run, and the same command goes on from there.
"""

import json
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from experiments.accelerator.folder import Folder
from experiments.accelerator.sizes import SIZES
from experiments.benchmark.work import peak_bytes
from experiments.study import BENCHMARK, DATASET
from ntkscore import InputError, Table, load_images, load_table, rank
from ntkscore.cli.display import progress_display
from ntkscore.cli.output import input_errors, stderr
from ntkscore.data.images import ImageSet
from ntkscore.paths import data_home
from ntkscore.run import devices
from ntkscore.run.engine import Progress


def images_at_hand() -> ImageSet:
    """CIFAR-10 where it lies in the data folder, else the embedded images."""
    try:
        return load_images(DATASET)
    except InputError as error:
        stderr.print(f"{error}; embedded images stand in for them", soft_wrap=True)
        return load_images("synthetic")


def table_at_hand() -> Table | None:
    """The benchmark table where it lies in the data folder."""
    folder = data_home() / BENCHMARK
    return load_table(folder) if folder.is_dir() else None


def clock(folder: Folder) -> Callable[[Progress], None]:
    """A function that notes a run's progress, with the seconds since now and the memory in use."""
    start, session = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")

    def note(progress: Progress) -> None:
        call = {
            "session": session,
            "seconds": round(time.monotonic() - start, 3),
            "done": progress.done,
            "resumed": progress.resumed,
            "total": progress.total,
            "devices": len(progress.plan.devices),
            "group": progress.plan.group,
            "plan": str(progress.plan),
            "peak_bytes": max(map(peak_bytes, progress.plan.devices)),
        }
        with folder.clock.open("a", encoding="utf-8") as file:
            file.write(json.dumps(call) + "\n")

    return note


def rank_the_space(folder: Folder) -> pd.DataFrame:
    """The ranking of a folder's cells, on all local devices."""
    size, table, images = SIZES[folder.read("settings")["size"]], table_at_hand(), images_at_hand()
    note = clock(folder)
    with progress_display() as show:

        def report(progress: Progress) -> None:
            note(progress)
            show(progress)

        return rank(
            size.specification(table is not None),
            images,
            folder.space,
            size.fidelity.config,
            space=size.fidelity.space,
            table=table,
            report=report,
        )


def main(path: str) -> None:
    """Rank, and end in order when asked to."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    devices.keep_compiled()
    devices.cores_as_devices()
    folder = Folder(Path(path))
    try:
        with input_errors():
            print(rank_the_space(folder).to_csv(index=False), end="")
    except KeyboardInterrupt:
        calls = folder.calls()
        done = 0 if calls.empty else int(calls.iloc[-1][["resumed", "done"]].sum())
        stderr.print(f"stopped with {done} cells on disk; the same command goes on from there")
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1])
