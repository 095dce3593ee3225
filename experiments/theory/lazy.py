"""Two-layer networks close to their initialisation: the step that flips them, and bounds.

f(x) = m^−1/2 Σ a_s max(0, w_s·x) with a_s = ±1 and rows w_s ~ N(0, I) at the start. The lazy regime
is every W whose rows are within V = C₀/√m of their start.

Source: Wang et al. (2022), "Adversarial robustness is at odds with lazy training".
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from experiments.theory.convergence import project_to_ball
from experiments.theory.least_eigenvalue import Bound

ROUNDING = 1e-12
"""Rounding error of a sum over the neurons, in units of the output."""

Weights = Float[np.ndarray, "m d"]
Signs = Float[np.ndarray, " m"]


class Flip(NamedTuple):
    """The smallest step along the gradient that changes the sign of the output.

    Attributes:
        step: η ≥ 0 in x − sign(f) η ∇f; NaN where no step does.
        status: `ok`, or `no_flip`.
        output, gradient: f(x) and ‖∇f(x)‖.
    """

    step: float
    status: str
    output: float
    gradient: float

    @property
    def length(self) -> float:
        """‖δ‖ = η ‖∇f‖, in units of the points."""
        return self.step * self.gradient

    @property
    def linear(self) -> float:
        """|f|/‖∇f‖, what the length would be of a linear function."""
        return abs(self.output) / self.gradient if self.gradient else float("nan")


def flip_along_gradient(weights: Weights, a: Signs, x: Float[np.ndarray, " d"]) -> Flip:
    """The exact smallest flipping step: f is piecewise linear along a ray.

    Example:
        >>> w, a, x = np.array([[1.0, 0.0]]), np.array([1.0]), np.array([2.0, 0.0])
        >>> flip = flip_along_gradient(w, a, x)
        >>> flip.status, flip.output  # relu never gets below zero
        ('no_flip', 2.0)
    """
    root = len(a) ** 0.5
    u = weights @ x
    active = u > 0
    output = float(a[active] @ u[active]) / root
    gradient = (a * active) @ weights / root
    length = float(np.linalg.norm(gradient))
    v = weights @ (-np.sign(output) * gradient)
    # Along the ray the slope changes where a neuron does.
    with np.errstate(divide="ignore", invalid="ignore"):
        breaks = np.where(v != 0, -u / v, np.inf)
    ahead = np.isfinite(breaks) & (breaks > 0)
    order = np.argsort(breaks[ahead])
    starts = np.concatenate([[0.0], breaks[ahead][order]])
    changes = (a * np.abs(v))[ahead][order] / root
    slopes = float(a[active] @ v[active]) / root + np.concatenate([[0.0], np.cumsum(changes)])
    # A sum that should vanish leaves rounding, which would lead below zero far away.
    slopes[np.abs(slopes) <= ROUNDING * np.abs(v).sum() / root] = 0
    values = output + np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(starts))])
    ends = np.append(values[1:], np.inf * np.sign(slopes[-1]) if slopes[-1] else values[-1])
    # Beyond rounding: where every neuron has died, f is zero and stays there.
    crossed = np.nonzero(ends * np.sign(output) < -ROUNDING * abs(output))[0]
    if output == 0 or not len(crossed):
        return Flip(float("nan"), "no_flip", output, length)
    k = crossed[0]
    return Flip(float(starts[k] - values[k] / slopes[k]), "ok", output, length)


def project_rows(
    weights: Float[Array, "m d"], start: Float[Array, "m d"], radius: float | Array
) -> Float[Array, "m d"]:
    """The nearest weights of which every row is within a distance of its start.

    Source: Wang et al. (2022), algorithm 1, line 11, after every step.

    Example:
        >>> import jax.numpy as jnp
        >>> project_rows(jnp.asarray([[3.0, 4.0], [0.5, 0.0]]), jnp.zeros((2, 2)), 2.5)
        Array([[1.5, 2. ],
               [0.5, 0. ]], dtype=float32)
    """
    return jax.vmap(project_to_ball, (0, 0, None))(weights, start, radius)


def largest_output(weights: Weights, a: Signs, x: Float[np.ndarray, " d"], radius: float) -> float:
    """sup f(x) over the ball, m^−1/2 Σ a_s max(0, w_s·x + a_s V ‖x‖).

    The weights are the ball's centre, the radius is V of every row.
    """
    moved = weights @ x + a * radius * np.linalg.norm(x)
    return float(a @ np.maximum(moved, 0) / np.sqrt(len(a)))


def output_bound(gamma: float, width: int, deviation: float) -> float:
    """|f(x)| ≤ √(2 log(2/γ)) + 2 log(2/γ)/√m + C₀, with probability 1 − γ, anywhere in the ball.

    The deviation is C₀ = V√m.

    Source: Wang et al. (2022), lemma 4.1.
    """
    tail = np.log(2 / gamma)
    return float(np.sqrt(2 * tail) + 2 * tail / np.sqrt(width) + deviation)


def gradient_bound(gamma: float, dimension: int, width: int, deviation: float) -> Bound:
    """‖∇f(x)‖ from below, with probability 1 − γ, anywhere in the ball; `vacuous` if not above 0.

    Source: Wang et al. (2022), lemma 4.2, which needs d ≥ C max(log(8/γ), C₀²) beside what it says.

    Example:
        >>> gradient_bound(0.05, 784, 10**5, deviation=10.0).status
        'vacuous'
    """
    m, d = width, dimension
    first = 0.5 - np.sqrt(2 * np.log(4 / gamma) / m) - np.log(4 / gamma) / m
    second = d - 5 * np.sqrt(d * np.log(8 / gamma))
    lost = np.sqrt((deviation + np.sqrt(np.log(4 / gamma) / 2)) / np.sqrt(m))
    rest = lost * np.sqrt(d + 4 * np.sqrt(d * np.log(8 * m / gamma)))
    value = np.sqrt(max(first, 0)) * np.sqrt(max(second, 0)) - deviation - rest
    return Bound(float(value)) if value > 0 else Bound(0.0, "vacuous")


def changes_bound(gamma: float, width: int, radius: float) -> float:
    """Neurons that the ball of radius V lets change their sign at x: at most V m + √(m log(1/γ)/2).

    Source: Wang et al. (2022), lemma 4.3. Their number is Binomial(m, erf(V/√2)).
    """
    return float(radius * width + np.sqrt(width * np.log(1 / gamma) / 2))


def may_change(
    weights: Weights, x: Float[np.ndarray, " d"], radius: float, reach: float = 0.0
) -> Bool[np.ndarray, " m"]:
    """Neurons whose sign at some point within reach of x some row of the ball changes, exactly.

    The angle from x to w_s's hyperplane is at most arcsin(V/‖w_s‖) + arcsin(reach/‖x‖): a row of
    the ball turns by the first, a point within reach by the second.

    Source: derived, for lemmas B.4 (S′_v as printed) and B.6 (equation 4) of Wang et al. (2022).

    Example:
        >>> w, x = np.array([[1.0, 0.0], [0.1, 1.0]]), np.array([1.0, 0.0])
        >>> may_change(w, x, 0.2), may_change(w, x, 0.0, 0.05)
        (array([False,  True]), array([False, False]))
    """
    lengths, size = np.linalg.norm(weights, axis=1), np.linalg.norm(x)
    turned = np.arcsin(np.minimum(radius / lengths, 1)) + np.arcsin(min(reach / size, 1))
    return np.arcsin(np.minimum(np.abs(weights @ x) / (lengths * size), 1)) <= turned


def gates_bound(gamma: float, dimension: int, width: int, deviation: float, reach: float) -> float:
    """r·(∇f(x) − ∇f(x + δ)) for a direction r and ‖δ‖ ≤ R = reach, anywhere in the ball, at most.

    With probability 1 − γ.

    Source: Wang et al. (2022), lemma B.8, with the last "+ 3" of its proof.
    """
    d, m, tail = float(dimension), float(width), np.log(4 / gamma)
    first = 2 * np.sqrt(tail) * ((4 * reach * np.sqrt(np.log(d))) ** 0.25 + np.sqrt(tail / m))
    lost = np.sqrt((deviation + np.sqrt(tail / 2)) / np.sqrt(m))
    second = 3 * lost * np.sqrt(d + 4 * np.sqrt(d * np.log(8 * m / gamma)))
    third = 5 * (deviation + np.sqrt(tail)) * (np.sqrt(np.log(4 * m / gamma)) + 3)
    return float(first + deviation + second + third)


def gradient_change_bound(
    dimension: int, width: int, deviation: float, reach: float = 1.0
) -> float:
    """‖∇f(x) − ∇f(x + δ)‖ over ‖δ‖ ≤ C₁/√d, anywhere in the ball; C₁ is the reach.

    Source: Wang et al. (2022), lemma 4.4; divided by √d it is above 1 up to d of about 10²⁰.
    """
    d, m = float(dimension), float(width)
    first = (reach * d**2 * np.log(m * d) ** 2 * np.sqrt(np.log(d) / d)) ** 0.25
    last = max(1, deviation) * deviation * d**0.25
    return float(9 * first + 15 * d * np.log(m * d) / np.sqrt(m) + 327 * last)
