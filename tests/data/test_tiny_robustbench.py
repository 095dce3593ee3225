"""The table of adversarially trained DARTS cells, and tables of named genotypes."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import refuses

from cells.darts import Darts
from cells.darts.genotype import OPERATIONS, Genotype
from ntkscore import correlate, lookup
from ntkscore.analysis.comparison import in_keys_of
from ntkscore.data.downloads import SOURCES
from ntkscore.data.tables import load_table
from ntkscore.run.selection import select

FILES = SOURCES["tiny-robustbench"].contents
NAMES = ("DARTS", "AdvRush", "RACL", "P-DARTS")


def entry(name: str, start: float) -> dict[str, Any]:
    """A training of eight epochs; accuracies grow by one per cent, but for the last."""
    genotype = Genotype.parse(name)
    normal, reduce = ([[OPERATIONS[o], source] for o, source in cell] for cell in genotype.cells)
    adversarial = [start + epoch for epoch in range(7)] + [start]
    return {
        "net": {"genotype": {"normal": normal, "reduce": reduce}},
        "test_ep_top1_original": [2 * accuracy for accuracy in adversarial],
        "test_ep_top1_adv": adversarial,
        "max_test_top1_original": 2 * max(adversarial),
        "max_test_top1_adv": max(adversarial),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two of the four files, with two cells each."""
    for file, first in zip(FILES[:3:2], (0, 2), strict=True):
        entries = [entry(NAMES[i], 30 + i) for i in (first, first + 1)]
        (tmp_path / file).write_text(json.dumps(entries))
    return tmp_path


def test_the_files_of_a_folder_are_one_table(folder: Path) -> None:
    table = load_table(folder)
    assert table.name == "tiny-robustbench" and table.datasets == ("cifar10",)
    table = in_keys_of(Darts(), table)
    assert table.own == tuple(Genotype.parse(name).digits for name in NAMES)
    racl = Genotype.parse("RACL").digits
    values = [table.accuracy(racl, "cifar10", f"pgd8{epoch}") for epoch in ("", "-last", "-last5")]
    assert values == pytest.approx([0.38, 0.32, (0.35 + 0.36 + 0.37 + 0.38 + 0.32) / 5])
    clean = [table.accuracy(racl, "cifar10", f"clean{epoch}") for epoch in ("", "_last", "_LAST5")]
    assert clean == pytest.approx([2 * value for value in values])


def test_one_file_is_a_table_of_its_own(folder: Path) -> None:
    first, second = (load_table(folder / file) for file in FILES[:3:2])
    assert first.own + second.own == load_table(folder).own
    assert len({first.checksum, second.checksum, load_table(folder).checksum}) == 3
    (folder / FILES[0]).rename(folder / "mine.json")
    assert load_table(folder / "mine.json").own == first.own
    assert load_table(folder).checksum == second.checksum


@pytest.mark.parametrize(
    ("change", "got", "expected"),
    [
        ({"max_test_top1_adv": 138}, [1.38], "[0, 1]"),
        ({"test_ep_top1_adv": []}, [0, "StatisticsError"], "genotypes"),
        ({"test_ep_top1_adv": ["a"]}, [0, "TypeError"], "genotypes"),
        ({"net": {}}, [0, "KeyError", "genotype"], "genotypes"),
        (
            {"net": {"genotype": {"normal": [], "reduce": []}}},
            [0, "ValueError", [[], []]],
            "genotypes",
        ),
        (entry("AdvRush", 30), ["Genotype(normal=[('sep_conv_3x3', 1)"], "genotype"),
    ],
)
def test_altered_files(folder: Path, change: dict[str, Any], got: list, expected: str) -> None:
    path = folder / FILES[0]
    first, *others = json.loads(path.read_text())
    path.write_text(json.dumps([first | change, *others]))
    with refuses(*got, expected=expected):
        load_table(folder)


@pytest.mark.parametrize("content", [3, [3], [{}], {"adv": {}}])
def test_what_is_no_such_table(folder: Path, content: Any) -> None:
    (folder / FILES[0]).write_text(json.dumps(content))
    for path in (folder, folder / FILES[0]):
        with refuses(expected="tiny-robustbench"):
            load_table(path)


def test_cells_of_the_table_are_looked_up_and_chosen(folder: Path) -> None:
    table = load_table(folder)
    row = lookup(Genotype.parse("darts").string, table, space=Darts()).iloc[0]
    assert (row["results of"], row["val_pgd_8_acc"]) == (Genotype.parse("DARTS").digits, 0.36)
    assert select("table", Darts(), table) == tuple(map(Genotype.parse, NAMES))


def test_names_in_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    printed = Genotype.parse("P-DARTS").string
    path.write_text(
        "network,clean,pgd20\nadvrush,0.82,0.487\nNADAR-B,0.86,0.53\nRACL,0.80,0.47\n"
        f'"{printed}",0.81,0.45\n4041404141303062-1011321110323211,0.8,0.4\n'
    )
    table = load_table(path, dataset="cifar10")
    row = lookup("AdvRush", table, space=Darts()).iloc[0]
    advrush = Genotype.parse("AdvRush")
    size = Darts().costs(advrush)["params"]
    assert [*row[["genotype", "val_acc", "params"]]] == [advrush.digits, 0.82, size]
    scores = pd.DataFrame(
        {"clean.trace": [1.0, 3.0, 2.0, 4.0]}, index=[Genotype.parse(name).digits for name in NAMES]
    )
    found = correlate(scores, table, "cifar10", "pgd20", space=Darts(), resamples=20)
    assert found.set_index("score")["spearman"]["clean.trace"] == pytest.approx(0.4)
    path.write_text(path.read_text() + "racl ,0.8,0.4\n")
    with refuses("RACL", "racl"):
        lookup("RACL", load_table(path, dataset="cifar10"), space=Darts())


def test_the_published_files_have_the_accuracies_that_were_read_from_them(data_dir: Path) -> None:
    folder, read = data_dir / "tiny-robustbench", data_dir / "robust-tables"
    if not folder.is_dir() or not (read / "tiny_robustbench_darts.csv").exists():
        pytest.skip(f"not both {folder} (ntkscore fetch tiny-robustbench) and {read} are there")
    table = load_table(folder)
    with (read / "tiny_robustbench_darts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = [Genotype(json.loads(r["normal"]), json.loads(r["reduce"])).digits for r in rows]
    table = in_keys_of(Darts(), table)
    assert table.own == tuple(keys) and len(keys) == 223
    columns = {
        "clean": "clean_best",
        "pgd8": "pgd7_best",
        "clean-last": "clean_last",
        "pgd8-last": "pgd7_last",
        "pgd8-last5": "pgd7_mean_last5",
    }
    for metric, column in columns.items():
        percent = [float(row[column]) for row in rows]
        np.testing.assert_allclose(100 * table.accuracies("cifar10", metric), percent, atol=1e-9)
