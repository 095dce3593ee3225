"""Tidy rows as frames: a row per network, which their first column names, a column per score."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from ntkscore.analysis.score_names import ScoreName, ScoreSum, default_sum
from ntkscore.errors import InputError
from ntkscore.measures.forward_pass import LOSS
from ntkscore.measures.registry import NOT_GIVEN
from ntkscore.space import Space
from ntkscore.text import format_rho


def pick_rho(rows: pd.DataFrame, rho: float | None) -> pd.DataFrame:
    """The rows of one radius; None takes the only one there is."""
    if rows.empty:
        raise InputError("scored networks", "none", "run the command that scores them to its end")
    present = sorted(rows["rho"].unique())
    if rho is None and len(present) == 1:
        return rows
    matching = [value for value in present if rho is not None and np.isclose(value, rho)]
    if not matching:
        raise InputError(
            f"one of the radii {', '.join(map(format_rho, present))}",
            "none" if rho is None else format_rho(rho),
            "choose one with --at-rho (in Python, rho=)",
        )
    return rows[rows["rho"] == matching[0]]


def _score_names(kinds: pd.DataFrame) -> list[str]:
    """The names of scores, from rows with their kernel, score and β."""
    return [
        str(ScoreName(kernel, score, None if pd.isna(beta) else beta))
        for kernel, score, beta in kinds.itertuples(index=False)
    ]


def default_of(rows: pd.DataFrame, space: Space) -> ScoreSum:
    """The default sum, without the terms that the space or all of the networks lack."""
    present = rows[rows["status"] != NOT_GIVEN]
    scores = _score_names(present[["kernel", "score", "beta"]].drop_duplicates())
    return default_sum(space, space.counted(space.parse(rows.iloc[0, 0])), scores)


def score_table(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per network and a column per score, averaged over the seeds.

    A network has NaN where any of its seeds failed. The losses, which score no kernel, are left
    out.
    """
    network = rows.columns[0]
    rows = rows[rows["score"] != LOSS]
    kinds = rows[["kernel", "score", "beta"]].drop_duplicates()
    names = _score_names(kinds)
    # NaN does not match itself in a merge on several columns everywhere; −1 is no β.
    keys = ["kernel", "score", "beta"]
    named = rows.fillna({"beta": -1}).merge(kinds.fillna({"beta": -1}).assign(name=names), on=keys)
    single = named.pivot(index=[network, "seed"], columns="name", values="value")
    failed = single.isna().groupby(network).any()
    return single.groupby(network).mean().mask(failed)[list(dict.fromkeys(names))]


def cost_table(keys: Iterable[object], space: Space) -> pd.DataFrame:
    """A row per network and a column per cost and count of the space: what a score must beat.

    They are for the space's own images and classes; of what is trained, for `Space.trained`.

    Example:
        >>> from cells.nasbench201.space import NASBench201
        >>> cost_table(["323133"], NASBench201())[["params", "flops", "layers"]]
               params      flops  layers
        cell
        2581  1073466  153272960      83
    """
    architectures = [space.parse(key) for key in keys]
    names = list(space.identity(architectures[0])) if architectures else [None]
    index = pd.Index([space.key(a) for a in architectures], name=names[0])
    costs = pd.DataFrame([space.costs(a) for a in architectures], index=index)
    counts = pd.DataFrame([space.structure(a) for a in architectures], index=index)
    measured = [] if space.measured is None else [space.measured.reindex(index)]
    found = pd.concat([costs, counts, *measured], axis=1)
    every = [*names, *found]
    if twice := [name for name in every if every.count(name) > 1]:
        raise InputError(
            f"names, costs, counts and measured costs of {space.name} that all differ",
            f"{twice[0]!r} twice",
            "rename one",
        )
    return found


def network_table(rows: pd.DataFrame, space: Space) -> pd.DataFrame:
    """A row per network and a column per score, cost and count, averaged over the seeds."""
    scores = score_table(rows)
    return scores.join(cost_table(scores.index, space.trained()))
