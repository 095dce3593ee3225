"""The options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ntkscore.config import ATTACKS, Config, parse_fraction
from ntkscore.display import Format

CELLS_HELP = "Cells: an index (2581), six digits (323133) or a genotype string."
SCORING = "How cells are scored"
MACHINE = "Devices and processes"

Cells = Annotated[list[str], typer.Argument(help=CELLS_HELP, show_default=False)]
Form = Annotated[Format, typer.Option("--format", help="What to print on stdout.")]
TablePath = Annotated[
    Path, typer.Option("--table", help="A benchmark table, or the folder with it.")
]
Dataset = Annotated[str, typer.Option(help="Data set of the accuracies.")]


def _option(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=SCORING)


def _machine(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=MACHINE)


Data = Annotated[
    str,
    _option("synthetic (embedded), cifar10, cifar100, imagenet16-120, or an .npz file.", "--data"),
]
DataDir = Annotated[
    Path | None,
    _option("Where data sets are; else $NTKSCORE_DATA, else the user cache.", "--data-dir"),
]
Samples = Annotated[int, _option("Images per cell.")]
Balanced = Annotated[bool, _option("Draw the classes equally often.", "--balanced")]
Seed = Annotated[int, _option("Of the images, the weights and the choice of cells.")]
Seeds = Annotated[int, _option("How many seeds to score with, from --seed on.")]
Channels = Annotated[int, _option("Width of the first stage.")]
CellsPerStage = Annotated[int, _option("Cells in each of the three stages.")]
Init = Annotated[str, _option("torch, he, he_fan_out, xavier or ntk.")]
Bn = Annotated[str, _option("calibrated, init or batch.")]
Output = Annotated[str, _option("Reading of the logits: sum, trace, label or loss.")]
Parameters = Annotated[str, _option("all, weights or conv_linear.")]
AttackName = Annotated[str, _option(" or ".join(ATTACKS) + ".", "--attack")]
Rhos = Annotated[list[str], _option("Attack radius on the pixel scale; repeatable.", "--rho")]
Steps = Annotated[int | None, _option("Steps of PGD; 7 if left out.")]
StepSize = Annotated[str | None, _option("Step of PGD; ρ/4 if left out.")]
RandomStart = Annotated[bool, _option("Begin PGD at a random point.", "--random-start")]
Beta = Annotated[list[float], _option("Weight of adversarial training; repeatable.", "--beta")]
X64 = Annotated[bool, _option("Compute in float64.", "--x64")]
BatchSize = Annotated[
    int | None,
    _machine("Cells per device and call; chosen from the free memory if left out.", "--batch"),
]
Distributed = Annotated[
    bool, _machine("One of several processes, as JAX detects them (SLURM, TPU…).", "--distributed")
]
Coordinator = Annotated[str | None, _machine("HOST:PORT of the first process.")]
Processes = Annotated[int | None, _machine("How many processes share the cells.")]
Process = Annotated[int | None, _machine("Which of them this is, from 0.")]
Implementation = Annotated[str, _option("auto, jacobian or ntvp.")]


def make_config(**choices: Any) -> Config:
    """The config of a command line; `rho` and `step_size` are still text."""
    rhos = tuple(parse_fraction(text) for text in choices.pop("rho"))
    step_size = choices.pop("step_size")
    return Config(
        rhos=rhos,
        betas=tuple(choices.pop("beta")),
        step_size=None if step_size is None else parse_fraction(step_size),
        **choices,
    )
