"""Runs into a directory, and the ranking of what is there."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from cells.nasbench201.space import NASBench201
from cells.space import Architecture, Space
from ntkscore.analysis.frames import pick_rho
from ntkscore.analysis.ranking import ranking
from ntkscore.analysis.score_names import ScoreSum, default_sum
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, load
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.results import RUN, ResultSet
from ntkscore.run import engine
from ntkscore.run.engine import Progress
from ntkscore.run.selection import select
from ntkscore.spaces import recorded_space


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def rank(
    architectures: str | Sequence[Architecture],
    data: ImageSet | str,
    out: str | PathLike[str],
    config: Config | None = None,
    *,
    space: Space | None = None,
    seeds: int | Sequence[int] = 1,
    by: str | None = None,
    table: Table | None = None,
    batch: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> pd.DataFrame:
    """Score many architectures into a directory, on all local devices, and rank them.

    Whatever ends the run, what is finished is on disk: the same call goes on from there.

    Args:
        architectures: a list, or a specification such as `random:64` or `distinct` (see
            `ntkscore.run.selection.select`).
        data: images to draw from, or their name.
        out: the result directory.
        config: how to score; `Config()` if left out.
        space: where the architectures come from; `NASBench201()` if left out.
        seeds: how many, counted from 0, or which; each draws its own images and weights.
        by: a score, or several joined by `+`; the default sum if left out. Of several radii the
            config's first counts.
        table: for the specifications `table` and `table:K`.
        batch: networks per device and call; chosen from the free memory if left out.
        report: called with the progress after every call to the devices.

    Returns:
        Architectures from best to worst, with the scores that count and the costs.

    Raises:
        InputError: if something does not fit; nothing is written then.

    Example:
        >>> import tempfile
        >>> from ntkscore import Residual
        >>> space = Residual(depth=3, width=8)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     ranked = rank("all", "synthetic", out, Config(samples=4), space=space)
        >>> len(ranked)
        2
    """
    config, space = config or Config(), space or NASBench201()
    data = load(data) if isinstance(data, str) else data
    space = space.on(data.task)
    if isinstance(architectures, str):
        chosen = select(architectures, space, table)
    else:
        chosen = tuple(space.parse(name) for name in architectures)
    if not chosen:
        raise InputError("expected at least one architecture, got none; name some")
    score_sum = score_sum_of(by, space, chosen[0], config)
    wanted = _seeds(seeds)
    ended = engine.run(chosen, wanted, data, config, out, space=space, report=report, batch=batch)
    return ranked(ended.results, chosen, wanted, config, score_sum, space)


def score_sum_of(
    by: str | None, space: Space, architecture: Architecture, config: Config
) -> ScoreSum:
    """The score to rank by, from its text, or the default.

    Raises:
        InputError: if there is no such score.
    """
    free = (*space.costs(architecture), *space.structure(architecture))
    if by is None:
        return default_sum(free)
    return ScoreSum.parse(by, config.betas, free, space.fewer)


def ranked(
    results: ResultSet,
    architectures: Sequence[Architecture],
    seeds: Sequence[int],
    config: Config,
    by: ScoreSum,
    space: Space,
) -> pd.DataFrame:
    """Ranking of the given architectures, as far as a result directory has them.

    Of several radii the config's first counts.
    """
    rows = results.read()
    keys = [space.key(a) for a in architectures]
    rows = rows[rows[results.identity[0]].isin(keys) & rows["seed"].isin(list(seeds))]
    if rows.empty:
        return pd.DataFrame(columns=["rank", results.identity[0]])
    return ranking(pick_rho(rows, config.rhos[0]), by, space)


def open_results(directory: str | PathLike[str]) -> ResultSet:
    """Open the result directory of a run, finished or not; `read` gives its rows.

    Raises:
        InputError: if there is no result set there, or its record is damaged.

    Example:
        >>> rows = open_results("runs/first").read()  # doctest: +SKIP
    """
    return ResultSet.open(directory)


def space_in(source: str | PathLike[str], cls: type[Space] | None = None) -> Space | None:
    """The space of a result directory, as it was made there; None where it cannot be known.

    Args:
        source: a result directory, or anything else that scores can be read from.
        cls: the space's class, for a person's own.
    """
    if not (Path(source) / RUN).is_file():
        return cls() if cls else None
    return recorded_space(ResultSet.open(source).configuration, cls)
