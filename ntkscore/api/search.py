"""Search by scores alone, into a directory."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from os import PathLike
from typing import NamedTuple

import numpy as np
import pandas as pd

from cells.nasbench201.space import NASBench201
from cells.search import check, visit
from cells.space import Architecture, Space
from ntkscore.analysis.frames import network_table
from ntkscore.analysis.percentiles import Population
from ntkscore.analysis.score_names import ScoreSum, sum_asked
from ntkscore.api.rankings import ranked, rows_of, sum_for
from ntkscore.api.runs import open_results, population_for
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, load
from ntkscore.run import engine


class Step(NamedTuple):
    """How far a search has come.

    Attributes:
        visited: networks so far.
        budget: networks in all.
        best: the best of them.
    """

    visited: int
    budget: int
    best: Architecture


def search(
    data: ImageSet | str,
    out: str | PathLike[str],
    config: Config | None = None,
    *,
    space: Space | None = None,
    method: str = "local",
    budget: int = 200,
    seed: int = 0,
    seeds: int = 1,
    by: str | None = None,
    reference: str | PathLike[str] | None = None,
    batch: int | None = None,
    report: Callable[[Step], None] = lambda step: None,
) -> pd.DataFrame:
    """Search a space for the network with the best score, and compute only those on the way.

    Networks are compared by their ranks among those visited so far, or among a reference's.
    Whatever ends the search, what is finished is on disk: the same call takes the same way, and
    goes on from there.

    Args:
        data: images to draw from, or their name.
        out: the result directory.
        config: how to score; `Config()` if left out. Of several radii the first counts.
        space: what is searched; `NASBench201()` if left out.
        method: `local`, to the best neighbour until there is none and then anew, or `evolution`,
            regularised.
        budget: networks to visit.
        seed: of the search, and the first one of images and weights.
        seeds: how many seeds a network is scored with.
        by: a score, or several joined by `+`; the default sum if left out.
        reference: a run over a whole space that was scored in the same way; if left out, one that
            comes with the package, where one fits.
        batch: networks per device and call; chosen from the free memory if left out.
        report: called after every step.

    Returns:
        The visited networks from best to worst, as `rank` gives them.

    Raises:
        InputError: if something does not fit; nothing is written then.

    Example:
        >>> import tempfile
        >>> from ntkscore import Residual
        >>> space, config = Residual(depth=5, width=8), Config(samples=4)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     ranked = search("synthetic", out, config, space=space, budget=6)
        >>> len(ranked)
        6
    """
    config, space = config or Config(), space or NASBench201()
    data = load(data) if isinstance(data, str) else data
    space = space.on(data.task)
    first = check(method, budget, space)
    asked = sum_asked(by, space, first, config)
    wanted = range(seed, seed + seeds)
    among = population_for(reference, data, space, config, wanted, asked)
    seen = visited(
        data,
        out,
        config,
        space=space,
        method=method,
        budget=budget,
        seeds=wanted,
        by=asked,
        among=among,
        batch=batch,
        report=report,
    )
    return ranked(open_results(out), seen, wanted, config, asked, space, among).frame


def visited(
    data: ImageSet,
    out: str | PathLike[str],
    config: Config,
    *,
    space: Space,
    method: str,
    budget: int,
    seeds: Sequence[int],
    by: ScoreSum | None,
    among: Population | None,
    batch: int | None,
    report: Callable[[Step], None],
) -> list[Architecture]:
    """The networks that a search visits, in the order in which it does; the first seed makes it.

    Args:
        data, out, config, space, method, budget, batch, report: as for `search`.
        seeds: that a network is scored with.
        by: the score, or the sum of several; None for the default.
        among: the networks to rank among; those visited so far if left out.
    """
    seen: list[Architecture] = []

    def evaluate(new: Sequence[Architecture]) -> Mapping[Hashable, float]:
        ended = engine.run(new, seeds, data, config, out, space=space, batch=batch)
        seen.extend(new)
        rows = rows_of(ended.results, seen, seeds, config, space)
        current = sum_for(rows, by, space, seen[0], among)
        values = current.of(network_table(rows, space), among and among.scores).fillna(-np.inf)
        report(Step(len(seen), budget, space.parse(values.idxmax())))
        return values.to_dict()

    return visit(method, space, evaluate, budget, np.random.default_rng(seeds[0]))
