"""Scores of architectures, or of a network of your own, in memory."""

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.kernels.checks import (
    as_it_is_now,
    check_batch,
    check_classes,
    check_labels,
    check_pixels,
    checked_model,
    normalisation_of,
)
from ntkscore.kernels.joint import Stack
from ntkscore.model import Model
from ntkscore.results.rows import Rows, with_constants
from ntkscore.run import devices
from ntkscore.run.engine import by_shape
from ntkscore.run.scorer import Pending, Scorer, dtype_of, kernels, precision
from ntkscore.run.scoring import choices_of
from ntkscore.space import Architecture, Space
from ntkscore.spaces import default_space
from ntkscore.task import Task

ALIKE = 1e-3
"""Relative spread over the images, of a kernel or of logits, below which they hardly differ."""
log = logging.getLogger("ntkscore")


def _frame(
    rows: Iterable[Rows], images: Mapping[str, object], space: Mapping[str, object], config: Config
) -> pd.DataFrame:
    """Rows of networks, with the columns of their images, their space and the config."""
    frame = pd.DataFrame([row for one in rows for row in one])
    identity = tuple(frame.columns[: list(frame.columns).index("seed")])
    return with_constants(frame, identity, {**images, **choices_of(space, config)})


def score(
    architectures: Architecture | Sequence[Architecture],
    images: np.ndarray,
    labels: np.ndarray,
    config: Config | None = None,
    *,
    space: Space | None = None,
    seed: int = 0,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.25, 0.25, 0.25),
    num_classes: int | None = None,
    dataset: str = "images",
) -> pd.DataFrame:
    """Score one architecture, or a list of them, on these images, without training.

    A shape is compiled on its first call; later calls, with other architectures, images and
    seeds, reuse the program.

    Args:
        architectures: one, or a list or tuple of them, by any name that the space knows: for
            NAS-Bench-201 an index, six digits or a genotype string.
        images: (N, height, width, colours), pixels in [0, 1].
        labels: (N,) classes.
        config: how to score; `Config()` if left out. All the images are used.
        space: where the architectures come from; NAS-Bench-201 if left out.
        seed: of the weights and of the attack's random start.
        mean, std: the normaliser by colour, pixel scale [0, 1], so 125.3 is 125.3/255; it is the
            network's first layer.
        num_classes: number of logits; the largest label plus one if left out.
        dataset: a name for the rows.

    Returns:
        A row per architecture, radius, kernel and score: which architecture and seed; the images'
        name, classes and normaliser; the choices of space and config; then `rho`, `steps`,
        `step_size`, `beta`, `kernel`, `score`, `value` and `status`. A score that failed is NaN,
        and its status says why.

    Raises:
        InputError: if an architecture is none, or images, labels or normaliser do not fit.

    Example:
        >>> from cells import NASBench201
        >>> rng = np.random.default_rng(0)
        >>> images, labels = rng.uniform(size=(4, 8, 8, 3)), np.arange(4) % 2
        >>> space = NASBench201(channels=2, cells_per_stage=1)
        >>> rows = score(["323133", "421211"], images, labels, space=space)
        >>> rows.query("kernel == 'robust' and score == 'frobenius'")[["cell", "status"]]
            cell status
        12  2581     ok
        85     0     ok
    """
    images, labels = np.asarray(images), np.asarray(labels)
    check_pixels(images)
    classes = num_classes
    if classes is None:
        classes = int(labels.max()) + 1 if labels.size else 0
    check_classes(classes)
    check_labels(labels, len(images), classes)
    task = Task(images.shape[1:], classes, mean, std)
    space = (space or default_space()).on(task)
    config = replace(config or Config(), samples=len(images))
    chosen = space.parse_all(architectures)
    if not chosen:
        raise InputError("expected at least one architecture, got an empty list; name one")
    devices.keep_compiled()
    scorer = Scorer(space, config)
    scorer.check(chosen[0], images)
    by_key: dict[Hashable, Rows] = {}
    for shape, group in by_shape(space, chosen).items():
        scored = scorer(group, scorer.batch(images, labels, seed, shape))
        by_key |= {space.key(a): rows for a, rows in zip(group, scored, strict=True)}
    # Scores of the same images depend on the normaliser and the number of classes too.
    images_of = {"dataset": dataset, "num_classes": classes, "mean": task.mean, "std": task.std}
    return _frame([by_key[space.key(a)] for a in chosen], images_of, space.columns, config)


def score_network(
    model: Model,
    images: np.ndarray,
    labels: np.ndarray,
    config: Config | None = None,
    *,
    name: str = "network",
    seed: int = 0,
    dataset: str = "images",
    check: bool | None = None,
) -> pd.DataFrame:
    """Score a network of your own, from any library or none, at the weights that it has.

    The program is compiled once for what the model computes: other weights, and equal functions,
    compile nothing again.

    Args:
        model: logits of (params, points), and the params.
        images: (N, …), pixels in [0, 1], of any shape that the network takes.
        labels: (N,) classes.
        config: how to score; `Config()` if left out. All the images are used.
        name: of the network, for the rows.
        seed: of the attack's random start.
        dataset: a name for the rows.
        check: as for `ntkscore.ntk`.

    Returns:
        Rows like those of `score`. The column `bn` says which statistics normalisations use: `own`
        ones, `init` for the mean 0 and variance 1 of new ones, those of the `batch`, or `none`.

    Raises:
        InputError: if images, labels or logits do not fit, or an image's logits depend on the
            others and the model does not say so.

    A network that hardly tells the images apart is a warning of the logger `ntkscore`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> def apply(params, x):
        ...     return jnp.tanh(x @ params[0]) @ params[1]
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> params = [jax.random.normal(keys[0], (6, 16)), jax.random.normal(keys[1], (16, 3))]
        >>> images, labels = np.random.default_rng(0).uniform(size=(4, 6)), np.array([0, 1, 2, 0])
        >>> rows = score_network(Model(apply, params), images, labels)
        >>> rows["status"].value_counts().to_dict()
        {'ok': 62, 'not_given': 11}
    """
    images, labels = np.asarray(images), np.asarray(labels)
    check_batch(images)
    config = replace(config or Config(), samples=len(images))
    devices.keep_compiled()
    dtype = dtype_of(config)
    with precision(config):
        key = jax.random.fold_in(jax.random.key(seed), 1)
        points = jnp.asarray(images, dtype)
        model, _ = as_it_is_now(checked_model(model, dtype), points)
        bn = normalisation_of(model, points)
        found = kernels(model, config, images.astype(dtype), labels, config.rhos, key, check=check)
        _tell_alike(name, model, images.astype(dtype), found)
    alone = jax.tree.map(lambda array: np.asarray(array)[None], found)
    rows = Pending([{"network": name, "seed": seed}], alone, labels, config).rows()
    return _frame(rows, {"dataset": dataset}, {"space": "network", "bn": bn}, config)


def _spread(matrix: np.ndarray) -> float:
    """The largest difference along the first axis, relative to the largest entry."""
    return float(np.ptp(matrix, axis=0).max() / max(np.abs(matrix).max(), np.finfo(float).tiny))


def _tell_alike(name: str, model: Model, images: np.ndarray, found: Stack) -> None:
    """Warn where the clean kernel hardly differs between the images, and say what is known of why.

    Scores of such a kernel are `constant`, or say more about rounding than about the network.
    """
    kernel = _spread(found.kernel("clean"))
    if not kernel <= ALIKE:
        return
    logits = _spread(np.asarray(jax.jit(lambda *given: model.apply(*given))(model.params, images)))
    if logits <= ALIKE:
        why = (
            f"nor do its logits ({logits:.0e}); normalisations with fresh statistics (mean 0, "
            "variance 1) do this in a deep network: give them calibrated ones, those of images"
        )
    else:
        why = f"though its logits do ({logits:.0e}): its weights act alike on all images"
    log.warning(
        "the kernels of %s hardly differ between the images (relative spread %.0e), %s",
        *(name, kernel, why),
    )
