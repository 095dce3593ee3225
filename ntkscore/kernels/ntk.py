"""Empirical neural tangent kernels of any network at any points.

k(x, x′) = ⟨∂f(x)/∂θ, ∂f(x′)/∂θ⟩ for a scalar reading f of the logits, or the mean of several; or of
each logit, or of each two. Kernels are raw sums over the parameters, divided by neither the number
of points nor theirs.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from ntkscore.compiler import NETWORK, Jit
from ntkscore.errors import InputError, check_choice
from ntkscore.grams import in_full_precision
from ntkscore.kernels.checks import (
    as_it_is_now,
    check_points,
    checked_model,
)
from ntkscore.kernels.implementations import (
    evaluate,
    implementation_for,
    passes_for,
    square_kernel,
)
from ntkscore.kernels.plain import check_kernel
from ntkscore.kernels.readouts import IMPLEMENTATIONS, READOUTS, WHOLE
from ntkscore.kernels.wanted import Wanted, kernel_of
from ntkscore.model import Labels, Model, Points, Sets, have_values
from ntkscore.task import check_labels
from ntkscore.trace.blocks import BlockPasses
from ntkscore.trace.compiled import in_pieces
from ntkscore.trace.coupling import beside_another
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
    model, sets, known = prepared(model, points, others, labels, output)
    wanted = Wanted(output, parameters, diagonal, len(sets) > 1, per_leaf)
    if diagonal and (output == "full" or wanted.across):
        raise InputError(
            "one set of points, and any output but full, for the diagonal",
            f"{len(sets)} sets and {output}",
            "choose the output classes, or leave diagonal out",
        )
    if not wanted.simple:
        model = model._replace(passes=None)
    name, passes = implementation_for(model, implementation), None
    if known and name != "ntvp":
        model, passes, name = passes_for(model, sets[0][0], memory, implementation)
    if not wanted.simple:
        check_alone(model, "all but the square kernel of a reading", implementation)
    if isinstance(passes, BlockPasses) and name == "layerwise":
        gram = _by_layers(model, passes, sets, wanted, check)
        if gram is not None:
            return gram
        name = "ntvp" if wanted.simple else "contraction"
    elif isinstance(passes, BlockPasses):
        passes.forward(model.params, sets[0][0])  # which refuses points that are not alone
    if not wanted.simple:
        return kernel_of(model, None, sets, wanted, by_jacobian=name == "contraction")
    if in_pieces(passes) and name == "layerwise":  # which are compiled already
        model, known = model._replace(passes=passes), False
    return square_kernel(model, sets, output, str(parameters), name, known)


def prepared(
    model: Model, points: Given, others: Given | None, labels: Any, output: str
) -> tuple[Model, Sets, bool]:
    """A network as it is now, the sets of points with labels, and whether all have values.

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
    if known:
        model = checked_model(model)
        for each in given:
            check_points(np.asarray(each))
        model, count = as_it_is_now(model, jnp.asarray(points))
        for each, classes in zip(given, classes_of, strict=True):
            if classes is not None:
                check_labels(np.asarray(classes), len(each), count)
    if labels is None and output in ("label", "loss"):
        raise InputError(f"the points' classes for the output {output}", "no labels", "pass labels")
    sets = [
        (
            jnp.asarray(x),
            jnp.zeros(len(x), jnp.int32) if y is None else jnp.asarray(y, jnp.int32),
        )
        for x, y in zip(given, classes_of, strict=True)
    ]
    return model, sets, known


def check_alone(model: Model, what: str, implementation: str) -> None:
    """Refuse a network whose points depend on each other, and an implementation for such.

    Raises:
        InputError: if it is one.
    """
    if model.coupled or implementation == "ntvp":
        raise InputError(
            f"images that do not depend on each other for {what}",
            "a model with coupled=True" if model.coupled else "the implementation ntvp",
            "freeze the batch's statistics, or choose another implementation",
        )


def _at_once(
    model: Model,
    passes: BlockPasses,
    points: Points,
    labels: Labels,
    output: str,
    parameters: str,
) -> Float[Array, "m m"]:
    """The kernel of a few points of a small network, and what is checked of it, by one program."""
    choices, weightless = (output, parameters), model._replace(params=None)

    def compute(params: PyTree, points: Points, labels: Labels) -> tuple[Array, ...]:
        logits, kept = passes.traced.forward(params, points)
        forward = passes.traced, [logits], [kept]
        network = weightless._replace(params=params)
        found = evaluate(network, points, labels, *choices, "layerwise", 1, forward)
        return found.gram[0], logits, network.apply(params, beside_another(points))[0]

    program = passes.programs.setdefault(choices, Jit(compute, NETWORK))
    gram, logits, among = program(model.params, points, labels)
    passes.check(model.params, points, logits)
    passes.check_alone(model.params, logits, points, among)
    return gram


def _by_layers(
    model: Model, passes: BlockPasses, sets: Sets, wanted: Wanted, check: bool | None
) -> PyTree | None:
    """A kernel by compiled passes; None where that of two points is not the plain Jacobian's."""
    (x, y), gram, like = sets[0], None, wanted.nearest
    kernel, choices = partial(kernel_of, model, passes), (like.output, str(like.parameters))
    if wanted.simple:
        small = passes.are_small(x)
        gram = _at_once(model, passes, x, y, *choices) if small else kernel(sets, wanted)

    def square(two: np.ndarray) -> Array:
        return kernel([(x[two], y[two])], like) if gram is None else gram[np.ix_(two, two)]

    if not check_kernel(square, model, passes, x, y, *choices, check):
        return None
    return kernel(sets, wanted) if gram is None else gram
