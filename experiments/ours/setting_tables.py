"""The tables of the report about kernels at every recorded β, radius, fidelity and convention."""

from collections.abc import Iterator, Mapping

import pandas as pd

from experiments.ours.kernel_settings import BETA, KERNEL, REFERENCES, SHAPE
from experiments.ours.sweep import LABELS
from experiments.paper.contrasts import NOTABLE, Contrast
from experiments.recordings import RECORDINGS
from experiments.study import interval

BETAS = (0.0, 0.5, BETA)


def higher(frame: pd.DataFrame) -> pd.DataFrame:
    """The settings that are above `KERNEL` by a notable difference whose interval is above 0."""
    settings = frame[~frame["setting"].isin(REFERENCES)]
    return settings[(settings["gain_low"] > 0) & (settings["gain"] >= NOTABLE)]


def of_column(row: pd.Series, column: str, joined: str = "_") -> str:
    """A column's number with its interval."""
    return interval(row[column], row[f"{column}{joined}low"], row[f"{column}{joined}high"])


def beta_table(frame: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Joint kernels at three β: a row for each kernel and score."""
    by_name = frame.set_index("setting")
    for kernel, label in LABELS.items():
        for score in ("frobenius", "trace", "lambda_min", SHAPE):
            row = {"kernel": label, "score": score}
            for beta in BETAS:
                one = by_name.loc[f"space 8/255 {kernel}@{beta:g}.{score}"]
                texts = of_column(one, "beside"), of_column(one, "equal counts", ": ")
                row[f"β = {beta:g}: beside counts; τ"] = "; ".join(texts)
            yield row


def recordings_table(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    """A row for each recording of kernels at 8/255: partial coefficients of two scores.

    Those of `fidelity/`, of 40 cells, tell nothing.
    """
    by_name = frame.drop_duplicates("setting").set_index("setting")
    for name in RECORDINGS:
        first = f"{name} 8/255 "
        if name.startswith("fidelity/") or f"{first}{KERNEL}" not in by_name.index:
            continue
        of = {score: by_name.loc[first + score] for score in (KERNEL, "robust.frobenius")}
        one = of[KERNEL]
        yield {
            "recording": f"`{name}`",
            "cells": f"{one['cells']:,}",
            **{score: of_column(row, "beside") for score, row in of.items()},
            f"{KERNEL}, less that of `space`": of_column(one, "gain"),
            "τ, equal size": f"{one['equal size']:.2f}",
            "pairs": f"{one['equal size: pairs']:,}",
        }


def summary(
    settings: Mapping[str, pd.DataFrame], chosen: Mapping[str, tuple[str, Mapping[str, Contrast]]]
) -> Iterator[dict[str, object]]:
    """What came of the settings of each sample, a row each."""
    for sample, frame in settings.items():
        by_name = frame.set_index("setting")
        others = by_name.drop(list(REFERENCES))
        best = str(others["beside"].idxmax())
        row: dict[str, object] = {
            "varied": sample,
            "cells": f"{by_name['cells'].iloc[0]:,}",
            "settings": len(others),
            f"{KERNEL} of `space`": of_column(by_name.loc[KERNEL], "beside"),
            "the best": f"{best}: {of_column(by_name.loc[best], 'beside')}",
            "above the first": len(higher(frame)),
            "above 0": int((others["beside_low"] > 0).sum()),
            "above 0, by chance": f"{0.025 * len(others):.0f}",
            "chosen on a half": "",
            "on the other half, less the first": "",
        }
        if sample in chosen:
            name, gaps = chosen[sample]
            gap = gaps[KERNEL].means
            text = interval(gap.value, gap.low, gap.high, "+.3f")
            row |= {"chosen on a half": name, "on the other half, less the first": text}
        yield row
