"""Search among the architectures of a space, which evaluates only those that it visits."""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ntkscore.errors import InputError, check_choice
from ntkscore.space import Architecture, Space
from ntkscore.text import one_line

POPULATION = 10
TOURNAMENT = 3
"""The sizes of regularised evolution in the NATS-Bench scripts."""
ALIVE = 24
"""Networks from which NSGA-II goes on."""
CHILDREN = 8
"""Mutants that are evaluated together."""
PATIENCE = 100
"""Steps without a new architecture after which a search ends."""

Values = Mapping[Hashable, float | Sequence[float]]
"""Of one objective numbers, of several a sequence each; larger is better."""
Steps = Generator[Sequence[Architecture], Any, None]
"""Yields the architectures to evaluate next; receives the `Values` of all that are known."""


def local_search(space: Space, rng: np.random.Generator) -> Steps:
    """Moves to the best neighbour; where none is better, starts anew.

    Source: White et al. (2021), "Exploring the loss landscape in neural architecture search",
    the variant that looks at all neighbours, which are evaluated together.
    """
    starts = space.architectures("distinct")
    while True:
        here = _one_of(starts, rng)
        while True:
            around = [here, *space.neighbours(here)]
            values = yield around
            best = max(around, key=lambda a: values.get(space.key(a), -np.inf))
            if best is here:
                break
            here = best


def regularised_evolution(space: Space, rng: np.random.Generator) -> Steps:
    """Mutants of the best of a few; the oldest die.

    Source: Real et al. (2019), "Regularized evolution for image classifier architecture search",
    with several mutants at a time, which are evaluated together.
    """
    starts = space.architectures("distinct")
    alive = deque([_one_of(starts, rng) for _ in range(POPULATION)], maxlen=POPULATION)
    values = yield list(alive)
    while True:
        children = []
        for _ in range(CHILDREN):
            drawn = [_one_of(alive, rng) for _ in range(TOURNAMENT)]
            parent = max(drawn, key=lambda a: values.get(space.key(a), -np.inf))
            children.append(_one_of(space.neighbours(parent), rng))
        values = yield children
        # A child out of bounds has no value; it enters only where none alive has one.
        known = [child for child in children if space.key(child) in values]
        started = any(space.key(one) in values for one in alive)
        alive.extend(known if known or started else children)


def nsga2(space: Space, rng: np.random.Generator) -> Steps:
    """Mutants of networks that few others beat; of these the ones that stand apart live on.

    For several objectives. Non-dominated sorting and crowding distances are pymoo's.

    Source: Deb et al. (2002), "A fast and elitist multiobjective genetic algorithm: NSGA-II",
    without crossover, since a space says only which networks are neighbours.
    """
    try:
        from pymoo.core.population import Population
        from pymoo.core.problem import Problem
        from pymoo.operators.survival.rank_and_crowding import RankAndCrowding
    except ImportError as error:
        raise InputError(
            "the package pymoo for several objectives",
            f"but it is not installed ({one_line(error)})",
            "run pip install 'ntkscore[pareto]'",
        ) from error
    survival = RankAndCrowding()
    starts = space.architectures("distinct")
    alive: dict[Hashable, Architecture] = {}
    values: Any = {}
    draws = 0  # of first networks; several where many are out of bounds
    while True:
        # A network out of bounds, or whose score failed, has no values.
        known = {k: each for k, each in alive.items() if np.isfinite(values.get(k, np.nan)).all()}
        if len(known) < ALIVE and draws <= PATIENCE:
            draws += 1
            more = [_one_of(starts, rng) for _ in range(ALIVE)]
            values = yield more
            alive = known | {space.key(each): each for each in more}
            continue
        if not known:
            return
        costs = -np.array([values[key] for key in known]).reshape(len(known), -1)
        everyone = Population.new(X=np.array([*known], dtype=object)[:, None], F=costs)
        problem = Problem(n_var=1, n_obj=costs.shape[1])
        best = survival.do(problem, everyone, n_survive=ALIVE, random_state=rng)
        parents = [known[individual.X[0]] for individual in best]
        place = [(individual.get("rank"), -individual.get("crowding")) for individual in best]
        children = []
        for _ in range(CHILDREN):
            drawn = rng.integers(len(parents), size=2)
            parent = parents[min(drawn, key=place.__getitem__)]
            children.append(_one_of(space.neighbours(parent), rng))
        values = yield children
        alive = {space.key(each): each for each in (*parents, *children)}


def _one_of(architectures: Sequence[Architecture], rng: np.random.Generator) -> Architecture:
    return architectures[int(rng.integers(len(architectures)))]


Method = Callable[[Space, np.random.Generator], Steps]
METHODS: dict[str, Method] = {
    "local": local_search,
    "evolution": regularised_evolution,
    "nsga2": nsga2,
}
SEVERAL = "nsga2"
"""The method for several objectives; the others are for one."""


def visit(
    method: str | Method,
    space: Space,
    evaluate: Callable[[Sequence[Architecture]], Values],
    budget: int,
    rng: np.random.Generator,
    at_most: Mapping[str, float] | None = None,
) -> list[Architecture]:
    """The architectures that a search visits, in order.

    Args:
        method: a name in `METHODS`, or a function like those: given the space and a generator of
            random numbers, it yields lists of architectures, and is sent the values of all.
        evaluate: from new architectures, the values by key of all visited ones, these included;
            larger is better, and a value may change as more are known.
        budget: architectures to visit; fewer where no more can be reached.
        at_most: bounds on costs and counts of the networks that the space trains, by name; others
            are not visited.

    Raises:
        InputError: if there is no such method, the budget is below 1, the space has no neighbours,
            a bound's name is none, or no network is within the bounds.

    Example:
        >>> from cells.residual import Residual
        >>> space, values = Residual(depth=8), {}
        >>> def evaluate(new):
        ...     values.update({space.key(a): a.pattern.count("1") for a in new})
        ...     return values
        >>> found = visit("local", space, evaluate, 30, np.random.default_rng(0))
        >>> "111111" in {a.pattern for a in found}, len(found)
        (True, 30)
    """
    check(method, budget, space, at_most)
    visited: dict[Hashable, Architecture] = {}
    values: Values = {}
    steps = (METHODS[method] if isinstance(method, str) else method)(space, rng)
    idle = 0
    requested = next(steps, None)
    while requested is not None and len(visited) < budget and idle < PATIENCE:
        new = {
            space.key(a): a
            for a in requested
            if space.key(a) not in visited and within(at_most, space, a)
        }
        new = dict(list(new.items())[: budget - len(visited)])
        if new:
            visited |= new
            values = evaluate(list(new.values()))
        idle = 0 if new else idle + 1
        try:
            requested = steps.send(values)
        except StopIteration:
            break
    if not visited:
        if not at_most:
            raise InputError("a method that names networks", "none", "choose another")
        bounds = bounds_in_words(at_most)
        raise InputError(f"a network with {bounds}", f"none in {PATIENCE} steps", "raise the bound")
    return list(visited.values())


def bounds_in_words(at_most: Mapping[str, float]) -> str:
    """Bounds on costs and counts, such as `params at most 300000`."""
    return " and ".join(f"{name} at most {bound:g}" for name, bound in at_most.items())


def within(at_most: Mapping[str, float] | None, space: Space, architecture: Architecture) -> bool:
    """Whether the network that the space trains is within the bounds."""
    if not at_most:
        return True
    counted = space.trained().counted(architecture)
    space.check_counted(at_most, counted)
    return all(counted[name] <= bound for name, bound in at_most.items())


def check(
    method: str | Method, budget: int, space: Space, at_most: Mapping[str, float] | None = None
) -> Architecture:
    """Refuse a search that cannot run; return the first architecture of the space."""
    if isinstance(method, str):
        check_choice(method, METHODS)
    if budget < 1:
        raise InputError("a budget of at least 1 network", budget, "raise it")
    first = space.architectures("distinct")[0]
    space.neighbours(first)
    within(at_most, space, first)
    return first
