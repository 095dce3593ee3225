"""Runs into a result directory, and rankings of its networks."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from ntkscore.analysis.frames import network_table, pick_rho
from ntkscore.analysis.percentiles import shipped_population
from ntkscore.analysis.ranking import Ranking
from ntkscore.analysis.score_names import ScoreSum, cost_names
from ntkscore.candidates import Candidates
from ntkscore.config import Config
from ntkscore.data.images import ImageSet
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.paths import RECORDED
from ntkscore.results import ResultSet
from ntkscore.results.rows import column_value, constants
from ntkscore.run.engine import Progress
from ntkscore.run.job import Job, Step
from ntkscore.run.search import Method, check
from ntkscore.run.selection import select
from ntkscore.space import Architecture, Space
from ntkscore.spaces import known_space


def rank(
    architectures: str | Sequence[Architecture] | Mapping[str, Any],
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

    However the run ends, finished networks are on disk, and the same call resumes it. If JAX has
    not computed anything yet, each core of a CPU becomes a device. Compiled programs are kept in
    the user's cache unless JAX's settings name another folder.

    Args:
        architectures: a list, or a specification such as `random:64` or `distinct` (see
            `ntkscore.run.selection.select`); or networks of your own by name, models or PyTorch
            modules, at the weights that they have.
        data: images to draw from, or their name.
        out: the result directory, or a URL of object storage such as `s3://bucket/run`.
        config: how to score; `Config()` if left out.
        space: where the architectures come from; NAS-Bench-201 if left out. None beside networks
            of your own.
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
        >>> from cells import Residual
        >>> space = Residual(depth=3, width=8)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     ranked = rank("all", "synthetic", out, Config(samples=4), space=space)
        >>> len(ranked)
        2
    """
    if isinstance(architectures, Mapping):
        if space is not None:
            raise InputError(
                "expected no space beside networks of your own, which are one, got "
                f"{space.name}; leave it out"
            )
        space, architectures = Candidates(networks=architectures), "all"
    job = Job.of(data, config, space=space, seeds=seeds)
    chosen = job.select(architectures, table)
    job = job.ranked_by(by, reference, chosen[0])
    return job.rank(chosen, out, batch=batch, report=report).frame


def search(
    data: ImageSet | str,
    out: str | PathLike[str],
    config: Config | None = None,
    *,
    space: Space | None = None,
    method: str | Method = "local",
    budget: int = 200,
    seed: int = 0,
    seeds: int = 1,
    by: str | None = None,
    at_most: Mapping[str, float] | None = None,
    reference: str | PathLike[str] | None = None,
    batch: int | None = None,
    report: Callable[[Step], None] = lambda step: None,
) -> pd.DataFrame:
    """Search a space for the network with the best score, and compute only those that it visits.

    Networks are compared by their ranks among those visited so far, or among a reference's.
    However the search ends, finished networks are on disk, and the same call resumes it.

    Args:
        data: images to draw from, or their name.
        out: the result directory, or a URL of object storage such as `s3://bucket/run`.
        config: how to score; `Config()` if left out. Of several radii the first counts.
        space: what is searched; NAS-Bench-201 if left out.
        method: `local`, which moves to the best neighbour and restarts where none is better, or
            `evolution`, regularised; or a search of your own (`ntkscore.run.search.visit`).
        budget: networks to visit.
        seed: of the search, and the first one of images and weights.
        seeds: how many seeds a network is scored with.
        by: a score, or several joined by `+`; the default sum if left out.
        at_most: bounds on costs and counts of the networks that the space trains, by name, such as
            `{"params": 300_000}`.
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
        >>> from cells import Residual
        >>> space, config = Residual(depth=5, width=8), Config(samples=4)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     ranked = search("synthetic", out, config, space=space, budget=6)
        >>> len(ranked)
        6
    """
    job = Job.of(data, config, space=space, seeds=range(seed, seed + seeds))
    job = job.ranked_by(by, reference, check(method, budget, job.space, at_most))
    how = {"at_most": at_most, "batch": batch, "report": report}
    return job.search(out, method, budget, **how).frame


def rank_results(
    directory: str | PathLike[str] = "recorded",
    architectures: str | Sequence[Architecture] | None = None,
    *,
    by: str | None = None,
    table: Table | None = None,
    space: type[Space] | None = None,
    rho: float | None = None,
) -> pd.DataFrame:
    """Rank the networks of a run by the scores on disk, over all seeds; nothing is computed.

    Args:
        directory: of the run; `recorded` for the scores that come with the package.
        architectures: which of its networks, as for `rank`; all of them if left out.
        by: a score, or several joined by `+`; the default sum if left out.
        table: for the specifications `table` and `table:K`.
        space: the class of a space of your own.
        rho: the radius that counts; not needed where the run has one.

    Returns:
        As `rank` does.

    Raises:
        InputError: if there is no run, or it has none of the networks, or lacks the scores or the
            radius, or has several and none is named.

    Example:
        >>> ranked = rank_results("recorded", by="clean.trace")
        >>> len(ranked), list(ranked.columns[:4])
        (6466, ['rank', 'cell', 'digits', 'clean.trace'])
    """
    results = ResultSet.open(directory)
    return ranking_of(results, architectures, by, table, space, rho).frame


def ranking_of(
    results: ResultSet,
    architectures: str | Sequence[Architecture] | None,
    by: str | None,
    table: Table | None,
    cls: type[Space] | None,
    rho: float | None,
) -> Ranking:
    """The ranking of a run's networks over all its seeds.

    Args:
        results: of the run.
        architectures, by, table: as for `rank_results`.
        cls: the class of the run's space, if it is one of your own.
        rho: the radius that counts; None for the only one.

    Raises:
        InputError: if the run lacks the networks, the scores or the radius.
    """
    space = known_space(results, cls)
    rows, key = pick_rho(results.read(), rho), results.identity[0]
    there = [space.parse(str(name)) for name in rows[key].unique()]
    wanted = there if architectures is None else select(architectures, space, table)
    chosen = set(wanted) & set(there)
    if not chosen:
        raise InputError(
            f"expected some of the {len(there)} networks in {results.directory}, got none of "
            "them; choose others"
        )
    first = next(each for each in there if each in chosen)
    rows = rows[rows[key].isin([space.key(each) for each in chosen])]
    score = None
    if by is not None:
        betas = results.configuration.get("betas", Config().betas)
        score = ScoreSum.parse(by, betas, cost_names(space, first), space.fewer)
        scores = network_table(rows, space)
        if absent := [term for term in score.terms if term not in scores]:
            raise InputError(
                f"expected a score that {results.directory} holds, got {absent[0]!r}; choose one "
                f"of {', '.join(scores.columns)}"
            )
    seeds = sorted(set(rows["seed"].tolist()))
    among = shipped_population(results.configuration, seeds, rows["rho"].iloc[0], score, space)
    return Ranking.of(rows, score, space, among)


def percentiles(
    rows: pd.DataFrame,
    data: ImageSet,
    config: Config | None = None,
    *,
    space: Space | None = None,
    by: str | None = None,
    reference: str | PathLike[str] | None = None,
) -> pd.Series:
    """Percentiles of networks in their whole space: the percentage that each is better than.

    A network's percentile does not depend on the other networks in `rows`.

    Args:
        rows: from `score`, or of a run, of any number of networks and seeds.
        data: the images that were drawn from.
        config: how they were scored; `Config()` if left out. Of several radii the first counts.
        space: where the networks come from; NAS-Bench-201 if left out.
        by: a score, or several joined by `+`; the default sum if left out.
        reference: a run over the whole space that was scored in the same way; if left out, one
            that comes with the package.

    Returns:
        A percentile by network; NaN where a term of the sum failed.

    Raises:
        InputError: if rows or reference were scored in another way, or none in the package fits.

    Example:
        >>> from cells import NASBench201
        >>> from ntkscore import load_images
        >>> from ntkscore.analysis.percentiles import SHIPPED
        >>> rows = open_results(SHIPPED / "small-synthetic").read().query("seed == 0")
        >>> data, space = load_images("synthetic"), NASBench201(channels=8, cells_per_stage=1)
        >>> places = percentiles(rows, data, Config(samples=16), space=space)
        >>> print(f"{places[2581]:.1f}")
        99.6
    """
    job = Job.of(data, config, space=space, seeds=sorted(set(rows["seed"].tolist())))
    rho = job.config.rhos[0]
    rows, attack = pick_rho(rows, rho), job.config.attack_at(rho)
    _refuse_otherwise_scored(
        rows,
        {
            **constants(job.configuration),
            **{name: getattr(job.space.task, name) for name in ("num_classes", "mean", "std")},
            **{name: getattr(attack, name) for name in ("steps", "step_size")},
        },
    )
    scores = network_table(rows, job.space)
    among = job.ranked_by(by, reference, job.space.parse(scores.index[0])).among
    if among is None:
        raise InputError(
            "expected scores made like those of a reference in the package, got "
            f"{job.config.samples} images of {data.name} and {job.space.choices()}; name a run "
            "over the whole space that was scored like this"
        )
    return among.percentiles(scores)


def _refuse_otherwise_scored(rows: pd.DataFrame, asked: Mapping[str, object]) -> None:
    """Refuse rows with a column that says another thing than is asked; one may be left out."""
    for name in filter(rows.columns.__contains__, asked):
        expected, found = column_value(asked[name]), pd.Series(rows[name].unique(), dtype=object)
        alike = found.isna() if expected is None else found == expected
        if isinstance(expected, float):
            alike = np.isclose(found.astype(float), expected)
        if not alike.all():
            raise InputError(
                f"expected rows scored with {name} {expected}, as data, config and space say, got "
                f"{name} {found[~alike].iloc[0]}; give those that the rows were scored with"
            )


def open_results(directory: str | PathLike[str]) -> ResultSet:
    """Open the result directory or URL of a run, finished or not; `read` gives its rows.

    Raises:
        InputError: if there is no result set there, or its record is damaged.

    Example:
        >>> rows = open_results("runs/first").read()  # doctest: +SKIP
    """
    return ResultSet.open(directory)


def recorded_scores() -> pd.DataFrame:
    """Scores of the 6,466 cells that NAS-RobBench-201 trained, three seeds each.

    16 CIFAR-10 images, 8 channels, five cells per stage; statistics of the clean images, logit sum,
    all parameters, FGSM with 8/255 (`ntkscore/recorded/README.md` is their card). Joint kernels are
    those of β = 0.5. The accuracies are the benchmark's, and not among them: `load_table`.

    Returns:
        A row per cell, seed, kernel and score, with every choice behind it, as `open_results` has
        it of a run; `ntkscore explore recorded` makes a page of them.

    Example:
        >>> rows = recorded_scores()
        >>> rows["cell"].nunique(), sorted(set(rows["seed"]))
        (6466, [0, 1, 2])
    """
    return ResultSet.open(RECORDED).read()


def space_in(source: str | PathLike[str], cls: type[Space] | None = None) -> Space | None:
    """The space of a result directory, with its options; None where there is no run.

    Args:
        source: a result directory, or anything else that scores can be read from.
        cls: the space's class, for one of your own.

    Raises:
        InputError: if the run's space is not known.
    """
    if run := ResultSet.find(source):
        return known_space(run, cls)
    return cls() if cls else None
