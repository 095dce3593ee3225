"""The page's section on arithmetic: this machine against float64 reference values."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from experiments.accelerator.page.text import MISSING, bullets, number
from experiments.report import markdown_table

KERNEL = "^(?:ntk|k)_"
"""Beginnings of the names of kernels among the quantities that are verified."""


def arithmetic(checks: pd.DataFrame) -> Iterator[str]:
    """Errors against tolerances: the worst of each file, then of each kernel.

    Args:
        checks: as `Folder.checks` has them.
    """
    yield "## Arithmetic"
    if checks.empty:
        yield MISSING
        return
    kernels = checks[checks["quantity"].str.contains(KERNEL)]
    yield (
        "Relative errors (Frobenius) of `ntkscore verify`, the largest of each file. A float32 "
        "kernel beyond its tolerance may lie within the bound of its kinks, and then passes."
    )
    head = ("file", "precision", "passed", "kernel", "largest error", "tolerance", "kink bound")
    yield markdown_table(head, map(_file_row, _groups(kernels, checks)))
    beyond = checks[checks["result"] != "pass"]
    if len(beyond):
        yield "Beyond their tolerance:"
        yield bullets([_failure(check) for check in beyond.to_dict("records")])
    yield "The largest error of each kernel over the files:"
    worst = kernels.pivot_table(
        index="quantity", columns="precision", values="error", aggfunc="max", sort=False
    )
    rows = ([name, *(f"{error:.1e}" for error in row)] for name, row in worst.iterrows())
    yield markdown_table(("kernel", *worst.columns), rows)


def _failure(check: Mapping[Hashable, Any]) -> str:
    return (
        f"{check['quantity']} of {check['file']} in {check['precision']}: error "
        f"{check['error']:.1e}, tolerance {check['tolerance']:.0e}"
    )


def _groups(
    kernels: pd.DataFrame, checks: pd.DataFrame
) -> Iterator[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """File, precision, its kernels and all its quantities."""
    for key, part in checks.groupby(["file", "precision"]):
        file, precision = map(str, key)
        yield file, precision, kernels.loc[kernels.index.intersection(part.index)], part


def _file_row(group: tuple[str, str, pd.DataFrame, pd.DataFrame]) -> tuple[str, ...]:
    file, precision, kernels, part = group
    passed = f"{(part['result'] == 'pass').sum()} of {len(part)}"
    if kernels.empty:
        return file, precision, passed, "", "", "", ""
    worst = kernels.loc[kernels["error"].idxmax()]
    return (
        file,
        precision,
        passed,
        worst["quantity"],
        f"{worst['error']:.1e}",
        f"{worst['tolerance']:.0e}",
        number(worst["kink bound"]),
    )
