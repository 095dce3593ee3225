"""Three implementations of the kernel of any network, which must agree.

- `layerwise`: one backward pass for the whole batch, layer by layer (`ntkscore.trace`). It needs
  that a point's logits depend on that point alone. Memory is that of the activations, and of one
  layer's per-point gradients.
- `contraction`: the plain Jacobian of all points, contracted leaf by leaf, under the same
  condition. Simple, and the slowest and largest.
- `ntvp`: vmapped Jacobian-vector products of vector-Jacobian products, for any network, also where
  batch normalisation couples the points. It needs as many backward and forward passes as there are
  points.

`ntkscore.kernels.readouts` has their names; `evaluate` takes any of them, as a run of scores does.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float, Int

from attacks.lazy import Array, PyTree, jax, jnp, lax
from ntkscore.errors import InputError
from ntkscore.grams import PRECISION, Gram, GramByKind, regroup, zero_grams
from ntkscore.kernels.readouts import READOUTS
from ntkscore.kernels.wanted import point_gradients
from ntkscore.model import Labels, Logits, Model, Points
from ntkscore.trace.compiled import one_by_one
from ntkscore.trace.coupling import NotAlone
from ntkscore.trace.parameters import (
    PARAMETER_SETS,
    Parameters,
    join_parameters,
    split_parameters,
    total,
)
from ntkscore.trace.passes import passes_of
from ntkscore.trace.windows import with_windows_apart

Kernel = Callable[[Logits], Float[Array, "m m"]]
"""The kernel of a cotangent of the logits."""
COLUMNS = 8
"""Columns of the kernel that `ntvp` computes at once."""


class Evaluation(NamedTuple):
    """The kernel at M points, and the other results of the same passes.

    Attributes:
        gram: (R, S, S) kernels, S = M for one group.
        logits: (M, O).
        input_gradients: of the reading, (M, …), where a single backward pass has them; or None.
    """

    gram: Gram
    logits: Logits
    input_gradients: Points | None = None


Forward = tuple[Sequence[Array], Sequence[Any]]
"""Logits and residuals of a network's forward passes over sets of points."""


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
        forward: of these points, set after set, if they went forward.
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


def layerwise_by_kind(
    model: Model,
    points: Points,
    labels: Labels,
    outputs: Sequence[str],
    groups: int = 1,
    forward: Forward | None = None,
) -> tuple[list[GramByKind], Logits, Points | None]:
    """For each output, the Gram matrices by kind of parameter; the logits; the input gradients.

    The input gradients are those of a single reading, else None.

    Args:
        model: the network; its points do not depend on each other.
        points, labels, groups, forward: as for `evaluate`.
        outputs: readings of the logits, which share one compiled backward pass.
    """
    passes = passes_of(model, points)
    if forward is None:
        logits, kept = passes.forward(model.params, points)
        forward = [logits], [kept]
    parts, residuals = forward
    logits, start = jnp.concatenate(parts), zero_grams(PARAMETER_SETS["all"], points, groups)
    cotangents = [READOUTS[output](logits, labels) for output in outputs]
    together = jnp.concatenate(cotangents)
    back = lambda s: passes.gram_by_kind(model.params, residuals, s, start)  # noqa: E731
    if len(together) == 1:
        input_gradients, by_kind = back(together[0])
        return [by_kind], logits, input_gradients
    # One after the other: vmapped, the passes would hold every class's gradients at once.
    by_kind = one_by_one(passes, lambda s: back(s)[1], together)
    ends = list(itertools.accumulate(map(len, cotangents), initial=0))
    grams = [
        jax.tree.map(lambda gram, a=a, b=b: jnp.sum(gram[a:b], 0), by_kind)
        for a, b in itertools.pairwise(ends)
    ]
    return grams, logits, None


def contraction(model: Model, points: Points, parameters: str) -> tuple[Logits, Kernel]:
    """Logits; and the kernel J Jᵀ, for which the gradients of all points are held at once."""
    apply = with_windows_apart(model.apply)
    gradients = point_gradients(apply, *split_for(model, points, parameters))
    kernel = lambda cotangent: _product(gradients(points, cotangent), cotangent)  # noqa: E731
    return apply(model.params, points), kernel


def ntvp(model: Model, points: Points, parameters: str) -> tuple[Logits, Kernel]:
    """Logits; and the kernel by columns, K e_j = J (Jᵀ e_j), `COLUMNS` of them at a time.

    Where a derivative has no forward rule, as that of `jax.custom_vjp`, the rows of J are held.
    """
    inside, outside = split_for(model, points, parameters)
    apply, index = with_windows_apart(model.apply), jnp.arange(len(points))
    of_weights = lambda inside: apply(join_parameters(inside, outside), points)  # noqa: E731
    push: Callable[[PyTree], Logits] | None
    try:
        logits, push = jax.linearize(of_weights, inside)
        one = jax.tree.map(lambda leaf: leaf[None], inside)
        jax.eval_shape(jax.vmap(push, axis_size=1), one)
        pull = jax.linear_transpose(push, inside)
    except TypeError:  # what JAX raises for functions that it can only differentiate backward
        push, (logits, pull) = None, jax.vjp(of_weights, inside)

    def kernel(cotangent: Logits) -> Array:
        def row(j: Int[Array, ""]) -> PyTree:
            unit = (index == j)[:, None].astype(cotangent.dtype)
            return pull(cotangent * unit)[0]

        if push is None:
            return _product(lax.map(row, index, batch_size=COLUMNS), cotangent)
        column = lambda j, push=push: jnp.sum(push(row(j)) * cotangent, 1)  # noqa: E731
        # `map` stacks the columns as rows.
        return lax.map(column, index, batch_size=COLUMNS).T

    return logits, kernel


def _product(rows: PyTree, cotangent: Logits) -> Float[Array, "m m"]:
    """J Jᵀ, from the gradients of each leaf."""
    flat = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(rows)]
    parts = (jnp.matmul(leaf, leaf.T, precision=PRECISION) for leaf in flat)
    return sum(parts, jnp.zeros((len(cotangent),) * 2, cotangent.dtype))


def split_for(model: Model, points: Points, parameters: Parameters) -> tuple[PyTree, PyTree]:
    """The parameters that count and the others: by their uses, or by their names alone."""
    try:
        kinds = passes_of(model._replace(coupled=False), points).kinds_of(model.params)
    except NotAlone:
        kinds = None
    return split_parameters(model.params, parameters, kinds)


BY_COTANGENT = {"contraction": contraction, "ntvp": ntvp}


def implementation_for(model: Model, name: str = "auto") -> str:
    """The name of an implementation that fits; `auto` is the fastest that is exact for the model.

    Raises:
        InputError: if a model's points are coupled and the implementation takes them for single.
    """
    if name == "auto":
        name = "ntvp" if model.coupled else "layerwise"
    if model.coupled and name != "ntvp":
        raise InputError(
            "the implementation ntvp where one point's gradient depends on all, as with bn batch",
            name,
            "choose auto or ntvp",
        )
    return name
