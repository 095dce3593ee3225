"""Output for a person or a program: tables, JSON, CSV, and the progress line."""

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from ntkscore.cli.output import Format, stderr
from ntkscore.run.devices import Plan
from ntkscore.run.engine import Progress as RunProgress

LINE_SECONDS = 60.0
HEADER_PIECE = 6
"""Letters of a header that stay together."""


def _plain(value: Any) -> Any:
    """A value for JSON: no NaN (null stands for it), no numpy."""
    if value is None or value is pd.NA:
        return None
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell_text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 100_000 else str(value)


def print_frame(
    frame: pd.DataFrame, output_format: Format, title: str = "", note: str = ""
) -> None:
    """Print a frame on stdout.

    Args:
        frame: what to print; its index is left out.
        output_format: a table with title and note, or JSON records or CSV alone.
        title, note: above and below the table.
    """
    if output_format is Format.json:
        records = [
            {key: _plain(value) for key, value in record.items()}
            for record in frame.to_dict("records")
        ]
        print(json.dumps(records, indent=1))
    elif output_format is Format.csv:
        print(frame.to_csv(index=False), end="")
    else:
        _print_table(frame, title, note)


def _print_table(frame: pd.DataFrame, title: str, note: str) -> None:
    """Print a table in which no value is cut; headers are broken where the terminal is narrow."""
    records = frame.to_dict("records")
    rows = [[_cell_text(_native(value)) for value in record.values()] for record in records]
    # As wide as the longest value, and as a piece of the header that can be read.
    widths = [min(len(str(column)), HEADER_PIECE) for column in frame.columns]
    for row in rows:
        widths = [max(width, len(value)) for width, value in zip(widths, row, strict=True)]
    # A pipe has no width.
    width = Console().width if sys.stdout.isatty() else 200
    table = Table(title=title or None, title_justify="left", caption=note or None)
    table.caption_justify = "left"
    narrow = sum(widths) + 3 * len(widths) + 1 > width
    if narrow:
        table.box, table.pad_edge, table.padding = None, False, (0, 1, 0, 0)
        width = max(width, sum(widths) + len(widths))
    for column, least in zip(frame.columns, widths, strict=True):
        number = pd.api.types.is_numeric_dtype(frame[column])
        justify = "right" if number else "left"
        most = least if narrow else None
        table.add_column(
            str(column), justify=justify, min_width=least, max_width=most, overflow="fold"
        )
    for row in rows:
        table.add_row(*row)
    Console(width=width, highlight=False).print(table)


def _native(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def duration(seconds: float) -> str:
    """Seconds as `3 s`, `4 min 10 s` or `2 h 5 min`; `?` while unknown."""
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def describe(progress: RunProgress) -> str:
    """Done, rate, time left and failures in a line."""
    finished = progress.resumed + progress.done
    parts = [f"{finished} of {progress.total} networks"]
    if progress.resumed:
        parts.append(f"{progress.resumed} from an earlier run")
    if progress.rate:
        parts.append(f"{progress.rate:.2f}/s")
    if finished < progress.total:
        left = duration(progress.seconds_left)
        parts.append(f"{left} left" if progress.rate else "compiling")
    parts += [f"{count} rows {status}" for status, count in progress.statuses.items()]
    return ", ".join(parts)


@contextmanager
def progress_display() -> Iterator[Any]:
    """A function to report progress with: a bar on a terminal, else a line per minute.

    The plan is printed when it is made, and again when it had to change.
    """
    announced: Plan | None = None

    def announce(progress: RunProgress) -> None:
        nonlocal announced
        if progress.plan != announced:
            announced = progress.plan
            stderr.print(str(progress.plan), soft_wrap=True)

    if stderr.is_terminal:
        columns = (BarColumn(30), TextColumn("{task.description}"))
        with Progress(*columns, console=stderr, transient=False) as bar:
            task = bar.add_task("starting", total=None)

            def update(progress: RunProgress) -> None:
                announce(progress)
                finished = progress.resumed + progress.done
                text = describe(progress)
                bar.update(task, total=progress.total, completed=finished, description=text)

            yield update
        return
    last = -math.inf

    def line(progress: RunProgress) -> None:
        nonlocal last
        announce(progress)
        finished = progress.resumed + progress.done == progress.total
        if finished or time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            print(describe(progress), file=sys.stderr, flush=True)

    yield line
