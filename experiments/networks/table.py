"""A table of kernels and measures of networks that nothing here was written for.

Run as `python -m experiments.networks.table`, with `--small` in a few minutes on two cores. Kernels
are compared with plain Jacobians.
"""

import time
from collections.abc import Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer
from jaxtyping import Array, Float

from experiments.networks.setting import CLASSES, TINY, Scale
from experiments.networks.zoo import NETWORKS
from experiments.study import markdown_table
from ntkscore import ntk, score_network
from ntkscore.model import Model, Points
from ntkscore.trace.passes import TracedPasses
from ntkscore.trace.products import cheaper_by_positions

COUNT = 150
"""Points at which a rule is chosen: X and two attacks of it, fifty images each."""


def plain_kernel(model: Model, points: Points) -> Float[Array, "m m"]:
    """The kernel of the logits' sum as its definition reads: the Jacobian, leaf by leaf."""
    return _plain(model.apply, model.params, points)


@partial(jax.jit, static_argnums=0)
def _plain(apply: Any, params: Any, points: Points) -> Array:
    def read(params: Any, point: Array) -> Array:
        return jnp.sum(apply(params, point[None]))

    jacobian = jax.vmap(jax.grad(read), (None, 0))(params, points)
    rows = [leaf.reshape(len(points), -1) for leaf in jax.tree.leaves(jacobian)]
    grams = [jnp.matmul(each, each.T, precision="highest") for each in rows]
    return sum(grams[1:], grams[0])


def error(got: Any, expected: Any) -> float:
    """The Frobenius norm of the difference, relative to what is expected."""
    got, expected = (np.asarray(each, np.float64) for each in (got, expected))
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def errors(name: str, scale: Scale) -> dict[str, float]:
    """Relative errors of the kernel in float64 and float32, against the Jacobian in float64."""
    with jax.enable_x64(True):
        model, points = NETWORKS[name](scale._replace(dtype=jnp.float64))
        expected = plain_kernel(model, points)
        double = error(ntk(model, points), expected)
    model, points = NETWORKS[name](scale)
    return {"float64": double, "float32": error(ntk(model, points), expected)}


def rules(passes: TracedPasses) -> dict[str, float]:
    """Shares of the parameters whose kernel is found by positions, by gradients, or jointly."""
    sizes = [prod(leaf.shape) for leaf in passes.program.leaves]
    shares = {"positions": 0.0, "gradients": 0.0}
    for each in passes.contributions:
        if each.part is not None:
            rule = "positions" if cheaper_by_positions(each.products, COUNT) else "gradients"
            shares[rule] += prod(stop - start for start, stop in each.part.box) / sum(sizes)
    return shares | {"jointly": max(0.0, 1 - sum(shares.values()))}


def missing(model: Model, points: Points) -> str:
    """The measures that are not given, with how many of their rows."""
    labels = np.arange(len(points)) % CLASSES
    rows = score_network(model, np.asarray(points), labels)
    absent = rows[rows["status"] == "not_given"]
    return ", ".join(absent["score"].unique()) or "none"


def measure(name: str, scale: Scale) -> dict[str, str | float]:
    """One network's row."""
    model, points = NETWORKS[name](scale)
    start = time.perf_counter()
    passes = TracedPasses(model, jax.ShapeDtypeStruct(points.shape[1:], points.dtype))
    row: dict[str, str | float] = {
        "network": name,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model.params)),
        "equations": len(passes.program.live),
        "tracing (s)": time.perf_counter() - start,
    }
    counts = {"rectifiers": len(passes.rectifiers), "blocks": len(passes.blocks)}
    row |= errors(name, scale) | rules(passes) | counts
    return row | {"not given": missing(model, points)}


def _cell(name: str, value: Any) -> str:
    if name in ("positions", "gradients", "jointly"):
        return f"{value:.1%}"
    return f"{value:.3g}" if isinstance(value, float) else f"{value}"


def markdown(frame: pd.DataFrame) -> str:
    """A table in Markdown."""
    rows = ([_cell(name, row[name]) for name in frame] for _, row in frame.iterrows())
    return markdown_table(frame, rows) + "\n"


def rows_of(names: list[str], scale: Scale) -> Iterator[dict[str, str | float]]:
    """Rows of networks, each printed when it is there."""
    for name in names:
        yield (row := measure(name, scale))
        typer.echo("  ".join(f"{key} {_cell(key, value)}" for key, value in row.items()), err=True)
        jax.clear_caches()


def main(
    small: Annotated[bool, typer.Option("--small", help="Networks a sixteenth as wide.")] = False,
    network: Annotated[list[str] | None, typer.Option(help="Only these networks.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the table goes, a .md file.")] = None,
) -> None:
    """Compare kernels with plain Jacobians, and count what the traces give."""
    frame = pd.DataFrame(rows_of(network or [*NETWORKS], TINY if small else Scale()))
    table = markdown(frame)
    if out is not None:
        out.write_text(table, encoding="utf-8")
    typer.echo(table)


if __name__ == "__main__":
    typer.run(main)
