"""Scores of wide residual networks block by block, and the networks that are predicted."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import invoke

from cells.wideresnet import WideResNet
from experiments.data import RECORDED
from experiments.tools.nares import KEPT, NARES, drawn, networks_of_nares, scores
from ntkscore import ImageSet, open_run
from ntkscore.config import Config
from ntkscore.run.scorer import Scorer, precision
from ntkscore.run.scoring import Scoring

PREDICTED = (
    *("params", "flops", "layers", "depth", "field", "width", "params+clean.naswot"),
    *("clean.naswot", "clean.lambda_min_normalized", "robust.lambda_min_normalized"),
    "robust.frobenius",
)
"""What the protocol names."""
SCORED = ("1-2-1x2-1-3", "2-1-1x1-2-1")


def job(x64: bool) -> Scoring:
    rng = np.random.default_rng(0)
    images = ImageSet.of(rng.uniform(size=(5, 8, 8, 3)), np.arange(5) % 4)
    return Scoring.of(images, Config(samples=5, x64=x64), space=WideResNet(channels=2), seeds=[3])


def test_scores_are_those_of_the_package() -> None:
    of = job(True)
    scorer = Scorer(of.space, of.config)
    for name in SCORED:
        stages = of.space.parse(name)
        batch = scorer.batch(*of.draws[3], 3, of.space.shape(stages))
        with precision(of.config):
            found = scores(of.space, of.config, batch)
        (rows,) = scorer([stages], batch)
        expected = {
            (row["kernel"], row["score"]): (row["value"], row["status"])
            for row in rows
            if row["kernel"] in ("clean", "robust") and row["score"] in KEPT
        }
        assert len(expected) == 2 * len(KEPT)
        for key, (value, status) in expected.items():
            assert found[key].status == status == "ok"
            assert found[key].value == pytest.approx(value, rel=1e-9), key


def test_networks_are_drawn_once_and_for_all() -> None:
    every = networks_of_nares()
    assert len(set(every)) == 15_625
    assert (str(every[0]), str(every[-1])) == ("4-4-4x8-8-8", "11-11-11x16-16-16")
    chosen = drawn()
    assert len(set(chosen)) == 500 and set(chosen) < set(every)
    assert drawn(20) == chosen[:20]


def test_the_protocols_command_reads_the_predictions(tmp_path: Path) -> None:
    """With accuracies that are made up here: they rise with the parameters."""
    space, folder = WideResNet(), RECORDED / NARES
    sizes = {stages: space.costs(stages)["params"] for stages in drawn()}
    most = max(sizes.values())
    records = [
        {
            "arch": {
                f"{letter}{stage}": number
                for letter, numbers in (("D", stages.depths), ("W", stages.widths))
                for stage, number in enumerate(numbers, 1)
            },
            "train": [{}],
            "test_best": [{"Linf_aa_acc": 20 + 30 * params / most}],
        }
        for stages, params in sizes.items()
    ]
    table = tmp_path / "cifar10.jsonl"
    table.write_text("\n".join(map(json.dumps, records)))
    options = ("--table", table, "--metric", "autoattack", "--format", "json")
    rows = json.loads(invoke("correlate", folder, *options, "--resamples", 20).stdout)
    found = {row["score"]: row for row in rows}
    for name in PREDICTED:
        assert found[name]["n"] == 500 and found[name]["excluded"] == 0, name
    assert found["params"]["spearman"] == pytest.approx(1)
    assert found["clean.naswot"]["spearman"] < 0.999


def test_predictions_are_of_the_drawn_networks() -> None:
    rows = open_run(RECORDED / NARES).rows
    assert set(rows["stages"]) == set(map(str, drawn())) and set(rows["status"]) == {"ok"}
    assert rows.groupby("seed")["stages"].nunique().eq(500).all()
