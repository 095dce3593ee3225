"""Empirical neural tangent kernels of any network at any points.

k(x, x′) = ⟨∂f(x)/∂θ, ∂f(x′)/∂θ⟩ for a scalar reading f of the logits, or the mean of several.
Kernels are raw sums over the parameters, divided by neither the number of points nor theirs.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree, Shaped

from ntkscore.errors import InputError, check_choice
from ntkscore.grams import in_full_precision, regroup, square, zero_grams
from ntkscore.kernels.checks import (
    as_it_is_now,
    beside_another,
    check_coupling,
    check_kernel,
    check_points,
    checked_model,
    passes_for,
)
from ntkscore.kernels.implementations import (
    BY_COTANGENT,
    Evaluation,
    Forward,
    Labels,
    implementation_for,
    layerwise_by_kind,
)
from ntkscore.kernels.readouts import IMPLEMENTATIONS, READOUTS
from ntkscore.model import Logits, Model, Points
from ntkscore.task import check_labels
from ntkscore.trace.blocks import BlockPasses, have_values
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


@lru_cache(maxsize=4)
def _compiled(
    model: Model, output: str, parameters: str, name: str
) -> Callable[[PyTree, Points, Labels], Array]:
    """The kernel of a network without its weights; few are remembered, since spaces' are large."""
    choices = output, parameters, name
    return jax.jit(lambda w, x, y: evaluate(model._replace(params=w), x, y, *choices).gram[0])


@in_full_precision
def ntk(
    model: Model,
    points: Shaped[Array | np.ndarray, "m ..."],
    labels: Int[Array | np.ndarray, " m"] | Sequence[int] | None = None,
    output: str = "sum",
    parameters: str = "all",
    implementation: str = "auto",
    memory: float | None = None,
    projections: int | None = None,
    seed: int = 0,
    check: bool | None = None,
) -> Float[Array, "m m"]:
    """The neural tangent kernel of a network at M points.

    Compiled once for what the model computes, as it is now, and for the points' shape. Each call
    traces the model again to see what it computes, but for an `apply` that `jax.jit` gave.

    Args:
        model: the network at its weights.
        points: M points of any shape that the network takes.
        labels: their classes; only the outputs `label` and `loss` ask for them.
        output: a reading of the logits: `sum`, `trace`, `label` or `loss`.
        parameters: which parameters count: `all`, `weights` or `conv_linear`, by the leaves'
            use: what is multiplied entry by entry is a scale, what is added is a shift. Where that
            does not tell, by their names, such as `kernel` and `bias`.
        implementation: `auto`, `layerwise`, `contraction` or `ntvp`.
        memory: bytes that may be held at once; at most half of the free ones if left out. More
            points take more time, and disk where memory does not hold the residuals.
        projections: S, to estimate the kernel of thousands of points: each point's gradient is
            projected on so many random numbers, and nothing else of the gradients is held. An entry
            k(x, x′) is right in the mean, with a standard deviation of at most
            √((k(x, x) k(x′, x′) + k(x, x′)²) / S). The rank is S at most, so that scores of single
            eigenvalues want S far above M. Exact if left out.
        seed: of the projections.
        check: whether to hold two points against the plain Jacobian, at each call. If left out,
            once for each network of at most 100 operations. A network that fails is computed
            column by column, with a warning that names the weights.

    Returns:
        The kernel (M, M), a raw sum over the parameters.

    Raises:
        InputError: if there is no such choice, or the model does not fit it.

    Example:
        >>> import jax.numpy as jnp
        >>> from ntkscore.model import Model
        >>> linear = Model(lambda w, x: x @ w, jnp.ones((3, 2)))
        >>> ntk(linear, jnp.eye(3)[:2])
        Array([[2., 0.],
               [0., 2.]], dtype=float32)
    """
    check_kernel_choices(output, parameters, implementation)
    known = have_values(getattr(model, "params", ()), points, labels)
    if known:
        model = checked_model(model)
        check_points(np.asarray(points))
        model, classes = as_it_is_now(model, jnp.asarray(points))
        if labels is not None:
            check_labels(np.asarray(labels), len(points), classes)
    points = jnp.asarray(points)
    if labels is None:
        if output in ("label", "loss"):
            raise InputError(
                f"the points' classes for the output {output}", "no labels", "pass labels"
            )
        labels = jnp.zeros(len(points), jnp.int32)
    labels = jnp.asarray(labels, jnp.int32)
    if projections is not None:
        if projections < 1:
            raise InputError(
                "at least one projection",
                projections,
                "4096 leave an error of about 2 % of the kernel's diagonal",
            )
        possible = implementation in ("auto", "layerwise") and not model.coupled
        if not possible or not known:
            raise InputError(
                "the implementation layerwise, images that do not depend on each other, and a call "
                "outside of jax.jit",
                "projections beside others",
                "leave projections out",
            )
        model, implementation = model._replace(passes=None), "layerwise"
    name = implementation_for(model, implementation)
    if not known:
        return evaluate(model, points, labels, output, parameters, name).gram[0]
    if name != "ntvp":
        model, passes = passes_for(model, points, memory, implementation)
        name = implementation_for(model, implementation)
        if name == "layerwise" and isinstance(passes, BlockPasses):
            if projections is None and passes.are_small(points):
                gram = _at_once(model, passes, points, labels, output, parameters)
            else:
                chosen = (output, parameters, projections, seed)
                gram = _in_blocks(model, passes, points, labels, *chosen)
            found = (gram, model, passes, points, labels, output, parameters)
            if projections is not None or check_kernel(*found, check):
                return gram
            name = "ntvp"
        elif isinstance(passes, BlockPasses):
            check_coupling(model, passes.forward(model.params, points)[0], points)
    # Without its weights the model is hashable, and other weights find the same program.
    compiled = _compiled(model._replace(params=None), output, parameters, name)
    return compiled(model.params, points, labels)


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
        forward = Forward(passes.traced, [logits], [kept])
        network = weightless._replace(params=params)
        found = evaluate(network, points, labels, *choices, "layerwise", 1, forward)
        return found.gram[0], logits, network.apply(params, beside_another(points))[0]

    program = passes.programs.setdefault(choices, jax.jit(compute))
    gram, logits, among = program(model.params, points, labels)
    passes.check(model.params, points, logits)
    check_coupling(model, logits, points, among)
    return gram


def _in_blocks(
    model: Model,
    passes: BlockPasses,
    points: Points,
    labels: Labels,
    output: str,
    parameters: str,
    projections: int | None,
    seed: int,
) -> Float[Array, "m m"]:
    """The kernel of points that go forward and back some at a time."""
    readout, kinds, params = READOUTS[output], PARAMETER_SETS[parameters], model.params
    of_point = passes.traced.logits
    logits = jax.ShapeDtypeStruct((len(points), *of_point.shape), of_point.dtype)
    gram = jnp.zeros((len(points), len(points)), logits.dtype)
    start = zero_grams(PARAMETER_SETS["all"], points, 1)
    for k in range(len(jax.eval_shape(readout, logits, labels))):
        first = k == 0

        def cotangent(f: Logits, y: Labels, k: int = k) -> Logits:
            nonlocal first
            if first:
                check_coupling(model, f, points)
            first = False
            return readout(f, y)[k]

        blocks = passes.forward_and_back(params, points, cotangent, labels)
        if projections is None:
            gram += total(passes.kernel(blocks, start), parameters)[0]
        else:
            key = jax.random.fold_in(jax.random.key(seed), k)
            rows = passes.projected(blocks, kinds, projections, key)
            gram += square(rows[: len(points)])
    return gram
