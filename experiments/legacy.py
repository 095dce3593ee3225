"""Experiments that are not yet studies of the frame, by name; it goes with the last of them."""

import time
from pathlib import Path
from typing import Annotated

import typer

from experiments import report
from experiments.darts import measures as darts_measures
from experiments.darts import printed, printed_tables, transfer
from experiments.ours import (
    conventions,
    default_score,
    fidelity,
    measures,
    sweep,
    train_free_search,
    within_counts,
)
from experiments.paper import (
    accuracies,
    ntk_correlation,
    ranks,
    search,
    sparsity,
    table_agreement,
    top_operations,
)
from experiments.prediction import few_across, few_calibration, few_labels, few_trained
from experiments.study import (
    BENCHMARK,
    DARTS_TABLE,
    DATASET,
    OLDER,
    RECORDED,
    Experiment,
    Study,
    check_data,
    write_outcome,
)
from experiments.training import beta, corruptions, differentiable, proof
from ntkscore.cli.display import input_errors
from ntkscore.paths import data_home

EXPERIMENTS = {
    "benchmark-boxplots": Experiment(
        "Accuracies of the benchmark, by data set and metric (Figure 2)", accuracies.ranges
    ),
    "accuracy-distribution": Experiment(
        "How accuracies are distributed (Figure 3a)", accuracies.distribution
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
    "within-counts": Experiment(
        "The order of cells of equal counts, by every train-free measure", within_counts.run
    ),
    "default-score": Experiment(
        "Sums of measures, chosen within half of the cells and tested on the other",
        default_score.run,
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
        "Forty cells, trained small: their order before and after", proof.run
    ),
    "training-corruptions": Experiment(
        "Cells trained small, under corruptions and strong attacks (Tables 4 to 6, Figure 7)",
        corruptions.run,
    ),
    "training-differentiable": Experiment(
        "Searches over a network of all operations: DARTS and AdvRush (Table 7)",
        differentiable.run,
    ),
}
DARTS = {
    "darts-measures": Experiment(
        "Every train-free measure of DARTS cells against accuracy, beside counting",
        darts_measures.run,
    ),
    "darts-transfer": Experiment("Sums chosen on one space, tested on the other", transfer.run),
    "darts-printed": Experiment(
        "Wide residual networks: sums chosen elsewhere, tested there",
        printed.run,
        (printed_tables.WIDE, printed_tables.GENOTYPES),
    ),
}
PREDICTION = {
    "few-labels": Experiment(
        "Robust accuracies, predicted from those of a few trained networks", few_labels.run
    ),
    "few-calibration": Experiment(
        "How sure the predictions are, and where they are wrong", few_calibration.run
    ),
    "few-trained": Experiment(
        "Networks to train until one of the ten best is among them", few_trained.run
    ),
    "few-across": Experiment(
        "Accuracies predicted on one space from those of another", few_across.run
    ),
}
ALL = EXPERIMENTS | TRAINING | DARTS | PREDICTION

PAGES = {
    "report": (
        *(EXPERIMENTS, "the paper's statements beside our measurements"),
        (BENCHMARK, OLDER),
    ),
    "training": (TRAINING, "those that train networks, on CIFAR-10", (DATASET, BENCHMARK)),
    "darts": (
        *(DARTS, "DARTS cells, trained adversarially, from the table Tiny-RobustBench"),
        (DARTS_TABLE, BENCHMARK),
    ),
    "prediction": (
        *(PREDICTION, "accuracies predicted from those of a few trained networks"),
        (BENCHMARK, DARTS_TABLE),
    ),
}
"""Pages by name: their experiments, what they are about, and the data that they read."""

Full = Annotated[
    bool, typer.Option("--full", help="Sizes for an accelerator, of experiments that have them.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with the tables; else $NTKSCORE_DATA, else the user cache."),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Results = Annotated[Path, typer.Option(help="Folder of the recordings.")]


def _register(app: typer.Typer, name: str, experiment: Experiment) -> None:
    @app.command(name, help=experiment.title + ".")
    def command(
        out: Annotated[Path, typer.Option(help="Folder for figure, data and record.")] = Path(
            "runs/experiments"
        ),
        data_dir: DataDir = None,
        seed: Seed = 0,
        results: Results = RECORDED,
        full: Full = False,
    ) -> None:
        start = time.monotonic()
        with input_errors():
            study = Study(data_home(data_dir), seed, results, full)
            outcome = experiment.outcome(study)
            paths = write_outcome(outcome, study, name, out)
        for line in (*outcome.remarks, *paths):
            typer.echo(line)
        typer.echo(f"{time.monotonic() - start:.1f} s", err=True)


def _register_page(
    app: typer.Typer,
    name: str,
    experiments: dict[str, Experiment],
    about: str,
    data: tuple[str, ...],
) -> None:
    usual = RECORDED.parent / f"{name.upper()}.md"

    @app.command(
        name, help=f"Run experiments and write one page: {about}. Reads {', '.join(data)}."
    )
    def command(
        data_dir: DataDir = None,
        seed: Seed = 0,
        results: Results = RECORDED,
        full: Full = False,
        out: Annotated[Path, typer.Option(help="The page; figures/ comes beside it.")] = usual,
    ) -> None:
        with input_errors():
            study = Study(data_home(data_dir), seed, results, full)
            # What some of them read late would be missing after minutes, or an hour.
            check_data(study.data_dir, data)
            report.write_page(name, study, experiments, out)
        typer.echo(out)


def register(app: typer.Typer) -> None:
    """Add the commands of all of them."""
    for name, experiment in ALL.items():
        _register(app, name, experiment)
    for name, page in PAGES.items():
        _register_page(app, f"{name}-page", *page)
