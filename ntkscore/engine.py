"""Cells × seeds × radii → rows: what is computed in which order, and what is already done."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from cells.space import Cell
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.images import ImageSet, choose
from ntkscore.results import ResultSet
from ntkscore.rows import rows_of
from ntkscore.stack import Stack, compute_stack, draw_weights, dtype_of

Rows = list[dict[str, Any]]
FLUSH_SECONDS = 2.0


def precision(config: Config) -> AbstractContextManager[Any]:
    """The context in which arrays have the config's precision."""
    return jax.enable_x64(True) if config.x64 else nullcontext()


@dataclass(frozen=True)
class Batch:
    """The images of one seed and the weights drawn with it, on the device."""

    images: jax.Array
    labels: jax.Array
    variables: Mapping[str, Any]
    key: jax.Array


class Scorer:
    """Scores cells of one shape; compiles on first use, once for all cells, seeds and radii.

    Args:
        config: how to score.
        mean, std: the images' normaliser, pixel scale [0, 1].
        num_classes: number of logits.
        dataset: the name that the rows carry.
    """

    def __init__(
        self,
        config: Config,
        mean: Sequence[float],
        std: Sequence[float],
        num_classes: int,
        dataset: str,
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.network = config.network(tuple(mean), tuple(std), num_classes)
        self._compute = jax.jit(partial(compute_stack, self.network, config))

    def batch(self, images: np.ndarray, labels: np.ndarray, seed: int) -> Batch:
        """Put images (pixels in [0, 1]) and their labels on the device and draw the weights."""
        with precision(self.config):
            dtype = dtype_of(self.config)
            return Batch(
                jnp.asarray(images, dtype),
                jnp.asarray(labels, jnp.int32),
                draw_weights(self.network, seed, dtype),
                jax.random.fold_in(jax.random.key(seed), 1),
            )

    def start(self, cell: Cell, batch: Batch) -> list[Stack]:
        """Begin the computation of one cell's stacks, one for each radius, without waiting."""
        with precision(self.config):
            dtype = dtype_of(self.config)
            digits = jnp.asarray(cell.operations, jnp.int32)
            return [
                self._compute(
                    batch.variables,
                    digits,
                    batch.images,
                    batch.labels,
                    jnp.asarray(rho, dtype),
                    jnp.asarray(self.config.attack_step_size(rho), dtype),
                    batch.key,
                )
                for rho in self.config.rhos
            ]

    def finish(self, cell: Cell, seed: int, batch: Batch, stacks: Iterable[Stack]) -> Rows:
        """Wait for a cell's stacks and measure every score."""
        labels = np.asarray(batch.labels)
        rows: Rows = []
        for rho, stack in zip(self.config.rhos, stacks, strict=True):
            gram, losses = np.asarray(stack.gram), np.asarray(stack.losses)
            rows += rows_of(cell, seed, self.dataset, self.config, rho, gram, losses, labels)
        return rows


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
        One row per kernel and score, with the columns of `ntkscore.results.COLUMNS`.

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
    return pd.DataFrame(scorer.finish(cell, seed, batch, scorer.start(cell, batch)))


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        total: units (cell, seed) that were asked for.
        resumed: of them, found on disk.
        done: computed by this run.
        statuses: rows that this run failed to measure, by status.
        seconds: since the first unit was finished, which leaves compilation out.
    """

    total: int
    resumed: int
    done: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    started: float | None = None

    def count(self, rows: Rows) -> None:
        """Note one more unit."""
        self.done += 1
        self.started = self.started or time.monotonic()
        for row in rows:
            if row["status"] != "ok":
                self.statuses[row["status"]] = self.statuses.get(row["status"], 0) + 1

    @property
    def rate(self) -> float:
        """Units per second after the first, 0 while unknown."""
        if self.started is None or self.done < 2:
            return 0.0
        return (self.done - 1) / max(time.monotonic() - self.started, 1e-9)

    @property
    def seconds_left(self) -> float:
        """At the present rate; infinite while unknown."""
        left = self.total - self.resumed - self.done
        return left / self.rate if self.rate else float("inf")


def compute(
    cells: Sequence[Cell], seeds: Sequence[int], data: ImageSet, config: Config, done: set[tuple]
) -> Iterator[Rows]:
    """Rows of each (cell, seed) that is not done, seed by seed.

    The next cell is handed to the device before the last one's scores are measured.
    """
    scorer = Scorer(config, data.mean, data.std, data.num_classes, data.name)
    for seed in seeds:
        left = [cell for cell in cells if (cell.index, seed) not in done]
        if not left:
            continue
        batch = scorer.batch(*choose(data, config.samples, seed, config.balanced), seed)
        waiting: tuple[Cell, list[Stack]] | None = None
        for cell in left:
            started = cell, scorer.start(cell, batch)
            if waiting:
                yield scorer.finish(waiting[0], seed, batch, waiting[1])
            waiting = started
        if waiting:
            yield scorer.finish(waiting[0], seed, batch, waiting[1])


def identity(data: ImageSet, config: Config) -> dict[str, Any]:
    """What must be equal for two runs to share a result directory, as plain values."""
    choices = config.to_dict()
    del choices["implementation"]  # The implementations agree; which one ran is provenance.
    return {"dataset": data.name, "data_checksum": data.checksum, **choices}


def run(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    data: ImageSet,
    config: Config,
    results: ResultSet,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Score cells into a result directory, leaving out what is already there.

    Whatever ends the run, every finished unit is on disk: parts are written at least every two
    seconds, and once more on the way out.

    Args:
        cells: to score.
        seeds: each draws its own images and weights.
        data: images to draw from.
        config: how to score.
        results: where the rows go.
        report: called after every unit.
    """
    wanted = {(cell.index, seed) for cell in cells for seed in seeds}
    done = results.finished() & wanted
    progress = Progress(len(wanted), len(done))
    report(progress)
    pending: Rows = []
    flushed = time.monotonic()
    try:
        for rows in compute(cells, seeds, data, config, done):
            pending += rows
            progress.count(rows)
            if time.monotonic() - flushed >= FLUSH_SECONDS:
                results.append(pending)
                pending, flushed = [], time.monotonic()
            report(progress)
    finally:
        if pending:
            results.append(pending)
    results.compact()
    return progress
