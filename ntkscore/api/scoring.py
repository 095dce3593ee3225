"""Scores of architectures, or of a network of one's own, in memory."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, PyTree

from cells.model import Model
from cells.nasbench201.space import NASBench201
from cells.space import Architecture, Space, Task
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.results.rows import Rows, with_constants
from ntkscore.run.engine import choices_of
from ntkscore.run.scorer import Scorer, dtype_of, precision
from ntkscore.run.together import by_shape

COUPLING = 1e-3
"""Relative change of an image's logits, alone and in its batch, that rounding explains."""


def _check_batch(images: np.ndarray) -> None:
    """Refuse what is no batch of images."""
    if images.ndim < 2 or len(images) < 2:
        raise InputError(
            f"expected at least two images along the first axis, got {images.shape}; stack them"
        )


def _check_images(images: np.ndarray, labels: np.ndarray, num_classes: int | None) -> int:
    """Number of classes; images and labels that do not fit are refused."""
    _check_batch(images)
    if not (np.isfinite(images).all() and images.min() >= 0 and images.max() <= 1):
        raise InputError(
            f"expected pixels from 0 to 1, got {images.min():g} to {images.max():g}; "
            "divide 8-bit images by 255, and normalise them no further"
        )
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise InputError(
            f"expected {len(images)} labels, whole numbers, got {labels.dtype} of shape "
            f"{labels.shape}; give one class per image"
        )
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(
            f"expected {len(images)} labels from 0 to {classes - 1}, got {labels.min()} to "
            f"{labels.max()}; check num_classes"
        )
    return classes


def _frame(rows: Iterable[Rows], dataset: str, space: Space, config: Config) -> pd.DataFrame:
    frame = pd.DataFrame([row for one in rows for row in one])
    identity = tuple(frame.columns[: list(frame.columns).index("seed")])
    return with_constants(frame, identity, {"dataset": dataset, **choices_of(space, config)})


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
        space: where the architectures come from; `NASBench201()` if left out.
        seed: of the weights and of the attack's random start.
        mean, std: the normaliser, pixel scale [0, 1]; it is the network's first layer.
        num_classes: number of logits; the largest label plus one if left out.
        dataset: a name for the rows.

    Returns:
        A row per architecture, radius, kernel and score: which architecture and seed, the choices
        of space and config, then `rho`, `steps`, `step_size`, `beta`, `kernel`, `score`, `value`
        and `status`. A score that failed is NaN, and its status says why.

    Raises:
        InputError: if an architecture is none, or images or labels do not fit.

    Example:
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
    classes = _check_images(images, labels, num_classes)
    task = Task(images.shape[1:], classes, tuple(map(float, mean)), tuple(map(float, std)))
    space = (space or NASBench201()).on(task)
    config = replace(config or Config(), samples=len(images))
    names = architectures if isinstance(architectures, list | tuple) else [architectures]
    chosen = [space.parse(name) for name in names]
    if not chosen:
        raise InputError("expected at least one architecture, got an empty list; name one")
    scorer = Scorer(space, config)
    scorer.check(chosen[0], images)
    by_key: dict[Hashable, Rows] = {}
    for shape, group in by_shape(space, chosen).items():
        scored = scorer(group, scorer.batch(images, labels, seed, shape))
        by_key |= {space.key(a): rows for a, rows in zip(group, scored, strict=True)}
    return _frame([by_key[space.key(a)] for a in chosen], dataset, space, config)


@dataclass(frozen=True, kw_only=True)
class _OneNetwork(Space):
    """A network of one's own, as a space whose single architecture is its name."""

    name: ClassVar[str] = "network"

    network: Model

    def parse(self, text: Any) -> str:
        return str(text)

    def identity(self, architecture: str) -> dict[str, str | int]:
        return {"network": architecture}

    def costs(self, architecture: str) -> dict[str, float]:
        return {}

    def draw(self, shape: Hashable, seed: int, dtype: Any) -> PyTree:
        raise NotImplementedError("the weights are given")

    def model(self, shape: Hashable, variables: PyTree, code: Any, images: Array) -> Model:
        return self.network._replace(params=variables)


def score_network(
    model: Model,
    images: np.ndarray,
    labels: np.ndarray,
    config: Config | None = None,
    *,
    name: str = "network",
    seed: int = 0,
    dataset: str = "images",
) -> pd.DataFrame:
    """Score a network of your own, from any library or none, at the weights that it has.

    The program is compiled once for the model's functions: pass the same `apply` with other
    params, and nothing is compiled again.

    Args:
        model: logits of (params, points), and the params.
        images: (N, …), pixels in [0, 1], of any shape that the network takes.
        labels: (N,) classes.
        config: how to score; `Config()` if left out. All the images are used.
        name: of the network, for the rows.
        seed: of the attack's random start.
        dataset: a name for the rows.

    Returns:
        Rows like those of `score`.

    Raises:
        InputError: if images, labels or logits do not fit, or an image's logits depend on the
            others and the model does not say so.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> def apply(params, x):
        ...     return jnp.tanh(x @ params[0]) @ params[1]
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> params = [jax.random.normal(keys[0], (6, 16)), jax.random.normal(keys[1], (16, 3))]
        >>> images, labels = np.random.default_rng(0).uniform(size=(4, 6)), np.array([0, 1, 2, 0])
        >>> rows = score_network(Model(apply, params), images, labels)
        >>> rows["status"].value_counts().to_dict()
        {'ok': 61, 'not_given': 12}
    """
    if not isinstance(model, Model):
        raise InputError(
            f"expected an ntkscore.Model, got {type(model).__name__}; write Model(apply, params), "
            "where apply gives logits of (params, images)"
        )
    images, labels = np.asarray(images), np.asarray(labels)
    _check_batch(images)
    config = replace(config or Config(), samples=len(images))
    with precision(config):
        params = _cast(model.params, dtype_of(config))
        if not jax.tree.leaves(params) or not all(map(_floating, jax.tree.leaves(params))):
            raise InputError(
                "expected weights of floating point, which a kernel differentiates in, got "
                f"{[str(leaf.dtype) for leaf in jax.tree.leaves(params)] or 'none'}; give these "
                "alone as params"
            )
        points = jax.ShapeDtypeStruct(images.shape, dtype_of(config))
        logits = jax.eval_shape(_jitted(model.apply), params, points)
    shape = getattr(logits, "shape", type(logits).__name__)
    if len(shape) != 2 or shape[0] != len(images):
        raise InputError(
            f"expected logits of shape ({len(images)}, classes) from the model, got {shape}; give "
            "a function of (params, whole batch) that returns one array"
        )
    _check_images(images, labels, int(shape[1]))
    with precision(config):
        _check_coupling(model, params, jnp.asarray(images, dtype_of(config)))
    # Without its weights the model is hashable, and other weights find the same program.
    space = _OneNetwork(network=model._replace(params=None))
    scorer = Scorer(space, config)
    batch = scorer.batch(images, labels, seed, variables=params)
    return _frame(scorer([name], batch), dataset, space, config)


def _check_coupling(model: Model, params: PyTree, images: Array) -> None:
    """Refuse a model that is said to take images one by one, and does not."""
    if model.coupled:
        return
    among, alone = (_jitted(model.apply)(params, x)[0] for x in (images, images[:1]))
    reach = float(jnp.max(jnp.abs(among)))
    if not np.allclose(among, alone, rtol=0, atol=COUPLING * reach, equal_nan=True):
        raise InputError(
            "expected logits of an image that do not depend on the rest of its batch, got "
            f"{_few(among)} among {len(images)} images and {_few(alone)} alone; declare it with "
            "Model(apply, params, coupled=True), or freeze the batch's statistics"
        )


def _few(logits: Array) -> str:
    return ", ".join(f"{value:.3g}" for value in logits[:3])


@lru_cache(maxsize=64)
def _jitted(apply: Callable) -> Callable:
    """A compiled function, found again by later calls with the same function."""
    return jax.jit(apply)


def _floating(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _cast(params: PyTree, dtype: Any) -> PyTree:
    """Weights in the precision of the images; whole numbers stay."""

    def cast(leaf: Any) -> Array:
        leaf = jnp.asarray(leaf)
        return leaf.astype(dtype) if _floating(leaf) else leaf

    return jax.tree.map(cast, params)
