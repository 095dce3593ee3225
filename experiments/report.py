"""One page with every experiment's figure, findings and remarks."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import typer

from cells.darts import Darts
from cells.nasbench201.space import NASBench201
from cells.space import Space
from experiments.plotting import save
from experiments.recordings import RECORDINGS, seconds_per_cell
from experiments.study import (
    MEANS,
    OURS,
    Experiment,
    Finding,
    Outcome,
    Study,
    markdown_table,
)
from ntkscore.text import format_rho

HEADS = {
    "report": """# Report

What the paper says, what we measured, and what comes of it. Made by `python -m experiments report`
from the benchmark table and the recordings in `results/`; every figure's data and a record to
rerun it: `python -m experiments NAME --out DIR`.

Y. Wu, F. Liu, C.-J. Simon-Gabriel, G. G. Chrysos and V. Cevher, *Robust NAS under adversarial
training: benchmark, theory, and beyond*, ICLR 2024.

A statement that one correlation is stronger is *reproduced* where the 95 % interval of the
difference (bootstrap over functions) and each of at least three seeds are above 0, and the
difference is 0.02 or more; *direction only* where it is smaller; *not reproduced* where interval
and seeds are below 0, by however little; else *equivalent* where all lie within ±0.02, or *not
decidable*. What any other verdict rests on stands beside it. A statement with several rows has one
verdict where all rows agree, else it is *mixed*. The 6,466 cells compute 4,877 functions. Unless a
section says otherwise, intervals draw cells of one function together, since their scores and
accuracies differ little.""",
    "theory": """# The theory, run

What papers prove, held against networks and kernels: Wu et al. (2024) about residual networks
(T1 to T7), Gao et al. (2019) about convergence of adversarial training (G1 to G6), Wang et al.
(2022) about networks close to their initialisation (L1 to L5), Zhu et al. (2022) about perturbation
stability, from their appendix alone (S1 to S4). Made by `python -m experiments theory`.
`docs/statements.md` has a verdict on each numbered statement of the papers, and its misprints;
`docs/theory.md` has the definitions.

A row is *reproduced* where the 95 % interval of what was measured lies in the range that the last
column gives, *not reproduced* where the two are apart, else *not decidable*. Intervals are by
bootstrap over seeds, or over what the row names; of three seeds they go from the least to the
largest. Of several intervals all must lie in the range. A bound is reproduced where nothing
violates it. What any other verdict rests on stands beside it. A section counts as one statement,
and is *mixed* unless all of its rows agree; rows without a word of the papers do not count.""",
    "training": """# Cells, trained

Small adversarial trainings on two cores, made by `python -m experiments training`: signs, not the
benchmark's accuracies. The benchmark's own recipe is `ntkscore train` as it stands; it takes about
1.84 hours of a T4 for a network (`docs/training.md`).""",
    "darts": """# DARTS cells

Train-free measures of 223 genotypes of the DARTS space against their accuracy after adversarial
training, and orders chosen on NAS-Bench-201 or here, tested on the other. Made by `python -m
experiments darts` from the table Tiny-RobustBench and the recordings in `results/darts/`.

The table has 223 random genotypes in networks of 8 cells and 16 channels, trained once each with
PGD-7 at 8/255 on CIFAR-10. Accuracy is that under PGD-7 at the best epoch. Questions of our own
have no paper's number. The last experiment is about other networks, whose accuracies papers print;
a page made without these numbers in the data folder leaves it out.""",
    "prediction": """# A few trained networks

Accuracies of the cells of NAS-Bench-201 after adversarial training, predicted from those of a few
by a Gaussian process over train-free measures and counts (`ntkscore predict`), and how few have to
be trained to find a good one. Made by `python -m experiments prediction` from the tables and the
recordings in `results/`. The protocols stand in `experiments/prediction/`. They were committed
before they were run, and say what was changed later.

Questions of our own have no paper's number; *reproduced* means that the aim in the first column was
reached.""",
}
"""The heads of the pages, by name."""
DEPTHS: dict[type[Space], str] = {NASBench201: "cells_per_stage", Darts: "layers"}
"""The option that says how deep a space's networks are."""


def format_value(value: object) -> object:
    """An entry of a table: three digits of a number, nothing for NaN."""
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.3f}"


def overall(findings: Sequence[Finding]) -> str:
    """The one verdict on a statement with several rows, or "mixed"."""
    verdicts = {finding.verdict for finding in findings}
    return verdicts.pop() if len(verdicts) == 1 else "mixed"


def overall_text(findings: Sequence[Finding]) -> str:
    """The verdict on a statement, and how many rows have which."""
    counts = Counter(finding.verdict for finding in findings)
    parts = ", ".join(f"{number} {name}" for name, number in counts.most_common())
    return f"**{overall(findings)}** ({parts})"


def section(name: str, title: str, outcome: Outcome, figure: Path | None) -> Iterator[str]:
    """Figure, findings, table and remarks of an experiment."""
    yield f"## {title}"
    if figure:
        yield f"![{title}]({figure.as_posix()})"
    yield f"`python -m experiments {name}`"
    if outcome.findings:
        yield markdown_table(
            ("statement", "paper", "measured", "verdict", "because"),
            [(f.what, f.paper, f.ours, f.verdict, f.why) for f in outcome.findings],
        )
    for frame in ([] if outcome.summary is None else [outcome.summary]) + [*outcome.more]:
        entries = frame.map(format_value)
        yield markdown_table(list(entries.columns), entries.to_numpy().tolist())
    if outcome.kept:
        yield f"All of it: [{name}.parquet]({name}.parquet)."
    remarks = [f"- {remark}" for remark in outcome.remarks if remark != MEANS]
    if remarks:
        yield "\n".join(remarks)


def recordings(study: Study, space: type[Space]) -> Iterator[str]:
    """Settings, devices and cost of a space's recordings, and the scores that they lack."""
    present = [
        name
        for name, recording in RECORDINGS.items()
        if recording.of is space and (study.results / name).is_dir()
    ]
    yield "## Recordings"
    yield (
        "All on CIFAR-10. A cell's seconds are of the devices named, all radii of a seed together, "
        "compilation left out."
    )
    head = ("recording", "cells", "seeds", "images", "C", DEPTHS[space], "attack, ρ", "devices")
    yield markdown_table((*head, "s per cell"), [recording_row(study, name) for name in present])
    yield "`python -m experiments record NAME` makes each."
    yield "\n".join(
        f"- {status_counts(name, study.rows(name))}"
        for name in present
        if space is Darts or "/" not in name
    )


def recording_row(study: Study, name: str) -> tuple[object, ...]:
    """A recording's entries in the table of recordings."""
    result_set, rows = study.result_set(name), study.rows(name)
    configuration = result_set.configuration
    radii = ", ".join(map(format_rho, configuration["rhos"]))
    cost = seconds_per_cell(result_set)
    devices = Counter(result_set.sessions[-1]["devices"])
    return (
        f"`{name}`",
        f"{rows[result_set.identity[0]].nunique():,}",
        rows["seed"].nunique(),
        *(configuration[key] for key in ("samples", "channels", DEPTHS[RECORDINGS[name].of])),
        f"{configuration['attack']} {radii}",
        ", ".join(f"{count} × {kind}" for kind, count in devices.items()),
        "" if math.isnan(cost) else f"{cost:.2f}",
    )


def status_counts(name: str, rows: pd.DataFrame) -> str:
    """A sentence on how many cells and seeds of a recording lack some score, and why."""
    cell = rows.columns[0]
    failed = rows[rows["status"] != "ok"].drop_duplicates([cell, "seed", "status"])
    counts = failed.groupby("status")[cell].agg(["size", "nunique"])
    failures = ", ".join(
        f"{row.size} (of {row.nunique} cells) are {row.Index}" for row in counts.itertuples()
    )
    units = len(rows.drop_duplicates([cell, "seed"]))
    return f"`{name}`: {units:,} cells and seeds, of which {failures or 'all have every score'}."


def verdict_counts(statements: Mapping[str, Sequence[Finding]]) -> str:
    """A sentence that counts the verdicts of all statements, each once however many rows it has."""
    counts = Counter(map(overall, statements.values()))
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    rows = sum(map(len, statements.values()))
    return f"The {len(statements)} statements below, of {rows} rows: {parts}."


def by_statement(title: str, findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Rows of the same statement under the same convention; rows of no other are the section's.

    Questions of our own are no statements.
    """
    statements: dict[str, list[Finding]] = {}
    for finding in (row for row in findings if row.paper != OURS):
        statements.setdefault(f"{finding.of or title} {finding.under}", []).append(finding)
    return statements


def run_all(
    study: Study, experiments: Mapping[str, Experiment], page: Path
) -> tuple[list[str], dict[str, list[Finding]], str]:
    """Sections and statements of experiments, whose figures go beside the page; a table of times.

    Args:
        study: tables and recordings.
        experiments: experiments by name, in the order of the page.
        page: the file; figures go into `figures` beside it.
    """
    sections: list[str] = []
    statements: dict[str, list[Finding]] = {}
    seconds = []
    for name, experiment in experiments.items():
        absent = [file for file in experiment.needs if not (study.data_dir / file).is_file()]
        if absent:
            typer.echo(f"{name} left out, for want of {', '.join(absent)}", err=True)
            continue
        start = time.monotonic()
        outcome = experiment.outcome(study)
        figure = None
        if outcome.figure:
            (png,) = save(outcome.figure, page.parent / "figures" / name, ("png",))
            figure = png.relative_to(page.parent)
        if outcome.kept:
            outcome.frame.to_parquet(page.parent / f"{name}.parquet", index=False)
        duration = time.monotonic() - start
        typer.echo(f"{name} {duration:.1f} s", err=True)
        seconds.append((f"`{name}`", f"{duration:.0f}"))
        statements |= by_statement(experiment.title, outcome.findings)
        sections += section(name, experiment.title, outcome, figure)
    return sections, statements, markdown_table(("experiment", "seconds"), seconds)


def write_page(name: str, study: Study, experiments: Mapping[str, Experiment], page: Path) -> None:
    """Run experiments and write their page, one of `HEADS`.

    Those with recordings list them; the report has the three findings about kernels too.
    """
    sections, statements, times = run_all(study, experiments, page)
    counts = verdict_counts(statements)
    before = [counts] if statements else []  # questions of ours are none
    after = ["## Time", times]
    if name == "report":
        before = [counts, MEANS]
        note = "Of this report's own run, start-up left out."
        after = [*recordings(study, NASBench201), "## Time", note, times]
    if name == "darts":
        before, after = [], [*recordings(study, Darts), *after]
    page.write_text("\n\n".join([HEADS[name], *before, *sections, *after]) + "\n", encoding="utf-8")
