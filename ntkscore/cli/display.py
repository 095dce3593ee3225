"""What a command prints: tables, JSON and CSV on stdout; messages and progress on stderr."""

import json
import math
import signal
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from ntkscore.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from ntkscore.run.calls import Workers
    from ntkscore.run.devices import Plan
    from ntkscore.run.engine import Progress as RunProgress

Format = Literal["table", "json", "csv"]
"""Forms in which a command prints on stdout."""
stderr = Console(stderr=True, highlight=False, markup=False)
LINE_SECONDS = 60.0
HEADER_PIECE = 6
"""Letters of a header that stay together."""


@contextmanager
def input_errors() -> Iterator[None]:
    """End on bad input with its one sentence and exit code 2; a warning is a sentence, too."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if category is not UserWarning:
            return others(message, category, *place)
        stderr.print(Text("warning:", "yellow"), str(message), soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        try:
            yield
        except InputError as error:
            stderr.print(Text("error:", "red"), str(error), soft_wrap=True)
            raise typer.Exit(2) from None


@contextmanager
def interruptible(on_disk: Callable[[], str]) -> Iterator[None]:
    """End on an interrupt with exit code 130, and a sentence that begins with what is on disk."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        text = f"stopped; {on_disk()}, and the same command goes on from there"
        stderr.print(text, soft_wrap=True)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _records(frame: "pd.DataFrame") -> list[dict[Hashable, Any]]:
    """The rows of a frame as dicts of Python's own types; None stands for NaN."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _cell_text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        counted = value.is_integer() and 10_000 <= abs(value) < 1e12
        return f"{value:,.0f}" if counted else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 100_000 else str(value)


def print_frame(
    frame: "pd.DataFrame", output_format: Format, title: str = "", note: str = ""
) -> None:
    """Print a frame without its index on stdout: a table with title and note, or JSON or CSV."""
    if output_format == "json":
        records = [
            {name: None if value in (math.inf, -math.inf) else value for name, value in row.items()}
            for row in _records(frame)
        ]
        print(json.dumps(records, indent=1))
    elif output_format == "csv":
        print(frame.to_csv(index=False), end="")
    else:
        _print_table(frame, title, note)


def _print_table(frame: "pd.DataFrame", title: str, note: str) -> None:
    """Print a table in which no value is cut; headers are broken where the terminal is narrow."""
    rows = [list(map(_cell_text, record.values())) for record in _records(frame)]
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
        table.add_column(
            str(column),
            justify="right" if frame[column].dtype.kind in "biuf" else "left",
            min_width=least,
            max_width=least if narrow else None,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    Console(width=width, highlight=False, markup=False).print(table)


def front_title(count: int, by: str, beside: Iterable[str]) -> str:
    """What a front is of: what ranks its networks, and costs."""
    return f"{count} networks that none beats in {by}, {', '.join(beside)} at once"


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


def units(count: int, seeds: int) -> str:
    """A number of networks, which counts each seed by itself where there are several."""
    return f"{count} networks" + (" × seeds" if seeds > 1 else "")


def describe(progress: "RunProgress") -> str:
    """Networks done, rate, time left and failures, in a line."""
    parts = [f"{progress.finished} of {units(progress.total, progress.seeds)}"]
    if progress.resumed:
        parts.append(f"{progress.resumed} from an earlier run")
    if progress.rate:
        parts.append(f"{progress.rate:.2f}/s")
    if progress.finished < progress.total:
        left = duration(progress.seconds_left)
        parts.append(f"{left} left" if progress.rate else "compiling")
    parts += [f"{count} rows {status}" for status, count in progress.statuses.items()]
    return ", ".join(parts)


@contextmanager
def progress_display() -> Iterator[Callable[["RunProgress"], None]]:
    """A function to report progress with: a bar on a terminal, else a line per minute.

    The plan is printed when it is made, and again when it had to change.
    """
    announced: Plan | Workers | None = None
    last_line = -math.inf
    bar = Progress(BarColumn(30), TextColumn("{task.description}"), console=stderr)
    task = bar.add_task("starting", total=None)

    def report(progress: "RunProgress") -> None:
        nonlocal announced, last_line
        if progress.plan != announced:
            announced = progress.plan
            stderr.print(str(progress.plan), soft_wrap=True)
        if stderr.is_terminal:
            text, done = describe(progress), progress.finished
            bar.update(task, total=progress.total, completed=done, description=text)
        elif progress.finished == progress.total or time.monotonic() - last_line >= LINE_SECONDS:
            last_line = time.monotonic()
            print(describe(progress), file=sys.stderr, flush=True)

    with bar if stderr.is_terminal else nullcontext():
        yield report
