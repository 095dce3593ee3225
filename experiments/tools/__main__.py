"""Measurements of a machine, and one of cells, by name: `python -m experiments.tools --help`."""

import typer

from experiments.tools import accelerator, benchmark, equal_counts, nares
from ntkscore.cli.display import input_errors

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

_COMMANDS = benchmark.benchmark, benchmark.first_result, accelerator.accelerator
for _command in (*_COMMANDS, equal_counts.equal_counts, nares.score_nares):
    app.command()(_command)
app.command(hidden=True)(accelerator.whole_space)

if __name__ == "__main__":
    with input_errors():
        app()
