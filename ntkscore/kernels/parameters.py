"""Sets of parameters, by the kinds that the leaves' names tell apart."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from cells.errors import InputError
from cells.lazy import Array, PyTree, jax

Matrix = TypeVar("Matrix", Array, np.ndarray)

PARAMETER_SETS: dict[str, tuple[str, ...]] = {
    "all": ("weight", "scale", "shift"),
    "weights": ("weight", "scale"),
    "conv_linear": ("weight",),
}
"""Kinds of parameters in each set; biases count as shifts."""

KIND_OF_LEAF = {
    "kernel": "weight",
    "weight": "weight",
    "embedding": "weight",
    "scale": "scale",
    "shift": "shift",
    "bias": "shift",
}


def total(parts: Mapping[str, Matrix], parameters: str) -> Matrix:
    """The kernel over a set of parameters, from its parts by kind."""
    first, *others = (parts[kind] for kind in PARAMETER_SETS[parameters])
    return sum(others, first)


def is_weight(path: tuple, leaf: Array) -> bool:
    """Whether a leaf is a layer's weights, which it also is where no name on its path says."""
    return _kind(_last_name(path) or "kernel", leaf) == "weight"


def is_scale(path: tuple, leaf: Array) -> bool:
    """Whether a leaf is a normalisation's scale."""
    return _kind(_last_name(path) or "kernel", leaf) == "scale"


def kind_of(path: tuple, leaf: Array) -> str:
    """The kind of a parameter, from the last name on its path that says one.

    Raises:
        InputError: if no name on the path does.
    """
    name = _last_name(path)
    if name not in KIND_OF_LEAF:
        raise InputError(
            f"expected parameters named {', '.join(KIND_OF_LEAF)} to tell weights from shifts, got "
            f"{jax.tree_util.keystr(path) or 'a single array'}; choose the parameters 'all', or "
            "name the leaves"
        )
    return _kind(name, leaf)


def _kind(name: str, leaf: Array) -> str:
    # PyTorch's and equinox's normalisations call their scale a weight.
    return "scale" if name == "weight" and leaf.ndim < 2 else KIND_OF_LEAF[name]


def _last_name(path: tuple) -> str:
    """The last name on a path that says a kind; empty where none does."""
    names = [getattr(entry, "key", getattr(entry, "name", None)) for entry in reversed(path)]
    return next((name for name in names if name in KIND_OF_LEAF), "")


def split_parameters(params: PyTree, parameters: str) -> tuple[PyTree, PyTree]:
    """The parameters that the set holds and the others, as two trees with None for what is absent.

    Raises:
        InputError: if the set is not `all` and a leaf has no name that tells its kind.
    """
    if parameters == "all":
        return params, jax.tree.map(lambda leaf: None, params)

    def chosen(path: tuple, leaf: Array) -> bool:
        return kind_of(path, leaf) in PARAMETER_SETS[parameters]

    inside = jax.tree_util.tree_map_with_path(lambda p, x: x if chosen(p, x) else None, params)
    outside = jax.tree_util.tree_map_with_path(lambda p, x: None if chosen(p, x) else x, params)
    return inside, outside


def join_parameters(inside: PyTree, outside: PyTree) -> PyTree:
    """Join the two trees that `split_parameters` made."""
    return jax.tree.map(
        lambda a, b: b if a is None else a, inside, outside, is_leaf=lambda leaf: leaf is None
    )
