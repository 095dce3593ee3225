"""The report of a measurement: device, versions, arithmetic, speed, memory and agreement."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from experiments.data import BENCHMARK, DATASET, METRIC
from experiments.frame import Interval
from experiments.page import entry, markdown_table
from ntkscore import InputError, correlate, load_table, open_results
from ntkscore.analysis.frames import score_table
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.cli.display import duration
from ntkscore.memory import free_memory
from ntkscore.results.result_set import provenance
from ntkscore.run.targets import GIB


def read_json(path: Path) -> Any:
    """The content of a file; an empty dict where it is missing or not finished."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A table in Markdown with the rows' own names; nothing without rows. Bytes are in GiB."""
    shown = [
        {
            name.replace("bytes", "GiB"): entry(value / GIB if "bytes" in name else value)
            for name, value in row.items()
        }
        for row in rows
    ]
    if shown:
        yield markdown_table(shown[0], (list(row.values()) for row in shown))


def machine() -> Iterator[str]:
    """Devices that JAX finds, and the versions that they are driven with."""
    first, *_ = found = jax.devices()
    session, free = provenance(), free_memory(first)
    versions = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
    yield f"# {len(found)} × {first.device_kind}"
    yield (
        f"{session['time']}: {'unknown' if free is None else f'{free / GIB:.3g} GiB'} free on a "
        f"device; {first.client.platform_version.splitlines()[0]}; Python {session['python']}, "
        f"{versions}."
    )


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


def whole_space(folder: Path) -> Iterator[str]:
    """A row for each start of the ranking; and the time of the whole space in one go."""
    starts: dict[str, dict[str, Any]] = read_json(folder / "pace.json")
    yield from table({"start": start, **state} for start, state in starts.items())
    timed = [state for state in starts.values() if state["per_second"]]
    if timed:
        first, last = timed[0], timed[-1]
        whole = first["first_call"] + last["total"] / last["per_second"]
        yield f"The whole space in one go: {duration(whole)}, compilation included."


def scores(folder: Path, data: Path) -> Iterator[str]:
    """Numbers of scores by status, and their agreement with the table where there is one."""
    if not (folder / "space").is_dir():
        return
    rows = open_results(folder / "space").read()
    counts = rows["status"].value_counts()
    yield ", ".join(f"{n:,} rows are {status}" for status, n in counts.items() if n) + "."
    try:
        benchmark = load_table(data / BENCHMARK)
    except InputError as error:
        yield f"Not compared with a table: {error}"
        return
    wide = score_table(rows)
    frame = correlate(wide[[t for t in DEFAULT.terms if t in wide]], benchmark, DATASET, METRIC)
    # The default goes without terms that the run lacks, and then has another name.
    shown = frame["score"].str.contains("+", regex=False) | (frame["score"] == "params")
    ends = ["spearman", "spearman_low", "spearman_high"]
    yield from table(
        {
            "score": row["score"],
            f"Spearman with {METRIC}": Interval(*(row[end] for end in ends)),
            "in the top 10 %": row["spearman_top10"],
            "cells": row["n"],
            "images": rows["dataset"].iloc[0],
        }
        for row in frame[shown].to_dict("records")
    )


def write(folder: Path, data: Path) -> Path:
    """Write the report from what the parts have left, whole or not.

    Args:
        folder: of the measurement.
        data: with the tables.
    """
    timed = [
        {name: value for name, value in summary.items() if name != "cells"}
        for summary in read_json(folder / "benchmark.json")
    ]
    endings = (
        {"part": f"`{command}`", "ending": how, "seconds": seconds, "because": why}
        for command, (how, seconds, why) in read_json(folder / "parts.json").items()
    )
    sections = {
        "Arithmetic": table(correctness(folder)),
        "One cell at a time": table(timed),
        "The whole space": whole_space(folder),
        "Scores": scores(folder, data),
        "Parts": table(endings),
    }
    parts = [*machine()]
    for title, texts in sections.items():
        parts += [f"## {title}", *(list(texts) or ["Not measured."])]
    path = folder / "report.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path
