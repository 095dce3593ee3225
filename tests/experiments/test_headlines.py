"""The numbers of README.md and docs/ranking.md, computed again from the recordings."""

import re
from pathlib import Path

import pytest

from experiments.data import DATASET, DEFAULT, METRIC, Data
from experiments.paper import PAPER, measures

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RANKING = (ROOT / "docs" / "ranking.md").read_text(encoding="utf-8")
NUMBER = r"-?[\d.]+"
ROW = re.compile(
    rf"""^\|\ (?:[^|`]*)`(?P<measure>[\w.+]+)`[^|]*
    \|\ (?P<spearman>{NUMBER})\ \[(?P<spearman_low>{NUMBER}),\ (?P<spearman_high>{NUMBER})\]\s
    \|\ (?P<spearman_top10>{NUMBER})\s
    \|\ (?P<best_accuracy>{NUMBER})\ \((?P<best_accuracy_rank>\d+)\)\s
    \|\ (?P<cifar100>{NUMBER})\ \|\ (?P<imagenet>{NUMBER})\s
    \|\ (?P<beside_counts>{NUMBER}|–)\ \|$""",
    re.MULTILINE | re.VERBOSE,
)
PUBLISHED = "clean.vkdnw+flops+clean.expressivity+clean.trainability+clean.jacov"
ROWS = {row["measure"]: row.groupdict() for row in ROW.finditer(RANKING)}


def test_the_page_has_the_measures_that_it_speaks_of() -> None:
    assert {"params", str(DEFAULT), *measures.SUMS, "robust.frobenius"} <= set(ROWS)
    assert len(ROWS) == 14


def test_the_readmes_limits_are_the_pages_and_the_reports() -> None:
    limits = README.partition("## Limits")[2].partition("##")[0]
    kernel, counts = "clean.lambda_min_normalized", "params+layers+path_pools+field"
    shown = (str(DEFAULT), PUBLISHED, counts, kernel, "params", "robust.frobenius")
    columns = ("spearman", "spearman_top10", "imagenet")
    wanted = [ROWS[measure][column] for measure in shown for column in columns]
    # What kernels add to counts.
    wanted += re.findall(r"from (0\.\d{3}) to (0\.\d{3})", RANKING)[0]
    # What the NTK-score has in our convention and in KNAS's.
    wanted += re.findall(r"has\s(0\.\d{3}), and on\s+1,000 \[(0\.\d{3})\]", RANKING)[0]
    assert re.findall(r"0\.\d{3}", limits) == wanted


@pytest.mark.slow
def test_the_pages_table(data: Data) -> None:
    frame = PAPER["measures"].at(measures=tuple(ROWS), metrics=(METRIC,)).frame(data)
    by_set = frame.set_index(["measure", "dataset"])
    for measure, row in ROWS.items():
        one = by_set.loc[(measure, DATASET)]
        computed = {name: f"{one[name]:.3f}" for name in row if name in one}
        computed |= {"measure": measure, "best_accuracy_rank": str(one["best_accuracy_rank"])}
        computed["beside_counts"] = f"{one['beside_counts']:.2f}".replace("nan", "–")
        for column, dataset in (("cifar100", "cifar100"), ("imagenet", "imagenet16-120")):
            computed[column] = f"{by_set.loc[(measure, dataset)]['spearman']:.3f}"
        assert computed == row
