"""The report: every experiment's figure and findings on one page, made by one command."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from experiments.ntk_correlation import FIRST, SECOND, THIRD
from experiments.recordings import RECORDINGS, seconds_per_cell
from experiments.study import MEANS, Finding, Outcome, Study
from experiments.style import save
from ntkscore.config import format_rho
from ntkscore.results import ResultSet

HEAD = """# Report

What the paper says, what we measured, and what comes of it. Made by `python -m experiments report`
from the benchmark table and the recordings in `results/`; every figure's data and a record to
rerun it: `python -m experiments NAME --out DIR`.

Y. Wu, F. Liu, C.-J. Simon-Gabriel, G. G. Chrysos and V. Cevher, *Robust NAS under adversarial
training: benchmark, theory, and beyond*, ICLR 2024.

A statement about kernel scores is *reproduced* where the 95 % interval (bootstrap over cells) and
each of at least three seeds agree with it, *not reproduced* where they contradict it, else *not
decidable*. What any other verdict rests on stands beside it.
"""


def table(lines: Sequence[Sequence[object]]) -> Iterator[str]:
    """A Markdown table; the first line is its head."""
    head, *rest = ([str(entry).replace("|", "\\|") for entry in line] for line in lines)
    for line in (head, ["---"] * len(head), *rest):
        yield f"| {' | '.join(line)} |"


def written(value: object) -> object:
    """A table's entry: three digits of a number, nothing for NaN."""
    if not isinstance(value, float):
        return value
    return "" if value != value else f"{value:.3f}"


def overall(findings: Sequence[Finding]) -> str:
    """One verdict for a statement with several parts."""
    counts = Counter(finding.verdict for finding in findings)
    (verdict, count), *others = counts.most_common()
    if not others:
        return f"**{verdict}** ({count} of {count} comparisons)"
    told = ", ".join(f"{number} {name}" for name, number in counts.most_common())
    return f"**mixed**: of {len(findings)} comparisons {told}"


def statements(findings: Sequence[Finding]) -> Iterator[str]:
    """The paper's three findings, each in a line."""
    yield "## The paper's three findings"
    yield (
        "About the Frobenius norm (its NTK-score) of the logit-sum kernel, CIFAR-10, at the "
        "fidelity that the recordings below have; the paper takes 50 images and leaves the "
        "normalisation's mode and the network's output open."
    )
    yield "\n".join(
        f"{number}. *{statement[0].upper()}{statement[1:]}*: "
        f"{overall([finding for finding in findings if finding.of == statement])}."
        for number, statement in enumerate((FIRST, SECOND, THIRD), 1)
    )


def section(name: str, title: str, outcome: Outcome, figure: Path | None) -> Iterator[str]:
    """An experiment: figure, findings, remarks."""
    yield f"## {title}"
    if figure:
        yield f"![{title}]({figure.as_posix()})"
    yield f"`python -m experiments {name}`"
    if outcome.findings:
        head = ("statement", "paper", "measured", "verdict", "because")
        lines = [(f.what, f.paper, f.ours, f.verdict, f.why) for f in outcome.findings]
        yield "\n".join(table([head, *lines]))
    if outcome.summary is not None:
        shown = outcome.summary.map(written)
        yield "\n".join(table([list(shown.columns), *shown.to_numpy().tolist()]))
    remarks = [f"- {remark}" for remark in outcome.remarks if remark != MEANS]
    if remarks:
        yield "\n".join(remarks)


def recordings(study: Study) -> Iterator[str]:
    """What was recorded, how, and by which command."""
    yield "## Recordings"
    yield (
        "All on CIFAR-10. `table:K` is a seeded sample of K of the table's 6,466 cells. A cell's "
        "seconds are of the devices named, all radii of a seed together, compilation left out."
    )
    head = ("recording", "cells", "seeds", "images", "C", "N", "attack, ρ", "devices", "s per cell")
    lines: list[Sequence[object]] = [head]
    for name in RECORDINGS:
        if not (study.results / name).is_dir():
            continue
        result_set = study.result_set(name)
        known, rows = result_set.configuration, study.rows(name)
        radii = ", ".join(map(format_rho, known["rhos"]))
        cost = seconds_per_cell(result_set)
        lines.append(
            (
                f"`{name}`",
                f"{rows['cell'].nunique():,}",
                rows["seed"].nunique(),
                *(known[key] for key in ("samples", "channels", "cells_per_stage")),
                f"{known['attack']} {radii}",
                devices_of(result_set),
                "" if pd.isna(cost) else f"{cost:.2f}",
            )
        )
    yield "\n".join(table(lines))
    yield "`python -m experiments record NAME` makes each."
    yield "\n".join(
        f"- {statuses(name, study.rows(name))}" for name in RECORDINGS if "/" not in name
    )


def devices_of(result_set: ResultSet) -> str:
    """What computed a recording."""
    counts = Counter(result_set.sessions[-1]["devices"])
    return ", ".join(f"{count} × {kind}" for kind, count in counts.items())


def statuses(name: str, rows: pd.DataFrame) -> str:
    """How many cells and seeds of a recording lack some score, and why."""
    failed = rows[rows["status"] != "ok"].drop_duplicates(["cell", "seed", "status"])
    counts = failed.groupby("status")["cell"].agg(["size", "nunique"])
    told = ", ".join(
        f"{line.size} (of {line.nunique} cells) are {status}"
        for status, line in zip(counts.index, counts.itertuples(index=False), strict=True)
    )
    units = len(rows.drop_duplicates(["cell", "seed"]))
    return f"`{name}`: {units:,} cells and seeds, of which {told or 'all have every score'}."


def write(
    study: Study, experiments: Mapping[str, str], modules: Mapping[str, Any], page: Path
) -> None:
    """Run every experiment and write the page.

    Args:
        study: with tables and recordings.
        experiments: titles by name.
        modules: by name; each has a `run`.
        page: the file; figures go into `figures` beside it.
    """
    sections: list[str] = []
    findings: list[Finding] = []
    seconds: list[Sequence[object]] = [("experiment", "seconds")]
    for name, title in experiments.items():
        start = time.monotonic()
        outcome = modules[name].run(study)
        figure = None
        if outcome.figure:
            png, svg = save(outcome.figure, page.parent / "figures" / name)
            svg.unlink()
            figure = png.relative_to(page.parent)
        took = time.monotonic() - start
        typer.echo(f"{name} {took:.1f} s", err=True)
        seconds.append((f"`{name}`", f"{took:.0f}"))
        findings += outcome.findings
        sections += section(name, title, outcome, figure)
    counts = Counter(finding.verdict for finding in findings)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    parts = (
        HEAD.strip(),
        *statements(findings),
        f"All of the paper's statements and numbers below: {summary}.",
        MEANS,
        *sections,
        *recordings(study),
        "## Time",
        "Of this report's own run, start-up left out.",
        "\n".join(table(seconds)),
    )
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
