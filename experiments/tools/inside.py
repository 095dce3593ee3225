"""Scores of what is inside cells' networks, for the table of equal counts in docs/ranking.md.

The protocol, written before anything was computed: NEAR, MeCo, SWAP, Dextr, the output's curvature
and Fisher, all predicting better networks where they are higher, at the fidelity, the images and
the weights of the recording `space` (three seeds). Of the groups of cells with eight equal counts
half are drawn (seed 0); of each function in them the cell with the lowest index is scored. GraSP is
left out, since it takes several times as long as the others together. The table has τ at eight and
at three equal counts for these cells alone, with the measures of the table that was there; an
interval at eight counts that is above zero is something that counting does not know. A measure says
more than another only if its whole interval is above the other's.
"""

import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer

from cells.nasbench201 import Cell
from experiments.data import BENCHMARK, DATASET, RECORDED, SPACE, Data, functions_of
from experiments.paper.measures import HELD_EQUAL
from experiments.recordings import PROXIES
from ntkscore.analysis.frames import cost_table
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.rectifiers import LAYERS, PATTERNS
from ntkscore.measures.report import measurements_of
from ntkscore.measures.weight_gradients import CHANNELS
from ntkscore.paths import data_home
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.run import devices
from ntkscore.run.scorer import Scorer
from ntkscore.run.scoring import Scoring
from ntkscore.space import Space

INSIDE = "inside"
"""The recording's name."""
QUANTITIES = (LAYERS, PATTERNS, CHANNELS)


def cells_of_groups(data: Data, seed: int = 0) -> list[int]:
    """One cell of each function in half of the groups of eight equal counts, by index."""
    counts = cost_table(data.table.own, SPACE)
    functions = pd.Series(functions_of(counts.index), counts.index)
    found = functions.groupby([counts[name] for name in HELD_EQUAL], sort=True)
    groups = [of for _, of in found if of.nunique() > 1]
    drawn = np.random.default_rng(seed).permutation(len(groups))[: len(groups) // 2]
    return sorted(pd.concat([groups[k] for k in drawn]).sort_index().drop_duplicates().index)


def program(space: Space) -> Any:
    """The quantities at clean images, compiled once for all cells, as `score` computes them."""

    @partial(jax.jit, compiler_options=devices.compiler_options())
    def compute(digits: Any, variables: Any, images: Any, labels: Any, key: Any) -> dict[str, Any]:
        model = space.model((), variables, digits, images)
        assert model.passes is not None
        at = Pass(model, model.passes, images, labels, jax.random.fold_in(key, 2))
        return {each.name: each.compute(at) for each in QUANTITIES if each.compute}

    return compute


def score_inside(
    data_dir: Annotated[Path | None, typer.Option(help="Folder with images and table.")] = None,
    seconds: Annotated[float, typer.Option(help="After so many, stop; go on later.")] = 1e9,
    out: Annotated[Path, typer.Option(help="Folder of the recording.")] = RECORDED / INSIDE,
    most: Annotated[int | None, typer.Option(help="So many of the cells, for a test.")] = None,
) -> None:
    """Score what is inside the networks of cells with equal counts, or the rest of them."""
    devices.prepare()
    data, recording = Data(data_home(data_dir)), next(iter(PROXIES.values()))
    data.check([BENCHMARK, DATASET])
    job = Scoring.of(data.images(), recording.config, space=recording.space, seeds=recording.seeds)
    scorer, compute, start = Scorer(job.space, job.config), program(job.space), time.monotonic()
    kept = ResultSet.create_or_resume(out, job.configuration, [*job.space.identity(Cell(0))])
    finished, (rho,) = kept.finished(), job.config.rhos
    attack, rows = job.config.attack_at(rho), []
    todo = [(seed, index) for seed in job.seeds for index in cells_of_groups(data)[:most]]
    todo = [(seed, index) for seed, index in todo if (index, seed) not in finished]
    batches: dict[int, Any] = {}
    for seed, index in todo:
        if time.monotonic() - start > seconds:
            break
        if seed not in batches:
            batches[seed] = scorer.batch(*job.draws[seed], seed)
        given, cell = batches[seed], Cell(index)
        arrays = (given.variables, given.images, given.labels, given.key)
        found = jax.tree.map(np.asarray, compute(jnp.asarray(job.space.encode(cell)), *arrays))
        columns = job.space.identity(cell) | {"seed": seed, "rho": rho}
        columns |= {"steps": attack.steps, "step_size": attack.step_size}
        for quantity in QUANTITIES:
            measured = measurements_of(quantity, found[quantity.name], np.asarray(given.labels))
            for name, each in measured.items():
                row = {"beta": None, "kernel": "clean", "score": name} | each._asdict()
                rows.append(columns | row)
    session = {"command": "python -m experiments.tools score-inside"}
    kept.record({n: v for n, v in provenance(session).items() if n != "platform"}).append(rows)
    kept.compact()
