"""The numbers that README.md and REPORT.md open with, computed again from the recordings."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
import pytest

from experiments.__main__ import EXPERIMENTS
from experiments.ours import score_combinations
from experiments.report import markdown_table, three_findings, verdict_counts
from experiments.study import DATASET, RECORDED, Finding, Outcome, Study
from ntkscore.analysis.score_names import DEFAULT

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
REPORT = (RECORDED.parent / "REPORT.md").read_text(encoding="utf-8")
SCORE_ROW = re.compile(
    r"""^\|\ `(?P<score>[\w.+]+)`[^|]*
    \|\ (?P<spearman>[\d.]+)\ \[(?P<low>[\d.]+),\ (?P<high>[\d.]+)\]\s
    \|\ (?P<top10>[\d.]+)\ \|\ (?P<best>\d{6})\s
    \|\ (?P<best_accuracy>[\d.]+)\ \((?P<best_rank>\d+)\)\ \|$""",
    re.MULTILINE | re.VERBOSE,
)
ROWS = {row["score"]: row.groupdict() for row in SCORE_ROW.finditer(README)}


def examined(
    study: Study, scores: pd.DataFrame, dataset: str, names: Iterable[str]
) -> pd.DataFrame:
    return pd.DataFrame(score_combinations.examine(study, scores, dataset, list(names)))


def test_the_readme_has_the_scores_that_it_speaks_of() -> None:
    assert {"params", str(DEFAULT), "clean.frobenius", "robust.frobenius"} <= set(ROWS)
    assert len(ROWS) >= 7


@pytest.mark.slow
def test_the_readmes_table(
    study: Study, scores: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_combinations, "RESAMPLES", 1000)  # as many as `correlate` takes
    for row in examined(study, scores, DATASET, ROWS).to_dict("records"):
        computed = {
            "score": row["score"],
            **{key: f"{row[key]:.3f}" for key in ("spearman", "low", "high", "top10")},
            "best": row["best"],
            "best_accuracy": f"{row['best_accuracy']:.3f}",
            "best_rank": str(row["best_rank"]),
        }
        assert computed == ROWS[row["score"]]


def test_the_readmes_other_data_sets(
    study: Study, scores: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_combinations, "RESAMPLES", 1)
    text = " ".join(README.split())
    number = r"(0\.\d{3})"
    sentences = {
        str(DEFAULT): rf"reaches {number} on CIFAR-100 and {number} on ImageNet16-120",
        "params": rf"\(`params`: {number} and {number}\)",
    }
    for name, pattern in sentences.items():
        stated = re.search(pattern, text)
        assert stated, pattern
        computed = [
            examined(study, scores, dataset, [name])["spearman"].item()
            for dataset in ("cifar100", "imagenet16-120")
        ]
        assert list(stated.groups()) == [f"{value:.3f}" for value in computed]


@pytest.mark.slow
def test_the_reports_verdicts(outcome_of: Callable[[str], Outcome]) -> None:
    findings: list[Finding] = []
    for name in EXPERIMENTS:
        outcome = outcome_of(name)
        findings += outcome.findings
        for finding in outcome.findings:
            entries = (finding.what, finding.paper, finding.ours, finding.verdict, finding.why)
            assert markdown_table(entries, []).splitlines()[0] in REPORT
    assert verdict_counts(findings) in REPORT
    for part in three_findings(findings):
        assert part in REPORT
