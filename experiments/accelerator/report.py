"""The report of a measurement: device, versions, arithmetic, speed, memory and agreement."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from cells.nasbench201.space import NASBench201
from experiments.accelerator.ranking import read_json
from experiments.study import BENCHMARK, DATASET, METRIC, interval
from experiments.targets.page import moved_bytes
from ntkscore import InputError, correlate, load_table, open_results
from ntkscore.analysis.frames import score_table
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.cli.display import duration
from ntkscore.config import Config
from ntkscore.memory import free_memory
from ntkscore.results.result_set import provenance
from ntkscore.run.fits import arithmetic, mean_cost
from ntkscore.run.targets import TARGETS
from ntkscore.spaces import from_record, known_space


def gibibytes(count: float | None) -> str:
    """A number of bytes in words."""
    return "unknown" if count is None else f"{count / 2**30:.3g} GiB"


def machine() -> Iterator[str]:
    """Devices that JAX finds, and the versions that they are driven with."""
    first, *_ = found = jax.devices()
    session = provenance()
    versions = ", ".join(f"{name} {version}" for name, version in session["packages"].items())
    yield f"# {len(found)} × {first.device_kind}"
    yield (
        f"{session['time']}: {gibibytes(free_memory(first))} free on a device; "
        f"{first.client.platform_version.splitlines()[0]}; Python {session['python']}, {versions}."
    )


def correctness(folder: Path) -> Iterator[str]:
    """A line for each file and precision, and one for each quantity beyond its tolerance."""
    for path in sorted(folder.glob("verify-*.csv")):
        checks = pd.read_csv(path) if path.stat().st_size else pd.DataFrame()
        if checks.empty:
            continue
        passed = checks["result"] == "pass"
        worst = checks.loc[checks["error"].idxmax()]
        name = path.stem.removeprefix("verify-")
        yield (
            f"{name}: {passed.sum()} of {len(checks)} quantities within their tolerance or the "
            f"bound of their kinks; largest error {worst['error']:.1e} of {worst['quantity']}"
        )
        for check in checks[~passed].to_dict("records"):
            yield (
                f"{name}, **{check['quantity']}**: error {check['error']:.1e}, "
                f"tolerance {check['tolerance']:.0e}"
            )


def one_cell(folder: Path) -> Iterator[str]:
    """A line for each fidelity of the benchmark: one cell after the other on one device."""
    for summary in read_json(folder / "benchmark.json"):
        yield (
            f"{summary['samples']} images, C = {summary['channels']}, "
            f"{summary['cells_per_stage']} cells per stage: "
            f"clean kernel {summary['clean_seconds_median']:.3g} s, "
            f"FGSM stack {summary['stack_seconds_median']:.3g} s (medians), "
            f"compiled in {summary['compile_seconds']:.3g} s, "
            f"memory peak {gibibytes(summary['peak_bytes'])}, "
            f"{summary['fraction_of_matrix_product']:.3g} of a matrix product's "
            f"{summary['matrix_product_flops'] / 1e12:.3g} TFLOP/s"
        )


def whole_space(folder: Path) -> Iterator[str]:
    """A line for each start of the ranking, and the time of the whole space in one go."""
    starts: dict[str, dict[str, Any]] = read_json(folder / "pace.json")
    for start, state in starts.items():
        yield (
            f"{start}: {state['networks']:,} of {state['total']:,} networks after "
            f"{duration(state['seconds'])}; first call {state['first_call']:.3g} s, "
            f"{state['per_second']:.3g} a second from then on; memory peak "
            f"{gibibytes(state['peak_bytes'])}; {state['plan']}"
        )
    timed = [state for state in starts.values() if state["per_second"]]
    if timed:
        first, last = timed[0], timed[-1]
        whole = first["first_call"] + last["total"] / last["per_second"]
        yield f"the whole space in one go: {duration(whole)}, compilation included"
        yield from at_best(folder, last["total"], jax.devices())


def at_best(folder: Path, networks: int, devices: Sequence[Any]) -> Iterator[str]:
    """The time of arithmetic, reads and writes at published rates, as far as they are known."""
    kind = devices[0].device_kind.lower()
    names = {"v5 lite": "v5e", "v6 lite": "v6e"}
    known = {**{name: name for name in TARGETS}, **names}
    target = next((TARGETS[name] for text, name in known.items() if text in kind), None)
    if target is None or not (folder / "space").is_dir():
        return
    results = open_results(folder / "space")
    space = known_space(results)
    config = from_record(Config, results.configuration)
    cells = [space.parse(cell) for cell in results.read()["cell"].unique()]
    work = arithmetic(space, config, space.parse("333333"))
    seconds = work.seconds(target, networks, mean_cost(space, cells)) / len(devices)
    yield (
        f"its arithmetic at the published {target.rate / 1e12:.3g} TFLOP/s of {target.name}: "
        f"{seconds:.3g} s, a bound below any measurement"
    )
    if isinstance(space, NASBench201) and (moved := moved_bytes(target, space, config.samples)):
        seconds = networks * moved / target.bandwidth / len(devices)
        yield (
            f"its reads and writes at the published {target.bandwidth / 1e12:.3g} TB/s: "
            f"{seconds:.3g} s if every network were the most expensive and a cache spared nothing"
        )


def scores(folder: Path, data: Path) -> Iterator[str]:
    """Numbers of scores by status, and their agreement with the table where there is one."""
    if not (folder / "space").is_dir():
        return
    rows = open_results(folder / "space").read()
    counts = rows["status"].value_counts()
    yield ", ".join(f"{count:,} rows are {status}" for status, count in counts.items() if count)
    try:
        table = load_table(data / BENCHMARK)
    except InputError as error:
        yield f"not compared with a table: {error}"
        return
    wide = score_table(rows)
    frame = correlate(wide[[t for t in DEFAULT.terms if t in wide]], table, DATASET, METRIC)
    # The default goes without terms that the run lacks, and then has another name.
    shown = frame["score"].str.contains("+", regex=False) | (frame["score"] == "params")
    for row in frame[shown].to_dict("records"):
        found = interval(row["spearman"], row["spearman_low"], row["spearman_high"])
        yield (
            f"Spearman of `{row['score']}` with {METRIC} on {DATASET}, {row['n']:,} cells on "
            f"{rows['dataset'].iloc[0]} images: {found}, in the top 10 % "
            f"{row['spearman_top10']:.3f}"
        )


def write(folder: Path, data: Path) -> Path:
    """Write the report from what the parts have left, whole or not.

    Args:
        folder: of the measurement.
        data: with the tables.
    """
    sections = {
        "Arithmetic": correctness(folder),
        "One cell at a time": one_cell(folder),
        "The whole space": whole_space(folder),
        "Scores": scores(folder, data),
        "Parts": (
            f"`{command}`: {how} after {seconds:.0f} s{f'; {why}' if why else ''}"
            for command, (how, seconds, why) in read_json(folder / "parts.json").items()
        ),
    }
    parts = [*machine()]
    for title, lines in sections.items():
        points = [f"- {line}." for line in lines]
        parts += [f"## {title}", "\n".join(points) or "Not measured."]
    path = folder / "report.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path
