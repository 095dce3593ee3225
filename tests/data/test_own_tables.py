"""Tables of a person's own accuracies, and of a format of one's own."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import refuses

from cells.nasbench201.cell import Cell
from ntkscore.data import benchmarks
from ntkscore.data.benchmarks import Parsed, TableFormat
from ntkscore.data.tables import Table, load_table


def frame(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(columns, index=["resnet", "vgg"])


def test_frame_of_cells() -> None:
    accuracies = pd.DataFrame({"clean": [0.9, 0.8], "PGD-8": [0.5, 0]}, index=[2581, 7])
    table = Table.from_frame(accuracies, name="mine", dataset="CIFAR-10")
    assert table.name == "mine"
    assert table.own == (2581, 7)
    assert table.datasets == ("cifar10",)
    assert table.metrics("cifar10") == ("val_acc", "val_pgd_8_acc")
    assert table.accuracy(Cell(2581), "cifar10", "clean") == 0.9
    assert table.accuracies("cifar10", "pgd8", [7, np.int64(2581)]).tolist() == [0, 0.5]
    assert table.representative(Cell(7)) == 7
    with refuses(8, expected=(2, "mine")):
        table.accuracy(8, "cifar10", "clean")
    with refuses("val_acc", "cifar10", 1, expected="mine"):
        table.accuracy(7, "cifar10", "clean", seed=1)


def test_frame_of_architectures_by_other_keys() -> None:
    table = Table.from_frame(frame(clean=[0.9, 0.8]), dataset="svhn")
    assert table.own == ("resnet", "vgg")
    assert table.representative("vgg") == "vgg"
    assert table.accuracies("SVHN", "clean", ["vgg", "resnet"]).tolist() == [0.8, 0.9]
    for unknown in ("alexnet", 0):
        with refuses(unknown, expected=2):
            table.accuracy(unknown, "svhn", "clean")
    pairs = pd.DataFrame({"clean": [0.9, 0.8]}, pd.MultiIndex.from_tuples([(3, "a"), (3, "b")]))
    assert Table.from_frame(pairs, dataset="svhn").accuracy((3, "b"), "svhn", "clean") == 0.8


def test_frame_of_several_data_sets() -> None:
    accuracies = frame(**{"cifar10#clean": [0.9, 0.8], "ImageNet#clean": [0.3, 0.2], "aa": [0, 1]})
    table = Table.from_frame(accuracies, dataset="cifar10")
    assert table.datasets == ("cifar10", "imagenet16-120")
    assert table.metrics("cifar10") == ("val_acc", "autoattack")
    assert table.accuracy("vgg", "imagenet", "clean") == 0.2


def test_checksum_tells_frames_apart() -> None:
    one, other = frame(clean=[0.9, 0.8]), frame(clean=[0.9, 0.7])
    same = frame(val_acc=[0.9, 0.8])
    tables = [Table.from_frame(f, dataset="cifar10") for f in (one, same, other)]
    assert tables[0].checksum == tables[1].checksum != tables[2].checksum
    assert len(tables[0].checksum) == 64


@pytest.mark.parametrize(
    ("accuracies", "got"),
    [
        (frame(clean=[0.9, np.nan]), ["nan", "clean", "vgg"]),
        (frame(clean=[0.9, None]), ["nan", "clean", "vgg"]),
        (frame(clean=["0.9", "good"]), ["good", "clean", "vgg"]),
        (frame(clean=[91.5, 88]), [91.5, "clean", "resnet"]),
        (frame(clean=[0.9, -0.1]), [-0.1, "clean", "vgg"]),
        (frame(clean=[0.9, np.inf]), ["inf", "clean", "vgg"]),
        (frame(clean=[0.9, 0.8], val_acc=[0.9, 0.8]), [("cifar10", "val_acc", None)]),
        (frame(), [(2, 0)]),
        (frame(clean=[0.9, 0.8])[:0], [(0, 1)]),
        (pd.DataFrame({"clean": [0.9, 0.8]}, index=[7, 7]), [7]),
        (pd.DataFrame({"clean": [0.9, 0.8]}, index=["a", None]), ["one"]),
    ],
)
def test_frames_that_are_refused(accuracies: pd.DataFrame, got: list) -> None:
    with refuses(*got, expected="mine"):
        Table.from_frame(accuracies, name="mine", dataset="cifar10")


def test_frame_without_data_set() -> None:
    with refuses("clean", remedy="cifar10#clean"):
        Table.from_frame(frame(clean=[0.9, 0.8]))


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("cell, cifar10#clean ,cifar10#pgd8\n2581, 0.9,0.5\n\n7,0.8,4e-1\n")
    table = load_table(path)
    assert table.name == "mine"
    assert table.own == (2581, 7)
    assert table.accuracy(Cell(7), "cifar10", "pgd8") == 0.4
    assert table.checksum == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("keys", "own"),
    [
        (("7", "11"), (7, 11)),
        (("-7", "0"), (-7, 0)),
        (("0110", "1000"), ("0110", "1000")),
        (("7", "eleven"), ("7", "eleven")),
        (("7.0", "1e3"), ("7.0", "1e3")),
        (("NA", "-0"), ("NA", "-0")),
        (("nor,skip", "nan"), ("nor,skip", "nan")),
    ],
)
def test_csv_keys(tmp_path: Path, keys: tuple[str, str], own: tuple[object, ...]) -> None:
    path = tmp_path / "mine.CSV"
    path.write_text("\ufeffkey,clean\n" + "".join(f'"{key}",0.5\n' for key in keys), "utf-8")
    assert load_table(str(path), dataset="cifar10").own == own


@pytest.mark.parametrize(
    ("content", "got", "expected"),
    [
        (b"cell,clean\n7,0.9\n7,0.8\n", [7], "mine"),
        (b"cell,clean,clean\n7,0.9,0.8\n", [("cifar10", "val_acc", None)], "mine"),
        (b"cell,clean\n7,90\n", [90, "clean", 7], ("[0, 1]", "mine")),
        (b"cell,clean\n7,\n", ["", "clean", 7], "mine"),
        (b"cell,clean\n7,0.9,1\n", [["7", "0.9", "1"]], (2, "mine.csv")),
        (b"cell,clean\n7,0.9\n,0.8\n", ["one"], ("key", "mine")),
        (b"cell\n7\n", [1, ["cell"]], "mine.csv"),
        (b"", [0, []], "mine.csv"),
        (b"\xff", ["UnicodeDecodeError"], ("UTF-8", "mine.csv")),
        (None, ["FileNotFoundError"], "mine.csv"),
    ],
)
def test_csv_that_is_refused(
    tmp_path: Path, content: bytes | None, got: list, expected: Any
) -> None:
    path = tmp_path / "mine.csv"
    if content is not None:
        path.write_bytes(content)
    with refuses(*got, expected=expected):
        load_table(path, dataset="cifar10")


def parse_list(content: dict[str, Any], path: Path) -> Parsed:
    rows = {entry["name"]: [entry["accuracy"]] for entry in content["entries"]}
    return [("cifar10", "val_acc", None)], rows, {"twin": "b"}


LIST = TableFormat(
    name="a list of networks",
    files=("networks.json",),
    recognises=lambda content: "entries" in content,
    parse=parse_list,
    remedy="ask for a longer list",
)


def test_one_entry_makes_a_table_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{"name": "b", "accuracy": 0.9}, {"name": "a", "accuracy": 0.8}]
    (tmp_path / "networks.json").write_text(json.dumps({"entries": entries}))
    with refuses("dict"):
        load_table(tmp_path / "networks.json")
    monkeypatch.setattr(benchmarks, "FORMATS", (*benchmarks.FORMATS, LIST))
    table = load_table(tmp_path)
    assert table.name == "a list of networks"
    assert table.own == ("b", "a")
    assert table.accuracy("twin", "cifar10", "clean") == 0.9
    assert table.representative("twin") == "b"
    with refuses("c", expected=3, remedy="(ask for a longer list)"):
        table.accuracy("c", "cifar10", "clean")


def test_formats_do_not_claim_each_other() -> None:
    assert len({form.name for form in benchmarks.FORMATS}) == len(benchmarks.FORMATS)
    contents = {"": ["cifar10#val_acc"]}, {"": ["cifar10#clean"]}, {"cifar10": {}}
    for content in contents:
        assert sum(form.recognises(content) for form in benchmarks.FORMATS) == 1
