"""Empirical neural tangent kernels of any network at any points.

k(x, x′) = ⟨∂f(x)/∂θ, ∂f(x′)/∂θ⟩ for a scalar reading f of the logits, or the mean of several; or of
each logit, or of each two. Kernels are raw sums over the parameters, divided by neither the number
of points nor theirs.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Shaped

from ntkscore.errors import InputError, check_choice
from ntkscore.grams import in_full_precision
from ntkscore.kernels.checks import check_points
from ntkscore.kernels.network import Network, network_of
from ntkscore.kernels.readouts import IMPLEMENTATIONS, READOUTS, WHOLE
from ntkscore.kernels.wanted import Wanted
from ntkscore.model import Model, Sets, have_values
from ntkscore.trace.parameters import Parameters

Given = Shaped[Array | np.ndarray, "_ ..."]


@in_full_precision
def ntk(
    model: Model,
    points: Given,
    others: Given | None = None,
    *,
    labels: Any = None,
    output: str = "sum",
    parameters: Parameters = "all",
    diagonal: bool = False,
    per_leaf: bool = False,
    implementation: str = "auto",
    memory: float | None = None,
    check: bool | None = None,
) -> PyTree:
    """The neural tangent kernel of a network at M points, or of these with N others.

    Compiled once for what the model computes, as it is now, and for the points' shape. Each call
    traces the model again to see what it computes, but for an `apply` that `jax.jit` gave.

    Args:
        model: the network at its weights.
        points: M points of any shape that the network takes.
        others: N points, for the rectangular kernel of the M with these; the same M if left out.
        labels: the points' classes, or the pair of the points' and the others'; only the outputs
            `label` and `loss` ask for them.
        output: a reading of the logits: `sum`, `trace`, `label` or `loss`; `classes` for the kernel
            of each logit; `full` for that of each two logits.
        parameters: which parameters count. Either `all`, `weights` or `conv_linear`, by the leaves'
            use: what is multiplied entry by entry is a scale, what is added is a shift; where that
            does not tell, by their names, such as `kernel` and `bias`. Or a pattern of paths such
            as `head/*`, or a function of a path.
        diagonal: whether to compute k(x, x) alone, the squared norm of each point's gradient, for
            which nothing is held but a block of points.
        per_leaf: whether to return the kernel by each leaf of the model's params, in a tree of
            their form. Their sum is the kernel; a leaf that does not count has zeros.
        implementation: `auto`, `layerwise`, `contraction` or `ntvp`.
        memory: bytes that may be held at once; at most half of the free ones if left out. More
            points take more time, and disk where memory does not hold the residuals.
        check: whether to hold two points against the plain Jacobian, at each call. If left out,
            once for each network of at most 100 operations. A network that fails is computed from
            its Jacobian, with a warning that names the weights.

    Returns:
        The kernel, a raw sum over the parameters: (M, N), or (M,) of the diagonal; (O, M, N) or
        (O, M) for `classes`; (M, N, O, O) for `full`, of O logits.

    Raises:
        InputError: if there is no such choice, or the model does not fit it.

    Example:
        >>> import jax.numpy as jnp
        >>> from ntkscore import Model
        >>> linear = Model(lambda w, x: x @ w, jnp.ones((3, 2)))
        >>> ntk(linear, jnp.eye(3)[:2])
        Array([[2., 0.],
               [0., 2.]], dtype=float32)
        >>> ntk(linear, jnp.eye(3)[:2], jnp.ones((1, 3)), output="full").shape
        (2, 1, 2, 2)
    """
    check_choice(output, (*READOUTS, *WHOLE), "output")
    check_choice(implementation, ("auto", *IMPLEMENTATIONS), "implementation")
    wanted = Wanted(output, parameters, diagonal, others is not None, per_leaf)
    if diagonal and (output == "full" or wanted.across):
        raise InputError(
            "one set of points, and any output but full, for the diagonal",
            f"{1 + wanted.across} sets and {output}",
            "choose the output classes, or leave diagonal out",
        )
    chosen = implementation, memory, wanted.simple
    network, sets = opened(model, points, others, labels, output, *chosen)
    return network.kernel(sets, wanted, check)


def opened(
    model: Model,
    points: Given,
    others: Given | None = None,
    labels: Any = None,
    output: str = "sum",
    implementation: str = "auto",
    memory: float | None = None,
    own_passes: bool = True,
) -> tuple[Network, Sets]:
    """A network as it is now, with its passes, and the sets of points with labels.

    Args:
        model, points, others, labels, output, implementation, memory: as for `ntk`.
        own_passes: as for `network_of`.

    Raises:
        InputError: if they do not fit each other.
    """
    given = [points] if others is None else [points, others]
    classes_of = [labels] if others is None else [None, None] if labels is None else [*labels]
    known = have_values(getattr(model, "params", ()), points, others, labels)
    if others is not None and np.shape(others)[1:] != np.shape(points)[1:]:
        raise InputError(
            f"other points of the shape (m, {str(np.shape(points)[1:])[1:]}",
            np.shape(others),
            "give labels by name: labels=…",
        )
    if len(classes_of) != len(given):
        raise InputError(
            "labels of the points and of the others", f"{len(classes_of)}", "give them as a pair"
        )
    if labels is None and output in ("label", "loss"):
        raise InputError(f"the points' classes for the output {output}", "no labels", "pass labels")
    for each in given if known else ():
        check_points(np.asarray(each))
    sets = list(zip(map(jnp.asarray, given), classes_of, strict=True))
    network = network_of(model, sets, known, implementation, memory, own_passes)
    return network, [
        (x, jnp.zeros(len(x), jnp.int32) if y is None else jnp.asarray(y, jnp.int32))
        for x, y in sets
    ]
