"""Whether a network's logits of a point depend on the rest of its batch, which no trace shows."""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ntkscore.errors import InputError
from ntkscore.model import Logits

COUPLING = 1e-3
"""Relative change of an image's logits, alone and in its batch, that rounding explains."""


class NotAlone(InputError):
    """A network does not take a batch of one point, and so cannot be traced at one."""


def logits_alone(apply: Callable[..., Array], params: PyTree, point: Array, *key: Array) -> Array:
    """The logits (o,) of a batch of one point.

    Args:
        apply: logits of (params, points), of a network with chance of (params, points, key).
        params, point, key: of it.

    Raises:
        NotAlone: if the network does not take such a batch, or returns anything but its logits.
    """
    cause = None
    try:
        logits = apply(params, point[None], *key)
        shape = getattr(logits, "shape", type(logits).__name__)
        if shape[:-1] == (1,):
            return logits[0]
        found = f"logits of shape {shape}"
    except jax.errors.JaxRuntimeError:  # the device's, such as too little memory
        raise
    except Exception as error:  # whatever the network raises
        found, cause = f"{type(error).__name__}: {error}", error
    remedy = "name the axes that apply squeezes or reduces"
    raise NotAlone(
        "logits (1, classes) of a batch of one point", found.splitlines()[0], remedy
    ) from cause


def check_coupling(
    apply: Callable[..., Logits],
    params: PyTree,
    logits: Logits,
    points: Array,
    among: Array | None = None,
) -> bool:
    """Refuse a network whose logits of a point are others alone than in a batch.

    Returns whether the points tell: a single one does not, nor do logits that are not finite.

    Args:
        apply, params: the network.
        logits: of the first points, each computed alone.
        points: any number.
        among: (o,), of the first point in `beside_another`; computed if left out.
    """
    if len(points) < 2 or not np.isfinite(logits).all():
        return False
    beside = jitted(apply)(params, beside_another(points))[0] if among is None else among
    limit, same = COUPLING * np.abs(logits).max(), beside.shape == logits[0].shape
    if not (same and np.allclose(beside, logits[0], rtol=0, atol=limit, equal_nan=True)):
        in_batch, alone = map(_few if same else len, (beside, logits[0]))
        raise InputError(
            "logits of an image that do not depend on the rest of its batch, or on chance",
            f"{in_batch} in a batch and {alone} alone",
            "freeze the batch's statistics and switch dropout off, or declare it with "
            "Model(apply, params, coupled=True)",
        )
    return True


@jax.jit
def beside_another(points: Array) -> Array:
    """The first point and another one, since equal points hide a dependence on the batch."""
    place = first_other(points)
    other = (points[0] + 1).astype(points.dtype)
    return jnp.stack([points[0], jnp.where(place > 0, points[place], other)])


@jax.jit
def first_other(points: Array) -> Array:
    """The place of the first point that is not the first one; 0 where all are equal."""
    return jnp.argmax((points != points[0]).reshape(len(points), -1).any(1))


def _few(logits: Array) -> str:
    return ", ".join(f"{value:.3g}" for value in logits[:3])


@lru_cache(maxsize=64)
def jitted(apply: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A compiled function, found again by later calls with the same function."""
    return jax.jit(apply)
