"""The Square attack: random search that needs logits and no gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.core import Images
from attacks.errors import AttackError
from attacks.lazy import Array, jax, jnp
from attacks.losses import Oracle, margin
from attacks.steps import (
    Keys,
    Run,
    Stepwise,
    check_counts,
    drawn,
    fold,
    is_right,
    onto_ball,
    unit,
    where,
)

SHRINKING = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Query counts (per 10,000, or as they are) at which the area of the squares halves."""
POWERS = {"l2": 2, "l1": 4}
"""How a pattern of the norm falls off from its middle."""
GRID = 5
"""Patterns in a row of the first change, in ℓ2 and ℓ1."""


class Search(NamedTuple):
    """A run of `SquareAttack`: a row for each point.

    Attributes:
        z: the point of the lowest margin so far.
        margin: the label's logit less the largest other one there; above 0 where the label is
            right by a tie.
    """

    z: Images
    margin: Float[Array, " n"]

    @property
    def best(self) -> Float[Array | np.ndarray, "n ..."]:
        return self.z

    @property
    def adversarial(self) -> Float[Array | np.ndarray, "n ..."]:
        return self.z

    @property
    def found(self) -> Bool[Array | np.ndarray, " n"]:
        return self.margin <= 0


@dataclass(frozen=True)
class SquareAttack(Stepwise):
    """Changes squares of an image at random, where that lowers the margin.

    In `linf` it begins with vertical stripes of ±ρ and adds squares of ±2ρ. In `l2` and `l1` it
    begins with a grid of patterns and moves the change from one square to another. Places and signs
    are drawn for each image separately.

    Attributes:
        queries: number of squares; the logits are asked for twice more.
        share: fraction of the pixels that the first squares cover.
        restarts: runs from new stripes or grids.
        rescale: whether the squares shrink with the share of the queries, as in the paper;
            otherwise with their number, as in AutoAttack.

    Source: Andriushchenko et al. (2020), "Square attack", algorithms 1 to 3, with the schedule and
    the margin loss of their code; Croce and Hein (2021), "Mind the box", for `l1`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from attacks import Victim
        >>> dark = lambda x: jnp.stack([x.mean((1, 2, 3)), 0.5 - x.mean((1, 2, 3))], 1)
        >>> x = jnp.full((2, 8, 8, 1), 0.2)
        >>> z = SquareAttack(0.1, queries=300)(Victim(dark, jnp.ones(2, int)), x)
        >>> bool((dark(z).argmax(1) == 0).all()), round(float(abs(z - x).max()), 3)
        (True, 0.1)
    """

    queries: int = 5000
    share: float = 0.8
    restarts: int = 1
    rescale: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.queries < 1:
            raise AttackError("at least one query", self.queries, "raise it")
        check_counts(self.queries, self.restarts)

    def check(self, shape: Sequence[int], classes: int) -> None:
        """Refuse points that are no images, as `Stepwise.check` refuses few classes."""
        super().check(shape, classes)
        if len(shape) != 3:
            raise AttackError(
                "images (n, height, width, channels) for the Square attack",
                f"points of shape {tuple(shape)}",
                "choose another attack",
            )

    @property
    def runs(self) -> tuple[Run, ...]:
        """One for each restart."""
        return (Run(self.queries),) * self.restarts

    def start(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, target: Any, begin: Images | None
    ) -> Search:
        """The state at stripes or a grid; at the image, where that is misclassified."""
        first = self._first(x, keys)
        z = where(_lead(victim, x) <= 0, x, first)
        return Search(z, _lead(victim, z))

    def advance(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, step: Any, state: Search
    ) -> Search:
        """The state after a query; an image that is misclassified is not changed."""
        past = jnp.sum(step >= jnp.asarray(self._starts()))
        z = self._proposed(x, fold(keys, step + 1), past, state.z)
        found = _lead(victim, z)
        better = (state.margin > 0) & (found < state.margin)
        return Search(where(better, z, state.z), jnp.where(better, found, state.margin))

    def _first(self, x: Images, keys: Keys) -> Images:
        _, height, width, channels = x.shape
        if self.norm == "linf":
            return jnp.clip(x + self.rho * _signs(keys, (1, width, channels), x.dtype), 0, 1)
        side = max(height // GRID, 1)
        grid = height // side, width // side
        pair = jnp.asarray(_patterns(side, side, side, self.norm), x.dtype)
        turned = drawn(keys, _coins, grid, bool)[..., None, None]
        signs = _signs(fold(keys, 0), (*grid, channels), x.dtype)[:, :, None, :, None]
        tiles = jnp.where(turned, pair[1], pair[0]).swapaxes(2, 3)[..., None] * signs
        tiles = tiles.reshape(len(x), grid[0] * side, grid[1] * side, channels)
        rest = ((0, height - tiles.shape[1]), (0, width - tiles.shape[2]))
        change = jnp.pad(tiles, ((0, 0), *rest, (0, 0)))
        return self._onto_ball(change, x)

    def _proposed(self, x: Images, keys: Keys, past: Any, z: Images) -> Images:
        """The points with one square changed, after some halvings of its area."""
        _, height, width, channels = x.shape
        sides = self._sides(height, width)
        side = jnp.asarray(sides)[past]
        one, other, sign, turn = (fold(keys, k) for k in range(4))
        inside, corner = _square(one, side, height, width)
        signs = _signs(sign, (1, 1, channels), x.dtype)
        if self.norm == "linf":
            moved = jnp.where(inside, z + 2 * self.rho * signs, z)
            return onto_ball(moved, x, self.rho, self.norm)
        change = z - x
        emptied, _ = _square(other, side, height, width)
        patterns = np.stack([_patterns(each, height, width, self.norm) for each in sides])
        pattern = _one_of(turn, jnp.asarray(patterns, x.dtype)[past])
        new = jax.vmap(lambda p, at: jnp.roll(p, at, (0, 1)))(pattern, corner)
        here = jnp.where(inside, change, 0)
        new = new * signs + here / (1e-12 + self._by_channel(here))
        # What the two squares hold, and what the ball leaves, goes into one.
        held = self._by_channel(jnp.where(inside | emptied, change, 0))
        if self.norm == "l2":
            left = jnp.maximum(self.rho**2 - self._whole(change) ** 2, 0) / channels
            size = jnp.sqrt(left + held**2)
        else:
            size = jnp.maximum(self.rho - self._whole(change), 0) + held * channels
        new = new / (1e-12 + self._by_channel(new)) * size
        return self._onto_ball(jnp.where(inside, new, jnp.where(emptied, 0, change)), x)

    def _by_channel(self, change: Images) -> Float[Array, "n 1 1 c"]:
        over = (1, 2)
        if self.norm == "l2":
            return jnp.sqrt(jnp.sum(change**2, over, keepdims=True))
        return jnp.sum(jnp.abs(change), over, keepdims=True)

    def _whole(self, change: Images) -> Float[Array, "n 1 1 1"]:
        by_channel = self._by_channel(change)
        if self.norm == "l2":
            return jnp.sqrt(jnp.sum(by_channel**2, 3, keepdims=True))
        return jnp.sum(by_channel, 3, keepdims=True)

    def _onto_ball(self, change: Images, x: Images) -> Images:
        if self.norm == "l2":
            return jnp.clip(x + unit(change, "l2") * self.rho, 0, 1)
        return onto_ball(x + change, x, self.rho * (1 - 1e-6), self.norm)

    def _starts(self) -> list[int]:
        """The first queries at which squares are smaller."""
        if not self.rescale:
            return [share + 1 for share in SHRINKING]
        return [-(-(share + 1) * self.queries // 10_000) for share in SHRINKING]

    def _sides(self, height: int, width: int) -> list[int]:
        """Sides of the squares in pixels by halvings, at most the image's shorter side."""
        return [self._side(past, height, width) for past in range(len(SHRINKING) + 1)]

    def _side(self, halvings: int, height: int, width: int) -> int:
        side = max(round(math.sqrt(self.share / 2**halvings * height * width)), 1)
        if self.norm != "linf":
            side = max(side, 3)
            side += side % 2 == 0
        return min(side, height, width)


def _lead(victim: Oracle, x: Images) -> Float[Array, " n"]:
    """The label's logit less the largest other one, above 0 just where the label is right."""
    logits = victim.logits(x)
    lead = -margin(logits, victim.labels)
    right = is_right(logits, victim.labels)
    least = jnp.finfo(lead.dtype).tiny
    # What is not a number is misclassified too.
    return jnp.where(right, jnp.maximum(lead, least), jnp.where(lead <= 0, lead, 0))


def _signs(keys: Keys, shape: tuple[int, ...], dtype: Any) -> Images:
    return drawn(keys, jax.random.rademacher, shape, dtype)


def _square(
    keys: Keys, side: Any, height: int, width: int
) -> tuple[Bool[Array, "n h w 1"], Int[Array, "n 2"]]:
    """A square of each point's own, as a mask, and its corner."""
    limits = jnp.stack([height - side, width - side]) + 1
    uniform = drawn(keys, jax.random.uniform, (2,), jnp.float32)
    corner = (uniform * limits.astype(jnp.float32)).astype(jnp.int32)
    rows, columns = (
        (along >= corner[:, axis, None]) & (along < corner[:, axis, None] + side)
        for axis, along in enumerate((jnp.arange(height), jnp.arange(width)))
    )
    return (rows[:, :, None] & columns[:, None])[..., None], corner


def _coins(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    return jax.random.bernoulli(key, 0.5, shape)


def _one_of(keys: Keys, pair: Float[Array, "2 h w"]) -> Float[Array, "n h w 1"]:
    """One of two patterns for each point, by chance."""
    turned = drawn(keys, _coins, (1, 1, 1), bool)
    return jnp.where(turned, pair[1][..., None], pair[0][..., None])


@cache
def _patterns(side: int, height: int, width: int, norm: str) -> np.ndarray:
    """Two halves of opposite sign, each falling off from its middle, of norm 1; and transposed.

    Args:
        side: of the square, in the upper left corner of a frame.
        height, width: of the frame.
        norm: `l2` or `l1`.
    """
    found = np.zeros((side, side))
    found[: side // 2] = _half(side // 2, side, norm)
    found[side // 2 :] = -_half(side - side // 2, side, norm)
    found /= _size(found, norm)
    pad = ((0, height - side), (0, width - side))
    return np.stack([np.pad(found, pad), np.pad(found.T, pad)])


def _half(rows: int, columns: int, norm: str) -> np.ndarray:
    found = np.zeros((rows, columns))
    down, across = rows // 2, columns // 2
    for i in range(max(down, across) + 1):
        top, left = max(down - i, 0), max(across - i, 0)
        found[top : down + i + 1, left : across + i + 1] += 1 / (i + 1) ** POWERS[norm]
    return found / _size(found, norm) if found.any() else found


def _size(change: np.ndarray, norm: str) -> float:
    return float(np.sqrt((change**2).sum()) if norm == "l2" else np.abs(change).sum())
