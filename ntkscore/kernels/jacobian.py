"""Kernels from the plain Jacobian of a network, leaf by leaf."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ntkscore.kernels.readouts import Labels, Sets
from ntkscore.model import Logits, Model
from ntkscore.trace.pairs import Pairs
from ntkscore.trace.windows import with_windows_apart


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
    leaves, tree = jax.tree.flatten(model.params)
    chosen = [place for place, name in enumerate(names) if name is not None]

    def gradient(point: Array, cotangent: Float[Array, " o"]) -> list[Array]:
        def of_chosen(own: list[Array]) -> Array:
            changed = dict(zip(chosen, own, strict=True))
            whole = [changed.get(place, leaf) for place, leaf in enumerate(leaves)]
            return apply(jax.tree.unflatten(tree, whole), point[None])[0]

        _, pullback = jax.vjp(of_chosen, [leaves[place] for place in chosen])
        return pullback(cotangent)[0]

    rows = [
        jax.vmap(gradient)(points, each)
        for points, labels in sets
        for each in cotangents(apply(model.params, points), labels)
    ]
    found: dict[str, Array] = {}
    for place, *parts in zip(chosen, *rows, strict=True):
        name, gram = str(names[place]), pairs.of_rows(jnp.concatenate(parts))
        found[name] = found[name] + gram if name in found else gram
    return found
