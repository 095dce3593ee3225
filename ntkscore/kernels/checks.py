"""Checks of a network and its images, before anything is computed of them."""

import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ntkscore.errors import InputError
from ntkscore.model import Model, Points
from ntkscore.trace.blocks import BlockPasses
from ntkscore.trace.compiled import passes_in_blocks
from ntkscore.trace.content import traced
from ntkscore.trace.coupling import COUPLING, jitted
from ntkscore.trace.parameters import is_floating
from ntkscore.trace.program import NotAlone

log = logging.getLogger("ntkscore")


def checked_model(model: Any, dtype: Any = None) -> Model:
    """A network whose weights are arrays of numbers.

    Args:
        model: the network.
        dtype: of its weights; their own if left out. Whole numbers stay as they are.

    Raises:
        InputError: if it is none, or a leaf of its weights is no array of finite real numbers.
    """
    if not isinstance(model, Model):
        of_torch = any(kind.__module__.startswith("torch.") for kind in type(model).__mro__)
        remedy = (
            "write ntkscore.from_torch(module, images)"
            if of_torch
            else "write Model(apply, params), where apply gives logits of (params, images)"
        )
        raise InputError("an ntkscore.Model", type(model).__name__, remedy)
    if not callable(model.apply):
        raise InputError(
            "a function as the first of Model(apply, params)",
            type(model.apply).__name__,
            "swap the two",
        )
    params = jax.tree_util.tree_map_with_path(lambda p, x: _leaf(p, x, dtype), model.params)
    if not any(is_floating(leaf) for leaf in jax.tree.leaves(params)):
        raise InputError(
            "floating-point weights",
            [str(leaf.dtype) for leaf in jax.tree.leaves(params)] or "none",
            "give them as Model(apply, params)",
        )
    return model._replace(params=params)


def _leaf(path: tuple, leaf: Any, dtype: Any) -> Array:
    name = jax.tree_util.keystr(path) or "params"
    try:
        array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
    except (TypeError, ValueError):
        raise InputError(
            "arrays as weights",
            f"{type(leaf).__name__} at {name}",
            "leave it out, or close over it in apply",
        ) from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise InputError(
            "real weights",
            f"{array.dtype} at {name}",
            "give real and imaginary parts as leaves of their own",
        )
    if not is_floating(array):
        return array
    if not isinstance(array, Tracer) and not np.isfinite(np.asarray(array)).all():
        raise InputError("finite weights", f"NaN or infinity at {name}", "correct that leaf")
    return array if dtype is None else array.astype(dtype)


def check_pixels(images: np.ndarray) -> None:
    """Refuse anything but at least two images with pixels in [0, 1]."""
    check_batch(images)
    check_range(images)


def check_range(images: np.ndarray) -> None:
    """Refuse pixels outside of [0, 1]."""
    if (bad := _first_not_finite(images)) is not None:
        raise InputError("pixels from 0 to 1", f"NaN or infinity in image {bad}", "leave it out")
    if images.min() < 0 or images.max() > 1:
        remedy = (
            "give pixels before any normalisation, which belongs in the network"
            if images.min() < 0
            else "divide 8-bit images by 255"
        )
        raise InputError("pixels from 0 to 1", f"{images.min():g} to {images.max():g}", remedy)


def check_batch(images: np.ndarray) -> None:
    """Refuse anything but at least two images."""
    if images.ndim < 2 or len(images) < 2:
        raise InputError("at least two images along the first axis", images.shape, "stack them")


def check_points(points: np.ndarray) -> None:
    """Refuse points that are none or not finite, and 8-bit images."""
    if not points.size:
        raise InputError("points", f"an array of shape {points.shape}", "give some")
    if (bad := _first_not_finite(points)) is not None:
        raise InputError("finite points", f"NaN or infinity in point {bad}", "correct it")
    if points.ndim > 2 and points.max() > 1 and points.min() >= 0 and (points % 1 == 0).all():
        raise InputError(
            "pixels from 0 to 1",
            f"whole numbers up to {points.max():g}",
            "divide 8-bit images by 255",
        )


def _first_not_finite(rows: np.ndarray) -> int | None:
    """The place of the first row with NaN or infinity; None where all are finite."""
    if np.isfinite(rows).all():
        return None
    return int(np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(1))[0])


def as_it_is_now(model: Model, points: Points) -> tuple[Model, int]:
    """A network whose function is known by what it computes now; and its number of classes.

    It is traced at each call, since what a function captures may have changed.

    Raises:
        InputError: if the network does not take the points, or returns anything but logits.
    """
    # Two points stand for any number, so that blocks of other numbers share their programs.
    count = len(points) if model.coupled else min(2, len(points))
    like = jax.ShapeDtypeStruct((count, *points.shape[1:]), points.dtype)
    try:
        if model.passes is None:
            function, logits = traced(model.apply, model.params, like)
        else:  # a space's own program, which nobody changes
            function = model.apply
            logits = jax.eval_shape(jitted(function), model.params, like)
    except InputError:
        raise
    except Exception as error:
        what, *_ = str(error).strip().splitlines() or [""]
        raise InputError(
            f"apply(params, images) to take images of shape {like.shape} and plain JAX "
            "operations inside",
            f"{type(error).__name__}: {what}",
            "call it so yourself to see where",
        ) from error
    shape = getattr(logits, "shape", type(logits).__name__)
    if len(shape) != 2 or shape[0] != count:
        raise InputError(
            f"logits of shape ({count}, classes) of {count} points from the model",
            shape,
            "give a function of (params, whole batch) that returns one array",
        )
    return model._replace(apply=function), int(shape[1])


def normalisation_of(model: Model, points: Points) -> str:
    """Which statistics a network normalises by: `batch`, `init`, `own`, or `none` if by no stored.

    `init` are the mean 0 and the variance 1 of new normalisations.
    """
    if model.coupled:
        return "batch"
    try:
        passes = passes_in_blocks(model, points)
    except NotAlone:
        return "batch"
    fresh = passes.are_fresh(model.params) if isinstance(passes, BlockPasses) else False
    return "none" if fresh is None else "init" if fresh else "own"


def check_same_network(kept: np.ndarray, logits: np.ndarray, folder: Path) -> None:
    """Refuse a folder of another function of the same weights, by the first points' logits.

    Args:
        kept: the logits in the folder.
        logits: those of the network now.
        folder: where finished work is kept.

    Raises:
        InputError: if they differ by more than rounding explains.
    """
    near = COUPLING * np.abs(kept).max(initial=0, where=np.isfinite(kept))
    if not np.allclose(logits, kept, rtol=0, atol=near, equal_nan=True):
        raise InputError(
            f"in {folder} a run of the same network",
            "one with the same weights and other logits",
            "choose another folder",
        )
