"""Three implementations of the kernel of any network, which must agree.

- `layerwise`: one backward pass for the whole batch. It needs a network whose layers report their
  own contributions (`Model.passes` or `Model.tapped`). Memory is that of one layer's per-point
  gradients.
- `contraction`: the plain Jacobian, point by point, contracted leaf by leaf, in chunks. It needs
  that a point's logits depend on that point alone.
- `ntvp`: vmapped Jacobian-vector products of vector-Jacobian products, for any network, also where
  batch normalisation couples the points. It needs as many backward and forward passes as there are
  points.

Each is a function of (model, points, labels, output, parameters, groups), as
`ntkscore.kernels.gram.evaluate` explains them.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float, Int

from cells.errors import InputError
from cells.grams import Taps, zero_taps
from cells.lazy import Array, jax, jnp, lax
from cells.model import Logits, Model, Points
from ntkscore.kernels.parameters import (
    PARAMETER_SETS,
    join_parameters,
    split_parameters,
    total,
)
from ntkscore.kernels.readouts import READOUTS, Cotangents

Labels = Int[Array, "m"]
Gram = Float[Array, "r s s"]
# Accelerators would otherwise multiply float32 in fewer bits.
PRECISION = "highest"
CHUNK_BYTES = 2**30
"""Bytes of per-point gradients in a block of `contraction`, which holds two blocks at once."""
COLUMNS = 8
"""Columns of the kernel that `ntvp` computes at once."""


class Evaluation(NamedTuple):
    """What an implementation computed at M points.

    Attributes:
        gram: (R, S, S) kernels, S = M for one group.
        logits: (M, O).
        slopes: the gradient of the reading in the points, where the way back passed by; or None.
    """

    gram: Gram
    logits: Logits
    slopes: Points | None = None


def regroup(kernel: Float[Array, "m m"], groups: int) -> Gram:
    """The Gram matrices of R groups (X, X_ρ, X_2ρ), from that of X and R pairs (X_ρ, X_2ρ)."""
    if groups == 1:
        return kernel[None]
    members = per_group(jnp.arange(len(kernel)), groups)
    return kernel[members[:, :, None], members[:, None, :]]


def per_group(values: Array, groups: int) -> Array:
    """Values (m, …) at X and at R pairs (X_ρ, X_2ρ), regrouped as (r, s, …): (X, X_ρ, X_2ρ)."""
    n = len(values) // (2 * groups + 1)
    pairs = values[n:].reshape(groups, 2 * n, *values.shape[1:])
    clean = jnp.broadcast_to(values[:n], (groups, n, *values.shape[1:]))
    return jnp.concatenate([clean, pairs], 1)


Forwards = Sequence[tuple[Float[Array, "n o"], Any]]
"""Logits of some sets of points, and what `Passes.forward` kept for the way back."""


def _ready_for_the_way_back(
    model: Model, points: Points, groups: int, forwards: Forwards | None
) -> tuple[Logits, Callable[[Logits], tuple[Points, Taps]]]:
    """Logits; and what `Passes.parts` hands out, as a function of their cotangent."""
    params, taps = model.params, zero_taps(PARAMETER_SETS["all"], points, groups)
    if (passes := model.passes) is not None:
        forwards = forwards or [passes.forward(params, points)]
        logits, kept = zip(*forwards, strict=True)
        return jnp.concatenate(logits), lambda s: passes.parts(params, kept, s, taps)
    if (tapped := model.tapped) is None:
        raise InputError(
            "expected a model whose layers report their contributions for the implementation "
            "layerwise, got one without `passes` or `tapped`; choose auto, contraction or ntvp"
        )
    return jax.vjp(lambda points, taps: tapped(params, points, taps), points, taps)


def layerwise_by_kind(
    model: Model,
    points: Points,
    labels: Labels,
    outputs: Sequence[str],
    groups: int = 1,
    forwards: Forwards | None = None,
) -> tuple[list[Taps], Logits, Points | None]:
    """For each output, the kernel's parts by kind of parameter; the logits; and the slopes.

    The slopes, the gradient in the points, are those of a single reading, else None.

    Args:
        model: with passes or taps.
        points, labels, groups: as for the other implementations.
        outputs: readings of the logits, which share one compiled backward pass.
        forwards: what the model's own passes left at these points, set after set, if they ran.
    """
    logits, pullback = _ready_for_the_way_back(model, points, groups, forwards)
    cotangents = [READOUTS[output](logits, labels) for output in outputs]
    together = jnp.concatenate(cotangents)
    if len(together) == 1:
        slopes, parts = pullback(together[0])
        return [parts], logits, slopes
    # One after the other: vmapped, the passes would hold every class's gradients at once.
    parts = lax.map(lambda s: pullback(s)[1], together)
    ends = list(itertools.accumulate(map(len, cotangents), initial=0))
    grams = [
        jax.tree.map(lambda part, a=a, b=b: jnp.sum(part[a:b], 0), parts)
        for a, b in itertools.pairwise(ends)
    ]
    return grams, logits, None


def layerwise(
    model: Model,
    points: Points,
    labels: Labels,
    output: str,
    parameters: str,
    groups: int,
    forwards: Forwards | None = None,
) -> Evaluation:
    """The kernel by one backward pass (one for each class with the output `trace`)."""
    (parts,), logits, slopes = layerwise_by_kind(model, points, labels, (output,), groups, forwards)
    return Evaluation(total(parts, parameters), logits, slopes)


def contraction(
    model: Model,
    points: Points,
    labels: Labels,
    output: str,
    parameters: str,
    groups: int,
    chunk: int | None = None,
) -> Evaluation:
    """The kernel J Jᵀ from the gradients of every point, in blocks of `chunk` points.

    Args:
        model, points, labels, output, parameters, groups: as for the others.
        chunk: points whose gradients are held at once; where it is less than all, those of every
            earlier block are computed again for each block. By default as many as fit into
            `CHUNK_BYTES`.
    """
    inside, outside = split_parameters(model.params, parameters)
    m = len(points)
    if chunk is None:
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(inside))
        chunk = CHUNK_BYTES // max(size, 1)
    chunk = min(max(chunk, 1), m)
    logits = model.apply(model.params, points)

    def gradient(point: Array, cotangent: Float[Array, "o"]) -> list[Array]:
        """∂f(x)/∂θ of one point, leaf by leaf."""
        one = lambda inside: model.apply(join_parameters(inside, outside), point[None])[0]  # noqa: E731
        _, pullback = jax.vjp(one, inside)
        return [leaf.ravel() for leaf in jax.tree.leaves(pullback(cotangent)[0])]

    gradients = jax.vmap(gradient)

    def product(rows: list[Array], others: list[Array]) -> Array:
        parts = (jnp.matmul(a, b.T, precision=PRECISION) for a, b in zip(rows, others, strict=True))
        return sum(parts, jnp.zeros((), points.dtype))

    if chunk == m:

        def kernel(cotangent: Logits) -> Array:
            rows = gradients(points, cotangent)
            return product(rows, rows)
    else:
        blocks = -(-m // chunk)
        # The last block is filled up with points that nobody asks for.
        place = jnp.minimum(jnp.arange(blocks * chunk), m - 1).reshape(blocks, chunk)

        def kernel(cotangent: Logits) -> Array:
            def rows_of(block: Int[Array, ""]) -> list[Array]:
                return gradients(points[place[block]], cotangent[place[block]])

            def below(block: Int[Array, ""]) -> Array:
                """One row of blocks, up to the diagonal; zero behind it."""
                rows = rows_of(block)

                def fill(other: Int[Array, ""], filled: Array) -> Array:
                    return filled.at[other].set(product(rows, rows_of(other)))

                empty = jnp.zeros((blocks, chunk, chunk), points.dtype)
                filled = lax.fori_loop(jnp.zeros_like(block), block, fill, empty)
                return filled.at[block].set(product(rows, rows))

            triangle = lax.map(below, jnp.arange(blocks))
            lower = triangle.transpose(0, 2, 1, 3).reshape(blocks * chunk, blocks * chunk)
            diagonal = jnp.arange(blocks * chunk) // chunk
            mirrored = jnp.where(diagonal[:, None] >= diagonal[None], lower, lower.T)
            return mirrored[:m, :m]

    grams = regroup(_summed(kernel, READOUTS[output](logits, labels)), groups)
    return Evaluation(grams, logits)


def ntvp(
    model: Model,
    points: Points,
    labels: Labels,
    output: str,
    parameters: str,
    groups: int,
    chunk: int = COLUMNS,
) -> Evaluation:
    """The kernel column by column: K e_j = J (Jᵀ e_j), several columns at a time.

    Args:
        model, points, labels, output, parameters, groups: as for the others.
        chunk: columns computed at once; memory grows with it.
    """
    inside, outside = split_parameters(model.params, parameters)
    logits, push = jax.linearize(
        lambda inside: model.apply(join_parameters(inside, outside), points), inside
    )
    pull = jax.linear_transpose(push, inside)
    index = jnp.arange(len(points))

    def kernel(cotangent: Logits) -> Array:
        def column(j: Int[Array, ""]) -> Float[Array, "m"]:
            unit = (index == j)[:, None].astype(cotangent.dtype)
            return jnp.sum(push(pull(cotangent * unit)[0]) * cotangent, 1)

        # `map` stacks the columns as rows.
        return lax.map(column, index, batch_size=chunk).T

    grams = regroup(_summed(kernel, READOUTS[output](logits, labels)), groups)
    return Evaluation(grams, logits)


def _summed(kernel: Callable[[Logits], Array], cotangents: Cotangents) -> Array:
    """The sum of the kernels of several readings, computed one after the other."""
    if len(cotangents) == 1:
        return kernel(cotangents[0])
    return jnp.sum(lax.map(kernel, cotangents), 0)


Implementation = Callable[..., Evaluation]
IMPLEMENTATIONS: dict[str, Implementation] = {
    "layerwise": layerwise,
    "contraction": contraction,
    "ntvp": ntvp,
}


def implementation_for(model: Model, name: str = "auto") -> Implementation:
    """The implementation of a name; `auto` is the fastest that is exact for the model.

    Raises:
        InputError: if a model's points are coupled and the implementation takes them for single.
    """
    if name == "auto":
        reporting = model.passes is not None or model.tapped is not None
        name = "ntvp" if model.coupled else "layerwise" if reporting else "contraction"
    if model.coupled and name != "ntvp":
        raise InputError(
            "expected the implementation ntvp where one point's gradient depends on all, as with "
            f"bn batch, got {name}; choose auto or ntvp"
        )
    return IMPLEMENTATIONS[name]
