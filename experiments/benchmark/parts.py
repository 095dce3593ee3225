"""Single parts of the work: layers, measures, a training step; and cost against sizes."""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer
from jax import lax
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from cells import Cell
from cells import layers as cell_layers
from cells.nasbench201.space import NASBench201
from cells.tasks import Task
from experiments.benchmark.work import in_turns, prepared, seconds, spread_cells
from experiments.plotting import COLUMN, save
from experiments.recordings import FULL_FIDELITY, MODERATE, Choices
from ntkscore import grams
from ntkscore.kernels.gram import evaluate
from ntkscore.measures import MEASURES
from ntkscore.measures.declaration import ATTACKED_ONCE, NETWORK, Quantity, measures_of, quantities
from ntkscore.measures.forward import Pass
from ntkscore.measures.slopes import SLOPES, correlation
from ntkscore.run.devices import compiler_options
from ntkscore.trace.passes import passes_of
from ntkscore.training.optimizer import optimizer
from ntkscore.training.recipe import Recipe
from ntkscore.training.steps import State, step

VALUES = {
    "samples": ("images N", (16, 32, 50, 100)),
    "channels": ("channels C", (4, 8, 16, 32)),
    "cells_per_stage": ("cells per stage", (1, 2, 3, 5)),
}
"""Labels and values of the choices whose cost is drawn."""
STAGES = ((32, 16), (16, 32), (8, 64))
"""Side and channels of each stage at C = 16 and 32×32 pixels."""
IMAGES = (1, 5, 10, 25, 50, 150)
COLUMNS = (256, 1024, 2304, 9216, 36864)


def stack_seconds(cell: Cell, choices: Choices) -> float:
    """Warm seconds of one cell's stack on the first device."""
    _, scorer, batch = prepared(choices)
    jax.block_until_ready(scorer.start([cell], batch).stacks)
    return seconds(lambda: scorer.start([cell], batch).stacks)


def stack_costs(cell: Cell) -> Iterator[dict[str, str | int | float]]:
    """Seconds at every value of each choice, the others being those of full fidelity."""
    full = stack_seconds(cell, FULL_FIDELITY)
    for name, (_, values) in VALUES.items():
        for value in values:
            choices = FULL_FIDELITY | {name: value}
            taken = full if choices == FULL_FIDELITY else stack_seconds(cell, choices)
            yield {"choice": name, "value": value, "seconds": taken}


def draw(frame: pd.DataFrame) -> Figure:
    """A panel for each choice."""
    size = (COLUMN * 2, 0.7 * COLUMN)
    figure, axes = plt.subplots(1, len(VALUES), figsize=size, sharey=True)
    for axis, (name, part) in zip(axes, frame.groupby("choice", sort=False), strict=True):
        axis.plot(part["value"], part["seconds"], marker="o", markersize=4)
        axis.set_xlabel(VALUES[str(name)][0])
        axis.set_xscale("log", base=2)
        axis.set_xticks(part["value"], map(str, part["value"]))
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter("{x:g}")
    axes[0].set_ylabel("seconds per cell, FGSM stack")
    return figure


def cost(
    out: Annotated[Path, typer.Option(help="Where figure and data go, without an ending.")],
    cell: Annotated[str, typer.Option(help="Which cell.")] = "323133",
) -> None:
    """Draw seconds per cell against the number of images, channels and cells per stage.

    One cell, the FGSM stack, warm. Each point is a shape of its own and so a compilation of its
    own, which is not counted.
    """
    frame = pd.DataFrame(stack_costs(Cell.parse(cell)))
    frame.to_csv(out.with_suffix(".csv"), index=False)
    for path in save(draw(frame), out):
        typer.echo(path)


def milliseconds(function: Callable[..., Any], *arrays: jax.Array) -> float:
    """Milliseconds of the shortest of several warm runs of a function, compiled anew."""
    # A new function, since the choices are no part of what jit remembers a program by.
    compiled = jax.jit(lambda *arrays: function(*arrays))
    jax.block_until_ready(compiled(*arrays))
    return 1e3 * seconds(lambda: compiled(*arrays), 10)


def normal(seed: int, *shape: int) -> jax.Array:
    """Random numbers of a shape."""
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


def layer_times(count: int) -> Iterator[tuple[str, str, str, float]]:
    """Layer, stage, choice and milliseconds."""
    gradients = partial(grams.kernel_gradients, sides=(3, 3))
    plain = lambda rows: jnp.matmul(rows, rows.T, precision=grams.PRECISION)  # noqa: E731
    for side, channels in STAGES:
        stage = f"{side}×{side}×{channels}"
        x, g = (normal(seed, count, side, side, channels) for seed in (0, 1))
        kernel = normal(2, 3, 3, channels, channels)
        yield "convolution", stage, "", milliseconds(cell_layers.convolve, x, kernel)
        for images in IMAGES:
            with patch.object(grams, "CPU_IMAGES", images):
                taken = milliseconds(gradients, x, g)
            yield "gradients", stage, f"{images} images at once", taken
        rows = normal(3, count, 9 * channels**2)
        yield "Gram", stage, "one product", milliseconds(plain, rows)
        for columns in (each for each in COLUMNS if each <= rows.shape[1]):
            with patch.multiple(grams, CPU_COLUMNS=columns, CPU_BYTES=0):
                taken = milliseconds(grams.square, rows)
            yield "Gram", stage, f"{columns} columns at once", taken
    ways = {"fast form": cell_layers.transposed_convolve, "transposition rule": by_rule}
    for side, channels in STAGES[:-1]:
        x = normal(0, count // 2, side, side, channels)
        # In a loop, as attacks are.
        g = normal(1, 2, count // 2, side // 2, side // 2, 2 * channels)
        kernel = normal(2, 3, 3, channels, 2 * channels)
        for choice, way in ways.items():
            step = lambda g, k, x=x, way=way: lax.map(lambda half: way(half, k, x, 2), g)  # noqa: E731
            taken = milliseconds(step, g, kernel)
            yield "transposed, stride 2", f"{side}×{side}×{channels}", choice, taken


def by_rule(g: jax.Array, kernel: jax.Array, x: jax.Array, stride: int) -> jax.Array:
    """The transposed convolution that JAX derives from the convolution."""
    (dx,) = jax.linear_transpose(lambda x: cell_layers.convolve(x, kernel, stride), x)(g)
    return dx


def layers(
    count: Annotated[int, typer.Option(help="Images, three times those of a stack.")] = 150,
) -> None:
    """Time single layers with each choice that `ntkscore.grams` and `cells.layers` make on a CPU.

    How many images have their patches at once, how many columns of the per-image gradients are
    multiplied at once, and how a convolution is transposed in a loop.
    """
    frame = pd.DataFrame(layer_times(count), columns=["layer", "stage", "choice", "milliseconds"])
    typer.echo(frame.to_string(index=False, float_format="{:.2f}".format))


def input_gradient_correlation(at: Pass) -> jax.Array:
    """The correlation of the gradients of the logit sum in the images."""
    return correlation(at.pullback(jnp.ones_like(at.logits)))


def timed_quantities() -> dict[Quantity, Callable[[Pass], Any]]:
    """Quantities of one set of images, and of the network alone; the loss costs nothing."""
    once = {*ATTACKED_ONCE[:1], NETWORK}
    computed = {q: q.compute for q in quantities() if q.compute and once & {*q.at}}
    del computed[MEASURES["loss"].of]
    return {SLOPES: input_gradient_correlation, **computed}


def measure_times(choices: Choices, count: int) -> Iterator[dict[str, Any]]:
    """A row for each measure: the median of the seconds over some cells."""
    cells = spread_cells(count)
    space, scorer, batch = prepared(choices)
    _, with_proxies, _ = prepared(choices | {"proxies": True})

    def row(name: str, compute: Callable[[Cell], Any]) -> dict[str, Any]:
        jax.block_until_ready(compute(cells[0]))
        taken = statistics.median(seconds(partial(compute, cell)) for cell in cells)
        sizes = {"images": choices["samples"], "C": space.channels, "N": space.cells_per_stage}
        return sizes | {"measure": name, "seconds": taken}

    def runner(
        function: Callable[[Pass], Any], read: Callable[[Any], Any] | None
    ) -> Callable[[Cell], Any]:
        """A function of a cell: a compiled program, and what the host does with its arrays."""

        @partial(jax.jit, compiler_options=compiler_options())
        def program(digits: Any, variables: Any, x: Any, y: Any) -> Any:
            model = space.model((), variables, digits, x)
            return function(Pass(model, passes_of(model, x), x, y, jax.random.key(0)))

        def run(cell: Cell) -> Any:
            digits = jnp.asarray(space.encode(cell))
            out = program(digits, batch.variables, batch.images, batch.labels)
            return read(jax.tree.map(np.asarray, out)) if read else out

        return run

    for quantity, function in timed_quantities().items():
        yield row(", ".join(measures_of(quantity)), runner(function, quantity.read))
    clean = runner(lambda at: evaluate(at.model, at.points, at.labels).gram[0], None)
    yield row("the clean kernel", clean)
    yield row("all kernels, FGSM", lambda cell: scorer.start([cell], batch).rows())
    yield row("the same with --proxies", lambda cell: with_proxies.start([cell], batch).rows())


def measures(
    count: Annotated[int, typer.Option(help="Cells, from the smallest to the largest.")] = 9,
) -> None:
    """Time every train-free measure by itself, beside the kernels.

    Each is measured warm and alone, with the passes that it would share with the kernel. Beside a
    kernel those passes cost nothing more.
    """
    rows = [row for choices in (FULL_FIDELITY, MODERATE) for row in measure_times(choices, count)]
    frame = pd.DataFrame(rows).pivot(
        index="measure", columns=["images", "C", "N"], values="seconds"
    )
    typer.echo(frame.loc[list(dict.fromkeys(row["measure"] for row in rows))].round(3).to_string())


def our_step(space: NASBench201, cell: Cell, recipe: Recipe, x: Any, y: Any) -> Callable[[], None]:
    """A function that does one of our training steps, compiled, from where the last one ended."""
    network, stepping = space.trainable(cell), optimizer(recipe, 100)
    functions = network._replace(params=None, statistics=None)
    run = jax.jit(
        partial(step, functions, recipe, stepping),
        donate_argnums=0,
        compiler_options=compiler_options(),
    )
    state = State(network.params, network.statistics, stepping.init(network.params))
    arrays = jnp.asarray(x), jnp.asarray(y, jnp.int32)

    def once() -> None:
        nonlocal state
        state, progress = run(state, *arrays, jax.random.key(0), jnp.float32(1.0))
        progress.loss.block_until_ready()

    return once


def torch_step(
    space: NASBench201, cell: Cell, recipe: Recipe, x: Any, y: Any
) -> Callable[[], None]:
    """The same in PyTorch, as the benchmark's code has it."""
    import torch  # type: ignore[import-not-found]
    from torch.nn.functional import cross_entropy  # type: ignore[import-not-found]

    from experiments.benchmark.torch_reference import TorchNetwork

    network = TorchNetwork(cell, space.channels, space.cells_per_stage, 10)
    sgd = torch.optim.SGD(network.parameters(), 0.05, 0.9, weight_decay=recipe.decay)
    clean, labels = torch.tensor(x.transpose(0, 3, 1, 2).copy()), torch.tensor(y)

    def once() -> None:
        network.eval()
        z = (clean + torch.empty_like(clean).uniform_(-recipe.rho, recipe.rho)).clamp(0, 1)
        for _ in range(recipe.attack_steps):
            z = z.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(cross_entropy(network(z), labels), z)
            z = z + recipe.attack_step * gradient.sign()
            z = (clean + (z - clean).clamp(-recipe.rho, recipe.rho)).clamp(0, 1)
        network.train()
        sgd.zero_grad()
        cross_entropy(network(z.detach()), labels).backward()
        sgd.step()

    return once


def training(
    cells: Annotated[list[str], typer.Argument(help="Cells by their six digits.")],
    channels: Annotated[int, typer.Option(help="Channels of the first stage.")] = 16,
    cells_per_stage: Annotated[int, typer.Option(help="Cells in each stage.")] = 5,
    batch: Annotated[int, typer.Option(help="Images of a step.")] = 64,
    repeats: Annotated[int, typer.Option(help="Steps of each, taken in turns.")] = 5,
) -> None:
    """Time a step of adversarial training beside PyTorch's: same cell, batch and cores.

    Prints images per second of both, and the ratio of the shortest times.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(batch, 32, 32, 3)).astype(np.float32)
    y = rng.integers(10, size=batch)
    recipe = Recipe(batch=batch, augment=False)
    space = NASBench201(channels=channels, cells_per_stage=cells_per_stage).on(
        Task((32, 32, 3), 10)
    )
    for digits in cells:
        both = [make(space, Cell.parse(digits), recipe, x, y) for make in (our_step, torch_step)]
        for once in both:
            once()  # compiles
        ours, theirs = in_turns(both, repeats)
        print(
            f"{digits}: {batch / ours:.0f} images a second, PyTorch {batch / theirs:.0f}; "
            f"time {ours / theirs:.2f} of PyTorch's"
        )
