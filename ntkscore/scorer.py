"""One compiled program for all cells of a shape: digits in, scores out."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jax.sharding import PartitionSpec

from cells.space import Cell
from ntkscore.config import Config
from ntkscore.devices import Plan
from ntkscore.errors import InputError
from ntkscore.rows import rows_of
from ntkscore.stack import Stack, compute_stack, draw_weights, dtype_of

Rows = list[dict[str, Any]]
CELLS = "cells"
"""Name of the mesh's axis."""


def precision(config: Config) -> AbstractContextManager[Any]:
    """The context in which arrays have the config's precision."""
    return jax.enable_x64(True) if config.x64 else nullcontext()


@dataclass(frozen=True)
class Batch:
    """The images of one seed and the weights drawn with it, on the devices."""

    images: jax.Array
    labels: jax.Array
    variables: Mapping[str, Any]
    key: jax.Array


class Scorer:
    """Scores cells of one shape; compiles on first use, once for all cells and seeds.

    Args:
        config: how to score.
        mean, std: the images' normaliser, pixel scale [0, 1].
        num_classes: number of logits.
        dataset: the name that the rows carry.
        plan: how cells are laid out; one at a time on the first device if left out.
    """

    def __init__(
        self,
        config: Config,
        mean: Sequence[float],
        std: Sequence[float],
        num_classes: int,
        dataset: str,
        plan: Plan | None = None,
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.compilations = 0
        self.plan = plan or Plan(tuple(jax.local_devices()[:1]), 1, 1)
        self.network = config.network(tuple(mean), tuple(std), num_classes)
        mesh = jax.sharding.Mesh(np.array(self.plan.devices), (CELLS,))
        everywhere, split = PartitionSpec(), PartitionSpec(CELLS)
        self._sharding = {
            spec: jax.sharding.NamedSharding(mesh, spec) for spec in (everywhere, split)
        }
        self._compute = jax.jit(
            jax.shard_map(
                self._stacks,
                mesh=mesh,
                in_specs=(split, *[everywhere] * 6),
                out_specs=split,
                check_vma=False,
            )
        )

    def _stacks(self, digits: Any, variables: Any, *shared: Any) -> Stack:
        """The stacks of one device's cells, group after group."""
        one = partial(compute_stack, self.network, self.config, variables)
        self.compilations += 1  # Python runs this once for each program.
        group = self.plan.group if self.plan.group > 1 else None
        return lax.map(lambda cell: one(cell, *shared), digits, batch_size=group)

    def batch(self, images: np.ndarray, labels: np.ndarray, seed: int) -> Batch:
        """Put images (pixels in [0, 1]) and their labels on the devices and draw the weights."""
        with precision(self.config):
            dtype = dtype_of(self.config)
            batch = (
                jnp.asarray(images, dtype),
                jnp.asarray(labels, jnp.int32),
                draw_weights(self.network, seed, dtype),
                jax.random.fold_in(jax.random.key(seed), 1),
            )
            return Batch(*jax.device_put(batch, self._sharding[PartitionSpec()]))

    def start(self, cells: Sequence[Cell], batch: Batch) -> Stack:
        """Begin the computation of some cells' stacks, without waiting.

        Args:
            cells: at most as many as the plan has in a call.
            batch: what to score them on.
        """
        with precision(self.config):
            dtype = dtype_of(self.config)
            rhos = self.config.rhos
            steps = [self.config.attack_step_size(rho) for rho in rhos]
            # A call always has the same shape; what is missing repeats the last cell.
            padding = [cells[-1]] * (self.plan.cells_per_call - len(cells))
            digits = np.array([cell.operations for cell in [*cells, *padding]], np.int32)
            return self._compute(
                jax.device_put(digits, self._sharding[PartitionSpec(CELLS)]),
                batch.variables,
                batch.images,
                batch.labels,
                jnp.asarray(rhos, dtype),
                jnp.asarray(steps, dtype),
                batch.key,
            )

    def finish(self, cells: Sequence[Cell], seed: int, batch: Batch, stacks: Stack) -> list[Rows]:
        """Wait for the cells' stacks and measure every score; the rows of each cell."""
        grams, losses, labels = map(np.asarray, (stacks.gram, stacks.losses, batch.labels))
        return [
            [
                row
                for rho, gram, loss in zip(self.config.rhos, grams[i], losses[i], strict=True)
                for row in rows_of(cell, seed, self.dataset, self.config, rho, gram, loss, labels)
            ]
            for i, cell in enumerate(cells)
        ]


def score(
    cell: Cell | int | str,
    images: np.ndarray,
    labels: np.ndarray,
    config: Config | None = None,
    *,
    seed: int = 0,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.25, 0.25, 0.25),
    num_classes: int | None = None,
    dataset: str = "images",
) -> pd.DataFrame:
    """Every score of one cell on these images, without training.

    Args:
        cell: a `Cell`, an index, six digits or a genotype string.
        images: (N, height, width, 3), pixels in [0, 1]; height and width are multiples of 4.
        labels: (N,) classes.
        config: how to score; `Config()` if left out. All the images are used.
        seed: of the weights and of the attack's random start.
        mean, std: the normaliser, pixel scale [0, 1]; it is the network's first layer.
        num_classes: number of logits; the largest label plus one if left out.
        dataset: a name for the rows.

    Returns:
        One row per kernel and score, with the columns of `ntkscore.parts.COLUMNS`.

    Raises:
        InputError: if the images or labels have the wrong shape or range.
        CellError: if the cell is none.

    Example:
        >>> rows = score("323133", images, labels)
        >>> rows.query("kernel == 'robust' and score == 'frobenius'").value.item()
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim != 4 or images.shape[-1] != 3 or images.shape[1] % 4 or images.shape[2] % 4:
        raise InputError(
            f"expected images (N, height, width, 3) with sides that 4 divides, got {images.shape}; "
            "put the channels last and crop or pad the sides"
        )
    if not (np.isfinite(images).all() and images.min() >= 0 and images.max() <= 1):
        raise InputError(
            f"expected pixels from 0 to 1, got {images.min():g} to {images.max():g}; "
            "divide 8-bit images by 255 and leave the normalisation to mean and std"
        )
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    if labels.shape != images.shape[:1] or labels.min() < 0 or labels.max() >= classes:
        raise InputError(
            f"expected {len(images)} labels from 0 to {classes - 1}, got {labels.shape} from "
            f"{labels.min()} to {labels.max()}; check num_classes"
        )
    cell = cell if isinstance(cell, Cell) else Cell.parse(cell)
    scorer = Scorer(config or Config(), mean, std, classes, dataset)
    batch = scorer.batch(images, labels, seed)
    (rows,) = scorer.finish([cell], seed, batch, scorer.start([cell], batch))
    return pd.DataFrame(rows)
