"""Adversarial examples: a step along the gradient's sign or direction, then a projection.

An attack takes the gradient of the loss to raise, a function from images to images, and knows no
network. It works on pixels in [0, 1], or on any points if its box is None. Radii and steps have the
same unit, so 8/255 is eight grey levels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from attacks.errors import AttackError
from attacks.lazy import Array, as_one, jax, jnp, lax

Images = Float[Array, "n ..."]
"""Points of any shape; images are (n, height, width, channel)."""
Gradient = Callable[[Images], Images]
Norm = Literal["linf", "l2"]
NORMS: tuple[str, ...] = get_args(Norm)


def check_radius(
    rho: Any,
    norm: str = "linf",
    box: tuple[float, float] | None = (0.0, 1.0),
    shape: Sequence[int] | None = None,
) -> None:
    """Refuse a radius that is no number, negative, or larger than the box.

    Args:
        rho: radius in pixel units; one that is traced has no value to check.
        norm: of the ball.
        box: the least and the largest value of a pixel; None for points without such bounds.
        shape: of an image, whose opposite corners are √(pixels · channels) apart in `l2`.

    Raises:
        AttackError: if it is one of these.
    """
    if isinstance(rho, bool) or not (isinstance(rho, Real) or hasattr(rho, "dtype")):
        raise AttackError("a number as the radius", repr(rho), "write 8 / 255")
    if not isinstance(rho, int | float | np.floating | np.integer):
        return
    if box is None or norm == "l2":
        if not 0 <= rho < math.inf:
            raise AttackError(f"a radius in {norm} of at least 0", f"{rho:g}", "raise it")
        # The corner of the box is reached up to rounding.
        if box and shape and rho > (largest := (box[1] - box[0]) * math.prod(shape) ** 0.5) + 1e-6:
            raise AttackError(
                f"a radius in l2 from 0 to {largest:g}, the distance of black from white for "
                f"images of shape {tuple(shape)}",
                f"{rho:g}",
                "lower it",
            )
    elif not 0 <= rho <= box[1] - box[0]:
        raise AttackError(
            f"a radius in linf from 0 to {box[1] - box[0]:g} on the pixel scale",
            f"{rho:g}",
            "write 8/255 for eight grey levels",
        )


def _lengths(x: Images) -> Float[Array, "n ..."]:
    return jnp.sqrt(jnp.sum(x * x, tuple(range(1, x.ndim)), keepdims=True))


def project(x: Images, centre: Images, rho: float | Array, norm: Norm = "linf") -> Images:
    """The nearest point of the ball of radius ρ around `centre`, which may lie outside of [0, 1].

    Args:
        x: images to project.
        centre: the balls' centres.
        rho: radius in pixel units; per image in `l2`.
        norm: `linf` or `l2`.

    Example:
        >>> import jax.numpy as jnp
        >>> project(jnp.array([[0.9, 0.5]]), jnp.full((1, 2), 0.5), 0.25).tolist()
        [[0.75, 0.5]]
    """
    if norm == "linf":
        return jnp.clip(x, centre - rho, centre + rho)
    delta = x - centre
    lengths = _lengths(delta)
    return centre + delta * jnp.where(lengths > rho, rho / jnp.where(lengths > 0, lengths, 1), 1)


def _inside(
    x: Images, centre: Images, rho: float | Array, norm: Norm, box: tuple[float, float] | None
) -> Images:
    """The nearest point of the ball, clipped to the box."""
    inside = project(x, centre, rho, norm)
    return inside if box is None else jnp.clip(inside, *box)


def project_to_sphere(x: Images) -> Images:
    """Each image divided by its Euclidean length, as the theory's inputs are; zero stays zero."""
    # Squares of small gradients would be zero in float32. Powers of two change no digit.
    _, exponents = jnp.frexp(jnp.max(jnp.abs(x), tuple(range(1, x.ndim)), keepdims=True))
    x = jnp.ldexp(x, -exponents)
    lengths = _lengths(x)
    return x / jnp.where(lengths > 0, lengths, 1)


def direction(gradient: Images, norm: Norm = "linf") -> Images:
    """The step of length one that raises a linear loss the most; zero for a zero gradient.

    Example:
        >>> import jax.numpy as jnp
        >>> direction(jnp.array([[3.0, -4.0]])).tolist()
        [[1.0, -1.0]]
    """
    return jnp.sign(gradient) if norm == "linf" else project_to_sphere(gradient)


@dataclass(frozen=True)
class Attack:
    """An untargeted attack on a loss.

    Attributes:
        rho: radius of the ball around the image, in pixel units: at most 1 in `linf`, and
            √(pixels · channels) in `l2`. It and `step_size` may be tracers, so that one compiled
            program serves every radius.
        steps: number of gradient steps.
        step_size: length of each, in pixel units; ρ / steps if left out.
        random_start: begin at a uniformly drawn point of the ball, which needs a key.
        norm: of the ball and the step, `linf` or `l2`.
        box: the least and the largest value that a pixel may take; None for points without such
            bounds, whose radius may be above 1.

    Raises:
        AttackError: if the radius is no number, negative or larger than the box, there is no step
            or a step backwards, or the norm is unknown.

    Example:
        >>> Attack(8 / 255) == fgsm(8 / 255), Attack(3.0, norm="l2").step_size
        (True, 3.0)

    Source: Goodfellow et al. (2015) for one step (FGSM), Madry et al. (2018) for many (PGD).
    """

    rho: float | Array
    steps: int = 1
    step_size: float | Array = None  # type: ignore[assignment]
    random_start: bool = False
    norm: Norm = "linf"
    box: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise AttackError("the norm linf or l2", repr(self.norm), "choose one of them")
        check_radius(self.rho, self.norm, self.box)
        if self.step_size is None and self.steps >= 1:
            object.__setattr__(self, "step_size", self.rho / self.steps)
        if self.steps < 1 or (isinstance(self.step_size, Real) and not self.step_size >= 0):
            raise AttackError(
                "at least one step of length ≥ 0",
                f"{self.steps} of {self.step_size}",
                "PGD's usual choice is 7 steps of 2/255",
            )

    def __call__(self, gradient: Gradient, x: Images, key: Array | None = None) -> Images:
        """The attacked images, inside the ball around x and inside the box.

        Outside of a function that is compiled as a whole, the gradient is called step by step: give
        one that is compiled.

        Args:
            gradient: of the loss in the images; each image's loss must depend on that image alone,
                or the summed loss is raised.
            x: pixels in [0, 1].
            key: for the random start.

        Raises:
            AttackError: if the radius is beyond the images, or a random start has no key.
        """
        check_radius(self.rho, self.norm, self.box, x.shape[1:])
        if self.random_start:
            if key is None:
                raise AttackError("a key for the random start", None, "pass key=…")
            z, done = self.constrain(x + self._noise(key, x), x), 0
        else:
            # At x itself, where the caller may know the gradient.
            z, done = self.step(gradient, x, x), 1
        if done == self.steps:
            return z
        from jax.core import Tracer

        if isinstance(z, Tracer):  # within a function that is compiled as a whole
            return lax.fori_loop(done, self.steps, lambda _, z: self.step(gradient, z, x), z)
        return reduce(lambda z, _: self.step(gradient, z, x), range(done, self.steps), z)

    def constrain(self, z: Images, x: Images) -> Images:
        """The point of the ball around x that is nearest to z, clipped to the box."""
        # In l2, products within sums would be rounded otherwise.
        inside = as_one(_inside, "norm", "box") if self.norm == "linf" else _inside
        return inside(z, x, self.rho, norm=self.norm, box=self.box)

    def step(self, gradient: Gradient, z: Images, x: Images) -> Images:
        """One step of the attack on x, from z."""
        return self.constrain(z + self.step_size * direction(gradient(z), self.norm), x)

    def _noise(self, key: Array, x: Images) -> Images:
        """A uniform draw from the ball around zero."""
        if self.norm == "linf":
            rho = jnp.broadcast_to(jnp.asarray(self.rho, x.dtype), x.shape).ravel()
            return random_array(jax.random.uniform, key, x.shape, x.dtype, -rho, rho)
        return self.rho * uniform_in_ball(key, x.shape, x.dtype)


def uniform_in_ball(key: Array, shape: tuple[int, ...], dtype: Any) -> Images:
    """A uniform draw from the Euclidean ball of radius 1 for each point.

    Args:
        key: of the draw.
        shape: (n, …).
        dtype: of the points.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> drawn = uniform_in_ball(jax.random.key(0), (1000, 2), jnp.float32)
        >>> lengths = jnp.linalg.norm(drawn, axis=1)  # a quarter is below a half
        >>> bool(lengths.max() <= 1), bool(abs((lengths < 0.5).mean() - 1 / 4) < 0.05)
        (True, True)
    """
    direction_key, radius_key = jax.random.split(key)
    dimension = math.prod(shape[1:])
    radius = jax.random.uniform(radius_key, (shape[0], *[1] * (len(shape) - 1)), dtype)
    return radius ** (1 / dimension) * project_to_sphere(
        random_array(jax.random.normal, direction_key, shape, dtype)
    )


def random_array(draw: Callable[..., Array], key: Array, shape: Sequence[int], *rest: Any) -> Array:
    """An array of a shape from `jax.random.normal`, say, by a program of a single axis.

    It is the same as that of several axes, and compiled in a quarter of the time.
    """
    return draw(key, (math.prod(shape),), *rest).reshape(shape)


def fgsm(rho: float | Array, norm: Norm = "linf") -> Attack:
    """The fast gradient sign method: one step of length ρ, x + ρ·sign(∇).

    Args:
        rho: radius in pixel units, as for `Attack`.
        norm: `linf`, or `l2` for a step along the gradient itself.

    Example:
        >>> import jax.numpy as jnp
        >>> fgsm(8 / 255)(lambda x: x - 0.5, jnp.full((1, 2, 2, 1), 0.25)).min() * 255
        Array(55.75, dtype=float32)
    """
    return Attack(rho, 1, rho, norm=norm)


def pgd(
    rho: float | Array,
    steps: int = 7,
    step_size: float | Array | None = None,
    random_start: bool = False,
    norm: Norm = "linf",
    box: tuple[float, float] | None = (0.0, 1.0),
) -> Attack:
    """Projected gradient descent, here ascent: many steps, each projected onto the ball.

    Args:
        rho: radius in pixel units, as for `Attack`.
        step_size: length of each in pixel units; ρ/4 if left out, which at ρ = 8/255 is the
            2/255 of the benchmark's training.
        steps, random_start, norm, box: as for `Attack`.

    Example:
        >>> import jax.numpy as jnp
        >>> pgd(8 / 255)(lambda x: x - 0.5, jnp.full((1, 2, 2, 1), 0.25)).min() * 255
        Array(55.75, dtype=float32)
    """
    step_size = rho / 4 if step_size is None else step_size
    return Attack(rho, steps, step_size, random_start, norm, box)


def twice(
    attack: Callable[..., Images], gradient: Gradient, x: Images, key: Array | None = None
) -> tuple[Images, Images]:
    """Attack images, and the attacked images once more: X_ρ = A(X) and X_2ρ = A(X_ρ).

    The second ball is centred at X_ρ, so X_2ρ may leave the first.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", below equation 5.

    Example:
        >>> import jax.numpy as jnp
        >>> once, again = twice(fgsm(8 / 255), lambda x: x, jnp.full((1, 2), 0.5))
        >>> ((again - 0.5) * 255).round(3).tolist()
        [[16.0, 16.0]]
    """
    keys = None if key is None else jax.random.split(key, 2)

    def step(z: Images, key: Array | None) -> tuple[Images, Images]:
        attacked = attack(gradient, z, key)
        return attacked, attacked

    _, (once, again) = lax.scan(step, x, keys, length=2)
    return once, again
