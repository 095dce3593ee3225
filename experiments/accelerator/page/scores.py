"""The page's section on scores: how many could be measured, and how they agree with a table."""

from collections.abc import Iterator

import pandas as pd

from experiments.accelerator.folder import Folder
from experiments.accelerator.page.text import MISSING, number
from experiments.report import markdown_table
from experiments.study import BENCHMARK, DATASET, METRIC
from ntkscore import InputError, correlate, load_table
from ntkscore.analysis.frames import score_table
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.paths import data_home


def scores(folder: Folder, rows: pd.DataFrame) -> Iterator[str]:
    """Statuses counted, and Spearman with the robust accuracies where a table is at hand.

    Args:
        folder: with the ranking.
        rows: of its result directory.
    """
    yield "## Scores"
    if rows.empty:
        yield MISSING
        return
    counts = rows.groupby("status", observed=True)["cell"].agg(["size", "nunique"])
    yield markdown_table(
        ("status", "scores", "cells"),
        [(row.Index, f"{row.size:,}", f"{row.nunique:,}") for row in counts.itertuples()],
    )
    images = rows["dataset"].iloc[0]
    try:
        yield agreement(rows)
        yield f"Spearman with {METRIC} on {DATASET}; the scores are of {images} images."
    except InputError as error:
        yield f"Not held against a table: {error}."


def agreement(rows: pd.DataFrame) -> str:
    """Spearman of the default score and of the parameter count, as a table."""
    table = load_table(data_home() / BENCHMARK)
    scores = score_table(rows)
    kept = [term for term in DEFAULT.terms if term in scores]
    frame = correlate(scores[kept], table, DATASET, METRIC)
    # The default goes without terms that the run lacks, and then has another name.
    frame = frame[frame["score"].str.contains("+", regex=False) | (frame["score"] == "params")]
    return markdown_table(
        ("score", "cells", "Spearman", "95 % interval", "in the top 10 %"),
        [
            (
                f"`{row.score}`",
                row.n,
                number(row.spearman),
                f"{number(row.spearman_low)} to {number(row.spearman_high)}",
                number(row.spearman_top10),
            )
            for row in frame.itertuples()
        ],
    )
