"""Measurements of a machine, and one of cells, by name: `python -m experiments.tools --help`."""

import typer

from experiments.tools import accelerator, benchmark, equal_counts, inside
from ntkscore.cli.display import input_errors

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

for _command in (
    *(benchmark.benchmark, benchmark.first_result),
    *(accelerator.accelerator, equal_counts.equal_counts, inside.score_inside),
):
    app.command()(_command)
app.command(hidden=True)(accelerator.whole_space)

if __name__ == "__main__":
    with input_errors():
        app()
