"""The command `python -m experiments.theory`: a training run beside what the bounds say of it."""

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from cells.residual import Residual
from experiments.theory.tasks import draw
from experiments.theory.trials import run_trial
from ntkscore.cli.display import print_frame
from ntkscore.cli.output import Format, input_errors, stderr
from ntkscore.text import parse_fraction

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _start() -> None:
    """Run what the papers prove about training and kernels."""


@app.command()
def train(
    network: Annotated[
        str, typer.Argument(help="Skips of a residual network, such as 10 or 10:relu,tanh,relu.")
    ],
    width: Annotated[int, typer.Option(help="Features of each hidden layer.")] = 64,
    activation: Annotated[str, typer.Option(help="Activation of the hidden layers.")] = "relu",
    activation_scaling: Annotated[
        str, typer.Option(help="Whether activations are scaled by the width: width or literal.")
    ] = "width",
    output_scale: Annotated[
        str, typer.Option(help="Whether outputs are multiplied by √width: literal or sqrt_width.")
    ] = "literal",
    task: Annotated[
        str,
        typer.Option(
            help="Points: margin, tradeoff, or two classes of a data set, such as mnist:0,1."
        ),
    ] = "margin",
    points: Annotated[int, typer.Option(min=2, help="Points, each met once.")] = 300,
    dimension: Annotated[int, typer.Option(help="Of the points of margin and tradeoff.")] = 10,
    mu: Annotated[float, typer.Option(help="Margin of margin's points, from 0 to below 1.")] = 0.25,
    side: Annotated[
        int, typer.Option(min=0, help="Pixels of a side that images are reduced to; 0 leaves them.")
    ] = 0,
    rho: Annotated[str, typer.Option(help="Radius of the caps, a chord from 0 to 2.")] = "0.15",
    attack_steps: Annotated[int, typer.Option(help="Gradient steps of the attack.")] = 10,
    beta: Annotated[str, typer.Option(help="Weight of adversarial training.")] = "0.5",
    rule: Annotated[str, typer.Option(help="Step size: theorem, scaled or constant.")] = "theorem",
    nu: Annotated[float, typer.Option(help="Factor of the step size.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed of points and weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; continued if it exists.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the data sets; else $NTKSCORE_DATA.")
    ] = None,
    format: Annotated[Format, typer.Option(help="What to print on stdout.")] = Format.table,
) -> None:
    """Train a network by one pass over fresh points, and print what the bounds say of it."""
    with input_errors():
        space = Residual(
            width=width,
            activation=activation,
            activation_scaling=activation_scaling,
            output_scale=output_scale,
        )
        radius, weight = parse_fraction(rho), parse_fraction(beta)
        with stderr.status("training"):
            row = run_trial(
                space,
                network,
                draw(task, points, dimension, mu, side, seed, data_dir),
                rho=radius,
                attack_steps=attack_steps,
                beta=weight,
                rule=rule,
                nu=nu,
                seed=seed,
                out=out,
            )
    if format is not Format.table:
        print_frame(pd.DataFrame([row]), format)
        return
    texts = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()]
    print_frame(
        pd.DataFrame({"name": list(row), "value": texts}),
        format,
        f"Algorithm 1, task {task}, β = {weight:g}, ρ = {radius:g}",
        "Errors are in expectation over the network that the algorithm returns; PGD's is from "
        "below. Terms are the bounds without their constants: to be compared, not believed.",
    )


if __name__ == "__main__":
    app()
