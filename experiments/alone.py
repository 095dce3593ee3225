"""Trainability recorded by itself; a run would compute kernels and all other measures as well."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax

from cells.nasbench201.space import NASBench201
from cells.space import Architecture
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, draw_images
from ntkscore.kernels.own_passes import pullback_products
from ntkscore.kernels.proxies import of_pullbacks
from ntkscore.kernels.scores import NOT_FINITE, OK
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.run.engine import configuration_of
from ntkscore.run.scorer import Scorer

KERNEL, MEASURE = "clean", "trainability"
AT_ONCE = 32


def record(
    cells: Sequence[Architecture],
    seeds: Sequence[int],
    data: ImageSet,
    space: NASBench201,
    config: Config,
    out: Path,
) -> tuple[ResultSet, float | None]:
    """Compute what is missing, each network's trainability as a run with `proxies` has it.

    Args:
        cells, seeds, data: what is scored, and on what.
        space, config: as for a run.
        out: a result directory, which holds rows of this measure alone.

    Returns:
        The results, and networks a second, compilation included; None where nothing was missing.
    """
    space = space.on(data.task)
    results = ResultSet.create_or_resume(
        out, configuration_of(data, space, config), provenance(), tuple(space.identity(cells[0]))
    )
    done, start, count = results.finished(), time.monotonic(), 0
    scorer = Scorer(space, config)
    (rho,) = config.rhos
    attack = config.attack_at(rho)

    @jax.jit
    def products(codes: Any, variables: Any, images: Any, key: Any) -> Any:
        # As the stack does: of the two halves of the key, Zen has the first.
        _, own = jax.random.split(jax.random.fold_in(key, 2))

        def one(code: Any) -> Any:
            model = space.model((), variables, code, images)
            assert model.passes is not None
            _, kept = model.passes.forward(model.params, images)
            return pullback_products(model.passes.pullbacks(model.params, kept, own))

        return lax.map(one, codes)

    for seed in seeds:
        batch = scorer.batch(*draw_images(data, config.samples, seed, config.balanced), seed)
        missing = [cell for cell in cells if (space.key(cell), seed) not in done]
        for first in range(0, len(missing), AT_ONCE):
            part = missing[first : first + AT_ONCE]
            # A call always has the same shape.
            padded = [*part, *[part[-1]] * (AT_ONCE - len(part))]
            codes = np.stack([space.encode(cell) for cell in padded])
            arrays = [
                np.asarray(each)
                for each in products(codes, batch.variables, batch.images, batch.key)
            ]
            rows = []
            for k, cell in enumerate(part):
                value = of_pullbacks([array[k] for array in arrays])[MEASURE]
                rows.append(
                    {
                        **space.identity(cell),
                        "seed": seed,
                        "rho": rho,
                        "steps": attack.steps,
                        "step_size": float(attack.step_size),
                        "beta": None,
                        "kernel": KERNEL,
                        "score": MEASURE,
                        "value": value,
                        "status": OK if np.isfinite(value) else NOT_FINITE,
                    }
                )
            results.append(rows)
            count += len(part)
    results.compact()
    return results, count / (time.monotonic() - start) if count else None
