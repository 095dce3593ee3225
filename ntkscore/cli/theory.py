"""The commands about the theory."""

from pathlib import Path
from typing import Annotated

import typer

from cells.space import Space
from ntkscore.cli import options as o
from ntkscore.cli.app import app
from ntkscore.cli.output import Format, stderr
from ntkscore.theory.settings import Trial

theory = typer.Typer(no_args_is_help=True)
app.add_typer(theory, name="theory")


@theory.callback()
def _start() -> None:
    """Run what the papers prove about training and kernels."""


@o.command(theory)
def train(
    network: Annotated[
        str, typer.Argument(help="Skips of a residual network, such as 10 or 10:relu,tanh,relu.")
    ],
    seed: Annotated[int, typer.Option(help="Random seed of points and weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; continued if it exists.")
    ] = None,
    data_dir: o.DataDir = None,
    *,
    trial: Trial,
    space: Space,
    format: o.OutputFormat = Format.table,
) -> None:
    """Train a network by one pass over fresh points, and print what the bounds say of it."""
    import pandas as pd

    from ntkscore.cli.display import print_frame
    from ntkscore.theory.trials import run_trial

    with stderr.status("training"):
        row = run_trial(space, network, trial, seed, out, data_dir)
    if format is not Format.table:
        print_frame(pd.DataFrame([row]), format)
        return
    frame = pd.DataFrame({"name": list(row), "value": [_text(value) for value in row.values()]})
    print_frame(
        frame,
        format,
        f"Algorithm 1, task {trial.task}, β = {trial.beta:g}, ρ = {trial.rho:g}",
        "Errors are in expectation over the network that the algorithm returns; PGD's is from "
        "below. Terms are the bounds without their constants: to be compared, not believed.",
    )


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
