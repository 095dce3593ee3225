"""Checks of points and images, before anything is computed of them."""

from pathlib import Path

import numpy as np

from ntkscore.errors import InputError


def check_pixels(images: np.ndarray) -> None:
    """Refuse anything but at least two images with pixels in [0, 1]."""
    if images.ndim < 2 or len(images) < 2:
        raise InputError("at least two images along the first axis", images.shape, "stack them")
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


def check_same_network(kept: np.ndarray, logits: np.ndarray, folder: Path) -> None:
    """Refuse a folder of another function of the same weights, by the first points' logits.

    Args:
        kept: the logits in the folder.
        logits: those of the network now.
        folder: where finished work is kept.

    Raises:
        InputError: if they differ by more than rounding explains.
    """
    from ntkscore.trace.coupling import COUPLING  # which imports JAX

    near = COUPLING * np.abs(kept).max(initial=0, where=np.isfinite(kept))
    if not np.allclose(logits, kept, rtol=0, atol=near, equal_nan=True):
        raise InputError(
            f"in {folder} a run of the same network",
            "one with the same weights and other logits",
            "choose another folder",
        )
