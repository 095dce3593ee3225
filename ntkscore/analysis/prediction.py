"""Accuracies of many networks, predicted from those of a few that were trained.

A Gaussian process over train-free measures and counts. Its mean is linear in one of them, which
ranks the networks before any is trained; of what that does not tell, one term is linear, for what
all networks have in common, and one a squared exponential, for what holds nearby.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import norm

from ntkscore.analysis.process import Process
from ntkscore.errors import InputError
from ntkscore.threads import one_thread

FEWEST = 3
"""Accuracies that a prediction needs."""
COVERAGE = 0.9
"""Share of measured accuracies that the intervals should hold."""
MOST_MISSING = 0.1
"""Share of networks that may lack an input; there its median stands."""
MOST_FAILED = 0.5
"""Share of the inputs that a network may lack; of one that lacks more nothing is predicted."""
REDUNDANT = 0.99
"""Coefficient of correlation with an earlier input from which on an input tells nothing new."""
FARTHEST = 5.0
"""Standard deviations at which an input is clipped."""
AT_ONCE = 4096
"""Networks predicted at once."""
CANDIDATES = 500
"""Networks of the largest expected improvement among which a batch is chosen."""
MOVERS = 3
"""Inputs that are named for a prediction."""


def inputs_of(columns: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """What accuracies are predicted from, and a reason for each column that is no input.

    Args:
        columns: measures and counts, a row per network. Left out are columns that are missing or
            constant, or redundant with one before them, and networks that lack more than
            `MOST_FAILED` of them.

    Returns:
        A row per network and a column per input, of mean 0 and variance 1 but for what is clipped;
        a quantity of one sign enters by its logarithm. And the reasons.

    Example:
        >>> columns = pd.DataFrame({"params": [1.0, 2, 4], "flops": [10.0, 20, 40], "field": 3})
        >>> inputs, left_out = inputs_of(columns)
        >>> list(inputs), dict(left_out)
        (['params'], {'flops': 'redundant: params', 'field': 'constant'})
    """
    columns = columns.set_axis([str(name) for name in columns], axis=1)
    both = columns.columns, columns.index
    if twice := [name for names in both for name in names[names.duplicated()]]:
        raise InputError("each network and each input once", f"{twice[0]} twice", "drop one")
    try:
        columns = columns.astype(float)
    except (ValueError, TypeError) as error:
        raise InputError("numbers as inputs", error, "drop the column") from None
    failed = ~np.isfinite(columns)
    usual = failed.columns[failed.mean() <= MOST_FAILED]
    columns = columns[failed[usual].mean(axis=1) <= MOST_FAILED]
    kept: dict[str, np.ndarray] = {}
    reasons: dict[str, str] = {}
    for name in columns:
        values = columns[name].to_numpy()
        known = np.isfinite(values)
        if (~known).mean() > MOST_MISSING or not len(known):
            reasons[name] = f"missing for {(~known).sum()} of {len(known)} networks"
            continue
        values = _standardised(np.where(known, values, np.median(values[known])))
        if values is None:
            reasons[name] = "constant"
            continue
        others = np.array(list(kept.values())).reshape(-1, len(values))
        same = np.abs(others @ values) / len(values) > REDUNDANT
        if same.any():
            reasons[name] = f"redundant: {list(kept)[int(same.argmax())]}"
        else:
            kept[name] = values
    if not kept:
        raise InputError(
            "a measure or count that differs between networks",
            f"none of {len(columns.columns)}",
            "score more networks",
        )
    return pd.DataFrame(kept, columns.index), pd.Series(reasons, dtype=str)


def _standardised(
    values: Float[np.ndarray, " n"], logarithms: bool = True
) -> Float[np.ndarray, " n"] | None:
    """Values of mean 0 and variance 1, by their logarithms if all have one sign; None of equals."""
    if logarithms and ((values > 0).all() or (values < 0).all()):
        values = np.sign(values) * np.log(np.abs(values))
    for _ in range(2):  # what was clipped had widened the spread
        spread = values.std()
        if spread <= 1e-9 * max(1.0, np.abs(values).max()):
            return None
        values = np.clip((values - values.mean()) / spread, -FARTHEST, FARTHEST)
    return values


def _followed(prior: pd.Series, index: pd.Index) -> pd.Series | None:
    """Numbers by network, standardised; the median where one is missing, None of equals."""
    values = prior.reindex(index).to_numpy(float)
    known = np.isfinite(values)
    if not known.any():
        raise InputError("a prior of the scored networks", "numbers of none", "name these networks")
    found = _standardised(np.where(known, values, np.median(values[known])), logarithms=False)
    name = "the prior" if prior.name is None else str(prior.name)
    return None if found is None else pd.Series(found, index, name=name)


class Predictor:
    """Predicts the accuracies of networks, and says which to train next: ask and tell.

    Attributes:
        networks: keys of all networks.
        inputs, left_out: what it predicts from, and what it does not (`inputs_of`).
        prior: what the mean is linear in, by network, of mean 0 and variance 1; None for none.
        measured: the accuracies that it was told, by network.
        minimise: whether less is better of what it is told, as of errors.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> scores = pd.DataFrame(rng.uniform(size=(50, 2)), columns=["params", "clean.trace"])
        >>> accuracy = 0.4 + 0.1 * scores["params"] - 0.02 * scores["clean.trace"] ** 2
        >>> predictor = Predictor(scores)
        >>> for _ in range(4):
        ...     chosen = predictor.ask(3)
        ...     predictor.tell(accuracy[chosen])
        >>> bool(predictor.measured.max() == accuracy.max())
        True
    """

    def __init__(
        self,
        scores: pd.DataFrame,
        *,
        prior: pd.Series | str | None = None,
        minimise: bool = False,
    ) -> None:
        """
        Args:
            scores: measures and counts of all networks, a row per network.
            prior: what accuracies may rise or fall with before any is told: a number for each
                network, such as its rank, or a column of the scores, which is taken by its ranks.
                None for nothing; numbers that are all equal are nothing too.
            minimise: whether less is better of what it will be told.
        """
        self.networks = scores.index
        self.inputs, self.left_out = inputs_of(scores)
        if isinstance(prior, str):
            if prior not in scores:
                columns = ", ".join(map(str, scores))
                raise InputError(f"a prior among {columns}", repr(prior), "name one of these")
            prior = scores[prior].rank()
        self.prior = None if prior is None else _followed(prior, self.inputs.index)
        self.measured = pd.Series(index=scores.index[:0], dtype=float)
        self.minimise = minimise
        x = self.inputs.to_numpy() / np.sqrt(self.inputs.shape[1])
        self._x = np.column_stack([np.zeros(len(x)) if self.prior is None else self.prior, x])

    @property
    def follows(self) -> str:
        """What predictions start from, in words."""
        return "no order" if self.prior is None else str(self.prior.name)

    def tell(self, accuracies: Mapping[Hashable, float] | pd.Series) -> None:
        """Add measured accuracies of networks; one that was told before is replaced.

        Raises:
            InputError: if a network is none of the scored ones, or a number is not finite.
        """
        told = pd.Series(dict(accuracies), dtype=float)
        for key, value in zip(told.index.tolist(), told, strict=True):
            self._known([key])
            if not np.isfinite(value):
                raise InputError(f"a number for {key!r}", value, "leave it out")
        self.measured = told.combine_first(self.measured)
        self.__dict__.pop("_process", None)

    def predict(self) -> pd.DataFrame:
        """Predicted accuracies of all networks.

        Returns:
            A row per network: `mean`, and `low` and `high`, between which `COVERAGE` of measured
            accuracies should lie, in the units that were told; and `measured`, NaN where it was
            not. Of a measured network too, the prediction is of a further measurement. NaN where
            a network lacks more than `MOST_FAILED` of the inputs.

        Raises:
            InputError: if fewer than `FEWEST` accuracies were told, or all are equal.
        """
        mean, deviation = self._moments(self._x)
        again = np.hypot(deviation, self._process.noise * self._process.scale)
        reach = norm.ppf((1 + COVERAGE) / 2) * again
        columns = {"mean": mean, "low": mean - reach, "high": mean + reach}
        frame = pd.DataFrame(columns, self.inputs.index).reindex(self.networks)
        return frame.assign(measured=self.measured.reindex(frame.index))

    def moved_by(self, networks: Sequence[Hashable]) -> pd.DataFrame:
        """By how much each input moves the predicted means of some networks.

        Returns:
            A row per network and a column per input: the mean, less that of the same network with
            the input's mean over all networks in place of its own. NaN where nothing is predicted.
        """
        self._known(networks)
        process = self._process
        columns = {str(name): [place] for place, name in enumerate(self.inputs, 1)}
        if self.prior is not None:
            columns.setdefault(str(self.prior.name), []).append(0)
        if not len(networks):
            return pd.DataFrame(columns=[*columns], dtype=float)
        places = self.inputs.index.get_indexer(pd.Index(list(networks), dtype=object))
        x = self._x[places]
        moved = np.empty((len(x), len(columns)))
        with one_thread():
            mean = process.mean(x)
            for column, own in enumerate(columns.values()):
                without = x.copy()
                without[:, own] = 0
                moved[:, column] = mean - process.mean(without)
        moved[places < 0] = np.nan
        return pd.DataFrame(moved, list(networks), [*columns])

    def ask(self, count: int = 1, pending: Collection[Hashable] = ()) -> list[Hashable]:
        """Networks to train next, the most promising first; none that was told.

        Each has the largest expected improvement on the best accuracy, where those before it are
        taken to reach their predicted means. Before enough is told, networks far from each other
        and from those told.

        Args:
            count: number of networks; fewer where no more are left.
            pending: networks that are being trained: taken to reach their means, not asked again.

        Source: Jones et al. (1998), "Efficient global optimization"; Ginsbourger et al. (2010),
        "Kriging is well-suited to parallelize optimization", the kriging believer.
        """
        if count < 1:
            raise InputError("at least one network to ask for", count, "ask for one")
        index = self.inputs.index
        self._known(pending)
        begun = index.get_indexer([key for key in pending if key not in self.measured.index])
        begun = begun[begun >= 0]
        free = np.setdiff1d(np.flatnonzero(~index.isin(self.measured.index)), begun)
        if not len(free):
            return []
        told = self._told()
        if len(told) < FEWEST or told.nunique() == 1:
            others = np.r_[index.get_indexer(told.index), begun].astype(int)
            places = _spread(self._x[:, 1:], others, free, count)
        else:
            places = self._improving(free, begun, count)
        return [index[place] for place in places]

    def _told(self) -> pd.Series:
        """The measured accuracies of the networks that have inputs."""
        return self.measured[self.measured.index.isin(self.inputs.index)]

    def _known(self, networks: Collection[Hashable]) -> None:
        """Refuse what is none of the networks."""
        for key in networks:
            if key not in self.networks:
                raise InputError("networks that were scored", repr(key), "score it")

    def _improving(
        self, free: Int[np.ndarray, " f"], begun: Int[np.ndarray, " b"], count: int
    ) -> list[int]:
        """Places of free networks by expected improvement, one after the other."""
        process, sign = self._process, -1 if self.minimise else 1
        best = (sign * self._told()).max()
        mean, deviation = self._moments(self._x[free])
        some = np.argsort(-_improvement(sign * mean, deviation, best), kind="stable")[:CANDIDATES]
        places = np.r_[begun, free[some]]
        with one_thread():
            mean = sign * process.mean(self._x[places])
            covariance = process.covariance(self._x[places])
        noise = (process.noise * process.scale) ** 2
        chosen: list[int] = []
        while len(chosen) < len(begun) + min(count, len(some)):
            deviation = np.sqrt(np.maximum(np.diag(covariance), 0))
            gain = _improvement(mean, deviation, best)
            gain[chosen] = -np.inf
            place = len(chosen) if len(chosen) < len(begun) else int(gain.argmax())
            chosen.append(place)
            best = max(best, mean[place])
            column = covariance[:, place]
            covariance = covariance - np.outer(column, column) / (column[place] + noise)
        return places[chosen[len(begun) :]].tolist()

    def _moments(
        self, x: Float[np.ndarray, "n e"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Means and standard deviations of accuracies, without the noise of training."""
        parts = [x[at : at + AT_ONCE] for at in range(0, len(x), AT_ONCE)]
        with one_thread():
            mean = np.concatenate([self._process.mean(part) for part in parts])
            return mean, np.concatenate([self._process.deviation(part) for part in parts])

    @cached_property
    def _process(self) -> Process:
        """The process, fitted to what was told."""
        told = self._told()
        if len(told) < FEWEST:
            raise InputError(
                f"the accuracies of at least {FEWEST} networks whose measures did not fail",
                len(told),
                "train more",
            )
        if told.nunique() == 1:
            raise InputError(
                "accuracies that differ",
                f"{told.iloc[0]:g} for all {len(told)} networks",
                "train other networks",
            )
        x = self._x[self.inputs.index.get_indexer(told.index)]
        with one_thread():
            return Process.fitted(x, told.to_numpy())


def _improvement(
    mean: Float[np.ndarray, " n"], deviation: Float[np.ndarray, " n"], best: float
) -> Float[np.ndarray, " n"]:
    """Expected improvement on the best, E max(0, f − best) for f of these moments."""
    deviation = np.maximum(deviation, 1e-12)
    z = (mean - best) / deviation
    return deviation * (z * norm.cdf(z) + norm.pdf(z))


def _spread(
    x: Float[np.ndarray, "n d"],
    told: Int[np.ndarray, " t"],
    free: Int[np.ndarray, " f"],
    count: int,
) -> list[int]:
    """Places of networks far from those told and from each other, and from the mean at first."""
    chosen: list[int] = []
    centres = x[told] if len(told) else x.mean(0, keepdims=True)
    distance = np.min([((x[free] - centre) ** 2).sum(1) for centre in centres], axis=0)
    while len(chosen) < min(count, len(free)):
        place = free[int(distance.argmax())]
        chosen.append(int(place))
        distance = np.minimum(distance, ((x[free] - x[place]) ** 2).sum(1))
        distance[free == place] = -np.inf  # Others may have its inputs, at no distance.
    return chosen
