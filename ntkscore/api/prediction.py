"""Accuracies of a run's networks, predicted from those of a few that were trained."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from ntkscore.analysis import comparison
from ntkscore.analysis.frames import cost_table
from ntkscore.analysis.prediction import FEWEST, MOVERS, Predictor
from ntkscore.analysis.ranking import check_pareto, non_dominated, objectives_of
from ntkscore.analysis.score_names import ScoreSum, default_sum
from ntkscore.data.benchmarks import metric_name
from ntkscore.data.costs import read_numbers, with_costs
from ntkscore.data.tables import Accuracies, Table
from ntkscore.errors import InputError
from ntkscore.results import ResultSet
from ntkscore.space import Space
from ntkscore.spaces import default_space, known_space

NOTHING = "none"
"""The prior that orders nothing."""
DATASET = "cifar10"
"""The data set of accuracies where neither a run nor a person names one."""


@dataclass(frozen=True, eq=False)
class Campaign:
    """Networks that a run scored, and what is known of their accuracies.

    Attributes:
        space: where the networks come from; known numbers are measured costs of it.
        columns: scores, costs, counts and known numbers of the networks, by key.
        unknown: rows of the accuracies that are of none of the networks.
    """

    predictor: Predictor
    space: Space
    columns: pd.DataFrame
    metric: str
    unknown: int

    @classmethod
    def of(
        cls,
        source: str | PathLike[str] | pd.DataFrame,
        accuracies: Accuracies | None,
        metric: str | None = None,
        *,
        dataset: str | None = None,
        minimise: bool = False,
        space: Space | None = None,
        rho: float | None = None,
        prior: str | None = None,
        known: pd.DataFrame | str | PathLike[str] | None = None,
    ) -> "Campaign":
        """Read scores and accuracies; arguments are those of `predict`, None for no accuracies."""
        if not isinstance(source, pd.DataFrame) and (run := ResultSet.find(source)):
            space = space or known_space(run)
            dataset = dataset or str(run.configuration["dataset"])
        space, dataset = space or default_space(), dataset or DATASET
        # Before the scores, which take seconds to read.
        told = None if accuracies is None else _known(accuracies, metric, dataset, space)
        scores = comparison.scores_of(source, dataset, rho)
        names = space.written(list(scores.index), str(scores.index.name or ""))
        scores = scores.set_axis([space.key(space.parse(name)) for name in names])
        costs = cost_table(scores.index, comparison.trained_on(space, dataset))
        costs = costs.set_axis(scores.index).drop(columns=scores.columns, errors="ignore")
        columns, measured = costs.join(scores), space.measured_names
        if known is not None:
            given = known if isinstance(known, pd.DataFrame) else read_numbers(Path(known), dataset)
            more = with_costs(space, given).measured
            if taken := [name for name in more if name in columns]:
                raise InputError(
                    "other names than those of costs, counts and scores",
                    repr(taken[0]),
                    "rename it",
                )
            columns, measured = columns.join(more), (*measured, *more)
        ranks = _ranks_by(prior, columns, space)
        if measured:  # Only now: of an accuracy that a prior names more is better.
            space = replace(space, measured=columns[[*measured]])
        predictor = Predictor(columns, prior=ranks, minimise=minimise)
        if told is None:
            return cls(predictor, space, columns, metric or "", 0)
        values, metric = told
        here = values[values.index.isin(scores.index)]
        if len(here) < FEWEST:
            others = [str(key) for key in values.index if key not in here.index]
            named = f" and {', '.join(others[:3])} of none" if others else ""
            raise InputError(
                f"accuracies of at least {FEWEST} of the {len(scores)} scored networks",
                f"{len(values)}, of which {len(here)} are of these networks{named}",
                "name networks as the ranking does",
            )
        predictor.tell(here)
        return cls(predictor, space, columns, metric, len(values) - len(here))

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """Predictions of all networks by key, best first."""
        found = self.predictor.predict()
        found = found.sort_values("mean", ascending=self.predictor.minimise, kind="stable")
        found.insert(0, "rank", range(1, len(found) + 1))
        return found

    def beside(self, pareto: Sequence[str]) -> pd.DataFrame:
        """All predictions, best first, with some costs or counts."""
        check_pareto(None, pareto, self.space, self.predictions.index[0])
        return self.predictions.join(self.columns[[*pareto]])

    def frame(
        self, suggest: int = 0, top: int | None = None, pareto: Sequence[str] = ()
    ) -> pd.DataFrame:
        """The first rows of all predictions, those to train next or a front; see `predict`."""
        if suggest and pareto:
            raise InputError("a front, or networks to train next", "both", "leave one out")
        found, space = self.predictions, self.space
        if pareto:
            found = self.beside(pareto)
            better = found["mean"] * (-1 if self.predictor.minimise else 1)
            found = found[non_dominated(objectives_of(better, found, pareto))]
        found = found.loc[self.predictor.ask(suggest)] if suggest else found
        found = found.head(len(found) if top is None else top)
        names = pd.DataFrame([space.names(space.parse(key)) for key in found.index], found.index)
        names = names.drop(columns=found.columns, errors="ignore")
        moved = self.predictor.moved_by(list(found.index))
        found = pd.concat([found[["rank"]], names, found.drop(columns="rank")], axis=1)
        return found.assign(moved_by=_movers(moved)).reset_index(drop=True)


def predict(
    source: str | PathLike[str] | pd.DataFrame,
    accuracies: Accuracies,
    metric: str | None = None,
    *,
    dataset: str | None = None,
    minimise: bool = False,
    space: Space | None = None,
    rho: float | None = None,
    suggest: int = 0,
    prior: str | None = None,
    known: pd.DataFrame | str | PathLike[str] | None = None,
    pareto: Sequence[str] = (),
) -> pd.DataFrame:
    """Predict the accuracies of a run's networks from those of a few that were trained.

    A Gaussian process over the run's measures, costs and counts, with a mean that is linear in
    the ranks by `prior` (`ntkscore.analysis.prediction.Predictor`).

    Args:
        source: a result directory, `recorded` for the package's own, or a frame with a row per
            network and a column per score.
        accuracies: of some of the networks: numbers by name, a table, or the path of one, such as
            a `.csv` file whose first column names networks.
        metric: which column of a table, in any common spelling; not needed where there is one.
        dataset: of a table's accuracies; that of the run if left out.
        minimise: whether less is better, as of errors.
        space: where the networks come from; that of the directory if left out.
        rho: radius, for results with several.
        suggest: how many networks to train next to return, in order, instead of all.
        prior: what accuracies may rise or fall with before any is known: a cost, a count, a score,
            or a sum of several joined by `+`; `none` for nothing. The space's default order, as for
            `Run.rank`, if left out.
        known: numbers of networks that are inputs beside the run's, such as accuracies of another
            training or latencies: a frame with a row per network, or a `.csv` file of names and
            numbers. A column that a tenth of the networks lacks is left out, as any input is.
        pareto: names of costs, counts or known numbers of which less is better. Of the networks
            those come back that no other beats, as for `Run.rank`: by the predicted mean and these.

    Returns:
        A row per network, the best predicted one first: its rank and names; the predicted `mean`,
        and `low` and `high`, between which 90 % of measured accuracies should lie, in the units of
        the accuracies; `measured`, NaN where it is not; and `moved_by`, the three inputs that move
        the mean most: by how much it differs from that of a network with their average. Networks
        most of whose measures failed have no prediction and come last.

    Raises:
        InputError: if fewer than three accuracies are of these networks, all are equal, or the
            table lacks the metric.

    Example:
        >>> scores = pd.DataFrame({"clean.trace": [1.0, 3, 2, 5]}, index=[2581, 1462, 0, 7])
        >>> predicted = predict(scores, {2581: 0.48, 1462: 0.47, 0: 0.3})
        >>> sorted(predicted["cell"].head(2)), predicted["measured"].notna().sum().item()
        ([1462, 2581], 3)
    """
    how = {"dataset": dataset, "minimise": minimise, "space": space, "rho": rho}
    how |= {"prior": prior, "known": known}
    return Campaign.of(source, accuracies, metric, **how).frame(suggest, pareto=pareto)


def _ranks_by(prior: str | None, columns: pd.DataFrame, space: Space) -> pd.Series | None:
    """Ranks that accuracies may rise or fall with, by network; None for nothing."""
    if prior == NOTHING:
        return None
    there = [str(name) for name in columns.columns[columns.notna().any()]]
    counted = [name for name in there if "." not in name]
    found = default_sum(space, counted, there)
    if prior is not None:
        found = ScoreSum.parse(prior, costs=counted, fewer=space.smaller)
    absent = [term for term in found.terms if term not in there]
    if absent and prior is None:
        return None
    if absent:
        raise InputError(
            "a prior of costs, counts and scores of the run",
            repr(absent[0]),
            f"choose some of {', '.join(there)}",
        )
    return found.of(columns).rank().rename(str(found))


def _known(
    accuracies: Accuracies, metric: str | None, dataset: str, space: Space
) -> tuple[pd.Series, str]:
    """Accuracies by the space's keys, where they are names of its own, and what they are."""
    if not isinstance(accuracies, Table | str | PathLike):
        names, values = zip(*dict(accuracies).items(), strict=True) if len(accuracies) else ((), ())
        heading = getattr(getattr(accuracies, "index", None), "name", None)
        texts = space.written(names, str(heading or ""))
        keys = [space.key(space.parse(text)) for text in texts]
        by_key = pd.Series(dict(zip(keys, values, strict=True)))
        if len(by_key) < len(accuracies):
            raise InputError("each network once", "two names of one", "leave one out")
        return by_key.astype(float), metric or "accuracy"
    table = comparison.in_keys_of(space, accuracies, dataset)
    columns = table.metrics(dataset)
    if metric is None and len(columns) > 1:
        raise InputError(f"a metric of {table.name}, {', '.join(columns)}", "none", "name one")
    metric = next(iter(columns)) if metric is None else metric_name(metric)
    values = table.accuracies(dataset, metric)
    return pd.Series(values, pd.Index(table.own, dtype=object)), f"{metric} on {dataset}"


def _movers(moved: pd.DataFrame) -> list[str]:
    """The inputs that move each prediction most, with signed amounts."""
    names, values = list(map(str, moved)), moved.to_numpy()
    return [
        "its measures failed"
        if np.isnan(row).any()
        else ", ".join(f"{names[j]} {row[j]:+.2g}" for j in np.argsort(-np.abs(row))[:MOVERS])
        for row in values
    ]
