"""The declaration of train-free measures, and the registry of all of them.

A `Quantity` is computed in JAX, in the program that computes the kernels. A `Measure` is a number
that the host reads off it. Several measures may share a quantity, which is computed once.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ntkscore.errors import InputError
from ntkscore.kernels.joint import ASYMMETRIC, KERNELS, POINTS

NETWORK = "network"
"""Stands in the place of a kernel's name for measures of the network alone, at no image."""
PLACES = (*KERNELS, NETWORK)
ATTACKED_ONCE = POINTS[:2]

OK = "ok"
NOT_FINITE = "not_finite"
NOT_PSD = "not_psd"
CONSTANT = "constant"
SINGULAR = "singular"
NOT_GIVEN = "not_given"
STATUSES = {
    OK: "measured",
    NOT_FINITE: "the kernel or the score is not a finite number",
    NOT_PSD: "an eigenvalue is negative beyond rounding",
    CONSTANT: "all entries are equal: the network does not tell the images apart",
    SINGULAR: "λ_min is zero within rounding, so that the score's division has no meaning",
    NOT_GIVEN: "the network does not report what the measure is taken from",
}


class Measurement(NamedTuple):
    """A measure's value and its status; the value is NaN unless the status is `ok`."""

    value: float
    status: str


def failed(status: str) -> Measurement:
    """A measurement without a value."""
    return Measurement(float("nan"), status)


def finite(value: float | None) -> Measurement:
    """The measurement of a number that may have overflowed, or be None where no network gave it."""
    if value is None:
        return failed(NOT_GIVEN)
    return Measurement(value, OK) if np.isfinite(value) else failed(NOT_FINITE)


def identity(arrays: Any) -> Any:
    """The arrays, unchanged."""
    return arrays


@dataclass(frozen=True)
class Quantity:
    """What a program computes for one or several measures.

    Attributes:
        name: of the quantity, which no other has.
        at: names of kernels at whose points it is taken, or `network`.
        compute: in JAX, an array or a tree of arrays, from the `Pass` at the points; of an
            asymmetric kernel from its two passes; None where the network cannot give it. If left
            out, `stack` has computed it, as its field of the same name.
        on_host: what its measures are functions of, from the arrays in the precision of the
            program. If left out, the array is an n × n matrix, and they take its `Spectrum`.
        own_passes: whether it takes passes beside the kernel's; then it is computed on demand.
    """

    name: str
    at: tuple[str, ...]
    compute: Callable[..., Any] | None = None
    on_host: Callable[[Any], Any] | None = None
    own_passes: bool = False


@dataclass(frozen=True)
class Measure:
    """The declaration of a train-free measure.

    Attributes:
        name: in rows and tables.
        direction: +1 if a larger value predicts a better network, −1 if a smaller one does; 0 for
            what is measured beside the others and predicts nothing.
        of: the quantity that it is a function of.
        value: the number, from what `Quantity.on_host` returns; None where there is none.
        places: names of kernels that have it, or `network`; those of its quantity if left out.
        inverts: whether it divides by λ_min, which must be above rounding then.
    """

    name: str
    direction: int
    formula: str
    of: Quantity
    value: Callable[[Any], float | None] = float
    source: str = field(default="", kw_only=True)
    places: tuple[str, ...] | None = field(default=None, kw_only=True)
    inverts: bool = field(default=False, kw_only=True)

    @property
    def at(self) -> tuple[str, ...]:
        """Names of the kernels that have it, or `network`."""
        return self.of.at if self.places is None else self.places

    def __call__(self, found: Any) -> Measurement:
        """The measurement, from what `Quantity.on_host` returns, or from a status in its place."""
        if isinstance(found, str):
            return failed(found)
        if self.inverts and found.singular:
            return failed(SINGULAR)
        value = self.value(found)
        return finite(None if value is None else float(value))


MEASURES: dict[str, Measure] = {}
"""Every measure by name, in the order in which they are shown."""


def quantities() -> list[Quantity]:
    """Every quantity that measures are read off, once."""
    return list(dict.fromkeys(measure.of for measure in MEASURES.values()))


def measures_of(quantity: Quantity) -> dict[str, Measure]:
    """The measures that are read off a quantity."""
    return {name: measure for name, measure in MEASURES.items() if measure.of == quantity}


def measures_at(place: str) -> dict[str, Measure]:
    """The measures of a kernel, by its name, and at its points; or of the `network` alone.

    Example:
        >>> list(measures_at("cross"))
        ['frobenius', 'trace', 'sigma_min', 'flips', 'curvature']
        >>> list(measures_at("network"))
        ['synflow', 'zen']
    """
    return {name: measure for name, measure in MEASURES.items() if place in measure.at}


def direction_of(name: str, fewer: Collection[str] = ()) -> int:
    """The sign with which a measure predicts a better network: +1, −1, or 0 for the loss.

    Anything else, such as an accuracy, a parameter count or a sum of log-ranks, counts as +1.

    Args:
        name: a measure's, or KERNEL.MEASURE.
        fewer: names of counts of which fewer are better, which count as −1.

    Example:
        >>> direction_of("robust.condition")
        -1
    """
    if name in fewer:
        return -1
    measure = None if "+" in name else MEASURES.get(name.rpartition(".")[2])
    return measure.direction if measure else +1


def declare(measure: Measure) -> None:
    """Add a measure to the others."""
    name, direction = measure.name, measure.direction
    names_in_use = {*MEASURES, *(quantity.name for quantity in quantities())}
    if not name.isidentifier() or name in names_in_use:
        raise InputError(
            "a new name of letters, digits and underscores",
            repr(name),
            f"there are {', '.join(MEASURES)} already, so choose another",
        )
    if direction not in (+1, -1):
        raise InputError("the direction +1 or -1", repr(direction), "give either")
    MEASURES[name] = measure


def add_measure(
    name: str,
    compute: Callable[..., Any],
    *,
    direction: int,
    formula: str,
    at: Sequence[str] = POINTS,
    value: Callable[[Any], float] = float,
) -> None:
    """Add a measure of your own: from then on `score` takes it with the others.

    Args:
        name: for rows and for `--by`; letters, digits and underscores.
        compute: in JAX, an array or a tree of arrays from a `Pass`: the network at some points,
            with their logits and gradients (`ntkscore.measures.forward_pass`). Of the kernels
            `cross` and `cross_twice` it has two, before and after an attack.
        direction: +1 if a larger value predicts a better network, −1 if a smaller one does.
        formula: the measure in a line.
        at: the kernels at whose points it is taken: `clean`, `robust`, `twice`, `cross` or
            `cross_twice`; or `network` for a measure that is taken once, with the clean images.
        value: the number, on the host, from the arrays; NaN and infinities become `not_finite`.

    Raises:
        InputError: if there is such a measure already, or the name, direction or a place is none.

    Example:
        >>> import jax.numpy as jnp
        >>> add_measure("confidence", lambda at: jnp.mean(jnp.max(at.logits, axis=1)),
        ...             direction=+1, formula="mean of the largest logit")
        >>> direction_of("clean.confidence")
        1
        >>> del MEASURES["confidence"]
    """
    possible = (*POINTS, *ASYMMETRIC, NETWORK)
    if wrong := [place for place in at if place not in possible]:
        raise InputError(
            f"places among {', '.join(possible)}", repr(wrong[0]), "give one or several"
        )
    declare(Measure(name, direction, formula, Quantity(name, tuple(at), compute, identity), value))
