"""Robust accuracies that papers print for named networks, read from files of the data folder.

They are no part of this project, which has their place and form alone:

- Huang et al. (2023), "Revisiting residual networks for adversarial robustness", table 2, as in the
  README of https://github.com/zhichao-lu/robust-residual-network: twelve wide residual networks,
  three for each number of FLOPs, trained with TRADES on CIFAR-10.
- Table 1 of https://github.com/zhicheng2T0/Wsr-NAS (its picture `key_results.PNG`): genotypes,
  trained by one laboratory with TRADES-1 on CIFAR-10, networks of 20 cells.
"""

import csv
import json
import re
from pathlib import Path

import pandas as pd

from cells.darts import Darts
from cells.wideresnet import Stages
from experiments.study import DATASET, PRINTED_TABLES
from ntkscore.data.tables import Table
from ntkscore.errors import InputError

WIDE = f"{PRINTED_TABLES}/robust_residual_tables.csv"
GENOTYPES = f"{PRINTED_TABLES}/darts_robust.csv"
PGD20, GROUP, SCALED = "pgd20", "FLOPs", "scaled by"
PUBLISHED = "Table 2. Performance of independent scaling"
ONE_SOURCE = "TRADES-1 AT, 20 cells"
MISPRINT = "14-13-11x16-16-16", "14-13-6x16-16-16"
"""A network of the table, and the one whose parameters and FLOPs stand beside it. Its three depths
are then as 2 : 2 : 1, the paper's rule, as those of the other networks scaled by depth are."""


def _rows(path: Path) -> list[list[str]]:
    """The rows of a file of the data folder.

    Raises:
        InputError: if there is no such file.
    """
    if not path.is_file():
        raise InputError(
            f"expected published accuracies in {path}, got no such file; write the tables that "
            "experiments/darts/printed_tables.py names there, or leave this part out"
        )
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines()))


def wide_networks(path: Path) -> pd.DataFrame:
    """PGD-20 accuracy, FLOPs group and way of scaling of the wide residual networks.

    Args:
        path: the file, with a row for each of the table's and its title in the first column.

    Returns:
        A row for each network; the index has its name, accuracies are fractions.

    Raises:
        InputError: if there is no such file, or no such table in it.
    """
    found, group = [], 0
    rows = [row for row in _rows(path) if row[0].startswith(PUBLISHED) and row[3].isdecimal()]
    for number, row in enumerate(rows):
        name = f"{'-'.join(row[3:9:2])}x{'-'.join(row[4:9:2])}"
        name = MISPRINT[1] if name == MISPRINT[0] else name
        # The number of FLOPs stands in the second of its three rows.
        group = next(r[1] for r in rows[number // 3 * 3 :] if r[1])
        found.append((str(Stages.parse(name)), float(row[11]) / 100, group, row[2]))
    if not found:
        raise InputError(
            f"expected rows of a table {PUBLISHED!r} in {path}, got none; give that table's rows"
        )
    frame = pd.DataFrame(found, columns=["stages", PGD20, GROUP, SCALED])
    return frame.set_index("stages")


def named_genotypes(path: Path) -> pd.DataFrame:
    """PGD accuracy of the genotypes of one laboratory that the DARTS space has.

    Args:
        path: the file, with columns `architecture`, `train_protocol`, `pgd20` and `genotype`.

    Returns:
        A row for each; the index has its digits, accuracies are fractions.

    Raises:
        InputError: if there is no such file, or no such rows in it.
    """
    head, *rows = _rows(path) or [[]]
    found = []
    for row in (dict(zip(head, row, strict=True)) for row in rows):
        ours = row["train_protocol"].startswith(ONE_SOURCE)
        if ours and row["genotype"].count("concat=[2, 3, 4, 5]") == 2:
            genotype = Darts().parse(_paper_string(row["genotype"]))
            found.append((genotype.digits, float(row[PGD20]) / 100, row["architecture"]))
    if not found:
        raise InputError(
            f"expected rows with the protocol {ONE_SOURCE!r} in {path}, got none; give rows of "
            "that source"
        )
    return pd.DataFrame(found, columns=["genotype", PGD20, "name"]).set_index("genotype")


def _paper_string(text: str) -> str:
    """A genotype as papers print it, from one with JSON lists."""
    normal, reduce = (
        [(operation, source) for operation, source in json.loads(edges)]
        for edges in re.findall(r"(?:normal|reduce)=(\[\[.*?\]\])", text)
    )
    return f"Genotype(normal={normal}, reduce={reduce})"


def wide_table(path: Path) -> Table:
    """The accuracies of `wide_networks`, as a table."""
    return _table(wide_networks(path))


def genotype_table(path: Path) -> Table:
    """The accuracies of `named_genotypes`, as a table."""
    return _table(named_genotypes(path))


def _table(frame: pd.DataFrame) -> Table:
    return Table.from_frame(frame[[PGD20]], name="published accuracies", dataset=DATASET)
