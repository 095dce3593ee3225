"""Experiments by name: `python -m experiments NAME`, `python -m experiments list`."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from experiments import recordings, report
from experiments.ours import (
    conventions,
    default_score,
    fidelity,
    measures,
    sweep,
    train_free_search,
)
from experiments.paper import (
    boxplots,
    distribution,
    ntk_correlation,
    ranks,
    search,
    sparsity,
    table_agreement,
    top_operations,
)
from experiments.study import RECORDED, Experiment, study_of, write_outcome
from experiments.theory.studies import THEORY
from experiments.training import beta, proof
from ntkscore.data.images import load
from ntkscore.errors import InputError
from ntkscore.paths import data_home

EXPERIMENTS = {
    "benchmark-boxplots": Experiment(
        "Accuracies of the benchmark, by data set and metric (Figure 2)", boxplots.run
    ),
    "accuracy-distribution": Experiment(
        "How accuracies are distributed (Figure 3a)", distribution.run
    ),
    "rank-by-metric": Experiment("Ranks of a cell under two metrics (Figure 3b)", ranks.by_metric),
    "rank-across-datasets": Experiment(
        "Ranks of a cell on three data sets (Figure 3c)", ranks.across_datasets
    ),
    "top-operations": Experiment(
        "Operations on the edges of the best cells (Figures 4 and 8)", top_operations.run
    ),
    "benchmark-agreement": Experiment(
        "Spearman between metrics, and with the older table (Table 1)", table_agreement.run
    ),
    "sparsity": Experiment("The best cell for every number of empty edges (Table 5)", sparsity.run),
    "ntk-correlation": Experiment(
        "Spearman of kernel scores with accuracies (Figures 5 and 6)", ntk_correlation.run
    ),
    "sweep": Experiment("Joint kernels over β and ρ, against every metric", sweep.run),
    "conventions": Experiment(
        "The same scores under other conventions, and the presets", conventions.run
    ),
    "fidelity": Experiment(
        "Cheaper settings against full fidelity: agreement, sign and cost", fidelity.run
    ),
    "measures": Experiment(
        "Every train-free measure against every accuracy, beside counting", measures.run
    ),
    "default-score": Experiment(
        "Sums of measures, chosen on half of the cells and tested on the other", default_score.run
    ),
    "train-free-search": Experiment(
        "Search by the default score, against ranking everything", train_free_search.run
    ),
    "search": Experiment(
        "Search guided by the table: evolution, random, local (Tables 2 and 7)", search.run
    ),
}
TRAINING = {
    "training-beta": Experiment("Clean and robust accuracy of a small cell over β (R2)", beta.run),
    "training-proof": Experiment(
        "The best-scored cell, the largest and random ones, trained small", proof.run
    ),
}

Full = Annotated[
    bool, typer.Option("--full", help="Sizes for an accelerator, of experiments about the theory.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with the tables; else $NTKSCORE_DATA, else the user cache."),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Results = Annotated[
    Path | None, typer.Option(help="Folder of recordings other than experiments/results.")
]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command("list")
def list_experiments() -> None:
    """Names of the experiments, with their titles, and of the recordings that they read."""
    for name, experiment in (EXPERIMENTS | THEORY | TRAINING).items():
        typer.echo(f"{name:24} {experiment.title}")
    typer.echo(f"recordings: {', '.join(recordings.RECORDINGS)}")


def enlarge(experiment: Experiment) -> None:
    """Put an experiment's sizes for an accelerator in the place of those for two cores.

    Raises:
        InputError: if it has none.
    """
    module = sys.modules[experiment.run.__module__]
    if not hasattr(module, "FULL"):
        raise InputError(f"expected no --full: {experiment.title} has one size; leave it out")
    for constant, value in module.FULL.items():
        setattr(module, constant, value)


def _register(name: str, experiment: Experiment) -> None:
    @app.command(name, help=experiment.title + ".")
    def command(
        out: Annotated[Path, typer.Option(help="Folder for figure, data and record.")] = Path(
            "runs/experiments"
        ),
        data_dir: DataDir = None,
        seed: Seed = 0,
        results: Results = None,
        full: Full = False,
    ) -> None:
        start = time.monotonic()
        try:
            if full:
                enlarge(experiment)
            study = study_of(data_dir, seed, results)
            outcome = experiment.run(study)
            paths = write_outcome(outcome, study, name, out)
        except InputError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None
        for remark in outcome.remarks:
            typer.echo(remark)
        for path in paths:
            typer.echo(path)
        typer.echo(f"{time.monotonic() - start:.1f} s", err=True)


for _name, _experiment in (EXPERIMENTS | THEORY | TRAINING).items():
    _register(_name, _experiment)


@app.command("record")
def make_recordings(
    names: Annotated[
        list[str],
        typer.Argument(help="Names of recordings, or beginnings of names; `list` prints them."),
    ],
    data_dir: DataDir = None,
    work: Annotated[Path, typer.Option(help="Folder for the full result directories.")] = Path(
        "runs/recordings"
    ),
    out: Annotated[Path, typer.Option(help="Folder for the part that figures use.")] = RECORDED,
) -> None:
    """Compute the scores that the experiments read. Run the same command again to resume."""
    try:
        for name in recordings.recordings_named(names):
            typer.echo(recordings.record(name, data_home(data_dir), work, out))
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


@app.command("ship")
def ship() -> None:
    """Put the recorded scores of all cells into the package, for `ntkscore.recorded_scores`."""
    typer.echo(recordings.ship())


@app.command("report")
def write_page(
    data_dir: DataDir = None,
    seed: Seed = 0,
    results: Results = None,
    out: Annotated[Path, typer.Option(help="The page; figures/ comes beside it.")] = RECORDED.parent
    / "REPORT.md",
) -> None:
    """Run every experiment and write one page: the paper's statements beside our measurements."""
    try:
        report.write_report(study_of(data_dir, seed, results), EXPERIMENTS, out)
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(out)


@app.command("theory")
def write_theory(
    data_dir: DataDir = None,
    seed: Seed = 0,
    full: Full = False,
    out: Annotated[Path, typer.Option(help="The page; figures/ comes beside it.")] = RECORDED.parent
    / "THEORY.md",
) -> None:
    """Run every experiment about the theory and write one page; many read MNIST."""
    try:
        study = study_of(data_dir, seed, None)
        # Most of the page takes no images; without them its first hour would be for nothing.
        load("mnist", study.data_dir)
        if full:
            for experiment in THEORY.values():
                enlarge(experiment)
        report.write_theory(study, THEORY, out)
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(out)


@app.command("training")
def write_training(
    data_dir: DataDir = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="The page; figures/ comes beside it.")] = RECORDED.parent
    / "TRAINING.md",
) -> None:
    """Run every experiment that trains networks, on CIFAR-10, and write one page."""
    try:
        report.write_training(study_of(data_dir, seed, None), TRAINING, out)
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(out)


@app.command()
def rerun(
    record: Annotated[Path, typer.Argument(help="A JSON that an experiment left.")],
    out: Annotated[Path, typer.Option(help="Folder for the new files.")],
    data_dir: DataDir = None,
) -> None:
    """Run an experiment again from its record, and say if tables or recordings have changed."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        name, results = content["experiment"], content["results"]
        study = study_of(data_dir, content["seed"], Path(results) if results else None)
        if study.checksums() != content["checksums"]:
            typer.echo("tables or recordings are not those of the record", err=True)
        experiment = (EXPERIMENTS | THEORY | TRAINING)[name]
        paths = write_outcome(experiment.run(study), study, name, out)
    except (OSError, ValueError, KeyError) as error:
        typer.echo(f"error: {error}; give the JSON that an experiment left", err=True)
        raise typer.Exit(2) from None
    for path in paths:
        typer.echo(path)


if __name__ == "__main__":
    app()
