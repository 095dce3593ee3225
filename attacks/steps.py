"""Attacks that proceed by steps, each point by itself, so that they stop and go on anywhere."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from attacks.core import Images, check_radius, project, random_array
from attacks.errors import AttackError
from attacks.lazy import Array, jax, jnp, lax
from attacks.losses import Logits, Oracle, classes_of
from attacks.projections import onto_l1_ball

BallNorm = Literal["linf", "l2", "l1"]
BALL_NORMS: tuple[str, ...] = get_args(BallNorm)
Keys = Shaped[Array, " n"]
"""A random key of each point."""
Sizes = Float[Array, "n ..."]


class Run(NamedTuple):
    """One of the runs that an attack is made of.

    Attributes:
        steps: number of them.
        scale: of the radius, above 1 where a run only prepares the next one.
        target: the place of the target class among the logits, 2 for the second largest; 0 for a
            run without target.
        first: whether it begins anew, not at the best points of the run before.
        random: whether it begins at a random point.
    """

    steps: int
    scale: float = 1.0
    target: int = 0
    first: bool = True
    random: bool = True


@runtime_checkable
class State(Protocol):
    """Where a run is; all arrays have a row for each point, on a device or the host."""

    @property
    def best(self) -> Float[Array | np.ndarray, "n ..."]:
        """The points of the highest loss, at which the next run may begin."""
        ...

    @property
    def adversarial(self) -> Float[Array | np.ndarray, "n ..."]:
        """Where `found`, points that are misclassified."""
        ...

    @property
    def found(self) -> Bool[Array | np.ndarray, " n"]:
        """Whether such a point was found, inside the ball."""
        ...


@dataclass(frozen=True)
class Stepwise:
    """An attack that proceeds by steps.

    Attributes:
        rho: radius of the ball around each image, in pixel units. It may be traced.
        norm: of the ball, `linf`, `l2` or `l1`.

    Raises:
        AttackError: if the norm is unknown, or the radius no number, negative or too large.
    """

    rho: float | Array
    norm: BallNorm = "linf"
    targets = 0  # what attacks with targets have as a field

    def __post_init__(self) -> None:
        if self.norm not in BALL_NORMS:
            raise AttackError("the norm linf, l2 or l1", repr(self.norm), "choose one of them")
        # A box without bounds has no corner, which an ℓ1 ball may reach far beyond.
        check_radius(self.rho, self.norm, None if self.norm == "l1" else (0.0, 1.0))

    @property
    def runs(self) -> tuple[Run, ...]:
        """What the attack is made of; a point that has fallen in one needs no other."""
        raise NotImplementedError

    @property
    def fewest_classes(self) -> int:
        """Fewest classes that a network must tell apart: one more than the targets."""
        return max(self.targets + 1, 2)

    @property
    def places(self) -> Sequence[int]:
        """Places of the targets among the logits, as runs have them; 0 alone without targets."""
        return range(2, 2 + self.targets) if self.targets else (0,)

    def aimed_at(self, victim: Oracle, x: Images, run: Run, target: Any) -> Int[Array, " n"]:
        """The classes at the target's place of the logits at x; the labels without a target.

        Args:
            victim, x, run, target: as for `start`.
        """
        if not run.target:
            return jnp.asarray(victim.labels, jnp.int32)
        falling = jnp.argsort(-victim.logits(x), axis=1)
        return jnp.take(falling, target - 1, axis=1).astype(jnp.int32)

    def check(self, shape: Sequence[int], classes: int) -> None:
        """Refuse points or a network that the attack is not for.

        Args:
            shape: of a point.
            classes: of the network.

        Raises:
            AttackError: if it is for more classes, or for other points.
        """
        if classes < self.fewest_classes:
            raise AttackError(
                f"a network of at least {self.fewest_classes} classes for this attack "
                f"({type(self).__name__}), whose loss or targets need so many",
                classes,
                "choose another one, such as apgd-ce or square",
            )

    def start(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, target: Any, begin: Images | None
    ) -> State:
        """The state before a run's first step.

        Args:
            victim: the network.
            x: the images, classified correctly.
            keys: of each image.
            run: which.
            target: `run.target`, which may be traced.
            begin: the best points of the run before, if the run is not its `first`.
        """
        raise NotImplementedError

    def advance(
        self, victim: Oracle, x: Images, keys: Keys, run: Run, step: Any, state: Any
    ) -> State:
        """The state after a step.

        Args:
            victim, x, keys, run: as for `start`.
            step: its number, from 0, which may be traced.
            state: before it.
        """
        raise NotImplementedError

    def __call__(self, victim: Oracle, x: Images, key: Array | None = None) -> Images:
        """The attacked images, inside the ball around x and inside [0, 1].

        Args:
            victim: a network with the images' labels, such as `attacks.Victim`.
            x: pixels in [0, 1].
            key: of random starts and draws; that of 0 if left out.

        Returns:
            Where an image fell, a misclassified one; else what the attack holds for the best.

        Raises:
            AttackError: if the attack is not for these images or for so few classes.
        """
        self.check(x.shape[1:], classes_of(victim.logits, x))
        key = jax.random.key(0) if key is None else key
        found, points, state = jnp.zeros(len(x), bool), x, None
        for number, run in enumerate(self.runs):
            keys = point_keys(jax.random.fold_in(key, number), np.arange(len(x)))
            begin = None if state is None or run.first else state.best
            state = self.start(victim, x, keys, run, run.target, begin)
            state = self._to_the_end(victim, x, keys, run, state)
            if run.scale > 1:
                continue
            last = where(state.found, state.adversarial, state.best)
            points = where(found, points, last)
            found = found | state.found
        return points

    def _to_the_end(self, victim: Oracle, x: Images, keys: Keys, run: Run, state: Any) -> Any:
        """The state after all steps of a run.

        Of a network that is a pytree, the program is kept for other weights, labels and radii.
        """
        from jax.core import Tracer

        leaves, tree = jax.tree.flatten(victim)
        known = all(isinstance(leaf, Array) and not isinstance(leaf, Tracer) for leaf in leaves)
        if not (known and is_ours(self)):
            return lax.fori_loop(0, run.steps, partial(self.advance, victim, x, keys, run), state)
        arrays = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, Array | np.ndarray)
        }
        attack = replace(self, **dict.fromkeys(arrays, 1.0))
        return _loop(attack, same(run), tree)(arrays, leaves, x, keys, state)


@lru_cache(maxsize=8)
def _loop(attack: Stepwise, run: Run, tree: Any) -> Callable[..., Any]:
    """The program of all steps of a run; few are remembered, since networks may be large.

    Its data are those fields of the attack that are arrays, the network's leaves, and the rest.
    """

    def steps(arrays: dict[str, Array], leaves: Any, x: Any, keys: Any, state: Any) -> Any:
        victim = jax.tree.unflatten(tree, leaves)
        advance = partial(replace(attack, **arrays).advance, victim, x, keys, run)
        return lax.fori_loop(0, run.steps, advance, state)

    return jax.jit(steps)


def is_ours(attack: Stepwise) -> bool:
    """Whether an attack's fields alone decide what it does, so that its programs may be kept."""
    return type(attack).__module__.partition(".")[0] == __package__


def same(run: Run) -> Run:
    """The run whose programs serve this one too, since the target is their data."""
    return run._replace(target=min(run.target, 1))


def check_counts(steps: int, restarts: int = 1, targets: int = 0) -> None:
    """Refuse an attack that would do nothing, whatever the network.

    Raises:
        AttackError: if there is no step or no restart, or fewer than no targets.
    """
    if min(steps, restarts) < 1 or targets < 0:
        raise AttackError(
            "at least one step, one restart and no fewer than 0 targets",
            f"{steps}, {restarts} and {targets}",
            "raise them",
        )


def point_keys(key: Array, rows: Any) -> Keys:
    """A key of each row's own, whichever rows it is computed with."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, rows)


def fold(keys: Keys, step: Any) -> Keys:
    """Each point's key of a step."""
    return jax.vmap(jax.random.fold_in, (0, None))(keys, step)


def drawn(keys: Keys, draw: Any, shape: tuple[int, ...], dtype: Any) -> Shaped[Array, "n ..."]:
    """A draw of each point's own, such as `jax.random.normal`, of a shape."""
    return jax.vmap(lambda key: random_array(draw, key, shape, dtype))(keys)


def where(chosen: Bool[Array, " n"], one: Images, other: Images) -> Images:
    """Rows of one array where chosen, else of another."""
    return jnp.where(column(chosen, one), one, other)


def column(values: Shaped[Array, " n"], like: Shaped[Array, "n ..."]) -> Shaped[Array, "n ..."]:
    """Values of points with as many axes as an array."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def length(x: Images, norm: str) -> Float[Array, " n"]:
    """The norm of each point.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([[3.0, -4.0]])
        >>> [float(length(x, norm)[0]) for norm in ("linf", "l2", "l1")]
        [4.0, 5.0, 7.0]
    """
    flat = x.reshape(len(x), -1)
    if norm == "linf":
        return jnp.max(jnp.abs(flat), 1)
    return jnp.sqrt(jnp.sum(flat * flat, 1)) if norm == "l2" else jnp.sum(jnp.abs(flat), 1)


def onto_ball(z: Images, x: Images, rho: Any, norm: str) -> Images:
    """The point of the ball around x, and of the box [0, 1], that is nearest to z or close to it.

    Args:
        z: points.
        x: the balls' centres, in the box.
        rho: radius of all, or of each point with as many axes.
        norm: of the balls.
    """
    if norm == "linf":
        return jnp.clip(project(z, x, rho), 0, 1)
    if norm == "l2":
        # As the authors of APGD do it, whose points these are to the last digits.
        size = column(length(z - x, norm), x)
        return jnp.clip(x + unit(z - x, norm) * jnp.minimum(rho, size), 0, 1)
    wide = rho.reshape(-1, 1) if jnp.ndim(rho) else rho
    return x + onto_l1_ball(flat(z - x), flat(x), wide).reshape(x.shape)


def on_sphere(keys: Keys, like: Images, norm: str) -> Images:
    """A random point of each sphere of radius 1 around zero, uniform in direction in ℓ2."""
    uniform = partial(jax.random.uniform, minval=-1, maxval=1)
    draw = uniform if norm == "linf" else jax.random.normal
    return unit(drawn(keys, draw, like.shape[1:], like.dtype), norm)


def unit(x: Images, norm: str) -> Images:
    """Each point divided by its norm; almost zero stays almost zero."""
    return x / (column(length(x, norm), x) + 1e-12)


def is_right(logits: Logits, labels: Any) -> Bool[Array, " n"]:
    """Whether the label has the largest logit, of equals the first; not if that is no finite one.

    Example:
        >>> import jax.numpy as jnp
        >>> logits = jnp.array([[2.0, 1.0], [1.0, 1.0], [jnp.nan, 1.0], [jnp.inf, jnp.inf]])
        >>> is_right(logits, jnp.zeros(4, int)).tolist()
        [True, True, False, False]
    """
    # The maximum of numbers with NaN among them is NaN, whose place argmax gives.
    first = jnp.argmax(logits, 1).astype(labels.dtype)
    return (first == labels) & jnp.isfinite(jnp.max(logits, 1))


def flat(x: Images) -> Float[Array, "n d"]:
    """Points as rows."""
    return x.reshape(len(x), math.prod(x.shape[1:]))
