"""Experiments by name: `python -m experiments NAME`, `python -m experiments list`."""

import importlib
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.study import RECORDED, study_of, write
from ntkscore.downloads import data_home
from ntkscore.errors import InputError

EXPERIMENTS = {
    "benchmark-boxplots": "Accuracies of the benchmark, by data set and metric (Figure 2)",
    "accuracy-distribution": "How accuracies are distributed (Figure 3a)",
    "rank-by-metric": "Ranks of a cell under two metrics (Figure 3b)",
    "rank-across-datasets": "Ranks of a cell on three data sets (Figure 3c)",
    "top-operations": "Operations on the edges of the best cells (Figure 4)",
    "benchmark-agreement": "Spearman between metrics, and with the older table (Table 1)",
    "sparsity": "The best cell for every number of empty edges (Table 5)",
    "ntk-correlation": "Spearman of kernel scores with accuracies (Figures 5 and 6)",
    "sweep": "Joint kernels over β and ρ, against every metric",
    "conventions": "The same scores under other conventions, and the presets",
    "fidelity": "Cheaper settings against full fidelity: agreement, sign and cost",
    "score-combinations": "Scores joined with the parameter count, and what they add to it",
    "search": "Search guided by the table: evolution, random, local (Tables 2 and 7)",
}

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def module_of(name: str) -> Any:
    """The module of an experiment: its `run` takes a study and returns an outcome."""
    return importlib.import_module(f"experiments.{name.replace('-', '_')}")


@app.command("list")
def list_experiments() -> None:
    """Names of the experiments, a line each, and of the recordings that they read."""
    for name, title in EXPERIMENTS.items():
        typer.echo(f"{name:24} {title}")
    recordings = importlib.import_module("experiments.recordings")
    typer.echo(f"recordings: {', '.join(recordings.RECORDINGS)}")


def _register(name: str, title: str) -> None:
    @app.command(name, help=title + ".")
    def command(
        out: Annotated[Path, typer.Option(help="Folder for figure, data and record.")] = Path(
            "runs/experiments"
        ),
        data_dir: Annotated[
            Path | None,
            typer.Option(help="Where tables are; else $NTKSCORE_DATA, else the user cache."),
        ] = None,
        seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
        results: Annotated[
            Path | None,
            typer.Option(help="Folder of recordings other than experiments/results."),
        ] = None,
    ) -> None:
        start = time.monotonic()
        try:
            study = study_of(data_dir, seed, results)
            outcome = module_of(name).run(study)
            paths = write(outcome, study, name, out)
        except InputError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None
        for remark in outcome.remarks:
            typer.echo(remark)
        for path in paths:
            typer.echo(path)
        typer.echo(f"{time.monotonic() - start:.1f} s", err=True)


for _name, _title in EXPERIMENTS.items():
    _register(_name, _title)


@app.command()
def record(
    names: Annotated[
        list[str], typer.Argument(help="Recordings, or how their names begin; list has them.")
    ],
    data_dir: Annotated[Path | None, typer.Option(help="As for an experiment.")] = None,
    work: Annotated[Path, typer.Option(help="Where what is computed is kept.")] = Path(
        "runs/recordings"
    ),
    out: Annotated[Path, typer.Option(help="Where the part that figures use goes.")] = RECORDED,
) -> None:
    """Compute the scores that the experiments read; a stopped one goes on where it was."""
    recordings = importlib.import_module("experiments.recordings")
    try:
        for name in recordings.matching(names):
            typer.echo(recordings.record(name, data_home(data_dir), work, out))
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


@app.command()
def report(
    data_dir: Annotated[Path | None, typer.Option(help="As for an experiment.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    results: Annotated[Path | None, typer.Option(help="As for an experiment.")] = None,
    out: Annotated[Path, typer.Option(help="The page; figures/ comes beside it.")] = RECORDED.parent
    / "REPORT.md",
) -> None:
    """Run every experiment and write one page: what the paper says, and what we measured."""
    page = importlib.import_module("experiments.report")
    try:
        study = study_of(data_dir, seed, results)
        modules = {name: module_of(name) for name in EXPERIMENTS}
        page.write(study, EXPERIMENTS, modules, out)
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(out)


@app.command()
def rerun(
    record: Annotated[Path, typer.Argument(help="A JSON that an experiment left.")],
    out: Annotated[Path, typer.Option(help="Folder for the new files.")],
    data_dir: Annotated[Path | None, typer.Option(help="As for the experiment.")] = None,
) -> None:
    """Run an experiment again from its record; says whether the tables are still the same."""
    try:
        known = json.loads(record.read_text(encoding="utf-8"))
        study = study_of(data_dir, known["seed"], known["results"] and Path(known["results"]))
        if study.checksums() != known["checksums"]:
            typer.echo("tables or recordings are not those of the record", err=True)
        outcome = module_of(known["experiment"]).run(study)
        paths = write(outcome, study, known["experiment"], out)
    except (OSError, ValueError, KeyError) as error:
        typer.echo(f"error: {error}; give the JSON that an experiment left", err=True)
        raise typer.Exit(2) from None
    for path in paths:
        typer.echo(path)


if __name__ == "__main__":
    app()
