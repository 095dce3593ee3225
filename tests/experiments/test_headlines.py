"""The numbers of README.md, docs/ranking.md and REPORT.md, computed again from the recordings."""

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from figures import check_written, near

from experiments.__main__ import EXPERIMENTS
from experiments.ours import measures
from experiments.recordings import FINDINGS
from experiments.report import markdown_table, three_findings, verdict_counts
from experiments.study import DATASET, METRIC, RECORDED, Finding, Outcome, Study
from ntkscore.analysis.score_names import DEFAULT

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RANKING = (ROOT / "docs" / "ranking.md").read_text(encoding="utf-8")
REPORT = (RECORDED.parent / "REPORT.md").read_text(encoding="utf-8")
NUMBER = r"-?[\d.]+"
ROW = re.compile(
    rf"""^\|\ (?:[^|`]*)`(?P<measure>[\w.+]+)`[^|]*
    \|\ (?P<spearman>{NUMBER})\ \[(?P<low>{NUMBER}),\ (?P<high>{NUMBER})\]\s
    \|\ (?P<top10>{NUMBER})\ \|\ (?P<best_accuracy>{NUMBER})\ \((?P<best_rank>\d+)\)\s
    \|\ (?P<cifar100>{NUMBER})\ \|\ (?P<imagenet>{NUMBER})\s
    \|\ (?P<beside_counts>{NUMBER}|–)\ \|$""",
    re.MULTILINE | re.VERBOSE,
)
ROWS = {row["measure"]: row.groupdict() for row in ROW.finditer(RANKING)}


def test_the_page_has_the_measures_that_it_speaks_of() -> None:
    assert {"params", str(DEFAULT), *measures.SUMS, "robust.frobenius"} <= set(ROWS)
    assert len(ROWS) == 10


def test_the_readmes_limits_are_the_pages_and_the_reports() -> None:
    limits = README.partition("## Limits")[2].partition("##")[0]
    counts = "params+layers+path_pools+field"
    wanted = [ROWS[one]["spearman"] for one in (str(DEFAULT), counts, "params", "robust.frobenius")]
    assert re.findall(r"0\.\d{3}", limits) == wanted
    for row in re.findall(r"^\| ([a-z' ]+) \| ([\d., ]+) \| ([\d., ]+) \|$", RANKING, re.MULTILINE):
        (line,) = re.findall(rf"^\| {row[0]} \| .*$", REPORT, re.MULTILINE)
        numbers = re.findall(r"0\.\d{3}\b", line)
        assert [", ".join(numbers[:6:2]), ", ".join(numbers[1:6:2])] == list(row[1:])


@pytest.mark.slow
def test_the_pages_table(study: Study, scores: pd.DataFrame) -> None:
    frame = pd.DataFrame(measures.examine(study, scores, list(ROWS), [METRIC]))
    by_set = frame.set_index(["measure", "dataset"])
    for measure, row in ROWS.items():
        one = by_set.loc[(measure, DATASET)]
        computed = {key: f"{one[key]:.3f}" for key in ("spearman", "low", "high", "top10")}
        computed |= {
            "measure": measure,
            "best_accuracy": f"{one['best_accuracy']:.3f}",
            "best_rank": str(one["best_rank"]),
            "beside_counts": "–"
            if pd.isna(one["beside_counts"])
            else f"{one['beside_counts']:.2f}",
        }
        for column, dataset in (("cifar100", "cifar100"), ("imagenet", "imagenet16-120")):
            computed[column] = f"{by_set.loc[(measure, dataset)]['spearman']:.3f}"
        assert computed == row


def test_the_default_is_what_the_protocol_chose() -> None:
    chosen = re.search(r"^\| any terms \| ([\w.+]+) \|", REPORT, re.MULTILINE)
    assert chosen and chosen[1] == str(DEFAULT)


@pytest.mark.thorough
def test_the_default_beats_counting_parameters(outcome_of: Callable[[str], Outcome]) -> None:
    """On cells that did not choose it, of two splits."""
    frame = outcome_of("default-score").frame
    held_out = frame.groupby(["family", "dataset"])[["spearman", "top10"]].mean()
    for dataset in ("cifar10", "cifar100", "imagenet16-120"):
        gain = held_out.loc[("the default", dataset)] - held_out.loc[("parameter count", dataset)]
        assert gain["spearman"] > 0.09 and gain["top10"] > 0.05


@pytest.mark.thorough
def test_the_reports_verdicts(outcome_of: Callable[[str], Outcome]) -> None:
    findings: list[Finding] = []
    for name, experiment in EXPERIMENTS.items():
        if not experiment.run.__module__.startswith("experiments.paper"):
            continue  # The statements are the paper's.
        outcome = outcome_of(name)
        findings += outcome.findings
        for finding in outcome.findings:
            entries = (finding.what, finding.paper, finding.ours, finding.verdict, finding.why)
            assert markdown_table(entries, []).splitlines()[0] in REPORT
    assert verdict_counts(findings) in REPORT
    for part in three_findings(findings):
        assert part in REPORT


@pytest.mark.thorough
def test_correlations_of_the_ntk_score(
    outcome_of: Callable[[str], Outcome], study: Study, tmp_path: Path
) -> None:
    outcome = outcome_of("ntk-correlation")
    check_written(outcome, study, "ntk-correlation", {"space", "radii", *FINDINGS}, tmp_path)
    frame = outcome.frame
    frame = frame[(frame["recording"] == "space") & (frame["metric"] == "val_pgd_8_acc")]
    rows = frame.set_index("score")
    assert rows.loc["robust.frobenius", "n"] == 6461
    assert rows.loc["robust.frobenius", "spearman"] == near(0.415)
    assert rows.loc["robust.frobenius", "lowest_seed"] == near(0.372)
    assert rows.loc["robust.frobenius", "highest_seed"] == near(0.488)
    assert rows.loc["clean.frobenius", "spearman"] == near(0.420)
    assert rows.loc["clean.lambda_min_normalized", "given_params"] == near(0.683)
    assert rows.loc["params", "spearman"] == near(0.820)
