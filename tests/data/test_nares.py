"""The table of adversarially trained wide residual networks, on records that were written here.

The published file was not at hand: keys and their meaning are those of its authors' reader.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tiny import invoke, refused, refuses

from cells.wideresnet import WideResNet
from ntkscore import correlate, lookup
from ntkscore.data.tables import load_table
from ntkscore.run.selection import select

SIZES = ((4, 8, 5, 10, 7, 12), (11, 16, 9, 14, 4, 8), (4, 8, 4, 8, 4, 8))
"""D₁, W₁, D₂, W₂, D₃, W₃ of three networks."""
NAMES = ("4-5-7x8-10-12", "11-9-4x16-14-8", "4-4-4x8-8-8")


def record(sizes: tuple[int, ...], start: float) -> dict[str, Any]:
    """A record of four epochs whose second is the best; per cents grow from `start`."""
    arch = dict(zip(("D1", "W1", "D2", "W2", "D3", "W3"), sizes, strict=True))
    levels = {str(level): {"acc": start + level, "loss": 1.0} for level in range(1, 6)}
    return {
        "arch": arch,
        "arch_id": 1,
        "MACs": 1.5,
        "Params": 2.5,
        "train": [
            {
                "seed": 0,
                "best_epoch": 1,
                "val_acc": [start + 20 + epoch for epoch in range(4)],
                "pgd": [start + epoch for epoch in range(4)],
                "cw": [start - epoch for epoch in range(4)],
            }
        ],
        "test_best": [
            {
                "test_clean_acc": start + 30,
                "test_loss": 0.9,
                "Linf_fgsm_acc": start + 10,
                "Linf_pgd_acc": start + 5,
                "Linf_cw_acc": start + 4,
                "Linf_aa_acc": start + 2,
                "Linf_pgd_lip": 12.0,
                "corruptions": {"fog": levels, "snow": levels},
            }
        ],
    }


RECORDS = [record(sizes, 30.0 + k) for k, sizes in enumerate(SIZES)]


def lines(records: list[Any]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in records).encode()


def archive(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cifar10.jsonl"
    path.write_bytes(lines(RECORDS))
    return path


def test_metrics_have_our_names_and_networks_the_spaces(file: Path) -> None:
    table = load_table(file)
    assert table.name == "nares" and table.own == NAMES
    assert table.checksum == hashlib.sha256(file.read_bytes()).hexdigest()
    tested = {"clean": 60, "fgsm8": 40, "pgd8": 35, "cw8": 34, "autoattack": 32, "corruptions": 33}
    for k, name in enumerate(NAMES):
        for metric, percent in tested.items():
            assert table.accuracy(name, "cifar10", metric) == pytest.approx((percent + k) / 100)
        # The second epoch, by its number from 0.
        validated = {"clean": 51, "pgd8": 31, "cw8": 29}
        for metric, percent in validated.items():
            assert table.accuracy(name, "cifar10.1", metric) == pytest.approx((percent + k) / 100)
    assert len(table.metrics("cifar10")) == 6 and len(table.metrics("cifar10.1")) == 3


@pytest.mark.parametrize("place", ["cifar10.jsonl", "./data/cifar10.jsonl"])
def test_the_archive_is_read_as_it_is(tmp_path: Path, file: Path, place: str) -> None:
    path = tmp_path / "nares.txz"
    path.write_bytes(archive(("data/notes.txt", b"no JSON"), (place, file.read_bytes())))
    table, plain = load_table(path), load_table(file)
    assert table.own == plain.own and table.checksum != plain.checksum
    frames = [lookup(list(NAMES), each, space=WideResNet()) for each in (table, plain)]
    pd.testing.assert_frame_equal(*frames)
    # Of a folder with both, the file is read, and the archive is no second part.
    assert load_table(tmp_path).checksum == plain.checksum
    file.unlink()
    assert load_table(tmp_path).checksum == table.checksum
    assert sorted(each.name for each in tmp_path.iterdir()) == ["nares.txz"]


def test_fractions_are_read_as_such_by_column(file: Path) -> None:
    records = json.loads(json.dumps(RECORDS))
    for each in records:
        (tested,) = each["test_best"]
        tested["Linf_aa_acc"] /= 100
    file.write_bytes(lines(records))
    table = load_table(file)
    assert table.accuracy(NAMES[1], "cifar10", "autoattack") == pytest.approx(0.33)
    assert table.accuracy(NAMES[1], "cifar10", "pgd8") == pytest.approx(0.36)


def test_a_metric_that_a_network_lacks_is_left_out(file: Path) -> None:
    first, *others = json.loads(json.dumps(RECORDS))
    first["test_best"][0] |= {"corruptions": {}, "Linf_cw_acc": None}
    del first["train"][0]["cw"]
    file.write_bytes(lines([*others, first]) + b"\n")
    table = load_table(file)
    assert table.metrics("cifar10") == ("val_acc", "val_fgsm_8_acc", "val_pgd_8_acc", "autoattack")
    assert table.metrics("cifar10.1") == ("val_acc", "val_pgd_8_acc")
    with refuses("cw8", expected=("nares", "cifar10", "val_acc")):
        table.accuracy(NAMES[0], "cifar10", "cw8")


def changed(**entries: Any) -> dict[str, Any]:
    return json.loads(json.dumps(RECORDS[0])) | entries


TESTED = RECORDS[0]["test_best"][0]


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"", ["cells"]),
        (b"[1, 2]\n", [1, "TypeError"]),
        (lines(RECORDS)[:-40], [3, "JSONDecodeError"]),
        (b"\xff", [1, "UnicodeDecodeError"]),
        (lines([changed(arch={"D1": 4})]), [1, "KeyError", "D2"]),
        (
            lines([changed(arch=RECORDS[0]["arch"] | {"W3": 1.5})]),
            ["ValueError", [4, 5, 7, 8, 10, 1.5]],
        ),
        (lines([RECORDS[1], changed(test_best=[])]), [2, "ValueError"]),
        (lines([changed(test_best=[TESTED] * 2)]), [1, "ValueError"]),
        (
            lines([RECORDS[1], changed(train=[{"best_epoch": 9, "val_acc": [1.0]}])]),
            [2, "IndexError"],
        ),
        (
            lines([changed(train=[{"best_epoch": -1, "val_acc": [1.0, 2.0]}])]),
            [1, "ValueError", -1],
        ),
        (lines([RECORDS[1], RECORDS[1]]), ["11-9-4x16-14-8"]),
        (
            lines([RECORDS[1], changed(test_best=[TESTED | {"Linf_aa_acc": "n/a"}])]),
            ["n/a", "4-5-7x8-10-12"],
        ),
        (
            lines([changed(test_best=[TESTED | {"Linf_aa_acc": -3.0}])]),
            [-3.0, "4-5-7x8-10-12"],
        ),
        (
            lines([changed(test_best=[TESTED | {"Linf_aa_acc": float("nan")}])]),
            ["nan", "4-5-7x8-10-12"],
        ),
        (
            lines([changed(test_best=[TESTED | {"Linf_aa_acc": 5000}])]),
            [50.0, "4-5-7x8-10-12"],
        ),
    ],
)
def test_altered_files(file: Path, content: bytes, got: list) -> None:
    file.write_bytes(content)
    with refuses(*got, expected=file):
        load_table(file)


def test_altered_archives(tmp_path: Path) -> None:
    path = tmp_path / "nares.txz"
    whole = archive(("cifar10.jsonl", lines(RECORDS * 200)))
    contents = {
        b"no archive": [],
        archive(("other.jsonl", lines(RECORDS))): ["cifar10.jsonl"],
        whole[: len(whole) // 2]: [],
        whole[:-200] + bytes(200): [],
    }
    for content, got in contents.items():
        path.write_bytes(content)
        with refuses(*got, expected=("cifar10.jsonl", path)):
            load_table(path)
    with refuses(expected=tmp_path / "absent.txz", remedy="`ntkscore fetch nares`"):
        load_table(tmp_path / "absent.txz")


def test_networks_are_looked_up_chosen_and_compared(file: Path) -> None:
    space = WideResNet()
    row = lookup("4-5-7x8-10-12", file, "cifar10", space=space).iloc[0]
    assert row["autoattack"] == pytest.approx(0.32)
    assert row["params"] == space.costs(space.parse(NAMES[0]))["params"]
    table = load_table(file)
    assert tuple(map(str, select("table", space, table))) == NAMES
    scores = pd.DataFrame({"clean.trace": [3.0, 2.0, 1.0]}, index=NAMES)
    found = correlate(scores, table, "cifar10", "autoattack", space=space, resamples=10)
    assert found.set_index("score")["spearman"]["clean.trace"] == pytest.approx(-1)


def test_commands_read_it(file: Path) -> None:
    options = ("--table", file, "--space", "wideresnet", "--format", "json")
    rows = json.loads(invoke("lookup", NAMES[2], *options).stdout)
    assert [each["dataset"] for each in rows] == ["cifar10", "cifar10.1"]
    rows = json.loads(invoke("correlate", file.parent, *options, "--metric", "autoattack").stdout)
    of = {each["score"]: each["spearman"] for each in rows}
    assert of["val_pgd_8_acc"] == pytest.approx(1) and "params" in of
    refused("got 5-5-5x8-8-8; leave this cell out", "lookup", "5-5-5x8-8-8", *options)
