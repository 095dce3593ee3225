import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from tiny import refuses

from ntkscore.data.benchmarks import load_operations, metric_name
from ntkscore.data.datasets import dataset_name
from ntkscore.data.tables import Table, load_table

METRICS = ("val_acc", "val_fgsm_3_acc", "val_pgd_3_acc", "val_fgsm_8_acc", "val_pgd_8_acc")
OFFICIAL = ("val_acc", "val_fgsm_3.0_acc", "val_pgd_3.0_acc", "val_fgsm_8.0_acc", "val_pgd_8.0_acc")
DATASETS = ("cifar10", "cifar100", "imagenet")


@pytest.fixture(scope="session")
def page(data_dir: Path) -> Table:
    return load_table(data_dir / "nas-robbench-201")


@pytest.fixture(scope="session")
def older(data_dir: Path) -> Table:
    return load_table(str(data_dir / "robustness-dataset" / "acc.json"))


def page_content() -> dict[str, Any]:
    """Cells 0 and 7 with results, 3 and 5 that point to them."""
    names = [f"{d}#{m}" for d in DATASETS for m in (*METRICS, "autoattack")]
    row = [i / 20 for i in range(18)]
    return {"7": row, "0": row[::-1], "3": 0, "5": "7", "": names}


def official_content() -> dict[str, Any]:
    """The same cells; seed s has s hundredths more, the mean lies between."""

    def cell(index: int) -> dict[str, Any]:
        value = (index + 1) / 10
        seeds = {"1": value + 0.01, "2": value + 0.02, "3": value + 0.03, "threeseed": value + 0.02}
        return {metric: dict(seeds) for metric in OFFICIAL} | {"autoattack": value - 0.05}

    return {dataset: {str(i): cell(i) for i in (7, 0)} for dataset in DATASETS}


def meta_content() -> dict[str, Any]:
    targets = {0: 0, 3: 0, 5: 7, 7: 7}
    return {"ids": {str(i): {"isomorph": str(j), "nb201-string": ""} for i, j in targets.items()}}


def write_page(folder: Path, content: Any) -> Path:
    path = folder / "NAS-RobBench-201_html.json"
    path.write_text("acc=" + json.dumps(content))
    return path


def write_official(folder: Path, content: Any, meta: Any = None) -> Path:
    path = folder / "NAS-RobBench-201_all.json"
    path.write_text(json.dumps(content))
    (folder / "meta.json").write_text(json.dumps(meta or meta_content()))
    return path


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("clean", "val_acc"),
        ("val_acc", "val_acc"),
        ("FGSM3", "val_fgsm_3_acc"),
        ("pgd-8", "val_pgd_8_acc"),
        ("pgd_8/255", "val_pgd_8_acc"),
        ("val_pgd_8.0_acc", "val_pgd_8_acc"),
        (" AA ", "autoattack"),
        ("AutoAttack", "autoattack"),
        ("fgsm_0.5", "val_fgsm_0.5_acc"),
        ("aa_apgd-ce_1.0", "val_apgd_ce_1_acc"),
        ("square255", "val_square_255_acc"),
        ("aa_apgd-ce", "aa_apgd-ce"),
        ("pgd", "pgd"),
    ],
)
def test_metric_spellings(spelling: str, name: str) -> None:
    assert metric_name(spelling) == metric_name(name) == name


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("imagenet", "imagenet16-120"),
        ("ImageNet16-120", "imagenet16-120"),
        ("ImageNet16", "imagenet16-120"),
        ("CIFAR-10", "cifar10"),
        ("cifar_100", "cifar100"),
        ("synthetic", "synthetic"),
    ],
)
def test_dataset_spellings(spelling: str, name: str) -> None:
    assert dataset_name(spelling) == dataset_name(name) == name


def test_project_page_table(page: Table) -> None:
    assert page.name == "nas-robbench-201 (project page)"
    assert page.checksum.startswith("b3dc99b96324de07")
    assert page.datasets == ("cifar10", "cifar100", "imagenet16-120")
    assert all(page.metrics(d) == (*METRICS, "autoattack") for d in page.datasets)
    assert len(page.own) == 6466
    assert list(page.own) == sorted(page.own)
    everything = page.accuracies("ImageNet", "aa", range(15_625))
    assert everything.shape == (15_625,)
    assert np.isfinite(everything).all()


def test_own_rows_are_those_of_the_published_list(
    page: Table, older: Table, data_dir: Path
) -> None:
    text = (data_dir / "nas-robbench-201" / "NasBenchID_6466_idx.txt").read_text()
    assert page.own == older.own == tuple(int(index) for index in text.split())


def test_spearman_values_of_the_paper(page: Table, older: Table) -> None:
    clean, fgsm, pgd = (page.accuracies("cifar10", m) for m in ("clean", "fgsm8", "pgd8"))
    older_clean = older.accuracies("cifar10", "clean", page.own)
    values = [
        spearmanr(a, b)[0]
        for a, b in ((clean, pgd), (clean, fgsm), (pgd, fgsm), (clean, older_clean))
    ]
    assert np.round(values, 3).tolist() == [0.985, 0.989, 0.998, 0.977]


def test_best_cell_of_the_benchmark(page: Table) -> None:
    # The mean over FGSM and PGD; with AutoAttack in it, 9930 is ahead by 0.00005.
    robust = [m for m in METRICS if m != "val_acc"]
    mean = np.mean([page.accuracies("cifar10", metric) for metric in robust], axis=0)
    assert page.own[mean.argmax()] == 2581
    values = [page.accuracy(2581, "cifar10", m) for m in ("clean", "fgsm3", "pgd3", "fgsm8")]
    values += [page.accuracy(2581, "cifar10", m) for m in ("pgd8", "aa")]
    assert np.round(values, 4).tolist() == [0.7937, 0.6955, 0.6893, 0.5351, 0.4811, 0.4434]


def test_pointers_serve_the_results_of_their_representative(page: Table) -> None:
    assert page.representative(3599) == 0
    assert page.representative(np.int64(2581)) == 2581
    assert page.accuracy(3599, "cifar10", "pgd8") == page.accuracy(0, "cifar10", "pgd8")
    assert set(map(page.representative, range(15_625))) == set(page.own)


def test_older_table(older: Table) -> None:
    attacks = [f"val_{attack}_1_acc" for attack in ("apgd_ce", "square", "fgsm", "pgd")]
    assert older.name == "robustness-dataset (project page)"
    assert older.metrics("cifar10") == ("val_acc", *attacks, "corr")
    assert "corr" not in older.metrics("imagenet")
    assert older.accuracy(0, "cifar10", "clean") == 0.856
    assert older.accuracy(0, "imagenet", "pgd_1") == 0.01


def test_operations_are_in_the_published_order(data_dir: Path) -> None:
    digits = ["".join(d) for d in itertools.product("01234", repeat=6)]
    random.Random(88).shuffle(digits)
    assert load_operations(data_dir / "nas-robbench-201" / "ops.json") == digits


def test_official_format(tmp_path: Path) -> None:
    table = load_table(write_official(tmp_path, official_content()))
    assert table.name == "nas-robbench-201 (official)"
    assert table.own == (0, 7)
    assert table.datasets == ("cifar10", "cifar100", "imagenet16-120")
    assert table.metrics("cifar10") == (*METRICS, "autoattack")
    assert table.representative(5) == 7
    assert table.accuracy(5, "cifar10", "pgd8") == pytest.approx(0.82)
    assert table.accuracy(3, "imagenet", "fgsm3", seed=1) == pytest.approx(0.11)
    assert table.accuracy(7, "cifar100", "autoattack") == pytest.approx(0.75)
    assert table.accuracies("cifar10", "clean", [7, 3], seed=3) == pytest.approx([0.83, 0.13])
    assert table.accuracies("cifar10", "clean") == pytest.approx([0.12, 0.82])


def test_official_format_in_a_folder_wins_because_it_has_the_seeds(tmp_path: Path) -> None:
    write_page(tmp_path, page_content())
    write_official(tmp_path, official_content())
    assert load_table(tmp_path).name == "nas-robbench-201 (official)"


def test_official_format_without_meta_knows_its_own_cells_only(tmp_path: Path) -> None:
    path = write_official(tmp_path, official_content())
    (tmp_path / "meta.json").unlink()
    table = load_table(path)
    assert table.own == (0, 7)
    with refuses(5, expected=2, remedy="meta.json"):
        table.representative(5)


def test_pointers_win_over_rows_of_isomorphic_cells(tmp_path: Path) -> None:
    content = official_content()
    for cells in content.values():
        cells["5"] = cells["0"]
    table = load_table(write_official(tmp_path, content))
    assert table.own == (0, 7)
    assert table.accuracy(5, "cifar10", "clean") == table.accuracy(7, "cifar10", "clean")


def test_questions_without_an_answer(tmp_path: Path) -> None:
    table = load_table(write_page(tmp_path, page_content()))
    official = load_table(write_official(tmp_path, official_content()))
    with refuses("svhn"):
        table.metrics("svhn")
    with refuses("corr", expected="cifar10"):
        table.accuracies("cifar10", "corr")
    with refuses(15625, expected=4):
        table.accuracy(15_625, "cifar10", "clean")
    with refuses(-1, expected=4):
        table.accuracies("cifar10", "clean", [0, -1])
    with refuses("val_acc", "cifar10", 1):
        table.accuracy(0, "cifar10", "clean", seed=1)
    with refuses("autoattack", "cifar10", 2):
        official.accuracy(0, "cifar10", "aa", seed=2)
    with refuses([1, 2, 3], "val_acc", "cifar10", 4):
        official.accuracy(0, "cifar10", "clean", seed=4)


def test_absent_table(tmp_path: Path) -> None:
    with refuses(
        expected=("NAS-RobBench-201_all.json", tmp_path), remedy="`ntkscore fetch nas-robbench-201`"
    ):
        load_table(tmp_path)
    with refuses("No such file or directory", expected=tmp_path / "gone.json"):
        load_table(tmp_path / "gone.json")


def test_truncated_table(tmp_path: Path) -> None:
    for path in (write_page(tmp_path, page_content()), write_official(tmp_path, {"a": {}})):
        path.write_bytes(path.read_bytes()[:-9])
        with refuses(expected=("JSON", path)):
            load_table(path)


@pytest.mark.parametrize(
    ("change", "got", "expected"),
    [
        ({"7": [0.5] * 17}, [17, 7], 18),
        ({"7": [1.5] * 18}, [1.5, 7], "[0, 1]"),
        ({"7": [float("nan")] * 18}, ["nan", 7], "[0, 1]"),
        ({"7": ["0.5"] * 18}, ["'0.5'", 7], "[0, 1]"),
        ({"5": "6"}, [6], "results"),
        ({"5": "3"}, [3], "results"),
        ({"5": None}, [None], "0..15624"),
        ({"15625": 7}, ["15625"], "0..15624"),
        ({"": ["cifar10"]}, [["cifar10"]], "dataset#metric"),
        ({"": ["cifar10#clean", "cifar10#val_acc"]}, [("cifar10", "val_acc", None)], "columns"),
    ],
)
def test_altered_project_page_table(
    tmp_path: Path, change: Any, got: list, expected: object
) -> None:
    path = write_page(tmp_path, page_content() | change)
    with refuses(*got, expected=expected):
        load_table(path)


def test_altered_official_table(tmp_path: Path) -> None:
    content = official_content()
    del content["cifar100"]["7"]["val_pgd_8.0_acc"]["2"]
    with refuses(7, "cifar100"):
        load_table(write_official(tmp_path, content))
    content = official_content()
    del content["imagenet"]["0"]
    with refuses("imagenet"):
        load_table(write_official(tmp_path, content))
    content["imagenet"]["1"] = content["imagenet"]["7"]
    with refuses(42, 0):
        load_table(write_official(tmp_path, content))
    with refuses("cells"):
        load_table(write_official(tmp_path, {}, {"ids": {}}))
    with refuses("form", expected="meta.json"):
        load_table(write_official(tmp_path, official_content(), {"ids": {"0": "0"}}))
    with refuses("list"):
        load_table(write_official(tmp_path, [1]))


def test_altered_operations(tmp_path: Path) -> None:
    path = tmp_path / "ops.json"
    path.write_text('arch=["421211"]')
    with refuses(1, expected=15625):
        load_operations(path)
    path.write_text("arch=" + json.dumps(["421215"] * 15_625))
    with refuses("421215"):
        load_operations(path)
