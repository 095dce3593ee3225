"""Empirical neural tangent kernels of any network at any points.

k(x, x′) = ⟨∂f(x)/∂θ, ∂f(x′)/∂θ⟩ for a scalar reading f of the logits, or the mean of several.
Kernels are raw sums over the parameters, divided by neither the number of points nor theirs.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cells.errors import InputError
from cells.model import Model, Points
from ntkscore.kernels.implementations import (
    IMPLEMENTATIONS,
    Evaluation,
    Forwards,
    Labels,
    implementation_for,
    layerwise,
)
from ntkscore.kernels.parameters import PARAMETER_SETS
from ntkscore.kernels.readouts import READOUTS


def evaluate(
    model: Model,
    points: Points,
    labels: Labels,
    output: str = "sum",
    parameters: str = "all",
    implementation: str = "auto",
    groups: int = 1,
    forwards: Forwards | None = None,
) -> Evaluation:
    """The kernel of points, and what else came about on the way.

    Args:
        model: the network at its weights.
        points: M points of any shape.
        labels: their classes.
        output: a reading of the logits, a name in `READOUTS`.
        parameters: which of the parameters count, a name in `PARAMETER_SETS`.
        implementation: a name in `IMPLEMENTATIONS`, or `auto`.
        groups: R; the points are X and R pairs (X_ρ, X_2ρ), and there are R kernels, of
            (X, X_ρ, X_2ρ) each. With one, they are any points.
        forwards: what the model's own passes left at these points, set after set, if they ran.
    """
    compute = implementation_for(model, implementation)
    if compute is layerwise:
        return layerwise(model, points, labels, output, parameters, groups, forwards)
    return compute(model, points, labels, output, parameters, groups)


@partial(jax.jit, static_argnames=("model", "output", "parameters", "implementation"))
def _compiled(model, params, points, labels, output, parameters, implementation):
    model = model._replace(params=params)
    return evaluate(model, points, labels, output, parameters, implementation).gram[0]


def ntk(
    model: Model,
    points: Float[Array | np.ndarray, "m ..."],
    labels: Int[Array | np.ndarray, "m"] | Sequence[int] | None = None,
    output: str = "sum",
    parameters: str = "all",
    implementation: str = "auto",
) -> Float[Array, "m m"]:
    """The neural tangent kernel of a network at M points.

    Compiled once for a model's functions and the points' shape.

    Args:
        model: the network at its weights.
        points: M points of any shape that the network takes.
        labels: their classes; only the outputs `label` and `loss` ask for them.
        output: a reading of the logits: `sum`, `trace`, `label` or `loss`.
        parameters: which parameters count: `all`, `weights` or `conv_linear`; all but the first
            ask for leaves with names such as `kernel` and `bias`.
        implementation: `auto`, `layerwise`, `contraction` or `ntvp`.

    Returns:
        The kernel (M, M), a raw sum over the parameters.

    Raises:
        InputError: if there is no such choice, or the model does not fit it.

    Example:
        >>> import jax.numpy as jnp
        >>> from cells.model import Model
        >>> linear = Model(lambda w, x: x @ w, jnp.ones((3, 2)))
        >>> ntk(linear, jnp.eye(3)[:2])
        Array([[2., 0.],
               [0., 2.]], dtype=float32)
    """
    for name, value, allowed in (
        ("output", output, READOUTS),
        ("parameters", parameters, PARAMETER_SETS),
        ("implementation", implementation, ("auto", *IMPLEMENTATIONS)),
    ):
        if value not in allowed:
            raise InputError(
                f"expected {name} to be one of {', '.join(allowed)}, got {value!r}; choose one"
            )
    points = jnp.asarray(points)
    if labels is None:
        if output in ("label", "loss"):
            raise InputError(
                f"expected the points' classes for the output {output}, got no labels; pass labels"
            )
        labels = jnp.zeros(len(points), jnp.int32)
    # Without its weights the model is hashable, and other weights find the same program.
    functions = model._replace(params=None)
    labels = jnp.asarray(labels, jnp.int32)
    return _compiled(functions, model.params, points, labels, output, parameters, implementation)
