"""The facts about data sets: one entry is enough, and what they are read from agrees."""

import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tiny import refuses

from ntkscore.data.datasets import DATASETS, Dataset, Source, dataset_name
from ntkscore.data.downloads import SOURCES, fetch
from ntkscore.data.image_formats import read_batches
from ntkscore.data.images import load_images

SHAPES = Dataset(
    label="Shapes",
    num_classes=2,
    image_size=4,
    mean=(0.1, 0.2, 0.3),
    std=(0.4, 0.5, 0.6),
    source=Source(
        folder="shapes", contents=("one", "two"), by_hand="draw it, and put the files there"
    ),
    read=partial(read_batches, label_key="kinds"),
    file_labels=range(5, 9),
    aliases=("forms",),
)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setitem(DATASETS, "shapes-2", SHAPES)
    return SHAPES


def test_one_entry_makes_a_data_set(shapes: Dataset, tmp_path: Path) -> None:
    pixels = np.arange(3 * 48, dtype=np.uint8).reshape(3, 48)
    (tmp_path / "shapes").mkdir()
    content = pickle.dumps({"data": pixels, "kinds": [6, 8, 5]})
    (tmp_path / "shapes" / "two").write_bytes(content)
    images = load_images("Forms", tmp_path)
    assert images.name == "shapes-2"
    assert images.images.shape == (2, 4, 4, 3)
    assert images.labels.tolist() == [1, 0]
    assert images.num_classes == 2
    assert (images.mean, images.std) == (SHAPES.mean, SHAPES.std)


def test_one_entry_makes_the_errors_of_a_data_set(shapes: Dataset, tmp_path: Path) -> None:
    with refuses(expected=("shapes-2", tmp_path / "shapes" / "one"), remedy="draw it"):
        load_images("shapes2", tmp_path)
    with refuses("Shapes_2", tmp_path / "shapes"):
        fetch("Shapes_2", tmp_path)
    with refuses("svhn", expected=("imagenet16-120", "shapes-2")):
        load_images("svhn", tmp_path)


@pytest.mark.parametrize("name", DATASETS)
def test_names_and_labels_name_their_data_set(name: str) -> None:
    assert dataset_name(name) == name
    assert name == "synthetic" or dataset_name(DATASETS[name].label) == name


def test_what_has_a_download_can_be_fetched() -> None:
    tables = {"nas-robbench-201", "robustness-dataset", "tiny-robustbench", "nares", "hw-nas-bench"}
    assert set(SOURCES) == {"cifar10", "cifar100", "mnist"} | tables
