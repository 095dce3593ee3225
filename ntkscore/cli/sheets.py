"""Frames that a person reads: score sheets, and agreement in few columns."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ntkscore.config import Config
from ntkscore.measures import MEASURES
from ntkscore.measures.registry import PLACES, STATUSES, direction_of
from ntkscore.space import Architecture, Space
from ntkscore.text import format_rho

if TYPE_CHECKING:
    import pandas as pd

COST_LABELS = {"params": "parameters", "flops": "multiply-adds"}


def title_of(space: Space, architecture: Architecture) -> str:
    """The names of an architecture, and the costs of the networks that are scored and trained."""
    names = [f"{name} {value}" for name, value in space.names(architecture).items()]
    trained = space.trained().costs(architecture)
    costs = [
        f"{value:,.0f} {COST_LABELS.get(name, name)}"
        + (f" ({trained[name]:,.0f} as trained)" if trained[name] != value else "")
        for name, value in space.costs(architecture).items()
    ]
    return ", ".join([*names, *costs])


def describe_choices(scored: Mapping[str, Any], space: Space, rho: float) -> str:
    """The choices behind the scores of a radius, from a run's configuration or one like it."""
    # A run may name an attack or a reading that only its own program knows.
    scored = {**Config().to_dict(), **scored}
    chosen = [f"{name} {value}" for name, value in space.choices().items()]
    scoring = [f"{name} {scored[name]}" for name in ("output", "parameters")]
    attack, norm = scored["attack"], scored["norm"]
    images = [str(scored["dataset"]), f"{scored['samples']} images"]
    attack = attack if norm == "linf" else f"{attack} in {norm}"
    return ", ".join([*images, *chosen, *scoring, attack, f"ρ = {format_rho(rho)}"])


ARROWS = {+1: "↑", -1: "↓", 0: ""}
AGAINST = "!"
"""Marks an agreement whose sign is opposite to the direction that its score declares."""


def score_sheet(rows: "pd.DataFrame") -> "pd.DataFrame":
    """One network's rows at a radius as a sheet: a row per score, a column per kernel."""
    rows = rows.sort_values("kernel", key=lambda kernels: kernels.map(PLACES.index), kind="stable")
    beta = rows["beta"].map(" β={:g}".format, na_action="ignore").fillna("")
    texts = rows["value"].map("{:.4g}".format).where(rows["status"] == "ok", rows["status"])
    scores = set(rows["score"])
    measures = {name: measure for name, measure in MEASURES.items() if name in scores}
    sheet = (
        rows.assign(kernel=rows["kernel"] + beta, text=texts)
        .pivot(index="score", columns="kernel", values="text")
        .reindex(index=list(measures), columns=list(dict.fromkeys(rows["kernel"] + beta)))
        .fillna("")
    )
    sheet.insert(0, "better", [ARROWS[measure.direction] for measure in measures.values()])
    return sheet.reset_index()


def over_seeds(rows: "pd.DataFrame") -> "pd.DataFrame":
    """One network's rows with means over its seeds; a score that failed for any has its status."""
    kinds = rows.assign(failed=rows["status"] != "ok").sort_values("failed", kind="stable")
    kinds = kinds.groupby(["kernel", "score", "beta"], dropna=False, sort=False)
    values = kinds["value"].agg(lambda each: each.mean(skipna=False))
    return values.to_frame().assign(status=kinds["status"].last()).reset_index()


def failures_in(rows: "pd.DataFrame") -> str:
    """A sentence for every status with which a score failed, or nothing."""
    failed = [status for status in rows["status"].unique() if status != "ok"]
    return "; ".join(f"{status}: {STATUSES[status]}" for status in failed)


def compact_agreement(frame: "pd.DataFrame", fewer: Collection[str] = ()) -> "pd.DataFrame":
    """An agreement frame for a terminal: intervals in brackets, columns without news left out."""
    from pandas import DataFrame

    interval = [
        f"{row.spearman:.3f} [{row.spearman_low:.3f}, {row.spearman_high:.3f}]"
        if row.status == "ok"
        else row.status
        for row in frame.itertuples()
    ]
    directions = [direction_of(name, fewer) for name in frame["score"]]
    against = [sign * rho < 0 for sign, rho in zip(directions, frame["spearman"], strict=True)]
    columns = {
        "score": frame["score"],
        "better": [
            f"{ARROWS[sign]} {AGAINST if wrong else ''}".rstrip()
            for sign, wrong in zip(directions, against, strict=True)
        ],
        "cells": frame["n"],
        "failed": frame["excluded"],
        "Spearman [95 %]": interval,
        "Kendall": frame["kendall"].map("{:.3f}".format),
        "in top 10 %": frame["spearman_top10"].map("{:.3f}".format),
        "in top 30 %": frame["spearman_top30"].map("{:.3f}".format),
        "best": frame["best_digits"] if "best_digits" in frame else frame["best_cell"],
        "its accuracy": frame["best_accuracy"].map("{:.4f}".format),
        "its rank": frame["best_accuracy_rank"],
    }
    if not frame["excluded"].any():
        del columns["failed"]
    return DataFrame(columns)
