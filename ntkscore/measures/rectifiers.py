"""Measures of what rectifiers are given and what they make of it: NEAR, MeCo, SWAP and Dextr."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from jaxtyping import Float

from attacks.lazy import Array, jax, jnp, lax
from ntkscore.kernels.joint import POINTS
from ntkscore.measures.activations import of_each_block, products
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import Measure, Quantity
from ntkscore.model import Points

CIRCLE = 2
"""Folded into the key of the draw of a circle."""
BITS = 32
"""Points whose states are packed into one word."""
Layers = Sequence[tuple[Any, Any]]
"""For layers of one shape together how many rectifiers read each, (k,), and matrices (k, d, d)."""


def layer_products(at: Pass) -> dict[str, Any] | None:
    """Products of the rectifiers' inputs, outputs and centred inputs; and the output's curvature.

    Centred inputs are left out where there are fewer positions than channels: their correlation is
    singular.
    """
    layers = at.passes.rectifier_values(at.model.params, at.residuals)
    if not layers:
        return None
    plain = jax.jit(partial(products, centred=False))
    wide = [each for each in layers if each[1][0].size >= each[1].shape[-1] ** 2]
    return {
        "inputs": [(count, plain(before)) for count, before, _ in layers],
        "outputs": [(count, plain(after)) for count, _, after in layers],
        "centred": [(count, jax.jit(products)(before)) for count, before, _ in wide],
        "curvature": output_curvature(at),
    }


def circle(points: Points, key: Array) -> Callable[[Float[Array, " n"]], Points]:
    """Points of a circle by their angles, in radians, in a random plane.

    It is about the mean of all pixels, and as far from it as the points are in the mean.
    """
    first, second = jax.random.normal(key, (2, *points.shape[1:]), points.dtype)
    first /= jnp.linalg.norm(first.ravel())
    second -= jnp.sum(first * second) * first
    second /= jnp.linalg.norm(second.ravel())
    centre, radius = jnp.mean(points), jnp.std(points) * points[0].size ** 0.5

    def at(angles: Float[Array, " n"]) -> Points:
        angles = angles.reshape(-1, *[1] * (points.ndim - 1))
        return centre + radius * (jnp.cos(angles) * first + jnp.sin(angles) * second)

    return at


def output_curvature(at: Pass) -> Float[Array, ""]:
    """The mean curvature of the curve that the logits of a circle of points draw.

    At as many equal steps as there are images it is ‖a⊥‖/‖v‖², v and a the first and the second
    derivative of the logits along the circle, a⊥ what of a is across v.
    """
    points_at = circle(at.points, jax.random.fold_in(at.noise, CIRCLE))
    angles = jnp.linspace(0, 2 * jnp.pi, len(at.points), False, dtype=at.points.dtype)
    along = (jnp.ones_like(angles),)
    logits = lambda angles: at.model.logits(points_at(angles))  # noqa: E731
    v, a = jax.jvp(lambda angles: jax.jvp(logits, (angles,), along)[1], (angles,), along)
    square = jnp.sum(v * v, 1)
    across = a - (jnp.sum(v * a, 1) / square)[:, None] * v
    return jnp.mean(jnp.linalg.norm(across, axis=1) / square)


def total(
    layers: Layers, number: Callable[[Float[np.ndarray, "k d d"]], Float[np.ndarray, " k"]]
) -> float:
    """A number of each layer's matrix, summed over the rectifiers; NaN where one is not finite."""
    if not layers:
        return 0.0
    counts, matrices = zip(*layers, strict=True)
    return float(np.concatenate(counts) @ of_each_block(matrices, number))


def singular_values(products: Float[np.ndarray, "k d d"]) -> Float[np.ndarray, "k d"]:
    """Of matrices whose products with themselves are given, in rising order."""
    return np.sqrt(np.clip(np.linalg.eigvalsh(products), 0, None))


def effective_ranks(products: Float[np.ndarray, "k d d"]) -> Float[np.ndarray, " k"]:
    """e to the entropy of the singular values' shares; 0 of a matrix of zeros.

    Source: Roy and Vetterli (2007).

    Example:
        >>> effective_ranks(np.stack([np.eye(3), np.diag([4.0, 0, 0])])).round(6)
        array([3., 1.])
    """
    values = singular_values(products)
    sums = values.sum(1, keepdims=True)
    shares = np.divide(values, sums, out=np.zeros_like(values), where=sums > 0)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.where(sums[:, 0] > 0, np.exp(-np.sum(shares * logs, 1)), 0)


def inverse_conditions(products: Float[np.ndarray, "k d d"]) -> Float[np.ndarray, " k"]:
    """The least singular value by the largest; 0 of a matrix of zeros."""
    values = singular_values(products)
    least, largest = values[:, 0], values[:, -1]
    return np.divide(least, largest, out=np.zeros_like(least), where=largest > 0)


def least_correlations(products: Float[np.ndarray, "k c c"]) -> Float[np.ndarray, " k"]:
    """The least eigenvalue of the channels' correlation; channels that are constant have zeros."""
    lengths = np.sqrt(np.einsum("kcc->kc", products))
    sizes = lengths[:, :, None] * lengths[:, None]
    correlations = np.divide(products, sizes, out=np.zeros_like(products), where=sizes > 0)
    return np.clip(np.linalg.eigvalsh(correlations)[:, 0], 0, None)


def layer_numbers(found: dict[str, Any]) -> dict[str, float]:
    """The measures, from what `layer_products` gives.

    Example:
        >>> plain, centred = [(np.ones(1), np.eye(3)[None])], [(np.ones(1), np.eye(3)[None])]
        >>> given = {"inputs": plain, "outputs": plain, "centred": centred, "curvature": 2.0}
        >>> {name: round(value, 4) for name, value in layer_numbers(given).items()}
        {'near': 6.0, 'meco': 1.0, 'output_curvature': 2.0, 'dextr': 0.5493}
    """
    both = [*found["inputs"], *found["outputs"]]
    curvature = float(found["curvature"])
    conditions, bend = np.log1p(total(both, inverse_conditions)), np.log1p(curvature)
    with np.errstate(invalid="ignore"):
        dextr = conditions * bend / (conditions + bend)
    return {
        "near": total(both, effective_ranks),
        "meco": total(found["centred"], least_correlations),
        "output_curvature": curvature,
        "dextr": float(dextr),
    }


def state_patterns(at: Pass) -> Array | None:
    """The number of different patterns of a rectifier's states, on or off, over the points."""
    if at.activations is None:
        return None
    states, unread = [], []
    for count, x in at.activations.rectified:
        on = jnp.moveaxis(x > 0, 1, 0)
        states.append(on.reshape(len(on), -1))
        unread.append(jnp.repeat(count == 0, x[0, 0].size))
    bits = jnp.concatenate(states, 1)
    padded = jnp.pad(bits, ((0, -len(bits) % BITS), (0, 0))).reshape(-1, BITS, bits.shape[1])
    powers = jnp.left_shift(jnp.uint32(1), jnp.arange(BITS, dtype=jnp.uint32))
    words = jnp.sum(jnp.where(padded, powers[:, None], jnp.uint32(0)), 1, dtype=jnp.uint32)
    keys = (jnp.concatenate(unread).astype(jnp.uint32), *words)
    unread_too, *ordered = lax.sort(keys, num_keys=len(keys))
    read = unread_too == 0
    new = jnp.any(jnp.stack([word[1:] != word[:-1] for word in ordered]), 0)
    return read[0].astype(jnp.int32) + jnp.sum(new & read[1:], dtype=jnp.int32)


CLEAN = POINTS[:1]
PATTERNS = Quantity("patterns", CLEAN, state_patterns, float, own_passes=True)
LAYERS = Quantity("rectifiers", CLEAN, layer_products, layer_numbers, own_passes=True)

MEASURES = (
    Measure(
        "near",
        +1,
        "Σ over rectifiers, effective rank of inputs and of outputs",
        LAYERS,
        itemgetter("near"),
        source="Husistein et al. (2025), NEAR, of all positions",
    ),
    Measure(
        "meco",
        +1,
        "Σ over rectifiers, λ_min of the correlation of the inputs' channels",
        LAYERS,
        itemgetter("meco"),
        source="Jiang et al. (2023), MeCo, of the images in place of one of noise",
    ),
    Measure(
        "output_curvature",
        +1,
        "mean curvature of the logits along a circle of points",
        LAYERS,
        itemgetter("output_curvature"),
        source="Asthana et al. (2025), Dextr; Poole et al. (2016)",
    ),
    Measure(
        "dextr",
        +1,
        "c k/(c + k), c = ln(1 + Σ σ_min/σ_max), k = ln(1 + output_curvature)",
        LAYERS,
        itemgetter("dextr"),
        source="Asthana et al. (2025), Dextr",
    ),
    Measure(
        "swap",
        +1,
        "number of different patterns of rectifiers' states over the images",
        PATTERNS,
        source="Peng et al. (2024), SWAP-NAS, without its regularisation",
    ),
)
