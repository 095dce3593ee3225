"""Which pairs of rows a kernel holds: of all, of two sets, or each with itself.

A row is the gradient of a reading of the logits at a point, by one weight. Of products
(`ntkscore.trace.products`) it is Σ_p X_pᵀ G_p with positions p, and need not be formed.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ntkscore.grams import PRECISION, Gram, regroup, self_product

CHUNK_BYTES = 2**29
"""Bytes of gradients, or of products of positions, that are held at once."""
Rows = Float[Array, "m ..."]
Before = Float[Array, "m b p k"]
After = Float[Array, "m b p d"]


@dataclass(frozen=True)
class Groups:
    """All pairs within groups of rows, (r, s, s).

    Attributes:
        count: R; with one, of all rows; else of X and R pairs (X_ρ, X_2ρ).
    """

    count: int = 1

    def number(self, count: int) -> float:
        """How many there are of so many rows, each counted once in either order."""
        return count**2 / 2

    def of_rows(self, rows: Rows) -> Gram:
        """The kernel, from the rows."""
        return self_product(rows, self.count)

    def by_positions(self, x: Before, g: After) -> Gram:
        """The kernel Σ_pq (X_p · X′_q)(G_p · G′_q), for which no row is formed.

        Some rows at a time, up to the diagonal.
        """
        m, b, p, _ = x.shape
        fitting = CHUNK_BYTES // (2 * b * p * p * m * x.dtype.itemsize)
        # Four pieces save three eighths of the products, two a quarter, and compile faster.
        step = max(1, min(fitting, -(-m // (4 if m > 64 else 2))))
        below = []
        for start in range(0, m, step):
            stop = min(start + step, m)
            own = _product((x[start:stop], g[start:stop]), (x[:stop], g[:stop]))
            below.append(jnp.pad(own, ((0, 0), (0, m - stop))))
        lower, place = jnp.concatenate(below), jnp.arange(m) // step
        whole = jnp.where(place[:, None] >= place[None], lower, lower.T)
        return regroup(whole, self.count)


@dataclass(frozen=True)
class Across:
    """The first rows with the others, (first, others).

    Attributes:
        first: how many they are.
    """

    first: int

    def number(self, count: int) -> float:
        return self.first * (count - self.first)

    def of_rows(self, rows: Rows) -> Float[Array, "first others"]:
        flat = rows.reshape(len(rows), -1)
        return jnp.matmul(flat[: self.first], flat[self.first :].T, precision=PRECISION)

    def by_positions(self, x: Before, g: After) -> Float[Array, "first others"]:
        """Some of the first rows at a time."""
        m, b, p, _ = x.shape
        each = 2 * b * p * p * (m - self.first) * x.dtype.itemsize
        others = x[self.first :], g[self.first :]
        if self.first * each <= CHUNK_BYTES:
            return _product((x[: self.first], g[: self.first]), others)

        def one(row: tuple[Array, Array]) -> Float[Array, " others"]:
            return _product((row[0][None], row[1][None]), others)[0]

        step = max(1, CHUNK_BYTES // each)
        return lax.map(one, (x[: self.first], g[: self.first]), batch_size=step)


@dataclass(frozen=True)
class Own:
    """Each row with itself, (m,): the squared norms of the gradients."""

    def number(self, count: int) -> float:
        return count

    def of_rows(self, rows: Rows) -> Float[Array, " m"]:
        return jnp.sum(jnp.square(rows.reshape(len(rows), -1)), 1)

    def by_positions(self, x: Before, g: After) -> Float[Array, " m"]:
        step = max(1, CHUNK_BYTES // (2 * x.shape[1] * x.shape[2] ** 2 * x.dtype.itemsize))

        def one(row: tuple[Array, Array]) -> Float[Array, ""]:
            alone = row[0][None], row[1][None]
            return _product(alone, alone)[0, 0]

        return lax.map(one, (x, g), batch_size=min(step, len(x)))


Pairs = Groups | Across | Own
"""Which pairs of rows a kernel holds."""


def _product(one: tuple[Array, Array], other: tuple[Array, Array]) -> Float[Array, "m n"]:
    """Σ_bpq (X_bp · X′_bq)(G_bp · G′_bq)."""
    first, second = (
        jnp.einsum("mbpk,nbqk->bmpnq", a, b, precision=PRECISION)
        for a, b in zip(one, other, strict=True)
    )
    return jnp.sum(first * second, (0, 2, 4))
