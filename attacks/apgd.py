"""Auto-PGD, projected gradient ascent with momentum, whose step size follows the loss; and PGD."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.core import Images
from attacks.errors import AttackError
from attacks.lazy import Array, jax, jnp
from attacks.losses import FEWEST_CLASSES, LOSSES, LossName, Oracle, ask
from attacks.projections import between
from attacks.steps import (
    Keys,
    Run,
    Sizes,
    Stepwise,
    check_counts,
    column,
    drawn,
    flat,
    is_right,
    on_sphere,
    onto_ball,
    unit,
    where,
)

Values = Float[Array, " n"]
MOMENTUM = 0.75
RISING = 0.75
"""Share of steps since the last check that must raise the loss, or the step size is halved."""
SPARSE_START, SPARSE_CUT, SPARSE_KEPT = 0.2, 1.5, 0.95
"""Of ℓ1: the first share of coordinates; the divisor of shares and step sizes; and the share of
coordinates that remain below which a point begins again with the first step size."""
SMALLEST = 10
"""Of ℓ1: the first step size over the smallest one."""
LARGE_RADII = ((3, 0.3), (2, 0.3))
"""Of ℓ1: radii over ρ that come first, and their shares of the steps."""


class Ascent(NamedTuple):
    """A run of `APGD`: a row for each point.

    Attributes:
        z, before, gradient: the point, the one before it, and the gradient at the point.
        best, best_gradient, best_loss: where the loss was highest.
        adversarial, found: the last misclassified point, if there was one.
        last_loss, rises: the loss of the step before, and how often it rose since the last check.
        checked_loss, cut: the highest loss at the last check, and whether the step was cut there.
        step_size: of the next step.
        targets: classes, of a run with targets.
        share, support: of ℓ1: the share of coordinates that a step changes, and the number of
            changed ones at the last check.
    """

    z: Images
    before: Images
    gradient: Images
    best: Images
    best_gradient: Images
    best_loss: Values
    adversarial: Images
    found: Bool[Array, " n"]
    last_loss: Values
    rises: Int[Array, " n"]
    checked_loss: Values
    cut: Bool[Array, " n"]
    step_size: Values
    targets: Int[Array, " n"]
    share: Values
    support: Values


@dataclass(frozen=True)
class APGD(Stepwise):
    """Auto-PGD, whose only choices are the number of steps and the loss.

    Attributes:
        steps: of each run.
        loss: `ce`, `dlr` or `margin`.
        targets: how many classes to aim at in turn, from the second largest logit on; 0 for a run
            without target. `dlr` then needs four classes.
        restarts: runs from random starts.
        large_radii: whether a run in `l1` begins with the radii 3ρ and 2ρ.

    Source: Croce and Hein (2020), "Reliable evaluation of adversarial robustness with an ensemble
    of diverse parameter-free attacks", algorithm 1; Croce and Hein (2021), "Mind the box:
    ℓ1-APGD for sparse adversarial attacks on image classifiers", algorithm 1, for `l1`.

    Example:
        >>> import jax.numpy as jnp
        >>> from attacks import Victim
        >>> victim = Victim(lambda x: x @ jnp.eye(2), jnp.array([0]))
        >>> APGD(0.125)(victim, jnp.array([[0.5, 0.375]]))
        Array([[0.375, 0.5  ]], dtype=float32)
    """

    steps: int = 100
    loss: LossName = "ce"
    targets: int = 0
    restarts: int = 1
    large_radii: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES:
            raise AttackError(f"the loss {' or '.join(LOSSES)}", repr(self.loss), "choose one")
        check_counts(self.steps, self.restarts, self.targets)

    @property
    def fewest_classes(self) -> int:
        """Those that the loss compares, and one more than the targets."""
        name = f"targeted {self.loss}" if self.targets else self.loss
        return max(super().fewest_classes, FEWEST_CLASSES.get(name, 0))

    @property
    def runs(self) -> tuple[Run, ...]:
        """For each target and restart one; in `l1` with larger radii before it."""
        parts = [(1, self.steps)]
        if self.norm == "l1" and self.large_radii:
            first = [(scale, int(np.ceil(share * self.steps))) for scale, share in LARGE_RADII]
            # Of very few steps nothing is left for ρ itself.
            if (left := self.steps - sum(steps for _, steps in first)) > 0:
                parts = [*first, (1, left)]
        return tuple(
            Run(steps, scale, place, first=part == 0)
            for place in self.places
            for _ in range(self.restarts)
            for part, (scale, steps) in enumerate(parts)
        )

    def start(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, target: Any, begin: Images | None
    ) -> Ascent:
        """The state at a random point of the ball's surface, or where a run before has ended."""
        rho = self.rho * run.scale
        if begin is not None:
            z = onto_ball(begin, x, rho, self.norm)
        elif self.norm == "l1":
            noise = drawn(keys, jax.random.normal, x.shape[1:], x.dtype)
            z = onto_ball(x + noise, x, rho, self.norm)
        else:
            z = jnp.clip(x + rho * on_sphere(keys, x, self.norm), 0, 1)
        targets = self.aimed_at(victim, x, run, target)
        at = ask(victim, z, self.loss, targets if run.target else None, run.steps)
        n, zero = len(x), jnp.zeros_like(at.loss)
        features = float(np.prod(x.shape[1:]))
        support, share = zero + features, zero + SPARSE_START
        if begin is not None or run.scale > 1:
            support = _support(z - x)
            share = support / features / SPARSE_CUT
        return Ascent(
            *(z, z, at.gradient),
            *(z, at.gradient, at.loss),
            *(z, ~is_right(at.logits, victim.labels)),
            *(zero + self._below(run), jnp.zeros(n, jnp.int32)),
            *(at.loss, jnp.ones(n, bool)),
            zero + self._first(run),
            *(targets, share, support),
        )

    def advance(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, step: Any, state: Ascent
    ) -> Ascent:
        """The state after a step of the points, and of the step size where it is checked."""
        z = self._moved(x, run, step, state)
        at = ask(victim, z, self.loss, state.targets if run.target else None, step)
        wrong = ~is_right(at.logits, victim.labels)
        rose = at.loss > state.best_loss
        state = state._replace(
            z=z,
            before=state.z,
            gradient=at.gradient,
            adversarial=where(wrong, z, state.adversarial),
            found=state.found | wrong,
            best=where(rose, z, state.best),
            best_gradient=where(rose, at.gradient, state.best_gradient),
            best_loss=jnp.where(rose, at.loss, state.best_loss),
            rises=state.rises + (at.loss > state.last_loss).astype(jnp.int32),
            last_loss=at.loss,
        )
        checks = self._checks(run.steps)
        if not checks.any():
            return state
        length = jnp.asarray(checks)[step]
        checked = self._resized(x, run, state) if self.norm == "l1" else _halved(state, length)
        return jax.tree.map(lambda new, old: jnp.where(length > 0, new, old), checked, state)

    def _below(self, run: Run) -> float:
        """What the first loss is compared with: 0 in the authors' code, also of cross-entropies."""
        return 0 if self.loss != "ce" else math.inf if run.target else -math.inf

    def _first(self, run: Run) -> Any:
        """The first step size."""
        return self.rho * run.scale * (1 if self.norm == "l1" else 2)

    def _checks(self, steps: int) -> np.ndarray:
        """For each step the number of steps since the last check if it ends in a check, else 0."""
        if self.norm == "l1":
            every = max(int(0.04 * steps), 1)
            return np.array([every * ((i + 1) % every == 0) for i in range(steps)])
        found, period, last = np.zeros(steps, int), max(int(0.22 * steps), 1), 0
        fewest, fewer = max(int(0.06 * steps), 1), max(int(0.03 * steps), 1)
        while last + period <= steps:
            last += period
            found[last - 1] = period
            period = max(period - fewer, fewest)
        return found

    def _ahead(self, x: Images, run: Run, state: Ascent) -> Images:
        """The point after a step along the gradient, inside the ball."""
        if self.norm == "l1":
            way = _sparse_direction(state.gradient, state.share)
        else:
            way = jnp.sign(state.gradient) if self.norm == "linf" else unit(state.gradient, "l2")
        step = column(state.step_size, x) * way
        return onto_ball(state.z + step, x, self.rho * run.scale, self.norm)

    def _moved(self, x: Images, run: Run, step: Any, state: Ascent) -> Images:
        ahead = self._ahead(x, run, state)
        if self.norm == "l1":
            return ahead
        a = jnp.where(step > 0, MOMENTUM, 1.0).astype(x.dtype)
        momentum = (ahead - state.z) * a + (state.z - state.before) * (1 - a)
        return onto_ball(state.z + momentum, x, self.rho * run.scale, self.norm)

    def _resized(self, x: Images, run: Run, state: Ascent) -> Ascent:
        """The state after a check in ℓ1: sparse points begin again, others take smaller steps."""
        support = _support(state.best - x)
        sparser = support / state.support < SPARSE_KEPT
        first = self._first(run)
        size = jnp.where(sparser, first, state.step_size / SPARSE_CUT)
        return state._replace(
            z=where(sparser, state.best, state.z),
            gradient=where(sparser, state.best_gradient, state.gradient),
            step_size=jnp.clip(size, first / SMALLEST, first),
            share=support / float(np.prod(x.shape[1:])) / SPARSE_CUT,
            support=support,
            rises=jnp.zeros_like(state.rises),
        )


@dataclass(frozen=True)
class PGD(APGD):
    """Projected gradient ascent with steps of one size, each run from a random point.

    With the loss `margin` it is the attack that is called CW in ℓ∞.

    Attributes:
        step_size: of each step, in pixel units; a quarter of ρ if left out.

    Source: Madry et al. (2018), "Towards deep learning models resistant to adversarial attacks";
    Carlini and Wagner (2017) for the loss `margin`; in `l1` a step changes a fifth of the
    coordinates, after Tramèr and Boneh (2019), "Adversarial training and robustness for multiple
    perturbations".

    Example:
        >>> import jax.numpy as jnp
        >>> from attacks import Victim
        >>> victim = Victim(lambda x: x @ jnp.eye(2), jnp.array([0]))
        >>> PGD(0.125, restarts=2)(victim, jnp.array([[0.5, 0.375]]))
        Array([[0.375, 0.5  ]], dtype=float32)
    """

    steps: int = 50
    large_radii: bool = False
    step_size: float | Array | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.step_size, Real) and not self.step_size > 0:
            raise AttackError("a step_size above 0", self.step_size, "raise it")

    def _first(self, run: Run) -> Any:
        return self.rho / 4 if self.step_size is None else self.step_size

    def _checks(self, steps: int) -> np.ndarray:
        return np.zeros(steps, int)

    def _moved(self, x: Images, run: Run, step: Any, state: Ascent) -> Images:
        return self._ahead(x, run, state)


def _halved(state: Ascent, length: Any) -> Ascent:
    """The state after a check: halved steps from the best point where the loss rose too seldom."""
    dtype = state.best_loss.dtype
    seldom = state.rises.astype(dtype) <= RISING * length.astype(dtype)
    stuck = ~state.cut & (state.checked_loss >= state.best_loss)
    cut = seldom | stuck
    return state._replace(
        z=where(cut, state.best, state.z),
        gradient=where(cut, state.best_gradient, state.gradient),
        step_size=jnp.where(cut, state.step_size / 2, state.step_size),
        checked_loss=state.best_loss,
        cut=cut,
        rises=jnp.zeros_like(state.rises),
    )


def _support(change: Images) -> Values:
    return jnp.sum(flat(change) != 0, 1).astype(change.dtype)


def _sparse_direction(gradient: Images, share: Values) -> Sizes:
    """The signs of the largest entries of the gradient, with 1 as their sum of absolute values."""
    sizes = jnp.abs(flat(gradient))
    d = sizes.shape[1]
    others = jnp.clip(((1 - share) * d).astype(jnp.int32), 0, d - 1)
    least, _ = between(sizes, jnp.ones_like(sizes), (d - others).astype(sizes.dtype)[:, None])
    signs = jnp.where((sizes >= least).reshape(gradient.shape), jnp.sign(gradient), 0)
    return signs / (column(jnp.sum(jnp.abs(flat(signs)), 1), signs) + 1e-10)
