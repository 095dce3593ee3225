"""Compiled programs of networks under attack, found again at other weights, images and radii."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

from attacks.lazy import jax, jnp
from attacks.losses import At, Logits, Victim, ask, classes_of
from attacks.steps import Run, Stepwise, is_ours, is_right, point_keys

NETWORKS = 4
"""Of which programs are kept."""


class Network(NamedTuple):
    """What the programs of a network depend on. Weights, radius and keys are their data.

    Attributes:
        apply: of `attack_all`.
        draws: of it.
        options: of the compiler.
    """

    apply: Callable[..., Logits]
    draws: int
    options: tuple[tuple[str, Any], ...]

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A program of (victim, images, …), which takes (weights, key, images, labels, …)."""

        def of_arrays(params: Any, key: Any, x: Any, y: Any, *rest: Any) -> Any:
            key = key if self.draws else None
            return function(Victim(partial(self.apply, params), y, self.draws, key), x, *rest)

        return jax.jit(of_arrays, compiler_options=dict(self.options) or None)


@lru_cache(maxsize=8 * NETWORKS)
def run_programs(
    network: Network, attack: Stepwise, run: Run
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The state before a run, and after some steps of it, of one of our attacks with any radius.

    An attack of one's own has its own radius. A point's key is made of a key, the places of the
    attack and of the run, and the point's row.
    """
    at = partial(replace, attack) if is_ours(attack) else lambda rho: attack

    def start(victim: Victim, x: Any, draws: Any, rho: Any, target: Any, begin: Any) -> Any:
        return at(rho=rho).start(victim, x, keys_of(*draws), run, target, begin)

    def advance(
        victim: Victim, x: Any, draws: Any, rho: Any, one: Any, two: Any, state: Any
    ) -> Any:
        step = partial(at(rho=rho).advance, victim, x, keys_of(*draws), run)
        return jax.lax.fori_loop(one, two, step, state)

    def keys_of(key: Any, places: Any, rows: Any) -> Any:
        return point_keys(reduce(jax.random.fold_in, places, key), rows)

    return network.compile(start), network.compile(advance)


@lru_cache(maxsize=NETWORKS)
def answers(network: Network) -> Callable[..., Any]:
    """Whether images are right, and whether by finite logits."""

    def told(victim: Victim, x: Any) -> Any:
        logits = victim.logits(x)
        return jnp.stack([is_right(logits, victim.labels), jnp.isfinite(jnp.max(logits, 1))])

    return network.compile(told)


@lru_cache(maxsize=NETWORKS)
def look(network: Network) -> Callable[..., Any]:
    """The margin with its logits and gradient; refuses what returns no logits."""

    def asked(victim: Victim, x: Any) -> At:
        classes_of(victim.logits, x)
        return ask(victim, x, "margin")

    return network.compile(asked)
