"""A machine measured with one command, part by part, each in a process of its own; and a report."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import jax
import pandas as pd
import typer

from experiments.data import BENCHMARK, DATASET, DEFAULT, METRIC
from experiments.page import markdown_table
from experiments.recordings import FULL_FIDELITY, SMALL, Recording
from experiments.tools.clock import peak_bytes
from ntkscore import InputError, correlate, load_images, load_table, open_run, score
from ntkscore.analysis.frames import score_table
from ntkscore.cli.display import duration, progress_display
from ntkscore.errors import check_choice
from ntkscore.memory import usable_memory
from ntkscore.paths import data_home
from ntkscore.results.atomic import publish
from ntkscore.results.result_set import provenance
from ntkscore.run.engine import Progress
from ntkscore.run.targets import GIB

SIZES = {
    "full": Recording(FULL_FIDELITY),
    "small": Recording(SMALL),
    "tiny": Recording({"samples": 4, "channels": 4, "cells_per_stage": 1}),
}
"""Images and networks of the ranking, by the size of a measurement."""
TINY_CELLS = 24
"""Cells that the size `tiny` ranks; the others rank all of them."""
BEFORE_RANKING = 0.5
"""Share of the time that the parts before the ranking may take together."""
RANKING = "ranking.csv"


def read_json(path: Path) -> Any:
    """The content of a file; an empty dict where it is missing or not finished."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def write_json(path: Path, content: Any) -> None:
    """Replace a file atomically."""
    publish(path, json.dumps(content, indent=1).encode())


def parts_of(size: str, folder: Path, data: Path) -> dict[str, tuple[str, ...]]:
    """Modules and arguments for Python's `-m`, by the file that their output goes to, in order.

    The size `tiny` verifies the smallest parity file alone.
    """
    files = sorted((data / "parity").glob("*.npz"), key=lambda path: path.stat().st_size)
    verify = {
        f"verify-{path.stem}-{precision}.csv": (
            *("ntkscore", "verify", str(path), "--format", "csv"),
            *options,
        )
        for precision, options in (("float32", ()), ("float64", ("--x64",)))
        for path in (files[:1] if size == "tiny" else files)
    }
    count, part = "2" if size == "tiny" else "8", () if size == "full" else ("--no-full",)
    timed = ("benchmark", "--no-rivals", "--count", count, *part, "--format", "json")
    tools = "experiments.tools"
    return {
        **verify,
        "benchmark.json": (tools, *timed),
        RANKING: (tools, "whole-space", size, str(folder)),
    }


def run(command: tuple[str, ...], output: Path, data: Path, limit: float) -> str:
    """Run a part to its end, or for so many seconds; and return how it ended.

    What it says on stderr goes to a file `.log` beside its output.
    """
    log = output.with_suffix(".log")
    with output.open("w") as stdout, log.open("w") as stderr:
        try:
            subprocess.run(
                [sys.executable, "-m", *command],
                env=os.environ | {"NTKSCORE_DATA": str(data), "PYTHONUNBUFFERED": "1"},
                stdout=stdout,
                stderr=stderr,
                timeout=max(limit, 0),
                check=True,
            )
        except subprocess.TimeoutExpired:
            return "stopped: its time was up"
        except subprocess.CalledProcessError:
            return f"failed: {(log.read_text().strip() or 'nothing said').splitlines()[-1]}"
    return "done"


def whole_space(size: str, folder: Path) -> None:
    """Rank the cells of a measurement on all local devices, as CSV; what is finished is kept.

    Images are CIFAR-10 and cells those of the table where these lie in the data folder, else the
    embedded images and the distinct cells. `pace.json` has the state of this start and of earlier
    ones.
    """
    home, pace, drawn = data_home(), folder / "pace.json", SIZES[size].drawn
    table = load_table(home / BENCHMARK) if (home / BENCHMARK).is_dir() else None
    cells = "table" if table else "distinct"
    if size == "tiny":
        cells = f"{'table' if table else 'random'}:{TINY_CELLS}"
    try:
        images = load_images(DATASET, **drawn)
    except InputError as error:
        typer.echo(f"{error}; embedded images stand in for them", err=True)
        images = load_images("synthetic", **drawn)
    earlier, begin, begun = read_json(pace), time.monotonic(), time.strftime("%F %T")
    with progress_display() as show:

        def report(progress: Progress) -> None:
            show(progress)
            if progress.started is None:
                return
            state = {
                "networks": progress.finished,
                "total": progress.total,
                "seconds": time.monotonic() - begin,
                "first_call": progress.started - begin,
                "per_second": progress.rate,
                "peak_bytes": max(map(peak_bytes, jax.local_devices())),
                "plan": str(progress.plan),
            }
            write_json(pace, {**earlier, begun: state})

        config, space = SIZES[size].config, SIZES[size].space
        how = {"space": space, "seeds": 1, "out": folder / "space", "table": table}
        run = score(cells, images, config, report=report, **how)
    typer.echo(run.rank().to_csv(index=False), nl=False)


def shown(rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> str:
    """Rows as a table in Markdown, bytes in GiB."""
    frame = pd.DataFrame(rows)
    if frame.empty:
        return "Not measured."
    for name in frame.filter(like="bytes"):
        frame[name] /= GIB
    head = frame.columns.str.replace("bytes", "GiB")
    return markdown_table(head, frame.to_numpy(object))


def correctness(folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each file and precision: the quantities in bounds, and the largest error."""
    for path in sorted(folder.glob("verify-*.csv")):
        checks = pd.read_csv(path) if path.stat().st_size else pd.DataFrame()
        if not checks.empty:
            passed = checks["result"] == "pass"
            worst = checks.loc[checks["error"].idxmax()]
            yield {
                "file and precision": path.stem.removeprefix("verify-"),
                "within tolerance or the bound of kinks": f"{passed.sum()} of {len(checks)}",
                "largest error": f"{worst['error']:.1e} of {worst['quantity']}",
                "failed": ", ".join(checks.loc[~passed, "quantity"]) or "none",
            }


def scores(folder: Path, data: Path) -> Iterator[str]:
    """Numbers of scores by status, and their agreement with the table where there is one."""
    rows = open_run(folder).rows
    counts = ", ".join(f"{n:,} are {of}" for of, n in rows["status"].value_counts().items() if n)
    yield f"Of the rows {counts}. The images are of {rows['dataset'].iloc[0]}."
    try:
        benchmark = load_table(data / BENCHMARK)
    except InputError as error:
        yield f"Not compared with a table: {error}"
        return
    wide = score_table(rows)
    frame = correlate(wide[[t for t in DEFAULT.terms if t in wide]], benchmark, DATASET, METRIC)
    # The default goes without terms that the run lacks, and then has another name.
    default = frame["score"].str.contains("+", regex=False) | (frame["score"] == "params")
    columns = ["score", "n", "spearman", "spearman_low", "spearman_high", "spearman_top10"]
    yield f"Agreement with {METRIC}:"
    yield shown(frame.loc[default, columns])


def sections(folder: Path, data: Path) -> Iterator[str]:
    """The report: device, versions, arithmetic, speed, memory and agreement, in Markdown."""
    first, *_ = found = jax.devices()
    session, free = provenance(), usable_memory(first)
    versions = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
    yield f"# {len(found)} × {first.device_kind}"
    yield (
        f"{session['time']}: {'unknown' if free is None else f'{free / GIB:.3g} GiB'} free on a "
        f"device; {first.client.platform_version.splitlines()[0]}; Python {session['python']}, "
        f"{versions}."
    )
    yield "## Arithmetic"
    yield shown(correctness(folder))
    yield "## One cell at a time"
    yield shown(
        {name: value for name, value in summary.items() if name != "cells"}
        for summary in read_json(folder / "benchmark.json")
    )
    yield "## The whole space"
    starts = read_json(folder / "pace.json")
    yield shown({"start": start, **state} for start, state in starts.items())
    if timed := [state for state in starts.values() if state["per_second"]]:
        whole = timed[0]["first_call"] + timed[-1]["total"] / timed[-1]["per_second"]
        yield f"The whole space in one go: {duration(whole)}, compilation included."
    yield "## Scores"
    yield from scores(folder / "space", data) if (folder / "space").is_dir() else [shown([])]
    yield "## Parts"
    endings = read_json(folder / "parts.json")
    yield shown({"part": f"`{command}`", **ending} for command, ending in endings.items())


def accelerator(
    out: Annotated[Path, typer.Option(help="Folder for all that comes of it.")] = Path(
        "runs/accelerator"
    ),
    size: Annotated[str, typer.Option(help=f"How much: {', '.join(SIZES)}.")] = "full",
    minutes: Annotated[
        float, typer.Option(help="Time for all parts; half of it is kept for the ranking.")
    ] = 10.0,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with parity files, data sets and tables; else $NTKSCORE_DATA."),
    ] = None,
) -> None:
    """Measure this machine: its arithmetic, its speed, and the whole space ranked on it.

    In turn: `ntkscore verify` of every parity file in float32 and float64, the benchmark, and the
    ranking; if one fails, the next still runs. Then a short report. The same command goes on where
    the last one stopped.
    """
    check_choice(size, tuple(SIZES), "the size")
    data = data_home(data_dir).absolute()
    out.mkdir(parents=True, exist_ok=True)
    begin, endings = time.monotonic(), read_json(out / "parts.json")
    for output, command in parts_of(size, out, data).items():
        text = " ".join(command)
        if endings.get(text, {}).get("ending") == "done":
            continue
        typer.echo(f"{time.strftime('%T')} {text}")
        start, share = time.monotonic(), 1.0 if output == RANKING else BEFORE_RANKING
        ending = run(command, out / output, data, begin + 60 * minutes * share - start)
        endings[text] = {"ending": ending, "seconds": time.monotonic() - start}
        write_json(out / "parts.json", endings)
    report = "\n\n".join(sections(out, data)) + "\n"
    (out / "report.md").write_text(report, encoding="utf-8")
    typer.echo(report)
    if any(each["ending"].startswith("failed") for each in endings.values()):
        raise typer.Exit(1)
