"""The command `ntkscore`."""

import platform
from importlib import metadata
from typing import Annotated

import typer

VERSIONED = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "pandas", "pyarrow")
"""Packages whose versions a result may depend on."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> bool:
    """Print versions and devices, and end."""
    if not asked:
        return asked
    import jax

    import ntkscore

    others = ", ".join(f"{name} {metadata.version(name)}" for name in VERSIONED)
    print(f"ntkscore {ntkscore.__version__}")
    print(f"Python {platform.python_version()}, {others}")
    print(", ".join(f"{device.platform} {device.device_kind}" for device in jax.devices()))
    raise typer.Exit


@app.callback()
def _start(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print versions and devices.", is_eager=True, callback=_version
        ),
    ] = False,
) -> None:
    """Score neural networks by their neural tangent kernels, without training."""
