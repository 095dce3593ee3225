"""Measures with passes of their own recorded by themselves, without kernels and all the others."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax

from cells.model import Model
from cells.nasbench201.space import NASBench201
from cells.space import Architecture
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, draw_images
from ntkscore.kernels.own_passes import of_perturbations, pullback_products
from ntkscore.kernels.proxies import of_pullbacks
from ntkscore.kernels.scores import NOT_FINITE, OK
from ntkscore.kernels.stack import PERTURBATIONS
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.run.engine import configuration_of
from ntkscore.run.scorer import Scorer

KERNEL = "clean"
AT_ONCE = 32


def trainability(model: Model, images: Any, key: Any) -> Any:
    """The products that it is reduced from."""
    # Of the two halves of the key, Zen has the first.
    _, own = jax.random.split(key)
    assert model.passes is not None
    _, kept = model.passes.forward(model.params, images)
    return pullback_products(model.passes.pullbacks(model.params, kept, own))


def perturbations(model: Model, images: Any, key: Any) -> Any:
    """Stability and the way to another class."""
    passes = model.passes
    assert passes is not None
    logits, kept = passes.forward(model.params, images)
    pullback = lambda s: passes.gradient(model.params, kept, s)  # noqa: E731
    own = jax.random.fold_in(key, PERTURBATIONS)
    return of_perturbations(model, images, logits, pullback, own)


Numbers = dict[str, float]
GROUPS: dict[str, tuple[Callable[..., Any], Callable[[Any], Numbers]]] = {
    "trainability": (trainability, of_pullbacks),
    "perturbations": (
        perturbations,
        lambda found: {name: float(value) for name, value in found.items()},
    ),
}
"""Measures that come about together: what a program hands out, and what numbers it becomes."""


def record(
    group: str,
    cells: Sequence[Architecture],
    seeds: Sequence[int],
    data: ImageSet,
    space: NASBench201,
    config: Config,
    out: Path,
) -> tuple[ResultSet, float | None]:
    """Compute what is missing, each network's measures as a run with `proxies` has them.

    Args:
        group: of `GROUPS`.
        cells, seeds, data: what is scored, and on what.
        space, config: as for a run.
        out: a result directory, which holds rows of these measures alone.

    Returns:
        The results, and networks a second, compilation included; None where nothing was missing.
    """
    compute, reduced = GROUPS[group]
    space = space.on(data.task)
    results = ResultSet.create_or_resume(
        out, configuration_of(data, space, config), provenance(), tuple(space.identity(cells[0]))
    )
    done, start, count = results.finished(), time.monotonic(), 0
    scorer = Scorer(space, config)
    (rho,) = config.rhos
    attack = config.attack_at(rho)

    @jax.jit
    def program(codes: Any, variables: Any, images: Any, key: Any) -> Any:
        # As the stack is given it.
        noise = jax.random.fold_in(key, 2)
        one = lambda code: compute(space.model((), variables, code, images), images, noise)  # noqa: E731
        return lax.map(one, codes)

    for seed in seeds:
        batch = scorer.batch(*draw_images(data, config.samples, seed, config.balanced), seed)
        missing = [cell for cell in cells if (space.key(cell), seed) not in done]
        for first in range(0, len(missing), AT_ONCE):
            part = missing[first : first + AT_ONCE]
            # A call always has the same shape.
            padded = [*part, *[part[-1]] * (AT_ONCE - len(part))]
            codes = np.stack([space.encode(cell) for cell in padded])
            found = program(codes, batch.variables, batch.images, batch.key)
            arrays = jax.tree.map(np.asarray, found)
            rows = []
            for k, cell in enumerate(part):
                numbers = reduced(jax.tree.map(lambda array, k=k: array[k], arrays))
                rows += [
                    {
                        **space.identity(cell),
                        "seed": seed,
                        "rho": rho,
                        "steps": attack.steps,
                        "step_size": float(attack.step_size),
                        "beta": None,
                        "kernel": KERNEL,
                        "score": measure,
                        "value": value,
                        "status": OK if np.isfinite(value) else NOT_FINITE,
                    }
                    for measure, value in numbers.items()
                ]
            results.append(rows)
            count += len(part)
    results.compact()
    return results, count / (time.monotonic() - start) if count else None
