"""Runs into a directory, and the ranking of what is there."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from cells.nasbench201.space import NASBench201
from cells.space import Architecture, Space
from ntkscore.analysis.frames import network_table, pick_rho
from ntkscore.analysis.percentiles import Population, population, shipped_population
from ntkscore.analysis.score_names import ScoreSum, sum_asked
from ntkscore.api.rankings import ranked
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, load
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.results import RUN, ResultSet
from ntkscore.run import engine
from ntkscore.run.engine import Progress
from ntkscore.run.selection import select
from ntkscore.spaces import space_of_run


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
    reference: str | PathLike[str] | None = None,
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
        reference: a run over a whole space that was scored in the same way, to rank among its
            networks; if left out, one that comes with the package, where one fits.
        batch: networks per device and call; chosen from the free memory if left out.
        report: called with the progress after every call to the devices.

    Returns:
        Architectures from best to worst, with the scores that count and the costs; and, among the
        networks of a reference, the percentile.

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
    wanted = _seeds(seeds)
    asked = sum_asked(by, space, chosen[0], config)
    among = population_for(reference, data, space, config, wanted, asked)
    ended = engine.run(chosen, wanted, data, config, out, space=space, report=report, batch=batch)
    return ranked(ended.results, chosen, wanted, config, asked, space, among).frame


def population_for(
    reference: str | PathLike[str] | None,
    data: ImageSet,
    space: Space,
    config: Config,
    seeds: Sequence[int],
    by: ScoreSum | None,
) -> Population | None:
    """The networks of a reference, for networks that are scored like this; None without one.

    Args:
        reference: a run's result directory; if left out, one that comes with the package.
        data, space, config, seeds: how the networks are scored.
        by: the score, or the sum of several; None for the default.

    Raises:
        InputError: if a reference that was named was scored in another way.
    """
    asked = (engine.configuration_of(data, space, config), seeds, config.rhos[0], by, space)
    return shipped_population(*asked) if reference is None else population(reference, *asked)


def percentiles(
    rows: pd.DataFrame,
    data: ImageSet,
    config: Config | None = None,
    *,
    space: Space | None = None,
    by: str | None = None,
    reference: str | PathLike[str] | None = None,
) -> pd.Series:
    """Where networks lie in their whole space, in percent: the share that each is better than.

    A network has the same percentile alone, among few and in the whole space.

    Args:
        rows: as `score` gives them, or a run's, of any number of networks and seeds.
        data: the images that they were drawn from.
        config: how they were scored; `Config()` if left out. Of several radii the first counts.
        space: where the networks come from; `NASBench201()` if left out.
        by: a score, or several joined by `+`; the default sum if left out.
        reference: a run over the whole space that was scored in the same way; if left out, one
            that comes with the package.

    Returns:
        A percentile by network; NaN where a term of the sum failed.

    Raises:
        InputError: if the reference was scored in another way, or none in the package fits.

    Example:
        >>> from ntkscore.analysis.percentiles import SHIPPED
        >>> rows = open_results(SHIPPED / "small-synthetic").read().query("seed == 0")
        >>> data, space = load("synthetic"), NASBench201(channels=8, cells_per_stage=1)
        >>> places = percentiles(rows, data, Config(samples=16), space=space)
        >>> print(f"{places[2581]:.1f}")
        99.5
    """
    config, space = config or Config(), (space or NASBench201()).on(data.task)
    scores = network_table(pick_rho(rows, config.rhos[0]), space)
    first, seeds = space.parse(scores.index[0]), sorted(set(rows["seed"].tolist()))
    asked = sum_asked(by, space, first, config)
    among = population_for(reference, data, space, config, seeds, asked)
    if among is None:
        raise InputError(
            "expected scores made like those of a reference in the package, got "
            f"{config.samples} images of {data.name} and {space.choices()}; name a run over the "
            "whole space that was scored like this"
        )
    return among.percentiles(scores)


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
    return space_of_run(ResultSet.open(source), cls)
