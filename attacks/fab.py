"""Attacks for the nearest misclassified point: FAB, and the fast minimum-norm attack."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.core import Images, direction
from attacks.lazy import Array, jax, jnp
from attacks.losses import Oracle, Victim, ask
from attacks.projections import onto_hyperplane
from attacks.steps import (
    Keys,
    Run,
    Stepwise,
    check_counts,
    column,
    flat,
    is_right,
    length,
    on_sphere,
    onto_ball,
    where,
)

Values = Float[Array, " n"]
DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}
"""The norm of a slope that says how fast a step of length 1 moves a value."""


class Nearest(NamedTuple):
    """A run towards the nearest misclassified point: a row for each point.

    Attributes:
        z: the point.
        adversarial, distance: the nearest misclassified point so far, and how far it is.
        found: whether it is inside the ball.
        targets: classes, of a run with targets.
        radius: at which the point is held, of `FMN`.
    """

    z: Images
    adversarial: Images
    distance: Values
    found: Bool[Array, " n"]
    targets: Int[Array, " n"]
    radius: Values

    @property
    def best(self) -> Float[Array | np.ndarray, "n ..."]:
        return self.adversarial


@dataclass(frozen=True)
class FAB(Stepwise):
    """The fast adaptive boundary attack, for misclassified points as near as possible.

    Each step goes to the boundary as a linear network would have it, from the point and from the
    image, and beyond. ρ decides what counts as fallen, and where restarts begin.

    Attributes:
        steps: of each run.
        targets: how many classes to aim at in turn, from the second largest logit on; 0 for the
            class whose boundary is nearest, which takes a gradient of every logit.
        restarts: the first begins at the image, others half of ρ from it.

    Source: Croce and Hein (2020), "Minimally distorted adversarial examples with a fast adaptive
    boundary attack", algorithm 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from attacks import Victim
        >>> victim = Victim(lambda x: x @ jnp.eye(2), jnp.array([0]))
        >>> FAB(0.2)(victim, jnp.array([[0.5, 0.4]])).round(2)
        Array([[0.45, 0.45]], dtype=float32)
    """

    steps: int = 100
    targets: int = 0
    restarts: int = 1
    largest_pull: float = 0.1
    """Largest weight of the image's own step."""
    overshoot: float = 1.05
    back: float = 0.9
    """Part of the way from the image at which the search goes on from a misclassified point."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self.steps, self.restarts, self.targets)

    @property
    def runs(self) -> tuple[Run, ...]:
        """For each target and restart one."""
        return tuple(
            Run(self.steps, target=place, random=restart > 0)
            for place in self.places
            for restart in range(self.restarts)
        )

    def start(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, target: Any, begin: Images | None
    ) -> Nearest:
        """The state at the image; at a random point half of ρ from it in a run of restarts."""
        z = x
        if run.random:
            z = jnp.clip(x + self.rho / 2 * on_sphere(keys, x, self.norm), 0, 1)
        return _nowhere(x, z, self.aimed_at(victim, x, run, target))

    def advance(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, step: Any, state: Nearest
    ) -> Nearest:
        """The state after a step over the boundary, and back where that was misclassified."""
        at_step = victim.at_step(step) if isinstance(victim, Victim) else victim
        value, slope = self._boundary(at_step, run, state)
        z, w = flat(state.z), flat(slope)
        at_x = value + jnp.sum(w * (flat(x) - z), 1)
        points, values = jnp.concatenate([z, flat(x)]), jnp.concatenate([value, at_x])[:, None]
        changes = onto_hyperplane(points, jnp.concatenate([w, w]), values, self.norm)
        from_z, from_x = jnp.split(changes, 2)
        far, near = (jnp.maximum(length(d, self.norm), 1e-8) for d in (from_x, from_z))
        pull = jnp.minimum(near / (near + far), self.largest_pull)[:, None]
        moved = (z + self.overshoot * from_z) * (1 - pull)
        moved = jnp.clip(moved + (flat(x) + self.overshoot * from_x) * pull, 0, 1).reshape(x.shape)
        wrong = ~is_right(at_step.logits(moved), victim.labels)
        back = where(wrong, x + (moved - x) * self.back, moved)
        return _nearer(self, x, state, moved, wrong)._replace(z=back)

    def _boundary(self, victim: Oracle, run: Run, state: Nearest) -> tuple[Values, Images]:
        """How far a class's logit is above the label's, and the slope of that."""
        logits, pull = victim.vjp(state.z)
        label = jax.nn.one_hot(victim.labels, logits.shape[1], dtype=logits.dtype)
        if run.target:
            of = jax.nn.one_hot(state.targets, logits.shape[1], dtype=logits.dtype) - label
            return jnp.sum(of * logits, 1), pull(of)
        classes = jnp.eye(logits.shape[1], dtype=logits.dtype)
        slopes = jax.vmap(lambda each: pull(each - label))(classes)
        values = (logits - jnp.sum(label * logits, 1, keepdims=True)).T
        speed = jax.vmap(lambda s: length(s, DUAL[self.norm]))(slopes)
        distance = jnp.where(label.T > 0, jnp.inf, jnp.abs(values) / (speed + 1e-12))
        nearest = jnp.argmin(distance, 0)
        here = jnp.arange(len(nearest))
        return values[nearest, here], slopes[nearest, here]


@dataclass(frozen=True)
class FMN(Stepwise):
    """The fast minimum-norm attack: steps of falling size on a ball that shrinks where they win.

    Attributes:
        steps: of the run.
        largest_step, smallest_step: ℓ2 lengths of the first step and the last.
        largest_change, smallest_change: relative changes of the radius at the first step and the
            last.

    Source: Pintor et al. (2021), "Fast minimum-norm adversarial attacks through adaptive norm
    constraints", algorithm 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from attacks import Victim
        >>> victim = Victim(lambda x: x @ jnp.eye(2), jnp.array([0]))
        >>> FMN(0.2)(victim, jnp.array([[0.5, 0.4]])).round(2)
        Array([[0.45, 0.45]], dtype=float32)
    """

    steps: int = 100
    largest_step: float = 1.0
    smallest_step: float = 0.01
    largest_change: float = 0.05
    smallest_change: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self.steps)

    @property
    def runs(self) -> tuple[Run, ...]:
        """One."""
        return (Run(self.steps, random=False),)

    def start(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, target: Any, begin: Images | None
    ) -> Nearest:
        """The state at the image."""
        return _nowhere(x, x, self.aimed_at(victim, x, run, target))

    def advance(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, step: Any, state: Nearest
    ) -> Nearest:
        """The state after a step."""
        at = ask(victim, state.z, "margin", step=step)
        wrong = ~is_right(at.logits, victim.labels)
        size = length(state.z - x, self.norm)
        state = _nearer(self, x, state, state.z, wrong)
        change = self._falling(step, self.largest_change, self.smallest_change)
        # Before anything is found, to the boundary as a linear network would have it.
        ahead = size - at.loss / (length(at.gradient, DUAL[self.norm]) + 1e-12)
        outside = jnp.where(
            jnp.isfinite(state.distance), state.radius * (1 + change), jnp.maximum(ahead, 0)
        )
        inside = jnp.minimum(state.radius * (1 - change), state.distance)
        # The first radius is infinite, where the image itself is misclassified.
        radius = jnp.where(wrong, jnp.where(jnp.isfinite(inside), inside, size), outside)
        stride = self._falling(step, self.largest_step, self.smallest_step)
        z = state.z + stride * direction(at.gradient, "l2")
        z = onto_ball(z, x, column(radius, x), self.norm)
        return state._replace(z=z, radius=radius)

    def _falling(self, step: Any, first: float, last: float) -> Any:
        """A value at a step of the cosine from the first to the last."""
        return last + (first - last) * (1 + jnp.cos(math.pi * step / self.steps)) / 2


def _nowhere(x: Images, z: Images, targets: Int[Array, " n"]) -> Nearest:
    """The state before anything is found."""
    far = jnp.full(len(x), jnp.inf, x.dtype)
    nothing = jnp.zeros(len(x), bool)
    return Nearest(z, x, far, nothing, targets, far)


def _nearer(
    attack: Stepwise, x: Images, state: Nearest, z: Images, wrong: Bool[Array, " n"]
) -> Nearest:
    """The state with points where they are misclassified and nearer than those so far."""
    size = length(z - x, attack.norm)
    nearer = wrong & (size < state.distance)
    distance = jnp.where(nearer, size, state.distance)
    adversarial = where(nearer, z, state.adversarial)
    return state._replace(adversarial=adversarial, distance=distance, found=distance <= attack.rho)
