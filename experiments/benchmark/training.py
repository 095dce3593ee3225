"""A step of adversarial training beside the same step in PyTorch: same cell, batch and cores.

`python -m experiments.benchmark.training`, in an environment that has PyTorch.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from cells.nasbench201.cell import Cell
from cells.nasbench201.space import NASBench201
from cells.space import Task
from experiments.benchmark.work import in_turns
from ntkscore.run.devices import compiler_options
from ntkscore.training.optimizer import optimizer
from ntkscore.training.recipe import Recipe
from ntkscore.training.steps import State, step

TASK = Task((32, 32, 3), 10)
BETA = 1.0


def ours(space: NASBench201, cell: Cell, recipe: Recipe, x: Any, y: Any) -> Callable[[], None]:
    """A function that does one of our steps, compiled, from wherever the last one ended."""
    network, stepping = space.trainable(cell), optimizer(recipe, 100)
    functions = network._replace(params=None, statistics=None)
    run = jax.jit(
        partial(step, functions, recipe, stepping),
        donate_argnums=0,
        compiler_options=compiler_options(),
    )
    held = [State(network.params, network.statistics, stepping.init(network.params))]
    arrays = jnp.asarray(x), jnp.asarray(y, jnp.int32)

    def once() -> None:
        held[0], seen = run(held[0], *arrays, jax.random.key(0), jnp.float32(BETA))
        seen.loss.block_until_ready()

    return once


def theirs(space: NASBench201, cell: Cell, recipe: Recipe, x: Any, y: Any) -> Callable[[], None]:
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
            (slope,) = torch.autograd.grad(cross_entropy(network(z), labels), z)
            z = z + recipe.attack_step * slope.sign()
            z = (clean + (z - clean).clamp(-recipe.rho, recipe.rho)).clamp(0, 1)
        network.train()
        sgd.zero_grad()
        cross_entropy(network(z.detach()), labels).backward()
        sgd.step()

    return once


def main(
    cells: Annotated[list[str], typer.Argument(help="Cells by their six digits.")],
    channels: Annotated[int, typer.Option(help="Channels of the first stage.")] = 16,
    cells_per_stage: Annotated[int, typer.Option(help="Cells in each stage.")] = 5,
    batch: Annotated[int, typer.Option(help="Images of a step.")] = 64,
    repeats: Annotated[int, typer.Option(help="Steps of each, taken in turns.")] = 5,
) -> None:
    """Print images per second of both, and the ratio of the shortest times."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(batch, 32, 32, 3)).astype(np.float32)
    y = rng.integers(10, size=batch)
    recipe = Recipe(batch=batch, augment=False)
    space = NASBench201(channels=channels, cells_per_stage=cells_per_stage).on(TASK)
    for digits in cells:
        both = [make(space, Cell.parse(digits), recipe, x, y) for make in (ours, theirs)]
        for once in both:
            once()  # compiles
        own, other = in_turns(both, repeats)
        print(
            f"{digits}: {batch / own:.0f} images a second, PyTorch {batch / other:.0f}; "
            f"time {own / other:.2f} of PyTorch's"
        )


if __name__ == "__main__":
    typer.run(main)
