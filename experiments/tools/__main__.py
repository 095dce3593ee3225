"""Measurements of a machine by name: `python -m experiments.tools --help`."""

import typer

from experiments.tools import accelerator, benchmark, measures, networks, targets
from ntkscore.cli.display import input_errors

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

for _command in (
    benchmark.benchmark,
    benchmark.first_result,
    measures.measures,
    networks.networks,
    accelerator.accelerator,
    targets.targets,
):
    app.command()(_command)
for _part in (accelerator.whole_space, targets.compile_one):
    app.command(hidden=True)(_part)

if __name__ == "__main__":
    with input_errors():
        app()
