"""The networks of NARes that are predicted, and their recorded scores."""

import json
from pathlib import Path

import pandas as pd
import pytest
from tiny import invoke

from cells.wideresnet import WideResNet
from experiments.data import RECORDED
from experiments.tools.nares import NARES, drawn, networks_of_nares, score_nares
from ntkscore import open_run

PREDICTED = (
    *("params", "flops", "layers", "depth", "field", "width", "params+clean.naswot"),
    *("clean.naswot", "clean.lambda_min_normalized", "robust.lambda_min_normalized"),
    "robust.frobenius",
)
"""What the protocol names."""


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


@pytest.mark.thorough
def test_the_recording_is_computed_again(tmp_path: Path, data_dir: Path) -> None:
    """The network with the fewest blocks, at the first seed."""
    score_nares(data_dir, out=tmp_path / "again", seeds=1, most=1)
    again, rows = open_run(tmp_path / "again").rows, open_run(RECORDED / NARES).rows
    recorded = rows[(rows["stages"] == str(drawn(1)[0])) & (rows["seed"] == 0)]
    assert len(again) == len(recorded) == 10
    recorded = recorded.reset_index(drop=True)
    clean = recorded["kernel"] == "clean"
    assert clean.any() and not clean.all()
    pd.testing.assert_frame_equal(again[clean], recorded[clean], rtol=1e-3)
    # A sign of FGSM that rounding turns moves an attacked image, and float64 lies between these.
    pd.testing.assert_frame_equal(again, recorded, rtol=5e-2)
