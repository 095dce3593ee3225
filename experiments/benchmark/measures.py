"""Seconds per cell of every train-free measure by itself, beside the kernels.

Run as `python -m experiments.benchmark.measures`. Each is measured warm and alone, with the passes
that it would share with the kernel; what the kernel's way gives for nothing costs nothing more
there.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer

from experiments.benchmark.work import FULL, Fidelity, seconds, spread_cells
from ntkscore import draw_images, load_images
from ntkscore.kernels.gram import evaluate
from ntkscore.kernels.implementations import Forward
from ntkscore.kernels.own_passes import of_perturbations, pullback_products, zen
from ntkscore.kernels.probes import correlation, equal_states, feature_products, synflow
from ntkscore.kernels.reductions import of_features, of_fisher, of_pullbacks
from ntkscore.kernels.weight_gradients import fisher, of_gradients
from ntkscore.model import Model
from ntkscore.run.devices import compiler_options
from ntkscore.run.scorer import Scorer

MODERATE = Fidelity.of(samples=16, channels=8, cells_per_stage=5)
Function = Callable[[Model, Any, Any], Any]
KEY = 0
FEATURES, TRAINABILITY = "expressivity, progressivity", "trainability"
FISHER = "fisher_entropy, vkdnw"


def inside(model: Model, x: jax.Array) -> Any:
    """What a forward pass leaves of the network's inside."""
    assert model.passes is not None
    _, kept = model.passes.forward(model.params, x)
    return model.passes.activations(model.params, kept)


def slopes(model: Model, x: jax.Array, y: jax.Array) -> jax.Array:
    """The correlation of the gradients of the logit sum in the images."""
    assert model.passes is not None
    logits, kept = model.passes.forward(model.params, x)
    return correlation(model.passes.gradient(model.params, kept, jnp.ones_like(logits)))


def signs_back(model: Model, x: jax.Array, y: jax.Array) -> Any:
    """Products of random signs at each block with what its way back makes of them."""
    assert model.passes is not None
    _, kept = model.passes.forward(model.params, x)
    return pullback_products(model.passes.pullbacks(model.params, kept, jax.random.key(KEY)))


def noise(model: Model, x: jax.Array, y: jax.Array) -> Any:
    """The change that Gaussian noise at the input makes, as Zen counts it."""
    assert model.passes is not None
    return zen(model.passes.standardized, model.params, x, jax.random.key(KEY))


def small_changes(model: Model, x: jax.Array, y: jax.Array) -> Any:
    """How the outputs answer to small changes of the images."""
    passes = model.passes
    assert passes is not None
    logits, kept = passes.forward(model.params, x)
    pullback = lambda s: passes.gradient(model.params, kept, s)  # noqa: E731
    return of_perturbations(model, x, logits, pullback, jax.random.key(KEY))


def forward(model: Model, x: jax.Array) -> Forward:
    """A forward pass and what it leaves."""
    assert model.passes is not None
    logits, kept = model.passes.forward(model.params, x)
    return Forward(model.passes, [logits], [kept])


def of_weights(model: Model, x: jax.Array, y: jax.Array) -> Any:
    """Numbers of the weights' gradients."""
    return of_gradients(forward(model, x), model.params, y)


def information(model: Model, x: jax.Array, y: jax.Array) -> Any:
    """The Fisher information of a weight a layer."""
    return [fisher(forward(model, x), model.params)[None]]


def flow(model: Model, x: jax.Array, y: jax.Array) -> Any:
    """SynFlow of the network without its normalisations."""
    assert model.passes is not None
    return synflow(model.passes, model.params, x)


MEASURES: dict[str, Function] = {
    "synflow": flow,
    "naswot": lambda model, x, y: equal_states(inside(model, x)),
    FEATURES: lambda model, x, y: feature_products(inside(model, x)),
    "jacov, epe_nas": slopes,
    "zen": noise,
    TRAINABILITY: signs_back,
    "stability, flip_distance": small_changes,
    "grad_norm, snip, zico": of_weights,
    FISHER: information,
    "the clean kernel": lambda model, x, y: evaluate(model, x, y).gram[0],
}
"""What a program hands out for each measure."""
ON_THE_HOST = {FEATURES: of_features, TRAINABILITY: of_pullbacks, FISHER: of_fisher}
"""What the host reduces it by, where that takes time."""


def measure(fidelity: Fidelity, count: int) -> Iterator[dict[str, Any]]:
    """A row for each measure: the median over some cells."""
    data = load_images("synthetic")
    space, config = fidelity.space.on(data.task), fidelity.config
    cells = spread_cells(count)
    scorer = Scorer(space, config)
    batch = scorer.batch(*draw_images(data, config.samples, 0, False), 0)
    own = Scorer(space, replace(config, proxies=True))

    def timed(compute: Callable[[Any], Any]) -> float:
        return statistics.median(seconds(lambda cell=cell: compute(cell)) for cell in cells)

    where = {"images": config.samples, "C": space.channels, "N": space.cells_per_stage}
    for name, function in MEASURES.items():

        def compute(digits: Any, variables: Any, x: Any, y: Any, function: Any = function) -> Any:
            return function(space.model((), variables, digits, x), x, y)

        program = jax.jit(compute, compiler_options=compiler_options())

        def run(cell: Any, program: Any = program, name: str = name) -> Any:
            digits = jnp.asarray(space.encode(cell))
            out = program(digits, batch.variables, batch.images, batch.labels)
            reduce = ON_THE_HOST.get(name)
            return reduce([np.asarray(each) for each in out]) if reduce else out

        jax.block_until_ready(run(cells[0]))
        yield where | {"measure": name, "seconds": timed(run)}
    for name, each in (("all kernels, FGSM", scorer), ("the same with --proxies", own)):
        whole = lambda cell, each=each: each.start([cell], batch).rows()  # noqa: E731
        whole(cells[0])
        yield where | {"measure": name, "seconds": timed(whole)}


def main(
    count: Annotated[int, typer.Option(help="Cells, from the smallest to the largest.")] = 9,
) -> None:
    """Time every measure."""
    rows = [row for fidelity in (FULL, MODERATE) for row in measure(fidelity, count)]
    frame = pd.DataFrame(rows).pivot(
        index="measure", columns=["images", "C", "N"], values="seconds"
    )
    typer.echo(frame.loc[list(dict.fromkeys(row["measure"] for row in rows))].round(3).to_string())


if __name__ == "__main__":
    typer.run(main)
