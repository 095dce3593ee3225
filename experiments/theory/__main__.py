"""The command `python -m experiments.theory`: a training run beside what the bounds say of it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cells.residual import Residual
from experiments.theory.tasks import draw
from experiments.theory.trials import run_trial
from ntkscore.cli.display import Format, print_frame, stderr
from ntkscore.errors import InputError
from ntkscore.text import parse_fraction

OPTIONS: dict[str, tuple[int | float | str, str]] = {
    "width": (64, "features of each hidden layer"),
    "activation": ("relu", "activation of the hidden layers"),
    "activation_scaling": ("width", "whether activations are scaled by the width: width, literal"),
    "output_scale": ("literal", "whether outputs are multiplied by √width: literal, sqrt_width"),
    "task": ("margin", "points: margin, tradeoff, or two classes of a data set like mnist:0,1"),
    "points": (300, "points, each met once"),
    "dimension": (10, "dimension of the points of margin and tradeoff"),
    "mu": (0.25, "margin of the points of margin, from 0 to below 1"),
    "side": (0, "pixels of a side that images are reduced to; 0 leaves them"),
    "rho": ("0.15", "radius of the caps, a chord from 0 to 2"),
    "attack_steps": (10, "gradient steps of the attack"),
    "beta": ("0.5", "weight of adversarial training"),
    "rule": ("theorem", "step size: theorem, scaled, constant"),
    "nu": (1.0, "factor of the step size"),
    "seed": (0, "random seed of points and weights"),
}
SPACE = ("width", "activation", "activation_scaling", "output_scale")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a network by one pass over fresh points, and print what the bounds say of it."""
    parser = argparse.ArgumentParser(prog="python -m experiments.theory", description=main.__doc__)
    train = parser.add_subparsers(required=True).add_parser("train", description=main.__doc__)
    train.add_argument("network", help="skips of a residual network: 10 or 10:relu,tanh,relu")
    for name, (default, text) in OPTIONS.items():
        flag, text = f"--{name.replace('_', '-')}", f"{text} (default: {default})"
        train.add_argument(flag, type=type(default), default=default, help=text)
    train.add_argument("--data-dir", type=Path, help="folder with data; else $NTKSCORE_DATA")
    train.add_argument("--format", type=Format, default=Format.table, help="table, json or csv")
    options = parser.parse_args(arguments)
    try:
        rho, beta = parse_fraction(options.rho), parse_fraction(options.beta)
        sizes = (options.points, options.dimension, options.mu, options.side, options.seed)
        with stderr.status("training"):
            row = run_trial(
                Residual(**{name: getattr(options, name) for name in SPACE}),
                options.network,
                draw(options.task, *sizes, options.data_dir),
                rho=rho,
                attack_steps=options.attack_steps,
                beta=beta,
                rule=options.rule,
                nu=options.nu,
                seed=options.seed,
            )
    except InputError as error:
        parser.exit(2, f"error: {error}\n")
    if options.format is not Format.table:
        return print_frame(pd.DataFrame([row]), options.format)
    texts = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()]
    print_frame(
        pd.DataFrame({"name": list(row), "value": texts}),
        options.format,
        f"Algorithm 1, task {options.task}, β = {beta:g}, ρ = {rho:g}",
        "Errors are in expectation over the network that the algorithm returns; PGD's is from "
        "below. Terms are the bounds without their constants: to be compared, not believed.",
    )


if __name__ == "__main__":
    main()
