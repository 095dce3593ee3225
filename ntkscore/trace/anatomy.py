"""What ntkscore reads in a network, for a person to check."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, prod
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.trace.counts import counts
from ntkscore.trace.operations import UNCHANGED
from ntkscore.trace.pairs import Groups
from ntkscore.trace.passes import TracedPasses
from ntkscore.trace.product_kernels import cheaper_by_positions
from ntkscore.trace.program import Program
from ntkscore.trace.weight_uses import WeightUses

if TYPE_CHECKING:
    import pandas as pd

RULES = ("product", "own equation", "several uses", "unused")
"""The ways to compute a leaf's kernel, from the fastest to the slowest, and none."""
CONSTANT = "constant"
"""Rule and kind of a leaf that is no parameter, such as a running mean."""
NUMBERS = re.compile(r"(^|[/_])\d+(?=/|$)")
"""Numbers on a path by which repeated layers differ."""
LONGEST = 40
"""Rows of a printed anatomy."""
WHOLE = UNCHANGED | {"slice", "split", "broadcast_in_dim"}
"""Operations after which a weight is still a leaf's, or a part of one."""


class Leaf(NamedTuple):
    """How a leaf of the weights is read.

    Attributes:
        path: to it, as text.
        shape: of the array.
        kind: `weight`, `scale` or `shift`; or `constant`.
        rule: one of `RULES`; or `constant`.
        how: the rule, in some words.
    """

    path: str
    shape: tuple[int, ...]
    kind: str
    rule: str
    how: str

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, repr=False)
class Anatomy:
    """What ntkscore reads in a network.

    It prints as a table: equal leaves, such as those of a layer that is repeated, share a row.

    Attributes:
        parts: how each leaf of the weights is read, in their order.
        counts: what can be counted on the network (`ntkscore.trace.counts.counts`).
        rectifiers: places where the network rectifies.
        blocks: places where branches with weights meet.
    """

    parts: tuple[Leaf, ...]
    counts: Mapping[str, float]
    rectifiers: int
    blocks: int

    @property
    def leaves(self) -> "pd.DataFrame":
        """A row for each leaf: `path`, `shape`, `kind`, `params`, `rule` and `how`."""
        import pandas as pd

        columns = ["path", "shape", "kind", "params", "rule", "how"]
        rows = [(p.path, p.shape, p.kind, p.size, p.rule, p.how) for p in self.parts]
        return pd.DataFrame(rows, columns=columns)

    def share(self, rule: str) -> float:
        """The fraction of the parameters whose kernel is computed by a rule.

        Args:
            rule: one of `product`, `own equation`, `several uses` and `unused`.

        Raises:
            InputError: if it is none of them.
        """
        if rule not in RULES:
            raise InputError(f"one of {', '.join(RULES)}", repr(rule), "name one of them")
        parameters = [part for part in self.parts if part.rule != CONSTANT]
        own = sum(part.size for part in parameters if part.rule == rule)
        return own / (sum(part.size for part in parameters) or 1)

    def __repr__(self) -> str:
        others = {name: each for name, each in self.counts.items() if name != "rectifiers"}
        places = f"{self.rectifiers} rectifiers, {self.blocks} blocks"
        shares = [f"{rule} {self.share(rule):.1%}" for rule in RULES if self.share(rule)]
        lines = [
            ", ".join(f"{name} {_text(number)}" for name, number in others.items()),
            f"{places}; parameters by rule: {', '.join(shares)}",
            "",
        ]
        rows = [("leaves", "", "shape", "kind", "kernel"), *self._rows()]
        room = LONGEST - len(lines)
        if len(rows) > room:
            rest = len(rows) - room + 1
            rows = [*rows[: room - 1], (f"and {rest} more: see .leaves", "", "", "", "")]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(size) for cell, size in zip(row, widths, strict=True))
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def _rows(self) -> list[tuple[str, ...]]:
        """Leaves that differ in nothing but the numbers on their path, together."""
        groups: dict[tuple, list[Leaf]] = {}
        for part in self.parts:
            key = (NUMBERS.sub(r"\1#", part.path), *part[1:])
            groups.setdefault(key, []).append(part)
        return [
            (
                key[0] if len(group) > 1 else group[0].path,
                f"×{len(group)}" if len(group) > 1 else "",
                "×".join(map(str, group[0].shape)) or "1",
                group[0].kind,
                f"{group[0].rule}: {group[0].how}" if group[0].how else group[0].rule,
            )
            for key, group in groups.items()
        ]


def anatomy(model: Model, images: np.ndarray | jax.Array) -> Anatomy:
    """The parts of a network as ntkscore reads them: its weights, rectifiers and blocks.

    The network is traced and not run. Where a kernel takes long, its leaf's rule says why:

    - `product`: the leaf, or each part of it, is the kernel of convolutions or matrix products.
      Its kernel is computed by each image's gradients, or by pairs of positions without any
      gradient, whichever takes fewer multiplications for this number of images.
    - `own equation`: it meets the images in one other equation, of which JAX gives the gradients.
    - `several uses`: its uses are put together, gradient by gradient.
    - `unused`: the logits do not depend on it.
    - `constant`: it is no parameter, as a running mean.

    Args:
        model: the network.
        images: (N, …), of which only the shape and the dtype count.

    Returns:
        The anatomy: print it, or read `leaves`, `counts`, `rectifiers`, `blocks` and `share`.

    Raises:
        InputError: if the images' logits depend on each other, or not on the images.

    Example:
        >>> import jax.numpy as jnp
        >>> def apply(params, x):
        ...     return jnp.maximum(x @ params["in"] + params["bias"], 0) @ params["out"]
        >>> params = {"in": jnp.ones((6, 64)), "bias": jnp.ones(64), "out": jnp.ones((64, 3))}
        >>> anatomy(Model(apply, params), np.zeros((4, 6)))
        params 640, flops 576, layers 2, depth 2, shortest_path 2, field 6
        1 rectifiers, 0 blocks; parameters by rule: product 90.0%, own equation 10.0%
        <BLANKLINE>
        leaves  shape  kind    kernel
        bias    64     shift   own equation: add
        in      6×64   weight  product: by positions
        out     64×3   weight  product: by positions
    """
    if model.coupled:
        raise InputError(
            "a network whose images do not depend on each other",
            "one with coupled=True",
            "read it with its statistics fixed, as in evaluation",
        )
    dtype = jax.dtypes.canonicalize_dtype(images.dtype)
    passes = TracedPasses(model, jax.ShapeDtypeStruct(images.shape[1:], dtype))
    program = passes.program
    parts = []
    for leaf, (path, value) in enumerate(zip(program.paths, program.leaves, strict=True)):
        own = [each for each in passes.weight_uses if leaf in each.leaves]
        kind, (rule, how) = passes.kinds[leaf], _rule(program, leaf, own, len(images))
        if leaf in passes.fixed:
            kind, rule, how = CONSTANT, CONSTANT, ""
        text = jax.tree_util.keystr(path, simple=True, separator="/") or "all"
        parts.append(Leaf(text, value.shape, kind, rule, how))
    places = len(passes.rectifiers), len(passes.blocks)
    return Anatomy(tuple(parts), counts(program), *places)


def _rule(
    program: Program, leaf: int, weight_uses: list[WeightUses], count: int
) -> tuple[str, str]:
    """The rule by which a leaf's kernel is computed, and some words on it."""
    if not weight_uses:
        return "unused", ""
    if all(each.leaf_slice is not None for each in weight_uses):
        ways = {cheaper_by_positions(each.products, count, Groups()) for each in weight_uses}
        names = ["by positions" if way else "by gradients" for way in sorted(ways)]
        return "product", " and ".join(names)
    sites = [site for each in weight_uses for site in each.sites]
    weights = [weight for site in sites for weight in site.weights if leaf in weight.leaves]
    used = [site for site in sites if not {*site.weights}.isdisjoint(weights)]
    names = ", ".join(dict.fromkeys(site.equation.name for site in used))
    if not all(program.before(weight, WHOLE) in program.leaves for weight in weights):
        return "several uses", f"through a function of its own, in {names}"
    if len(used) > 1:
        return "several uses", f"at {len(used)} places, in {names}"
    if len(sites) > 1:
        return "several uses", f"beside other leaves, in {names}"
    return "own equation", names


def _text(number: float) -> str:
    """A count as people write it."""
    return "unknown" if isnan(number) else f"{number:,.0f}"
