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
from ntkscore.errors import InputError


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
    with pytest.raises(InputError, match=r"one of the 2 cells of mine, .* for 8; .* has it$"):
        table.accuracy(8, "cifar10", "clean")
    with refuses("but it has only the mean over seeds of val_acc on cifar10, got seed 1"):
        table.accuracy(7, "cifar10", "clean", seed=1)


def test_frame_of_architectures_by_other_keys() -> None:
    table = Table.from_frame(frame(clean=[0.9, 0.8]), dataset="svhn")
    assert table.own == ("resnet", "vgg")
    assert table.representative("vgg") == "vgg"
    assert table.accuracies("SVHN", "clean", ["vgg", "resnet"]).tolist() == [0.8, 0.9]
    for unknown in ("alexnet", 0):
        with pytest.raises(InputError, match=r"it has no results for .*; leave"):
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
        (frame(clean=[0.9, np.nan]), "nan for 'clean' of 'vgg'"),
        (frame(clean=[0.9, None]), "nan for 'clean' of 'vgg'"),
        (frame(clean=["0.9", "good"]), "'good' for 'clean' of 'vgg'"),
        (frame(clean=[91.5, 88]), "91.5 for 'clean' of 'resnet'"),
        (frame(clean=[0.9, -0.1]), "-0.1 for 'clean' of 'vgg'"),
        (frame(clean=[0.9, np.inf]), "inf for 'clean' of 'vgg'"),
        (frame(clean=[0.9, 0.8], val_acc=[0.9, 0.8]), "('cifar10', 'val_acc', None) twice"),
        (frame(), "a frame of shape (2, 0)"),
        (frame(clean=[0.9, 0.8])[:0], "a frame of shape (0, 1)"),
        (pd.DataFrame({"clean": [0.9, 0.8]}, index=[7, 7]), "7 twice"),
        (pd.DataFrame({"clean": [0.9, 0.8]}, index=["a", None]), "but one is missing"),
    ],
)
def test_frames_that_are_refused(accuracies: pd.DataFrame, got: str) -> None:
    with refuses(got):
        Table.from_frame(accuracies, name="mine", dataset="cifar10")


def test_frame_without_data_set() -> None:
    with pytest.raises(InputError, match=r"a data set for every .* 'clean' .* 'cifar10#clean'"):
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
    ("content", "message"),
    [
        (b"cell,clean\n7,0.9\n7,0.8\n", r"one row per architecture in mine, got 7 twice"),
        (b"cell,clean,clean\n7,0.9,0.8\n", r"one column per data set and metric .* twice"),
        (b"cell,clean\n7,90\n", r"fractions in \[0, 1\] in mine, got 90 for 'clean' of 7"),
        (b"cell,clean\n7,\n", r"a number for every .* got '' for 'clean' of 7; fill it in"),
        (b"cell,clean\n7,0.9,1\n", r"2 values in every row .* got \['7', '0\.9', '1'\]; corr"),
        (b"cell,clean\n7,0.9\n,0.8\n", r"a key for every architecture in mine, but one is missing"),
        (b"cell\n7\n", r"a header and rows .* got 1 rows under the header \['cell'\]; add"),
        (b"", r"a header and rows .* got 0 rows under the header \[\]; add"),
        (b"\xff", r"readable \.csv file in UTF-8 at .*\(UnicodeDecodeError: .*\); give another"),
        (None, r"readable \.csv file in UTF-8 at .*\(FileNotFoundError: .*\); give another path"),
    ],
)
def test_csv_that_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "mine.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_table(path, dataset="cifar10")


def parse_list(content: dict[str, Any], path: Path) -> Parsed:
    rows = {entry["name"]: [entry["accuracy"]] for entry in content["entries"]}
    return Parsed([("cifar10", "val_acc", None)], rows, {"twin": "b"})


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
    with refuses("but it has a dict of another form"):
        load_table(tmp_path / "networks.json")
    monkeypatch.setattr(benchmarks, "FORMATS", (*benchmarks.FORMATS, LIST))
    table = load_table(tmp_path)
    assert table.name == "a list of networks"
    assert table.own == ("b", "a")
    assert table.accuracy("twin", "cifar10", "clean") == 0.9
    assert table.representative("twin") == "b"
    with pytest.raises(InputError, match=r"for c; .* \(ask for a longer list\)"):
        table.accuracy("c", "cifar10", "clean")


def test_formats_do_not_claim_each_other() -> None:
    assert len({form.name for form in benchmarks.FORMATS}) == len(benchmarks.FORMATS)
    contents = {"": ["cifar10#val_acc"]}, {"": ["cifar10#clean"]}, {"cifar10": {}}
    for content in contents:
        assert sum(form.recognises(content) for form in benchmarks.FORMATS) == 1
