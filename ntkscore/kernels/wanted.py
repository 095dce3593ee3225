"""Any kernel of a network whose points do not meet: of one set or two, whole, by logit or leaf."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ntkscore.kernels.readouts import READOUTS, number_of, reading_of
from ntkscore.model import Labels, Logits, Model, Points, Sets
from ntkscore.trace.pairs import Across, Groups, Own, Pairs
from ntkscore.trace.parameters import (
    PARAMETER_SETS,
    Parameters,
    counted,
    join_parameters,
    split_leaves,
)
from ntkscore.trace.passes import passes_of
from ntkscore.trace.windows import with_windows_apart

WHOLE_KERNEL = "all"
"""The name of the kernel of all leaves that count, where it is not by leaf."""


class Wanted(NamedTuple):
    """What a kernel is of; attributes as the arguments of `ntk`.

    Attributes:
        across: whether it is of two sets of points.
    """

    output: str = "sum"
    parameters: Parameters = "all"
    diagonal: bool = False
    across: bool = False
    per_leaf: bool = False

    @property
    def named(self) -> bool:
        """Whether its parameters are a set that has a name."""
        return isinstance(self.parameters, str) and self.parameters in PARAMETER_SETS

    @property
    def simple(self) -> bool:
        """Whether it is the square kernel of a reading, by a set of parameters with a name."""
        other = self.diagonal or self.across or self.per_leaf
        return self.named and self.output in READOUTS and not other

    @property
    def nearest(self) -> "Wanted":
        """The simple kernel that shows whether a trace is right for this one."""
        output = self.output if self.output in READOUTS else "trace"
        return Wanted(output, self.parameters if self.named else "all")

    def pairs(self, first: int) -> Pairs:
        """Of rows, of which so many are of the first set of points."""
        return Own() if self.diagonal else Across(first) if self.across else Groups()


def kernel_of(model: Model, sets: Sets, wanted: Wanted, by_jacobian: bool = False) -> PyTree:
    """Any kernel, layer by layer or from the network's Jacobian.

    Args:
        model: the network; its passes are in blocks or traced, or it is traced here.
        sets: of points, and their labels.
        wanted: what the kernel is of.
        by_jacobian: whether the passes only tell the kinds of the leaves.
    """
    passes: Any = passes_of(model, sets[0][0])
    params, (classes,) = model.params, passes.logits.shape
    compute = partial(kernel_of_jacobian, model.apply) if by_jacobian else passes.kernel
    names = [
        (str(place) if wanted.per_leaf else WHOLE_KERNEL) if is_in else None
        for place, is_in in enumerate(counted(params, passes.kinds_of(params), wanted.parameters))
    ]
    read, sizes = reading_of(wanted.output), [len(points) for points, _ in sets]
    readings = number_of(wanted.output, classes)
    together = [range(readings)] if wanted.output == "full" else [[k] for k in range(readings)]
    found: list[dict[str, Array]] = []
    for some in together:
        cotangents = lambda f, y, some=some: [read(f, y)[k] for k in some]  # noqa: E731
        pairs = wanted.pairs(len(some) * sizes[0])
        grams = compute(params, sets, cotangents, names, pairs)
        found.append({name: a[0] if isinstance(pairs, Groups) else a for name, a in grams.items()})
    shape = sizes[:1] if wanted.diagonal else [sizes[0], sizes[-1]]

    def joined(name: str) -> Array:
        nothing = jnp.zeros((), passes.logits.dtype)
        if wanted.output == "full":
            gram = jnp.broadcast_to(found[0].get(name, nothing), [classes * m for m in shape])
            return gram.reshape(classes, shape[0], classes, shape[1]).transpose(1, 3, 0, 2)
        parts = [jnp.broadcast_to(each.get(name, nothing), shape) for each in found]
        return jnp.stack(parts) if wanted.output == "classes" else sum(parts[1:], parts[0])

    if not wanted.per_leaf:
        return joined(WHOLE_KERNEL)
    return jax.tree.unflatten(jax.tree.structure(params), map(joined, map(str, range(len(names)))))


def point_gradients(
    apply: Callable[..., Logits], inside: PyTree, outside: PyTree
) -> Callable[[Points, Logits], list[Float[Array, "m ..."]]]:
    """The gradients of single points in the leaves `inside`, from cotangents of the logits."""

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
    """The kernel by the names of its leaves, for which the gradients of all points are held."""
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
