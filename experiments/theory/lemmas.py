"""The lemmas behind theorem 1 and corollary 1: both sides of each, of networks in hand.

The neighbourhood of radius τ has all weights of which every layer is within a Frobenius distance τ
of W^{[1]}. The paper's κ (filter size) and p (pixels) are 1 for fully connected networks.

Source: Wu et al. (2024), "Robust NAS under adversarial training", lemmas 4 to 8 and 11 to 14.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cells.residual.networks import ResidualSpace
from experiments.theory.convergence import project_to_ball
from experiments.theory.training import Attack, input_gradient, logistic, margins, mixed_gradient
from ntkscore.model import Model

Labels = Float[Array, " n"]
RATE = 0.3
"""Length of a step of `furthest`, as a share of the radius."""


class Constants(NamedTuple):
    """What the bounds are made of.

    Attributes:
        lipschitz: C, the largest Lipschitz constant of the activations.
        largest: C_fmax, length of the longest features of a layer at W^{[1]}.
        filter_size: κ.
        pixels: p.

    Example:
        >>> round(Constants(lipschitz=1.0, largest=0.75).features(tau=0.1), 1)
        70.6
    """

    lipschitz: float
    largest: float
    filter_size: int = 1
    pixels: int = 1

    @property
    def scale(self) -> float:
        """E = e^{6C√κ} (√κ C + C_fmax)."""
        c = self.lipschitz * self.filter_size**0.5
        return float(np.exp(6 * c) * (c + self.largest))

    def features(self, tau: float) -> float:
        """E τ, the bound of ‖f_{L−1}(x, W̃) − f_{L−1}(x, W^{[1]})‖ (lemmas 5 and 11)."""
        return self.scale * tau

    def output(self, tau: float, beta: float) -> float:
        """18 √p (1+β) E τ, the bound of the linearisation's error at x (lemmas 6 and 12).

        At the attacked point it has 1−β for β.
        """
        return 18 * self.pixels**0.5 * (1 + beta) * self.scale * tau

    def proved_output(self, tau: float, beta: float) -> float:
        """√p (24 + 36√κ C + 18β) E τ: what the proof of lemmas 6 and 12 gives."""
        factor = 24 + 36 * self.filter_size**0.5 * self.lipschitz + 18 * beta
        return self.pixels**0.5 * factor * self.scale * tau

    def loss(self, tau: float, beta: float) -> float:
        """ε = 36 √p (1+β) E τ, at which τ is as large as lemmas 7 and 13 allow, C_1 = 1/36.

        1/36 is min{1/24, 1/36}: the printed proof has 1/24 for the first inequality, and for the
        second 1/12 over 3−β, of which 1/36 over 1+β is the largest that is never above it.
        """
        return 36 * self.pixels**0.5 * (1 + beta) * self.scale * tau


def equivalent_weights(
    first: Float[Array, "d m"], x: Float[Array, " d"], attacked: Float[Array, " d"]
) -> Float[Array, "d m"]:
    """W̃_1 with which x has the pre-activations that x̂ has with W_1, each (in, out).

    W̃_1 = W_1 + x (x̂ − x)ᵀ W_1/‖x‖², so that ‖W̃_1 − W_1‖ = ‖(x̂ − x)ᵀ W_1‖ for ‖x‖ = 1.

    Source: lemma 4.

    Example:
        >>> equivalent_weights(jnp.eye(2), jnp.asarray([1.0, 0.0]), jnp.asarray([0.0, 1.0]))
        Array([[0., 1.],
               [0., 1.]], dtype=float32)
    """
    return first + jnp.outer(x, (attacked - x) @ first) / (x @ x)


def defects(
    model: Model,
    params: PyTree,
    other: PyTree,
    x: Float[Array, "n ..."],
    attacked: Float[Array, "n ..."],
    y: Labels,
    beta: Array | float,
) -> dict[str, Labels]:
    """How far outputs and losses at other weights are from what the mixed gradient says, by point.

    With f̃ at W̃ (`other`), f at W (`params`), and ∇ = (1−β)∇f(x) + β∇f(x̂), all at W:

    Returns:
        `output`, `attacked output`: |f̃ − f − ⟨∇, W̃ − W⟩| at x and at x̂ (lemmas 6 and 12).
        `loss`, `attacked loss`: ℒ + ⟨(1−β)∇ℒ(x) + β∇ℒ(x̂), W̃ − W⟩ − ℒ̃ at x and at x̂, at most ε
        by lemmas 7 and 13.
        `mixture`: the same of the loss (1−β)ℒ(x) + βℒ(x̂), whose gradient this is.
        `spread`: |ℒ̃ − ℒ| at x.
    """
    change = jax.tree.map(jnp.subtract, other, params)

    def side(points: Array) -> tuple[Array, Array, Array]:
        of = lambda w: margins(model, w, points, y)  # noqa: E731
        return *jax.jvp(of, (params,), (change,)), of(other)

    sides = [side(points) for points in (x, attacked)]
    mixed = lambda clean, attacked: (1 - beta) * clean + beta * attacked  # noqa: E731
    along = mixed(*(slope for _, slope, _ in sides))
    slopes = [-jax.nn.sigmoid(-before) * slope for before, slope, _ in sides]
    descent = mixed(*slopes)
    outputs = [jnp.abs(after - before - along) for before, _, after in sides]
    rises = [logistic(after) - logistic(before) for before, _, after in sides]
    apart = [descent - rise for rise in rises]
    own = [slope - rise for slope, rise in zip(slopes, rises, strict=True)]
    return {
        "output": outputs[0],
        "attacked output": outputs[1],
        "loss": apart[0],
        "attacked loss": apart[1],
        "mixture": mixed(*own),
        "spread": jnp.abs(rises[0]),
    }


def on_the_boundary(key: PRNGKeyArray, centre: PyTree, tau: Array | float) -> PyTree:
    """Random weights of which every layer is at a distance τ from the centre's."""
    drawn = optax.tree.random_like(key, centre)
    return jax.tree.map(lambda w, d: w + tau * d / jnp.sqrt(jnp.sum(d**2)), centre, drawn)


def furthest(
    objective: Callable[[PyTree], Array],
    start: PyTree,
    centre: PyTree,
    tau: Array | float,
    steps: int,
) -> PyTree:
    """Weights of the neighbourhood at which an objective is large, by ascent from a start.

    Each step has a length of `RATE` τ in every layer, and is projected.
    """

    def step(_: Array, params: PyTree) -> PyTree:
        gradient = jax.grad(objective)(params)
        length = lambda g: jnp.sqrt(jnp.sum(g**2)) + jnp.finfo(g.dtype).tiny  # noqa: E731
        moved = jax.tree.map(lambda w, g: w + RATE * tau * g / length(g), params, gradient)
        return project_to_ball(moved, centre, tau)

    return lax.fori_loop(0, steps, step, start)


QUANTITIES = (
    "features",
    "output",
    "attacked output",
    "loss",
    "attacked loss",
    "mixture",
    "spread",
)
"""What `neighbourhood` finds: ‖f_{L−1}(x, W̃) − f_{L−1}(x, W^{[1]})‖, and those of `defects`."""


@partial(jax.jit, static_argnames=("space", "shape", "attack", "steps"))
def neighbourhood(
    space: ResidualSpace,
    shape: tuple[str, ...],
    attack: Attack,
    steps: int,
    weights: PyTree,
    code: Array,
    x: Float[Array, "n ..."],
    y: Labels,
    tau: Array,
    beta: Array,
    key: PRNGKeyArray,
) -> dict[str, Array]:
    """The largest of each quantity over points and over weights that ascent found for it.

    W and W̃ begin at random on the neighbourhood's boundary; attacked points are those of W. The
    true maximum may be larger. `largest` is C_fmax.

    Args:
        space, shape, weights, code: of a network, its activations, W^{[1]} and its skips.
        attack, steps: of the points; and of the ascent.
        x, y: points and labels.
        tau, beta: τ and β.
        key: of the beginning.
    """
    model = space.model(shape, weights, code, x)

    def layers(params: PyTree) -> list[Array]:
        return [f.reshape(len(x), -1) for _, f in space.hidden(params, x, code, shape)]

    at_start = layers(weights)

    def quantities(pair: tuple[PyTree, PyTree]) -> Array:
        params, other = pair
        attacked = lax.stop_gradient(attack(input_gradient(model, params, y), x))
        squared = jnp.sum((layers(other)[-1] - at_start[-1]) ** 2, 1)
        # The gradient at zero would be NaN.
        found = {"features": jnp.sqrt(squared + jnp.finfo(squared.dtype).tiny)}
        found |= defects(model, params, other, x, attacked, y, beta)
        return jnp.stack([found[name] for name in QUANTITIES])

    begin = tuple(on_the_boundary(k, weights, tau) for k in jax.random.split(key))
    at_random = jnp.max(quantities(begin), 1)

    def largest(wanted: Array) -> Array:
        objective = lambda pair: wanted @ jnp.mean(quantities(pair), 1)  # noqa: E731
        end = furthest(objective, begin, (weights, weights), tau, steps)
        return wanted @ jnp.maximum(at_random, jnp.max(quantities(end), 1))

    found = jax.vmap(largest)(jnp.eye(len(QUANTITIES), dtype=x.dtype))
    longest = jnp.max(jnp.stack([jnp.linalg.norm(f, axis=1) for f in at_start]))
    return dict(zip(QUANTITIES, found, strict=True)) | {"largest": longest}


class Regret(NamedTuple):
    """A run of Algorithm 1 against other weights W*: means over its N points, nats.

    Attributes:
        clean, attacked, mixture: ℒ(W^{[i]}) − ℒ(W*) at x_i, at x̂_i, and (1−β) times the one and β
            times the other.
        descent: (‖W^{[1]} − W*‖² − ‖W^{[N+1]} − W*‖²)/(2γN) + γ/2 · mean ‖g_i‖², which is the mean
            of ⟨g_i, W^{[i]} − W*⟩; what an excess has above it is a lack of convexity.
        allowed: ‖W^{[1]} − W*‖²/(2γN) + γ/2 · mean ‖g_i‖², the 2ε of lemmas 8 and 14.
    """

    clean: Array
    attacked: Array
    mixture: Array
    descent: Array
    allowed: Array


def regret(
    model: Model,
    attack: Attack,
    others: list[PyTree],
    x: Float[Array, "n ..."],
    y: Labels,
    beta: Array,
    step_size: Array,
) -> tuple[PyTree, list[Regret]]:
    """W^{[N+1]} of Algorithm 1, and its regret against each of some weights (lemmas 8 and 14).

    The attacked points are the run's, found at W^{[i]}.
    """

    def step(params: PyTree, point: tuple[Array, Array]) -> tuple[PyTree, tuple[Array, ...]]:
        x, y = (each[None] for each in point)
        attacked = attack(input_gradient(model, params, y), x)
        gradient, margin = mixed_gradient(model, params, x, attacked, y, beta)
        theirs = [[margins(model, w, z, y) for z in (x, attacked)] for w in others]
        losses = [[logistic(z)[0] for z in each] for each in (margin, *theirs)]
        moved = jax.tree.map(lambda w, g: w - step_size * g, params, gradient)
        return moved, (jnp.asarray(losses), optax.tree.norm(gradient, squared=True))

    last, (losses, lengths) = lax.scan(step, model.params, (x, y))
    ours, *theirs = jnp.mean(losses, 0)
    slope = step_size / 2 * jnp.mean(lengths)
    found = []
    for w, loss in zip(others, theirs, strict=True):
        clean, robust = ours - loss
        start, end = (
            optax.tree.norm(jax.tree.map(jnp.subtract, v, w), squared=True)
            / (2 * step_size * len(y))
            for v in (model.params, last)
        )
        mixture = (1 - beta) * clean + beta * robust
        found.append(Regret(clean, robust, mixture, start - end + slope, start + slope))
    return last, found
