"""Searches that score only the networks that they visit."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ntkscore.analysis.frames import network_table, pick_rho
from ntkscore.analysis.ranking import check_pareto, non_dominated, objectives_of, sum_for
from ntkscore.analysis.score_names import sum_asked
from ntkscore.api.runs import Run, population_of
from ntkscore.api.scoring import scored
from ntkscore.config import Config
from ntkscore.data.costs import with_costs
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.results import ResultSet
from ntkscore.run.scoring import Scoring
from ntkscore.run.search import SEVERAL, Method, Values, check, visit
from ntkscore.space import Architecture, Space


class Step(NamedTuple):
    """How far a search has come; `front` is how many no other beats, 1 for one objective."""

    visited: int
    budget: int
    best: Architecture
    front: int = 1


def search(
    images: ImageSet | str,
    out: str | PathLike[str],
    config: Config | None = None,
    *,
    space: Space | None = None,
    method: str | Method | None = None,
    budget: int = 200,
    seed: int = 0,
    seeds: int | None = None,
    by: str | None = None,
    at_most: Mapping[str, float] | None = None,
    pareto: Sequence[str] = (),
    costs: pd.DataFrame | None = None,
    among: Run | str | PathLike[str] | None = None,
    batch: int | None = None,
    executor: Executor | None = None,
    report: Callable[[Step], None] = lambda step: None,
) -> Run:
    """Search a space for the network with the best score, and compute only those that it visits.

    Networks are compared by their ranks among those visited so far, or among those of another run.
    However the search ends, finished networks are on disk, and the same call resumes it.

    Args:
        images: to draw from, or their name.
        out: the result directory, or a URL of object storage such as `s3://bucket/run`.
        config: how to score; `Config()` if left out. Of several radii the first counts.
        space: what is searched; NAS-Bench-201 if left out.
        method: `local`, which moves to the best neighbour and restarts where none is better, or
            `evolution`, regularised; with `pareto`, `nsga2`, which needs `ntkscore[pareto]`; or a
            search of your own (`ntkscore.run.search.visit`), which is sent numbers, and with
            `pareto` arrays of the score and of each cost with a minus.
        budget: networks to visit.
        seed: of the search, and the first one of images and weights.
        seeds: how many seeds a network is scored with; as for `score` if left out.
        by: a score, or several joined by `+`; the default sum if left out.
        at_most: bounds on costs and counts of the networks that the space trains, by name, such as
            `{"params": 300_000}`.
        pareto: costs or counts that are objectives beside the score, by name; less is better.
            `rank` the run with the same to see its front.
        costs: that somebody has measured, for `by`, `at_most` and `pareto`; see
            `ntkscore.load_costs`.
        among: a run over a whole space that was scored in the same way; if left out, one that
            comes with the package, where one fits.
        batch: networks per device and call; chosen from the free memory if left out.
        executor: as for `score`.
        report: called after every step.

    Returns:
        A run of the visited networks, in the order of the visits; `rank` it by the same score.

    Raises:
        InputError: if something does not fit; nothing is written then.

    Example:
        >>> import tempfile
        >>> from cells import Residual
        >>> from ntkscore import load_images
        >>> space, images = Residual(depth=5, width=8), load_images("synthetic", samples=4)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     ranked = search(images, out, space=space, budget=6).rank()
        >>> len(ranked)
        6
    """
    scoring = Scoring.of(images, config, space=space, seeds=seeds, first=seed)
    if costs is not None:
        scoring = replace(scoring, space=with_costs(scoring.space, costs))
    space, rho = scoring.space, scoring.config.rhos[0]
    method = method or (SEVERAL if pareto else "local")
    first = check(method, budget, space, at_most)
    if isinstance(method, str) and (method == SEVERAL) != bool(pareto):
        raise InputError(
            f"costs to search beside (pareto) for {SEVERAL}, and for it alone",
            f"{', '.join(pareto) or 'none'} for {method}",
            f"leave the method {method} out" if pareto else "name some costs",
        )
    score = sum_asked(by, space, first, scoring.config)
    check_pareto(score, pareto, space, space.key(first))
    reference = population_of(among, scoring.configuration, scoring.seeds, rho, score, space)
    visited: dict[Hashable, Architecture] = {}
    parts: dict[str, Any] = {}

    def evaluate(new: Sequence[Architecture]) -> Values:
        visited.update({space.key(each): each for each in new})
        # Ranks among the visited ones need the scores of all; parts that were read stay in memory.
        how = {"batch": batch, "executor": executor, "kept": parts}
        rows = pick_rho(scored(scoring, [*visited.values()], out, **how).rows, rho)
        scores = network_table(rows, space)
        order = sum_for(rows, score, space, reference)
        # Larger for a better one; a network whose score failed comes last.
        values = order.of(scores, reference and reference.scores).fillna(-np.inf)
        found, front = values.to_dict(), 1
        if pareto:
            objectives = objectives_of(values, scores, pareto)
            found = dict(zip(values.index, objectives, strict=True))
            front = int(non_dominated(objectives).sum())
        report(Step(len(visited), budget, space.parse(values.idxmax()), front))
        return found

    # A network whose cost is not known is on no front, and within no bound.
    bounds = dict.fromkeys(pareto, np.inf) | dict(at_most or {})
    visit(method, space, evaluate, budget, np.random.default_rng(seed), bounds)
    results = ResultSet.open(out)
    results.compact()
    return Run(results, space, tuple(visited), tuple(scoring.seeds))
