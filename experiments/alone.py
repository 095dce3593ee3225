"""Measures with passes of their own recorded by themselves, without kernels and all the others."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax

from cells.nasbench201.space import NASBench201
from cells.space import Architecture
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, draw_images
from ntkscore.measures import MEASURES
from ntkscore.measures.forward import Pass
from ntkscore.measures.reading import read
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.run.job import Job
from ntkscore.run.scorer import Scorer
from ntkscore.trace.passes import passes_of

AT_ONCE = 32
GROUPS = {
    "trainability": (("clean", "trainability"),),
    "perturbations": (("clean", "stability"), ("clean", "flip_distance")),
    "weights": (
        ("network", "zen"),
        ("clean", "grad_norm"),
        ("robust", "grad_norm"),
        ("clean", "fisher_entropy"),
    ),
}
"""Measures that are recorded together, by their places; each brings those of its quantity."""


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
    chosen = [(place, MEASURES[name].of) for place, name in GROUPS[group]]
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
        def compute(code: Any) -> Any:
            model = space.model((), variables, code, images)
            # As the stack has it.
            noise = jax.random.fold_in(key, 2)
            at = partial(Pass, model, passes_of(model, images), labels=labels, noise=noise)
            clean, gradient = at(images), lambda images: at(images).loss_gradient
            attacked = at(attack(gradient, images, None, clean.loss_gradient))
            where = {"network": clean, "clean": clean, "robust": attacked}
            return [q.compute(where[place]) for place, q in chosen if q.compute]

        return lax.map(compute, codes)

    for seed in seeds:
        batch = scorer.batch(*draw_images(data, config.samples, seed, config.balanced), seed)
        missing = [cell for cell in cells if (space.key(cell), seed) not in done]
        for first in range(0, len(missing), AT_ONCE):
            part = missing[first : first + AT_ONCE]
            # A call always has the same shape.
            padded = [*part, *[part[-1]] * (AT_ONCE - len(part))]
            codes = np.stack([space.encode(cell) for cell in padded])
            found = program(codes, batch.variables, batch.images, batch.labels, batch.key)
            arrays, labels = jax.tree.map(np.asarray, (found, batch.labels))
            rows: list[dict[str, Any]] = []
            for k, cell in enumerate(part):
                columns = {
                    **space.identity(cell),
                    "seed": seed,
                    "rho": rho,
                    "steps": attack.steps,
                    "step_size": float(attack.step_size),
                    "beta": None,
                }
                one = jax.tree.map(lambda array, k=k: array[k], arrays)
                for (place, quantity), own in zip(chosen, one, strict=True):
                    rows += [
                        columns | {"kernel": place, "score": name, **measurement._asdict()}
                        for name, measurement in read(quantity, own, labels).items()
                    ]
            results.append(rows)
            count += len(part)
    results.compact()
    return results, count / (time.monotonic() - start) if count else None
