"""Projections onto what lies inside of the box [0, 1]: the ℓ1 ball, and hyperplanes in any norm.

Source: Croce and Hein (2020), "Minimally distorted adversarial examples with a fast adaptive
boundary attack", section 2, for hyperplanes; Croce and Hein (2021), "Mind the box: ℓ1-APGD for
sparse adversarial attacks on image classifiers", proposition 2.1, for the ℓ1 ball.
"""

from collections.abc import Callable

from jaxtyping import Float

from attacks.lazy import Array, jnp, lax

Rows = Float[Array, "n d"]
Column = Float[Array, "n 1"]
HALVINGS, NEWTON = 50, 100
"""Most steps of the two searches. Newton's ends where it is exact, after about ten."""
FLAT = 1e-8
"""Slope of a hyperplane below which a coordinate is left alone."""


def onto_l1_ball(y: Rows, x: Rows, rho: float | Array) -> Rows:
    """The change δ nearest to y, in ℓ2, with |δ|₁ ≤ ρ and 0 ≤ x + δ ≤ 1.

    Its absolute values are max(|y| − λ, 0), at most what the box leaves; λ ≥ 0 is that at which
    their sum is ρ, if without it the sum is larger.

    Args:
        y: changes, in rows.
        x: points in [0, 1].
        rho: radius.

    Example:
        >>> import jax.numpy as jnp
        >>> onto_l1_ball(jnp.array([[0.9, -0.2, 0.5]]), jnp.full((1, 3), 0.5), 0.7).round(3)
        Array([[ 0.5, -0. ,  0.2]], dtype=float32)
    """
    size = jnp.abs(y)
    room = jnp.minimum(size, jnp.where(y > 0, 1 - x, x))

    def sizes(cut: Column) -> Rows:
        return jnp.minimum(jnp.maximum(size - cut, 0), room)

    def halve(_: Array, ends: tuple[Column, Column]) -> tuple[Column, Column]:
        low, high = ends
        middle = (low + high) / 2
        over = jnp.sum(sizes(middle), 1, keepdims=True) > rho
        return jnp.where(over, middle, low), jnp.where(over, high, middle)

    low = jnp.zeros_like(size[:, :1])
    low, high = lax.fori_loop(0, HALVINGS, halve, (low, jnp.max(size, 1, keepdims=True)))
    # Between the two ends the sum is a line, whose crossing is exact.
    at_low, at_high = (jnp.sum(sizes(end), 1, keepdims=True) for end in (low, high))
    fall = at_low - at_high
    cut = low + (high - low) * jnp.where(fall > 0, (at_low - rho) / jnp.where(fall > 0, fall, 1), 1)
    inside = jnp.sum(room, 1, keepdims=True) <= rho
    return jnp.sign(y) * jnp.where(inside, room, sizes(cut))


def between(sizes: Rows, weights: Rows, needed: float | Column) -> tuple[Column, Column]:
    """Two neighbours between which a row is cut, so that what is above is just enough.

    Sorting says the same, and takes fifteen times as long on a CPU.

    Args:
        sizes: not negative.
        weights: not negative, of each size.
        needed: weight.

    Returns:
        The largest size from which on the weights sum to at least `needed`, or 0, up to rounding;
        and a larger one, from which on they do not.
    """

    def halve(_: Array, ends: tuple[Column, Column]) -> tuple[Column, Column]:
        low, high = ends
        middle = (low + high) / 2
        enough = jnp.sum(jnp.where(sizes >= middle, weights, 0), 1, keepdims=True) >= needed
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = jnp.zeros_like(sizes[:, :1])
    high = jnp.nextafter(jnp.max(sizes, 1, keepdims=True), jnp.inf)
    return lax.fori_loop(0, HALVINGS, halve, (low, high))


def onto_hyperplane(t: Rows, w: Rows, value: Column, norm: str) -> Rows:
    """The least change δ with w · δ = −value and 0 ≤ t + δ ≤ 1; all that the box leaves, if none.

    In ℓ∞ its sizes are min(λ, room), in ℓ2 min(λ |w|, room), with the λ at which the sum of |w|
    times the sizes is |value|: a concave, piecewise linear function of λ, on which Newton's method
    from the left is exact. In ℓ1 the coordinates of the largest |w| are used up first.

    Args:
        t: points in [0, 1], in rows.
        w: the hyperplane's slope at each.
        value: its value at each point, above or below zero.
        norm: `linf`, `l2` or `l1`.

    Example:
        >>> import jax.numpy as jnp
        >>> t, w, value = jnp.full((1, 2), 0.5), jnp.array([[1.0, -2.0]]), jnp.array([[0.625]])
        >>> for norm in ("linf", "l2", "l1"):
        ...     print([f"{change:.3f}" for change in onto_hyperplane(t, w, value, norm)[0]])
        ['-0.208', '0.208']
        ['-0.125', '0.250']
        ['-0.000', '0.312']
    """
    slope, way = jnp.abs(w), -jnp.sign(w) * jnp.where(value >= 0, 1, -1)
    used = slope > (0 if norm == "linf" else FLAT)
    room = jnp.where(used, jnp.where(way > 0, 1 - t, t), 0)
    needed = jnp.abs(value)
    if norm == "l1":
        low, high = between(slope, slope * room, needed)
        full = jnp.where(slope >= high, slope * room, 0)
        edge = jnp.where((slope >= low) & (slope < high), slope * room, 0)
        full, all_edge = (jnp.sum(gain, 1, keepdims=True) for gain in (full, edge))
        part = jnp.clip((needed - full) / jnp.where(all_edge > 0, all_edge, 1), 0, 1)
        return way * room * jnp.where(slope >= high, 1, jnp.where(slope >= low, part, 0))
    speed = slope if norm == "l2" else jnp.ones_like(slope)

    def rise(rate: Column) -> tuple[Column, Column]:
        """The sum of |w| times the sizes, and its slope to the right."""
        free = rate * speed < room
        sizes = jnp.where(free, rate * speed, room)
        at = jnp.sum(slope * sizes, 1, keepdims=True)
        return at, jnp.sum(jnp.where(free, slope * speed, 0), 1, keepdims=True)

    rounding = 8 * jnp.finfo(t.dtype).eps

    def move(search: tuple[Array, Column, Array]) -> tuple[Array, Column, Array]:
        step, rate, _ = search
        at, growth = rise(rate)
        new = rate + jnp.where(growth > 0, (needed - at) / jnp.where(growth > 0, growth, 1), 0)
        return step + 1, jnp.maximum(new, rate), jnp.any(new > rate * (1 + rounding))

    going: Callable[[tuple[Array, Column, Array]], Array] = lambda s: (s[0] < NEWTON) & s[2]  # noqa: E731
    _, rate, _ = lax.while_loop(
        going, move, (jnp.asarray(0), jnp.zeros_like(needed), jnp.asarray(True))
    )
    sizes = jnp.minimum(rate * speed, room)
    # Where the box leaves too little, all of it.
    reached = jnp.sum(slope * room, 1, keepdims=True) > needed
    return way * jnp.where(reached, sizes, room)
