"""The command `ntkscore`."""

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _start() -> None:
    """Score neural networks by their neural tangent kernels, without training."""
