"""Gradients and kernels from the plain Jacobian of a network, leaf by leaf."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ntkscore.model import Labels, Logits, Points, Sets
from ntkscore.trace.pairs import Pairs
from ntkscore.trace.parameters import join_parameters, split_leaves
from ntkscore.trace.windows import with_windows_apart


def point_gradients(
    apply: Callable[..., Logits], inside: PyTree, outside: PyTree
) -> Callable[[Points, Logits], list[Float[Array, "m ..."]]]:
    """The gradients of single points in some leaves, from cotangents of the logits.

    Args:
        apply: the network; its points do not depend on each other.
        inside, outside: these leaves and the others, as `split_parameters` gives them.
    """

    def gradient(point: Array, cotangent: Float[Array, " o"]) -> list[Array]:
        one = lambda inside: apply(join_parameters(inside, outside), point[None])[0]  # noqa: E731
        _, pullback = jax.vjp(one, inside)
        return jax.tree.leaves(pullback(cotangent)[0])

    return jax.vmap(gradient)


def kernel_of_jacobian(
    apply: Callable[..., Logits],
    params: PyTree,
    sets: Sets,
    cotangents: Callable[[Logits, Labels], Sequence[Logits]],
    names: Sequence[str | None],
    pairs: Pairs,
) -> dict[str, Array]:
    """The kernel by the names of its leaves, for which the gradients of all points are held.

    Args:
        apply: the network.
        params, sets, cotangents, names, pairs: as for the method `kernel` of `TracedPasses`.
    """
    apply = with_windows_apart(apply)
    chosen = [place for place, name in enumerate(names) if name is not None]
    gradients = point_gradients(apply, *split_leaves(params, [n is not None for n in names]))
    rows = [
        gradients(points, each)
        for points, labels in sets
        for each in cotangents(apply(params, points), labels)
    ]
    found: dict[str, Array] = {}
    for place, *parts in zip(chosen, *rows, strict=True):
        name = str(names[place])
        found[name] = found.get(name, 0) + pairs.of_rows(jnp.concatenate(parts))
    return found
