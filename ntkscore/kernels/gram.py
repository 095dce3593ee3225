"""The kernel of one set of points, as a run of scores computes it."""

import jax.numpy as jnp
from jax import lax

from ntkscore.errors import check_choice
from ntkscore.grams import regroup
from ntkscore.kernels.implementations import (
    BY_COTANGENT,
    Evaluation,
    Forward,
    Labels,
    implementation_for,
    layerwise_by_kind,
)
from ntkscore.kernels.readouts import IMPLEMENTATIONS, READOUTS
from ntkscore.model import Model, Points
from ntkscore.trace.parameters import PARAMETER_SETS, total


def evaluate(
    model: Model,
    points: Points,
    labels: Labels,
    output: str = "sum",
    parameters: str = "all",
    implementation: str = "auto",
    groups: int = 1,
    forward: Forward | None = None,
) -> Evaluation:
    """The kernel of points, and the other results of the same passes.

    Args:
        model: the network at its weights.
        points: M points of any shape.
        labels: their classes.
        output: a reading of the logits, a name in `READOUTS`.
        parameters: which of the parameters count, a name in `PARAMETER_SETS`.
        implementation: a name in `IMPLEMENTATIONS`, or `auto`.
        groups: R; the points are X and R pairs (X_ρ, X_2ρ), and there are R kernels, of
            (X, X_ρ, X_2ρ) each. With one, they are any points.
        forward: of the forward passes at these points, set after set, if they ran.
    """
    name = implementation_for(model, implementation)
    if name == "layerwise":
        (by_kind,), logits, input_gradients = layerwise_by_kind(
            model, points, labels, (output,), groups, forward
        )
        return Evaluation(total(by_kind, parameters), logits, input_gradients)
    logits, kernel = BY_COTANGENT[name](model, points, parameters)
    cotangents = READOUTS[output](logits, labels)
    # One after the other: memory holds the gradients of one.
    one = len(cotangents) == 1
    gram = kernel(cotangents[0]) if one else jnp.sum(lax.map(kernel, cotangents), 0)
    return Evaluation(regroup(gram, groups), logits)


def check_kernel_choices(output: str, parameters: str, implementation: str) -> None:
    """Refuse a readout, a set of parameters or an implementation that does not exist."""
    check_choice(output, READOUTS, "output")
    check_choice(parameters, PARAMETER_SETS, "parameters")
    check_choice(implementation, ("auto", *IMPLEMENTATIONS), "implementation")
