"""Docs say what was found: rows of statements and counts of them, and the numbers of rankings."""

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from experiments.data import DATASET, SPACE, Data, sum_named
from experiments.frame import Verdict
from ntkscore.analysis.agreement import agreement
from ntkscore.analysis.frames import network_table
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.kernels.joint import JOINT

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RANKING = (ROOT / "docs" / "ranking.md").read_text(encoding="utf-8")
STATEMENTS = (ROOT / "docs" / "statements.md").read_text(encoding="utf-8")
FROZEN = (ROOT / "experiments" / "frozen" / "README.md").read_text(encoding="utf-8")
WORDS = 15
"""Words of a cell of the statements, at most."""
NUMBER = r"-?[\d.]+"
ROW = re.compile(
    rf"""^\|\ (?:[^|`]*)`(?P<measure>[\w.+]+)`[^|]*
    \|\ (?P<spearman>{NUMBER})\ \[(?P<low>{NUMBER}),\ (?P<high>{NUMBER})\]\s
    \|\ (?P<top10>{NUMBER})\ \|\ (?P<best_accuracy>{NUMBER})\ \((?P<best_rank>\d+)\)\s
    \|\ (?P<cifar100>{NUMBER})\ \|\ (?P<imagenet>{NUMBER})\s
    \|\ (?P<beside_counts>{NUMBER}|–)\ \|$""",
    re.MULTILINE | re.VERBOSE,
)
PUBLISHED = "clean.vkdnw+flops+clean.expressivity+clean.trainability+clean.jacov"
ROWS = {row["measure"]: row.groupdict() for row in ROW.finditer(RANKING)}
RECORDINGS = ("space", "trainability", "perturbations", "weights")


def statements() -> list[list[str]]:
    """The cells of each statement's row."""
    lines = re.findall(r"^\| (?!statement )(.*) \|$", STATEMENTS, re.MULTILINE)
    return [re.split(r" (?<!\\)\| ", line) for line in lines]


def test_each_statement_has_one_of_five_verdicts_and_the_head_counts_them() -> None:
    assert all(len(row) == 4 for row in statements())
    counts = Counter(verdict for _, verdict, *_ in statements())
    assert counts.keys() <= set(get_args(Verdict))
    said = re.search(r"Of (\d+) rows: (.*?)\.", STATEMENTS.replace("\n", " "))
    assert said and int(said[1]) == counts.total()
    named = (part.partition(" ") for part in said[2].split(", "))
    assert {verdict: int(number) for number, _, verdict in named} == counts


def test_statements_are_short_and_each_says_where() -> None:
    defined = set(re.findall(r"^\[([^]]+)\]: \S+$", STATEMENTS, re.MULTILINE))
    named = set()
    for row in statements():
        assert [cell for cell in row if len(cell.split()) > WORDS] == []
        places = [last or first for first, last in re.findall(r"\[([^]]+)\](?:\[(.*?)\])?", row[3])]
        assert places, row[0]
        named |= set(places)
    assert named == defined


def test_a_frozen_study_that_a_page_leads_to_has_its_row() -> None:
    led = {
        name
        for page in (ROOT / "docs").glob("*.md")
        for name in re.findall(r"frozen/([\w-]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert led and led <= set(re.findall(r"^\| ([\w-]+)[ |]", FROZEN, re.MULTILINE))


def test_the_readmes_limits_are_the_ranking_pages() -> None:
    limits = README.partition("## Limits")[2].partition("##")[0]
    kernel, counts = "clean.lambda_min_normalized", "params+layers+path_pools+field"
    shown = (str(DEFAULT), PUBLISHED, counts, kernel, "params", "robust.frobenius")
    columns = ("spearman", "top10", "imagenet")
    wanted = [ROWS[measure][column] for measure in shown for column in columns]
    # What kernels add to counts, and the paper's score at other settings.
    patterns = r"from (0\.\d{3}) to (0\.\d{3})", r"it has (0\.\d{3}), and on\n  1,000 \[(\S+)\]"
    for pattern in patterns:
        wanted += re.findall(pattern, RANKING)[0]
    assert re.findall(r"0\.\d{3}", limits) == wanted


@pytest.mark.slow
def test_the_ranking_pages_coefficients(data_dir: Path) -> None:
    data = Data(data_dir)
    rows = pd.concat([data.rows(name) for name in RECORDINGS], ignore_index=True)
    table = network_table(rows[~rows["kernel"].isin(JOINT) | (rows["beta"] == 0.5)], SPACE)
    accuracies = data.accuracies(table.index)
    sets = {"spearman": DATASET, "cifar100": "cifar100", "imagenet": "imagenet16-120"}
    assert len(ROWS) == 12
    for measure, row in ROWS.items():
        scores = sum_named(measure).of(table)
        for column, dataset in sets.items():
            assert f"{agreement(scores, accuracies[dataset]).spearman:.3f}" == row[column]
