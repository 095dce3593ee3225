"""Runs: networks that were scored, and all that is read off their scores."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from ntkscore.analysis.frames import cost_table, network_table, pick_rho, score_table
from ntkscore.analysis.percentiles import Population, population, shipped_population
from ntkscore.analysis.ranking import Ranking, sum_for
from ntkscore.analysis.score_names import ScoreSum, nearest
from ntkscore.config import Config
from ntkscore.data.costs import with_costs
from ntkscore.data.tables import Accuracies, Table, load_table
from ntkscore.errors import InputError
from ntkscore.results import ResultSet
from ntkscore.run.search import bounds_in_words
from ntkscore.run.selection import select
from ntkscore.space import Architecture, Space
from ntkscore.spaces import known_space


@dataclass(frozen=True, eq=False)
class Run:
    """Networks that were scored: `score` and `search` return one, `open_run` opens one.

    Attributes:
        results: the scores, in a folder, under a URL or in memory, with the choices behind them.
        space: where the networks come from.
        keys: of the networks that count, in order; all that were scored, if None.
        seeds: that count; all of them, if None.

    Example:
        >>> run = open_run("recorded")
        >>> run.rank(by="clean.trace").loc[:2, ["rank", "cell", "digits"]]
           rank   cell  digits
        0     1   4992  202002
        1     2   5220  302002
        2     3  15106  202042
    """

    results: ResultSet
    space: Space
    keys: tuple[Hashable, ...] | None = None
    seeds: tuple[int, ...] | None = None

    @cached_property
    def rows(self) -> pd.DataFrame:
        """A row per network, seed, radius, kernel and score, with every choice behind it.

        The columns are the network's names and the seed; the images and the choices of space and
        config; then `rho`, `steps`, `step_size`, `beta`, `kernel`, `score`, `value` and `status`. A
        score that failed is NaN, and its status says why.
        """
        rows = self.results.read()
        if self.keys is not None:
            rows = rows[rows[self.results.identity[0]].isin(list(self.keys))]
        if self.seeds is not None:
            rows = rows[rows["seed"].isin(list(self.seeds))]
        return rows.reset_index(drop=True)

    @cached_property
    def networks(self) -> tuple[Architecture, ...]:
        """The networks, in the space's own form."""
        return tuple(map(self.space.parse, self.rows[self.results.identity[0]].unique()))

    def of(self, networks: str | Sequence[Architecture], table: Table | None = None) -> "Run":
        """The same run, of some of its networks.

        Args:
            networks: a list, or a specification such as `random:64`
                (`ntkscore.run.selection.select`).
            table: for the specifications `table` and `table:K`.

        Raises:
            InputError: if the run has none of them.
        """
        there = set(self.networks)
        chosen = [each for each in select(networks, self.space, table) if each in there]
        if not chosen:
            raise InputError(
                f"some of the {len(there)} networks in {self.results.directory}",
                "none of them",
                "choose others",
            )
        return replace(self, keys=tuple(map(self.space.key, chosen)))

    def with_costs(self, costs: pd.DataFrame) -> "Run":
        """The same run with costs that somebody has measured, which rank and bound as params do.

        Args:
            costs: as `ntkscore.load_costs` gives them: a row per network, a column per cost, of
                which less is better.

        Raises:
            InputError: if none is of the run's space, or two are of one network.
        """
        return replace(self, space=with_costs(self.space, costs))

    def within(self, at_most: Mapping[str, float]) -> "Run":
        """The same run, of the networks within bounds on costs and counts.

        Args:
            at_most: bounds by name, of the networks that the space trains, such as
                `{"params": 300_000}`. A network whose cost was not measured is not within.

        Raises:
            InputError: if there is no such cost or count, or no network is within the bounds.
        """
        known = cost_table(map(self.space.key, self.networks), self.space.trained())
        if not known.empty:
            self.space.check_counted(at_most, list(known))
            known = known[(known[list(at_most)] <= pd.Series(at_most, dtype=float)).all(axis=1)]
        if known.empty:
            bounds = bounds_in_words(at_most)
            raise InputError(f"networks with {bounds}", "none", "raise the bound")
        return replace(self, keys=tuple(known.index.tolist()))

    def scores(self, rho: float | None = None) -> pd.DataFrame:
        """A row per network, a column per score, cost and count, averaged over the seeds.

        A score that failed for any seed is NaN. Costs and counts are those of the network that the
        space trains.

        Args:
            rho: the radius that counts; not needed where the run has one.

        Raises:
            InputError: if the run has several radii and none is named, or not this one.
        """
        return network_table(pick_rho(self.rows, rho), self.space)

    def rank(
        self,
        by: str | None = None,
        *,
        among: "Run | str | PathLike[str] | None" = None,
        rho: float | None = None,
        pareto: Sequence[str] = (),
    ) -> pd.DataFrame:
        """Networks from best to worst, by means over the seeds; those without a score come last.

        Args:
            by: a score, or several joined by `+`; the default sum if left out
                (`docs/ranking.md`).
            among: a run over a whole space that was scored in the same way, to rank among its
                networks; if left out, one that comes with the package, where one fits.
            rho: as for `scores`.
            pareto: names of costs or counts. Of the networks those come back that no other beats:
                none has as good a score and as little of each of these, and one of them better.

        Returns:
            The rank, names, the scores that count and the costs; and, among the networks of another
            run, the percentile: the percentage of these that a network is better than.

        Raises:
            InputError: if the run lacks the score, the radius or a cost, or `among` was scored in
                another way.
        """
        return self.ranking(by, among, rho, pareto).front

    def ranking(
        self,
        by: str | None = None,
        among: "Run | str | PathLike[str] | None" = None,
        rho: float | None = None,
        pareto: Sequence[str] = (),
    ) -> Ranking:
        """The ranking with what it is by; arguments as for `rank`."""
        rows, space = pick_rho(self.rows, rho), self.space
        score, scores = None, network_table(rows, space)
        if by is not None:
            betas = self.results.configuration.get("betas", Config().betas)
            counted = space.counted(space.parse(rows.iloc[0][self.results.identity[0]]))
            score = ScoreSum.parse(by, betas, [*counted], space.smaller, [*scores])
        if absent := [term for term in (score.terms if score else ()) if term not in scores]:
            raise InputError(
                f"a score that {self.results.directory} holds",
                repr(absent[0]),
                f"write {nearest(absent[0], [*scores])}, or one of {', '.join(scores.columns)}",
            )
        seeds = sorted(set(rows["seed"].tolist()))
        scored = self.results.configuration, seeds, rows["rho"].iloc[0], score, space
        population = population_of(among, *scored)
        order = sum_for(rows, score, space, population)
        return Ranking.of(scores, order, space, population, pareto)

    def correlate(
        self,
        table: Table | str | PathLike[str],
        metric: str = "val_pgd_8_acc",
        dataset: str = "cifar10",
        *,
        rho: float | None = None,
        resamples: int = 1000,
    ) -> pd.DataFrame:
        """Correlate scores with measured accuracies; see `ntkscore.correlate`."""
        from ntkscore.api.accuracies import correlate

        scores = score_table(pick_rho(self.rows, rho))
        return correlate(scores, table, dataset, metric, space=self.space, resamples=resamples)

    def predict(
        self,
        accuracies: Accuracies,
        metric: str | None = None,
        dataset: str | None = None,
        *,
        rho: float | None = None,
        minimise: bool = False,
        suggest: int = 0,
        prior: str | None = None,
        known: "pd.DataFrame | str | PathLike[str] | None" = None,
        pareto: Sequence[str] = (),
    ) -> pd.DataFrame:
        """Predict accuracies from those of a few; see `ntkscore.predict`."""
        from ntkscore.api.prediction import predict

        return predict(
            score_table(pick_rho(self.rows, rho)),
            accuracies,
            metric,
            dataset=dataset or str(self.results.configuration["dataset"]),
            minimise=minimise,
            space=self.space,
            suggest=suggest,
            prior=prior,
            known=known,
            pareto=pareto,
        )

    def page(
        self,
        path: str | PathLike[str],
        table: Table | str | PathLike[str] | None = None,
        *,
        title: str | None = None,
        predicted: pd.DataFrame | None = None,
    ) -> None:
        """Write a page to look at results in a browser.

        Args:
            path: an `.html` file.
            table: accuracies of the same networks, or their path.
            title: the page's heading; the folder's name if left out.
            predicted: predicted accuracies by key, as `ntkscore.Predictor.predict` gives them.

        Raises:
            InputError: if there is nothing to show, or the file cannot be written.
        """
        from ntkscore.explore import write_page

        if table is not None and not isinstance(table, Table):
            table = load_table(Path(table))
        write_page([self], path, table, title=title, predicted=predicted)


def population_of(among: Run | str | PathLike[str] | None, *scored: Any) -> Population | None:
    """The networks to rank among: of a run, or if none is named of the package where one fits."""
    if among is None:
        return shipped_population(*scored)
    return population(among.results if isinstance(among, Run) else among, *scored)


def open_run(directory: str | PathLike[str] = "recorded", space: type[Space] | None = None) -> Run:
    """Open a run, finished or not; nothing is computed.

    Args:
        directory: its folder, or its URL; `recorded` for the scores that come with the package: the
            6,466 cells that NAS-RobBench-201 trained, three seeds each, 16 CIFAR-10 images, 8
            channels (`ntkscore/recorded/README.md` is their card).
        space: the class of a space of your own.

    Raises:
        InputError: if there is no run, its record is damaged, or its space is not known.

    Example:
        >>> run = open_run("recorded")
        >>> len(run.networks), sorted(set(run.rows["seed"]))
        (6466, [0, 1, 2])
    """
    results = ResultSet.open(directory)
    return Run(results, known_space(results, space))
