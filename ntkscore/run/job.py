"""One job: networks of a space, scored on some images, ranked by a score.

The library's calls and the commands make one and call it.
"""

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ntkscore.analysis.frames import pick_rho
from ntkscore.analysis.percentiles import Population, population, shipped_population
from ntkscore.analysis.ranking import Ranking, values_of
from ntkscore.analysis.score_names import ScoreSum, sum_asked
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, load_images
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.results import ResultSet
from ntkscore.run import devices, engine
from ntkscore.run.engine import Progress, Run
from ntkscore.run.processes import Share
from ntkscore.run.scoring import Scoring
from ntkscore.run.search import Method, visit
from ntkscore.run.selection import select
from ntkscore.space import Architecture, Space
from ntkscore.spaces import default_space


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Job(Scoring):
    """Networks of a space to be scored on images, and the order in which they are ranked.

    Of several radii the first counts in a ranking.

    Attributes:
        by: the score to rank by, or the sum of several; None for the default.
        among: the networks of a reference to rank among; None for those that are ranked.

    Example:
        >>> import tempfile
        >>> from cells.residual import Residual
        >>> job = Job.of("synthetic", Config(samples=4), space=Residual(depth=3, width=8))
        >>> job = job.ranked_by("clean.trace", None, job.select("all")[0])
        >>> with tempfile.TemporaryDirectory() as out:
        ...     ranking = job.rank(job.select("all"), out)
        >>> str(ranking.by), len(ranking.frame)
        ('clean.trace', 2)
    """

    by: ScoreSum | None = None
    among: Population | None = None

    @classmethod
    def of(
        cls,
        data: ImageSet | str | PathLike[str],
        config: Config | None = None,
        *,
        space: Space | None = None,
        seeds: int | Sequence[int] = 1,
    ) -> "Job":
        """A job that is ranked by the default score, among the networks themselves.

        Args:
            data: images to draw from, or their name or file.
            config: how to score; `Config()` if left out.
            space: where the architectures come from; NAS-Bench-201 if left out.
            seeds: how many, counted from 0, or which.

        Raises:
            InputError: if there is no seed, or the space cannot take the images.
        """
        data = data if isinstance(data, ImageSet) else load_images(data)
        chosen = tuple(range(seeds) if isinstance(seeds, int) else dict.fromkeys(seeds))
        if not chosen:
            raise InputError("expected at least one seed, got none; give one")
        space = (space or default_space()).on(data.task)
        return cls(data=data, config=config or Config(), space=space, seeds=chosen)

    def ranked_by(
        self, by: str | None, reference: str | PathLike[str] | None, architecture: Architecture
    ) -> "Job":
        """The same job with another order.

        Args:
            by: a score, or several joined by `+`; the default sum if left out.
            reference: a run over a whole space that was scored in the same way, to rank among its
                networks; if left out, one that comes with the package, where one fits.
            architecture: any of the space, for the names of costs and counts.

        Raises:
            InputError: if there is no such score, or the reference was scored in another way.
        """
        score = sum_asked(by, self.space, architecture, self.config)
        scored = (self.configuration, self.seeds, self.config.rhos[0], score, self.space)
        among = population(reference, *scored) if reference else shipped_population(*scored)
        return replace(self, by=score, among=among)

    @cached_property
    def _kept(self) -> dict[str, dict[str, Any]]:
        """What `evaluate` has read of each directory."""
        return {}

    def select(
        self,
        architectures: str | Sequence[Architecture],
        table: Table | None = None,
        seed: int = 0,
    ) -> tuple[Architecture, ...]:
        """Architectures of the space.

        Args:
            architectures: a list, or a specification (`ntkscore.run.selection.select`).
            table, seed: for a specification.

        Raises:
            InputError: if there are none, or one is none of the space.
        """
        chosen = select(architectures, self.space, table, seed)
        if not chosen:
            raise InputError("expected at least one architecture, got none; name some")
        return chosen

    def check(self, out: str | PathLike[str], batch: int | None = None) -> None:
        """Refuse what does not fit, as far as that shows without JAX.

        Raises:
            InputError: if there are too few images, or the folder holds something else.
        """
        devices.check_batch(batch)
        _ = self.draws
        ResultSet.check(out, self.configuration)

    def score(
        self,
        architectures: Sequence[Architecture],
        out: str | PathLike[str],
        *,
        batch: int | None = None,
        report: Callable[[Progress], None] = lambda progress: None,
        session: Mapping[str, object] | None = None,
        share: Share | None = None,
        kept: dict[str, Any] | None = None,
    ) -> Run:
        """Score architectures into a directory, on all local devices, unless they are there.

        Args:
            architectures: in the space's own form.
            out: the result directory or URL; continued if it exists.
            batch: networks per device and call; chosen from the free memory if left out.
            report: called after every call to the devices.
            session: what else to record about this session.
            share: the networks of this process, of several that share the run; all if left out.
            kept: as for `ntkscore.run.engine.run`.

        Raises:
            InputError: if something does not fit; nothing is written then.
        """
        self.check(out, batch)
        devices.prepare()
        how = {"session": session, "report": report, "batch": batch, "share": share, "kept": kept}
        return engine.run(self, architectures, out, **how)

    def rank(
        self, architectures: Sequence[Architecture], out: str | PathLike[str], **how: Any
    ) -> Ranking:
        """Score architectures into a directory, and rank them; arguments as for `score`."""
        return self.ranking(self.score(architectures, out, **how).results, architectures)

    def ranking(self, results: ResultSet, architectures: Sequence[Architecture]) -> Ranking:
        """The ranking of architectures, as far as a result directory has them."""
        return Ranking.of(self._rows(results, architectures), self.by, self.space, self.among)

    def evaluate(
        self, architectures: Sequence[Architecture], out: str | PathLike[str], **how: Any
    ) -> pd.Series:
        """One number per architecture, larger for a better one, for searches of your own.

        Without a reference the architectures are ranked among themselves: pass all that the search
        has visited. What the directory holds is not computed again, and read once.

        Args:
            architectures, out, how: as for `score`.

        Returns:
            A number by the architectures' keys; −∞ where a score failed.
        """
        how["kept"] = self._kept.setdefault(os.path.abspath(out), {})
        rows = self._rows(self.score(architectures, out, **how).results, architectures)
        return values_of(rows, self.by, self.space, self.among)

    def search(
        self,
        out: str | PathLike[str],
        method: str | Method = "local",
        budget: int = 200,
        *,
        at_most: Mapping[str, float] | None = None,
        batch: int | None = None,
        report: Callable[[Step], None] = lambda step: None,
    ) -> Ranking:
        """Search the space for the best network; score only those it visits, and rank them.

        Args:
            out: the result directory; continued if it exists.
            method: a name in `ntkscore.run.search.METHODS`, or a search of your own.
            budget: networks to visit.
            at_most: bounds on costs and counts of the networks that the space trains, by name.
            batch: as for `score`.
            report: called after every step.

        Raises:
            InputError: if something does not fit; nothing is written then.
        """
        visited: list[Architecture] = []

        def evaluate(new: Sequence[Architecture]) -> dict[Hashable, float]:
            visited.extend(new)
            values = self.evaluate(visited, out, batch=batch)
            report(Step(len(visited), budget, self.space.parse(values.idxmax())))
            return values.to_dict()

        rng = np.random.default_rng(self.seeds[0])
        visit(method, self.space, evaluate, budget, rng, at_most)
        results = ResultSet.open(out)
        results.compact()
        return self.ranking(results, visited)

    def missing(self, results: ResultSet, architectures: Sequence[Architecture]) -> int:
        """The number of networks, counted once for each seed, that a result directory lacks."""
        wanted = {(self.space.key(a), seed) for a in architectures for seed in self.seeds}
        return len(wanted - results.finished())

    def _rows(self, results: ResultSet, architectures: Sequence[Architecture]) -> pd.DataFrame:
        """The rows of these architectures and of the job's seeds, at the first radius."""
        rows = results.read()
        keys = [self.space.key(a) for a in architectures]
        rows = rows[rows[results.identity[0]].isin(keys) & rows["seed"].isin(list(self.seeds))]
        return rows if rows.empty else pick_rho(rows, self.config.rhos[0])
