"""A network that was checked once, with its passes, and its kernels."""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree, Shaped

from ntkscore.compiler import NETWORK, Jit
from ntkscore.errors import InputError
from ntkscore.kernels.implementations import evaluate, implementation_for
from ntkscore.kernels.plain import check_kernel
from ntkscore.kernels.wanted import Wanted, kernel_of
from ntkscore.model import Labels, Model, Points, Sets
from ntkscore.task import check_labels
from ntkscore.trace.blocks import BlockPasses
from ntkscore.trace.compiled import in_pieces, with_passes
from ntkscore.trace.content import classes_of, logits_like, traced
from ntkscore.trace.coupling import NotAlone, beside_another
from ntkscore.trace.parameters import is_floating, join_parameters, split_leaves

log = logging.getLogger("ntkscore")


class Network(NamedTuple):
    """A network whose function, weights and passes fit each other; `network_of` makes it.

    Attributes:
        model: as it is now, with its passes; a coupled one has none.
        asked: the name of an implementation, or `auto`.
        known: whether all arrays have values, as they have outside of functions that are compiled.
        classes: the number of its logits; 0 where it is not known.
    """

    model: Model
    asked: str
    known: bool
    classes: int

    @property
    def implementation(self) -> str:
        """The name of the implementation that fits."""
        return implementation_for(self.model, self.asked)

    @property
    def normalisation(self) -> str:
        """Which statistics it normalises by: `batch`, `init`, `own`, or `none` if by no stored.

        `init` are the mean 0 and the variance 1 of new normalisations.
        """
        model, fresh = self.model, False
        if isinstance(model.passes, BlockPasses):
            fresh = model.passes.are_fresh(model.params)
        return "batch" if model.coupled else "none" if fresh is None else "init" if fresh else "own"

    def check_alone(self, what: str) -> None:
        """Refuse points that depend on each other, and an implementation for such.

        Raises:
            InputError: if they do.
        """
        if self.model.coupled or self.asked == "ntvp":
            raise InputError(
                f"images that do not depend on each other for {what}",
                "one with coupled=True, or that takes no batch of one point"
                if self.model.coupled
                else "the implementation ntvp",
                "freeze the batch's statistics, or choose another implementation",
            )

    def kernel(self, sets: Sets, wanted: Wanted, check: bool | None = None) -> PyTree:
        """A kernel; from the Jacobian where that by layers is not the plain Jacobian's.

        Args:
            sets: of points, and their labels.
            wanted: what the kernel is of.
            check: as for `ntkscore.ntk`.
        """
        model, name, (points, labels), gram = self.model, self.implementation, sets[0], None
        if not wanted.simple:
            self.check_alone("all but the square kernel of a reading")
        if isinstance(model.passes, BlockPasses):
            if name == "layerwise":
                if wanted.simple:
                    compute = _at_once if model.passes.are_small(points) else kernel_of
                    gram = compute(model, sets, wanted)
                if check_kernel(model, points, labels, wanted.nearest, gram, check):
                    return kernel_of(model, sets, wanted) if gram is None else gram
                name = "ntvp" if wanted.simple else "contraction"
            elif name == "contraction":  # whose points have to be alone too
                model.passes.forward(model.params, points)
        if not wanted.simple:
            return kernel_of(model, sets, wanted, by_jacobian=name == "contraction")
        choices = wanted.output, str(wanted.parameters), name
        if not self.known or (in_pieces(model.passes) and name == "layerwise"):  # compiled already
            return evaluate(model, points, labels, *choices).gram[0]
        # Networks of a space differ in arrays alone: weights, statistics and the architecture.
        are_arrays = [isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(model)]
        arrays, rest = split_leaves(model, are_arrays)
        # What is no weight is small, and follows the points to whatever devices these are on.
        apply, passes = jax.device_get((arrays.apply, arrays.passes))
        arrays = arrays._replace(apply=apply, passes=passes)
        leaves, tree = jax.tree.flatten(rest)
        return _compiled(tree, tuple(leaves), *choices)(arrays, points, labels)


def network_of(
    model: Any,
    sets: Sequence[tuple[Shaped[Array, "_ ..."], Any]],
    known: bool = True,
    implementation: str = "auto",
    memory: float | None = None,
    own_passes: bool = True,
) -> Network:
    """A network as it is now, with its passes, which is checked here and nowhere else.

    One that takes no batch of one point is computed batch by batch, as coupled.

    Args:
        model: the network at its weights.
        sets: of points, of the shape and dtype of those that it will be given; and their labels,
            or None.
        known: whether all arrays have values; if not, the points are not looked at.
        implementation, memory: as for `ntkscore.ntk`.
        own_passes: whether passes that the model brings are used, which know no single leaves.

    Raises:
        NotAlone: if the implementation asks for single points.
        InputError: if the model is none, or points or labels do not fit it.
    """
    model, classes = checked_model(model), 0
    if known:
        model, classes = as_it_is_now(model, sets[0][0])
        for points, labels in sets:
            if labels is not None:
                check_labels(np.asarray(labels), len(points), classes)
    if not own_passes:
        model = model._replace(passes=None)
    try:
        model = with_passes(model, sets[0][0], memory, known)
    except NotAlone as error:
        if implementation not in ("auto", "ntvp"):
            remedy = f"{error.remedy}, or choose the implementation auto or ntvp"
            raise NotAlone(error.expected, error.got, remedy) from error
        log.warning("%s; it is computed column by column, as if its points were coupled", error)
        model = model._replace(coupled=True)
    network = Network(model, implementation, known, classes)
    if network.normalisation == "init":
        log.warning(
            "the normalisations hold mean 0 and variance 1, as new ones do, and so normalise "
            "nothing; measure them on your images first (docs/networks.md; PyTorch's by "
            "ntkscore.from_torch(module, images, statistics='example'))"
        )
    return network


def checked_model(model: Any, dtype: Any = None) -> Model:
    """A network whose weights are arrays of numbers.

    Args:
        model: the network.
        dtype: of its weights; their own if left out. Whole numbers stay as they are.

    Raises:
        InputError: if it is none, or a leaf of its weights is no array of finite real numbers.
    """
    if not isinstance(model, Model):
        of_torch = any(kind.__module__.startswith("torch.") for kind in type(model).__mro__)
        remedy = (
            "write ntkscore.from_torch(module, images)"
            if of_torch
            else "write Model(apply, params), where apply gives logits of (params, images)"
        )
        raise InputError("an ntkscore.Model", type(model).__name__, remedy)
    if not callable(model.apply):
        raise InputError(
            "a function as the first of Model(apply, params)",
            type(model.apply).__name__,
            "swap the two",
        )
    params = jax.tree_util.tree_map_with_path(lambda p, x: _leaf(p, x, dtype), model.params)
    if not any(is_floating(leaf) for leaf in jax.tree.leaves(params)):
        raise InputError(
            "floating-point weights",
            [str(leaf.dtype) for leaf in jax.tree.leaves(params)] or "none",
            "give them as Model(apply, params)",
        )
    return model._replace(params=params)


def _leaf(path: tuple, leaf: Any, dtype: Any) -> Array:
    name = jax.tree_util.keystr(path) or "params"
    try:
        array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
    except (TypeError, ValueError):
        raise InputError(
            "arrays as weights",
            f"{type(leaf).__name__} at {name}",
            "leave it out, or close over it in apply",
        ) from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise InputError(
            "real weights",
            f"{array.dtype} at {name}",
            "give real and imaginary parts as leaves of their own",
        )
    if not is_floating(array):
        return array
    if not isinstance(array, Tracer) and not np.isfinite(np.asarray(array)).all():
        raise InputError("finite weights", f"NaN or infinity at {name}", "correct that leaf")
    return array if dtype is None else array.astype(dtype)


def as_it_is_now(model: Model, points: Points) -> tuple[Model, int]:
    """A network whose function is known by what it computes now; and its number of classes.

    It is traced at each call, since what a function captures may have changed.

    Raises:
        InputError: if the network does not take the points, or returns anything but logits.
    """
    # Two points stand for any number, so that blocks of other numbers share their programs.
    count = len(points) if model.coupled else min(2, len(points))
    like = jax.ShapeDtypeStruct((count, *points.shape[1:]), points.dtype)
    try:
        if model.passes is None:
            function, logits = traced(model.apply, model.params, like)
        else:  # a space's own program, which nobody changes
            function = model.apply
            logits = logits_like(function, model.params, like)
    except InputError:
        raise
    except Exception as error:
        what, *_ = str(error).strip().splitlines() or [""]
        raise InputError(
            f"apply(params, images) to take images of shape {like.shape} and plain JAX "
            "operations inside",
            f"{type(error).__name__}: {what}",
            "call it so yourself to see where",
        ) from error
    return model._replace(apply=function), classes_of(logits, count)


@lru_cache(maxsize=4)
def _compiled(
    tree: Any, leaves: tuple[Any, ...], output: str, parameters: str, name: str
) -> Callable[[PyTree, Points, Labels], Array]:
    """The kernel of a network from its arrays; few are remembered, since spaces' are large.

    Args:
        tree, leaves: of the network without its arrays.
        output, parameters, name: as for `evaluate`.
    """
    rest, choices = jax.tree.unflatten(tree, leaves), (output, parameters, name)
    return jax.jit(
        lambda arrays, x, y: evaluate(join_parameters(arrays, rest), x, y, *choices).gram[0]
    )


def _at_once(model: Model, sets: Sets, wanted: Wanted) -> Float[Array, "m m"]:
    """The kernel of a few points of a small network, and what is checked of it, by one program."""
    passes: Any = model.passes
    (points, labels), choices = sets[0], (wanted.output, str(wanted.parameters))
    weightless = model._replace(params=None, passes=passes.traced)

    def compute(params: PyTree, points: Points, labels: Labels) -> tuple[Array, ...]:
        logits, kept = passes.traced.forward(params, points)
        network, forward = weightless._replace(params=params), ([logits], [kept])
        found = evaluate(network, points, labels, *choices, "layerwise", forward=forward)
        return found.gram[0], logits, network.apply(params, beside_another(points))[0]

    if choices not in passes.programs:
        passes.programs[choices] = Jit(compute, NETWORK)
    gram, logits, among = passes.programs[choices](model.params, points, labels)
    passes.check(model.params, points, logits)
    passes.check_alone(model.params, logits, points, among)
    return gram
