"""Sets of parameters, by the kinds that the leaves' names tell apart."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import numpy as np

from attacks.lazy import Array, PyTree, jax, jnp
from ntkscore.errors import InputError

Matrix = TypeVar("Matrix", Array, np.ndarray)

PARAMETER_SETS: dict[str, tuple[str, ...]] = {
    "all": ("weight", "scale", "shift"),
    "weights": ("weight", "scale"),
    "conv_linear": ("weight",),
}
"""Kinds of parameters in each set; biases count as shifts."""

Parameters = str | Callable[[str], bool]
"""Which parameters count (`counted`)."""
SHOWN = 6
"""Paths that an error names."""
FIXED = "fixed"
"""In place of a kind, of a leaf that is no parameter and is held constant."""
COLLECTIONS = {"batch_stats", "cache", "constants", "intermediates", "perturbations", "state"}
"""Flax linen's collections of variables that are no parameters."""
RUNNING = ("running_", "moving_")
"""How the names of statistics begin that a normalisation keeps."""
KIND_OF_LEAF = {
    "kernel": "weight",
    "weight": "weight",
    "embedding": "weight",
    "scale": "scale",
    "shift": "shift",
    "bias": "shift",
}


def total(by_kind: Mapping[str, Matrix], parameters: str) -> Matrix:
    """The kernel over a set of parameters: the sum of the Gram matrices of its kinds."""
    first, *others = (by_kind[kind] for kind in PARAMETER_SETS[parameters])
    return sum(others, first)


def counted(params: PyTree, kinds: Sequence[str], parameters: Parameters) -> list[bool]:
    """Which leaves count.

    Args:
        params: as a `Model` has them.
        kinds: of the leaves, `FIXED` for no parameters.
        parameters: a name in `PARAMETER_SETS`; a pattern of paths, with `*` for any letters; or a
            function that tells of a path whether the leaf counts. Paths are names and numbers
            between slashes.

    Raises:
        InputError: if no leaf does.

    Example:
        >>> import numpy as np
        >>> params = {"head": {"bias": np.ones(2), "kernel": np.ones((3, 2))}, "stem": np.ones(3)}
        >>> counted(params, kinds_by_name(params), "head/*")
        [True, True, False]
    """
    if isinstance(parameters, str) and parameters in PARAMETER_SETS:
        return [kind in PARAMETER_SETS[parameters] for kind in kinds]
    paths = [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(params)
    ]
    pattern = parameters if isinstance(parameters, str) else None
    chosen = parameters if callable(parameters) else lambda path: fnmatchcase(path, str(pattern))
    found = [kind != FIXED and bool(chosen(path)) for path, kind in zip(paths, kinds, strict=True)]
    if not any(found):
        own = [path for path, kind in zip(paths, kinds, strict=True) if kind != FIXED]
        more = ", …" if len(own) > SHOWN else ""
        raise InputError(
            f"parameters {', '.join(PARAMETER_SETS)}, or a pattern that a path matches",
            pattern or "a function that chooses none",
            f"the paths are {', '.join(own[:SHOWN])}{more}",
        )
    return found


def is_floating(leaf: Any) -> bool:
    """Whether an array is of real numbers in floating point."""
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def dtype_of_weights(params: PyTree) -> Any:
    """The dtype of the first floating-point weights; float32 where there are none."""
    arrays = map(jnp.asarray, jax.tree.leaves(params))
    return next((array.dtype for array in arrays if is_floating(array)), jnp.dtype(jnp.float32))


def kind_of(path: tuple, leaf: Array) -> str:
    """The kind of a parameter, from the last name on its path that says one.

    Raises:
        InputError: if no name on the path does.
    """
    kind = kind_or_none(path, leaf)
    if kind is None:
        raise InputError(
            f"parameters named {', '.join(KIND_OF_LEAF)} to tell weights from shifts",
            jax.tree_util.keystr(path) or "a single array",
            "choose the parameters 'all', or name the leaves",
        )
    return kind


def kind_or_none(path: tuple, leaf: Any) -> str | None:
    """The kind of a parameter, from the last name on its path that says one; None where none does.

    Of the leaf it takes the shape alone.
    """
    for name in reversed(names_of(path)):
        if name in KIND_OF_LEAF:
            # PyTorch's and equinox's normalisations call their scale a weight.
            vector = name == "weight" and len(leaf.shape) < 2
            return "scale" if vector else KIND_OF_LEAF[name]
    return None


def kinds_by_name(params: PyTree, told: bool = False) -> list[str]:
    """The kind of each leaf by its name, a weight where none tells; `FIXED` of no parameters.

    Args:
        params: as a `Model` has them.
        told: whether a name has to tell it.

    Raises:
        InputError: if it has to, and none does.

    Example:
        >>> import numpy as np
        >>> kinds_by_name({"bias": np.ones(2), "first": np.ones((3, 2)), "step": np.int32(1)})
        ['shift', 'weight', 'fixed']
    """
    fixed, of_name = fixed_leaves(params), kind_of if told else kind_or_none
    return [
        FIXED if place in fixed else of_name(path, leaf) or "weight"
        for place, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(params))
    ]


def split_parameters(
    params: PyTree, parameters: Parameters, kinds: Sequence[str] | None = None
) -> tuple[PyTree, PyTree]:
    """The parameters that count and the others, as two trees with None for absent leaves.

    Args:
        params: as a `Model` has them.
        parameters: which count (`counted`).
        kinds: of the leaves, `FIXED` for no parameters; by their names if left out.

    Raises:
        InputError: if none counts, or a leaf has no name that tells its kind.
    """
    if kinds is None:
        kinds = kinds_by_name(params, told=parameters in PARAMETER_SETS and parameters != "all")
    return split_leaves(params, counted(params, kinds, parameters))


def split_leaves(params: PyTree, chosen: Sequence[bool]) -> tuple[PyTree, PyTree]:
    """Some leaves and the others, as two trees with None for absent leaves."""
    leaves, tree = jax.tree.flatten(params)
    pairs = list(zip(leaves, chosen, strict=True))
    inside = jax.tree.unflatten(tree, [leaf if is_in else None for leaf, is_in in pairs])
    outside = jax.tree.unflatten(tree, [None if is_in else leaf for leaf, is_in in pairs])
    return inside, outside


def join_parameters(inside: PyTree, outside: PyTree) -> PyTree:
    """The params, from the two trees of `split_parameters`."""
    return jax.tree.map(
        lambda a, b: b if a is None else a, inside, outside, is_leaf=lambda leaf: leaf is None
    )


def fixed_leaves(params: PyTree) -> frozenset[int]:
    """Places of leaves that are no parameters, and are held constant.

    They are whole numbers, random keys and others without a gradient; leaves named `running_…` or
    `moving_…`, or below the name `batch_stats`; linen's `COLLECTIONS` beside the collection
    `params`; of flax nnx's state all variables but `Param`. Leaves named `mean` and `var` are held
    constant where the network normalises by them alone (`normalizations.statistics`).

    Args:
        params: as a `Model` has them.

    Example:
        >>> import numpy as np
        >>> variables = {"batch_stats": {"mean": np.zeros(2)}, "params": {"scale": np.ones(2)}}
        >>> fixed_leaves(variables)
        frozenset({0})
    """
    linen = isinstance(params, Mapping) and isinstance(params.get("params"), Mapping)
    fixed, place = set[int](), 0
    # Variables of nnx are nodes of their own, which say what they are.
    variables = lambda node: _has_base(node, "Variable")  # noqa: E731
    for path, node in jax.tree_util.tree_leaves_with_path(params, is_leaf=variables):
        collection = linen and names_of(path)[0] in COLLECTIONS
        other = variables(node) and not _has_base(node, "Param")
        for inner, leaf in jax.tree_util.tree_leaves_with_path(node):
            *above, last = "", *names_of((*path, *inner))
            running = last.startswith(RUNNING) or "batch_stats" in above
            if collection or other or running or not is_floating(leaf):
                fixed.add(place)
            place += 1
    return frozenset(fixed)


def beside_params(params: PyTree) -> list[str]:
    """Names beside a collection `params` that linen's `COLLECTIONS` do not have."""
    if not (isinstance(params, Mapping) and isinstance(params.get("params"), Mapping)):
        return []
    return sorted(str(name) for name in params if name not in COLLECTIONS | {"params"})


def names_of(path: tuple) -> list[str]:
    """The names on the path to a leaf, without numbers."""
    names = (getattr(entry, "key", getattr(entry, "name", None)) for entry in path)
    return [name for name in names if isinstance(name, str)]


def _has_base(node: Any, name: str) -> bool:
    """Whether a class of flax nnx of this name is among a value's, without importing flax."""
    bases = type(node).__mro__
    return any(base.__name__ == name and base.__module__.startswith("flax.nnx") for base in bases)
