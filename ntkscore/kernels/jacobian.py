"""Gradients and kernels from the plain Jacobian of a network, leaf by leaf."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ntkscore.kernels.readouts import Labels, Sets
from ntkscore.model import Logits, Model, Points
from ntkscore.trace.pairs import Pairs
from ntkscore.trace.parameters import join_parameters, split_leaves
from ntkscore.trace.windows import with_windows_apart


def point_gradients(
    model: Model, inside: PyTree, outside: PyTree
) -> Callable[[Points, Logits], list[Float[Array, "m ..."]]]:
    """The gradients of single points in some leaves, from cotangents of the logits.

    Args:
        model: the network; its points do not depend on each other.
        inside, outside: these leaves and the others, as `split_parameters` gives them.
    """
    apply = with_windows_apart(model.apply)

    def gradient(point: Array, cotangent: Float[Array, " o"]) -> list[Array]:
        one = lambda inside: apply(join_parameters(inside, outside), point[None])[0]  # noqa: E731
        _, pullback = jax.vjp(one, inside)
        return jax.tree.leaves(pullback(cotangent)[0])

    return jax.vmap(gradient)


def kernel_of_jacobian(
    model: Model,
    sets: Sets,
    cotangents: Callable[[Logits, Labels], Sequence[Logits]],
    names: Sequence[str | None],
    pairs: Pairs,
) -> dict[str, Array]:
    """The kernel by the names of its leaves, for which the gradients of all points are held.

    Args:
        model: the network.
        sets: of points, and their labels.
        cotangents: of the logits, from them and the labels.
        names: of the leaves, of which those of one name are added; None of those left out.
        pairs: of rows; the rows are set after set, and in a set cotangent after cotangent.
    """
    apply = with_windows_apart(model.apply)
    chosen = [place for place, name in enumerate(names) if name is not None]
    gradients = point_gradients(model, *split_leaves(model.params, [n is not None for n in names]))
    rows = [
        gradients(points, each)
        for points, labels in sets
        for each in cotangents(apply(model.params, points), labels)
    ]
    found: dict[str, Array] = {}
    for place, *parts in zip(chosen, *rows, strict=True):
        name = str(names[place])
        found[name] = found.get(name, 0) + pairs.of_rows(jnp.concatenate(parts))
    return found
