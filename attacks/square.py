"""The Square attack: random search in the ℓ∞ ball, which needs logits and no gradient."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Int

from attacks.core import Images, check_radius, project
from attacks.lazy import Array, jax, jnp, lax

SHRINKING = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Query counts (per 10,000) at which the area of the squares halves."""


@dataclass(frozen=True)
class SquareAttack:
    """Begins with vertical stripes of ±ρ, and adds squares of ±2ρ where they lower the margin.

    Places and signs are drawn for each image separately.

    Attributes:
        rho: radius, in pixel units [0, 1].
        queries: number of squares; the logits are asked for twice more.
        share: fraction of the pixels that the first squares cover.

    Source: Andriushchenko et al. (2020), "Square attack", with the schedule and the margin loss
    of their code.
    """

    rho: float | Array
    queries: int = 5000
    share: float = 0.8

    def __post_init__(self) -> None:
        check_radius(self.rho)
        if self.queries < 1:
            raise ValueError(f"expected at least one query, got {self.queries}; raise it")

    def __call__(
        self,
        logits: Callable[[Images], Float[Array, "n o"]],
        x: Images,
        labels: Int[Array, " n"],
        key: Array,
    ) -> Images:
        """The attacked images, inside the ball around x and inside [0, 1].

        Args:
            logits: a function of images, in which each image's logits depend on that image alone.
            x: (n, height, width, channels), pixels in [0, 1].
            labels: classes.
            key: of places and signs.

        Example:
            >>> import jax, jax.numpy as jnp
            >>> dark = lambda x: jnp.stack([x.mean((1, 2, 3)), 0.5 - x.mean((1, 2, 3))], 1)
            >>> x = jnp.full((2, 8, 8, 1), 0.2)
            >>> attack = SquareAttack(0.1, queries=300)
            >>> z = attack(dark, x, jnp.ones(2, int), jax.random.key(0))
            >>> bool((dark(z).argmax(1) == 0).all()), round(float(abs(z - x).max()), 3)
            (True, 0.1)
        """
        n, height, width, channels = x.shape
        rows, columns = jnp.arange(height), jnp.arange(width)

        def clipped(z: Images) -> Images:
            return jnp.clip(project(z, x, self.rho), 0, 1)

        def margin(z: Images) -> Float[Array, " n"]:
            values = logits(z)
            correct = jnp.arange(values.shape[1]) == labels[:, None]
            at_label = jnp.take_along_axis(values, labels[:, None], 1)[:, 0]
            return at_label - jnp.max(jnp.where(correct, -jnp.inf, values), 1)

        def signs(key: Array, shape: tuple[int, ...]) -> Images:
            return jax.random.rademacher(key, shape, x.dtype)

        def query(i: Array, carry: tuple[Images, Array]) -> tuple[Images, Array]:
            best, least = carry
            place, sign = jax.random.split(jax.random.fold_in(key, i + 1))
            side = self._side(i, height, width)
            limits = jnp.stack([height - side, width - side]) + 1
            drawn = jax.random.uniform(place, (n, 2), x.dtype)
            corner = (drawn * limits.astype(x.dtype)).astype(i.dtype)
            inside = lambda at, along: (along >= at[:, None]) & (along < at[:, None] + side)  # noqa: E731
            square = inside(corner[:, 0], rows)[:, :, None] & inside(corner[:, 1], columns)[:, None]
            change = 2 * self.rho * signs(sign, (n, 1, 1, channels))
            z = clipped(jnp.where(square[..., None], best + change, best))
            found = margin(z)
            # An image that is already misclassified is not changed.
            better = (least > 0) & (found < least)
            return (
                jnp.where(better[:, None, None, None], z, best),
                jnp.where(better, found, least),
            )

        start = clipped(x + self.rho * signs(key, (n, 1, width, channels)))
        misclassified = margin(x) <= 0
        start = jnp.where(misclassified[:, None, None, None], x, start)
        return lax.fori_loop(0, self.queries, query, (start, margin(start)))[0]

    def _side(self, i: Array, height: int, width: int) -> Array:
        """Side of a query's squares in pixels, at most the image's shorter side."""
        # The first queries i for which 10,000 i // queries is above SHRINKING.
        starts = [-(-(share + 1) * self.queries // 10_000) for share in SHRINKING]
        past = i >= jnp.asarray(starts, i.dtype)
        pixels = self.share * height * width * 0.5 ** jnp.sum(past.astype(jnp.float32))
        side = jnp.round(jnp.sqrt(pixels)).astype(i.dtype)
        return jnp.clip(side, 1, min(height, width))
