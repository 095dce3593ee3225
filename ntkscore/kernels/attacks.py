"""Attacks by name, and the radii that they take; the names need no JAX."""

from collections.abc import Callable, Sequence
from typing import Any

from attacks import AttackError, check_radius
from ntkscore.errors import InputError
from ntkscore.registry import ATTACKS_GROUP, Registry

ATTACKS: Registry[Callable[..., Any]] = Registry(ATTACKS_GROUP)
"""Attacks by name, to which users may add: functions of the radius ρ, which may be a tracer, and of
those of `steps`, `step_size`, `random_start` and `norm` that the attack has."""


def check_attack(
    attack: Callable[[float], object], rho: float, shape: Sequence[int] | None = None
) -> None:
    """Refuse a radius that an attack does not take.

    Args:
        attack: of a radius. A function of one's own has the `norm` and the `box` that it says, else
            those of images in `linf`.
        rho: radius in pixel units.
        shape: of an image, where it is known.

    Raises:
        InputError: if the radius is no number, negative, or larger than the box.

    Example:
        >>> check_attack(ATTACKS["fgsm"], 2)
        Traceback (most recent call last):
        ntkscore.errors.InputError: expected a radius in linf from 0 to 1 on the pixel scale, ...
    """
    try:
        made = attack(rho)
        check_radius(rho, getattr(made, "norm", "linf"), getattr(made, "box", (0.0, 1.0)), shape)
    except AttackError as error:
        raise InputError(*error.args) from error
    except ValueError as error:
        raise InputError("a radius that the attack takes", rho, f"it says: {error}") from error
