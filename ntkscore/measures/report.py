"""All measurements of a network, on the host, from the stack of its kernels."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ntkscore.kernels.joint import ASYMMETRIC, Stack, block, every_kernel
from ntkscore.measures.kernel import KERNEL, measure, spectrum_of
from ntkscore.measures.registry import (
    MEASURES,
    NOT_GIVEN,
    PLACES,
    Measurement,
    Quantity,
    failed,
    measures_of,
    quantities,
)


def measurements_of(
    quantity: Quantity, arrays: Any, labels: np.ndarray, symmetric: bool = True
) -> dict[str, Measurement]:
    """The measurements of a quantity's measures, from a program's arrays or None."""
    measures = measures_of(quantity)
    if arrays is None:
        return dict.fromkeys(measures, failed(NOT_GIVEN))
    found = quantity.on_host(arrays) if quantity.on_host else spectrum_of(arrays, labels, symmetric)
    return {name: each(found) for name, each in measures.items()}


def measurements(
    stack: Stack, labels: np.ndarray, betas: Sequence[float], own_passes: bool = False
) -> Iterator[tuple[str, float | None, str, Measurement]]:
    """Tuples of kernel, β (None where there is none), measure and its measurement, of a network.

    The stack is of one radius, without its axis.
    """
    for kernel, beta, matrix in every_kernel(np.asarray(stack.gram), len(labels), betas):
        for name, measurement in measure(matrix, labels, kernel not in ASYMMETRIC).items():
            yield kernel, beta, name, measurement
    requested = [q for q in quantities() if q != KERNEL and (own_passes or not q.own_passes)]
    found = {}
    for quantity in requested:
        for place in quantity.at:
            if quantity.compute is None:
                arrays = block(getattr(stack, quantity.name), place, len(labels))
            else:
                arrays = stack.quantities.get(place, {}).get(quantity.name)
            found[place, quantity.name] = measurements_of(
                quantity, arrays, labels, place not in ASYMMETRIC
            )
    # Rows list scores of matrices over the images by kernel, and other measures by measure.
    for kernel in PLACES:
        for quantity in requested:
            if quantity.on_host is None and kernel in quantity.at:
                for name, measurement in found[kernel, quantity.name].items():
                    yield kernel, None, name, measurement
    for name, declared in MEASURES.items():
        if declared.of in requested and declared.of.on_host:
            for place in declared.at:
                yield place, None, name, found[place, declared.of.name][name]
