"""Spearman correlation between accuracies, and with the older table's (Table 1)."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.data import BENCHMARK, DATASET, OLDER, Data
from experiments.frame import Claim, Study, Within, exact, number
from experiments.plotting import panels
from experiments.statistics import spearman_interval

METRICS = {"Clean": "val_acc", "PGD": "val_pgd_8_acc", "FGSM": "val_fgsm_8_acc"}
PRINTED = (0.985, 0.989, 0.977, 0.313, 0.898, 0.998, 0.970, 0.382, 0.937, 0.974, 0.371, 0.931,
           0.322, 0.891, 0.487)  # fmt: skip
"""Table 1 above its diagonal, row by row; an asterisk marks networks trained without attacks."""
THREE_DIGITS = Within(high=0.0005)


def measure(at: Any) -> Iterator[dict[str, object]]:
    """Spearman of every pair of columns with its interval, and the printed one.

    The older table's clean accuracies are missing unless `acc.json` lies beside its download.
    """
    cells = at.data.table.own
    tables = {"": at.data.table, "*": at.data.older}
    columns = {
        name + mark: table.accuracies(at.dataset, metric, cells)
        for mark, table in tables.items()
        for name, metric in METRICS.items()
        if metric in table.metrics(at.dataset)
    }
    names = [name + mark for mark in tables for name in METRICS]
    for pair, printed in zip(combinations(names, 2), PRINTED, strict=True):
        row = {"first": pair[0], "second": pair[1], "printed": printed}
        if columns.keys() >= set(pair):
            first, second = (columns[name] for name in pair)
            found = spearman_interval(first, second, cells, at.seed)
            row |= {"spearman": found.value, "low": found.low, "high": found.high}
        yield row


def lacks(data: Data) -> str:
    """The older table's file without which coefficients stay empty, and where it comes from."""
    there = data.older.metrics(DATASET)
    if not {METRICS["PGD"], METRICS["FGSM"]} <= {*there}:
        return f"{OLDER} lacks PGD and FGSM at 8/255: run `ntkscore fetch {OLDER}`"
    if METRICS["Clean"] not in there:
        return f"{OLDER} lacks acc.json of http://robustness.vision: put it beside the others"
    return ""


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Three digits of every coefficient."""
    apart = (frame["spearman"] - frame["printed"]).abs()
    clean = (frame[["first", "second"]] == "Clean*").any(axis=1)
    for some, which in ((~clean, "other than"), (clean, "of")):
        text = f"{some.sum()} coefficients {which} Clean*: largest distance from the printed"
        yield Claim(text, "three digits", exact(apart[some].max(skipna=False)), THREE_DIGITS)


def draw(frame: pd.DataFrame) -> Figure:
    """Matrix of coefficients, with our value above the printed one in each field."""
    places = list(dict.fromkeys([*frame["first"], *frame["second"]]))
    ours = frame.pivot(index="second", columns="first", values="spearman")
    figure, (axis,) = panels(1)
    axis.imshow(ours.reindex(index=places, columns=places), cmap="cividis", vmin=0, vmax=1)
    for row in frame.to_dict("records"):
        place = places.index(row["first"]), places.index(row["second"])
        text = f"{number(row['spearman']) or '–'}\n({number(row['printed'])})"
        colour = "white" if row["spearman"] < 0.5 else "black"
        axis.text(*place, text, ha="center", va="center", fontsize=7, color=colour)
    axis.set_xticks(range(len(places)), places)
    axis.set_yticks(range(len(places)), places)
    axis.set_title("Spearman, in brackets as printed")
    return figure


AGREEMENT = Study(
    "Spearman between metrics, and with the older table (Table 1)",
    measure,
    fixed={"dataset": DATASET, "seed": 0},
    claims=claims,
    figure=draw,
    note="PGD and FGSM are at 8/255 in both tables. Clean* needs the older project page's "
    "`acc.json` beside the downloaded file, which lacks it.",
    needs=(BENCHMARK, OLDER),
    lacks=lacks,
)
