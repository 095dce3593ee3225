"""Measures with passes of their own recorded by themselves, without kernels and all the others."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from attacks import Attack
from cells.nasbench201.space import NASBench201
from cells.space import Architecture
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, draw_images
from ntkscore.kernels.implementations import Forward
from ntkscore.kernels.own_passes import of_perturbations, pullback_products, zen
from ntkscore.kernels.reductions import reduced
from ntkscore.kernels.scores import finite
from ntkscore.kernels.stack import PERTURBATIONS, loss_gradient
from ntkscore.kernels.weight_gradients import fisher, of_gradients
from ntkscore.model import Model
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.run.job import Job
from ntkscore.run.scorer import Scorer

AT_ONCE = 32
Found = tuple[dict[str, Any], dict[str, list[Any]]]
"""Numbers, and matrices that `ntkscore.kernels.reductions` makes numbers of, by KERNEL.NAME."""


class Setting(NamedTuple):
    """What a network is measured on, as the stack has it."""

    images: Any
    labels: Any
    noise: Any
    attack: Attack


def trainability(model: Model, on: Setting) -> Found:
    """Products that trainability is reduced from."""
    # Of the two halves of the key, Zen has the first.
    _, own = jax.random.split(on.noise)
    assert model.passes is not None
    _, kept = model.passes.forward(model.params, on.images)
    pairs = model.passes.pullbacks(model.params, kept, own)
    return {}, {"clean.pullbacks": pullback_products(pairs)}


def perturbations(model: Model, on: Setting) -> Found:
    """Stability and the way to another class."""
    passes = model.passes
    assert passes is not None
    logits, kept = passes.forward(model.params, on.images)
    pullback = lambda s: passes.gradient(model.params, kept, s)  # noqa: E731
    own = jax.random.fold_in(on.noise, PERTURBATIONS)
    found = of_perturbations(model, on.images, logits, pullback, own)
    return {f"clean.{name}": number for name, number in found.items()}, {}


def weights(model: Model, on: Setting) -> Found:
    """Measures of the gradients of weights, Zen, and the Fisher information of the clean images."""
    passes = model.passes
    assert passes is not None
    gradient = loss_gradient(model, on.labels)
    attacked = on.attack(gradient, on.images, None, gradient(on.images))
    first, _ = jax.random.split(on.noise)
    numbers = {"network.zen": zen(passes.standardized, model.params, on.images, first)}
    sets = (passes.forward(model.params, points) for points in (on.images, attacked))
    clean, there = (Forward(passes, [logits], [kept]) for logits, kept in sets)
    for kernel, forward in (("clean", clean), ("robust", there)):
        found = of_gradients(forward, model.params, on.labels)
        numbers |= {f"{kernel}.{name}": number for name, number in found.items()}
    return numbers, {"clean.fisher": [fisher(clean, model.params)[None]]}


GROUPS: dict[str, Callable[[Model, Setting], Found]] = {
    "trainability": trainability,
    "perturbations": perturbations,
    "weights": weights,
}
"""Measures that come about together."""


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
    compute = GROUPS[group]
    space = space.on(data.task)
    results = ResultSet.create_or_resume(
        out,
        Job.of(data, config, space=space).configuration,
        provenance(),
        tuple(space.identity(cells[0])),
    )
    done, start, count = results.finished(), time.monotonic(), 0
    scorer = Scorer(space, config)
    (rho,) = config.rhos
    attack = config.attack_at(rho)

    @jax.jit
    def program(codes: Any, variables: Any, images: Any, labels: Any, key: Any) -> Any:
        # As the stack is given it.
        on = Setting(images, labels, jax.random.fold_in(key, 2), attack)
        one = lambda code: compute(space.model((), variables, code, images), on)  # noqa: E731
        return lax.map(one, codes)

    for seed in seeds:
        batch = scorer.batch(*draw_images(data, config.samples, seed, config.balanced), seed)
        missing = [cell for cell in cells if (space.key(cell), seed) not in done]
        for first in range(0, len(missing), AT_ONCE):
            part = missing[first : first + AT_ONCE]
            # A call always has the same shape.
            padded = [*part, *[part[-1]] * (AT_ONCE - len(part))]
            codes = np.stack([space.encode(cell) for cell in padded])
            found = program(codes, batch.variables, batch.images, batch.labels, batch.key)
            arrays = jax.tree.map(np.asarray, found)
            rows = []
            for k, cell in enumerate(part):
                one, products = jax.tree.map(lambda array, k=k: array[k], arrays)
                measured = {n: finite(float(v)) for n, v in {**one, **reduced(products)}.items()}
                rows += [
                    {
                        **space.identity(cell),
                        "seed": seed,
                        "rho": rho,
                        "steps": attack.steps,
                        "step_size": float(attack.step_size),
                        "beta": None,
                        "kernel": name.split(".")[0],
                        "score": name.split(".")[1],
                        "value": measurement.value,
                        "status": measurement.status,
                    }
                    for name, measurement in measured.items()
                ]
            results.append(rows)
            count += len(part)
    results.compact()
    return results, count / (time.monotonic() - start) if count else None
