"""The image sets a network can be scored on, and the choice of scoring images from them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ntkscore.downloads import IMAGENET16_HINT, data_home
from ntkscore.errors import InputError
from ntkscore.imagefiles import read_image_batch, read_npz
from ntkscore.names import dataset_name
from ntkscore.synthetic import CLASSES, synthetic_images

NAMES = ("synthetic", "cifar10", "cifar100", "imagenet16-120")

Colour = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled colour images and the numbers that normalise them.

    Attributes:
        name: the name it was loaded by; for a file, the file's stem.
        images: (N, H, W, 3), uint8 in 0..255 or float32 in [0, 1].
        labels: (N,) int32 in 0..num_classes-1.
        num_classes: O.
        mean: per channel, in pixels in [0, 1].
        std: per channel, in pixels in [0, 1].
        checksum: SHA-256 of the bytes of images and labels, in hexadecimal.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    num_classes: int
    mean: Colour
    std: Colour
    checksum: str

    @property
    def pixels(self) -> np.ndarray:
        """All images (N, H, W, 3) float32 in [0, 1]."""
        return _as_pixels(self.images)


@dataclass(frozen=True)
class _Format:
    """How an official data set lies in the data folder; mean and std in units of 1/255."""

    files: tuple[str, ...]
    label_key: str
    size: int
    num_classes: int
    mean: Colour
    std: Colour
    # Labels in the file run from first_label to last_label; classes are the first num_classes.
    first_label: int
    last_label: int


_FORMATS = {
    "cifar10": _Format(
        files=tuple(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
        label_key="labels",
        size=32,
        num_classes=10,
        mean=(125.3, 123.0, 113.9),
        std=(63.0, 62.1, 66.7),
        first_label=0,
        last_label=9,
    ),
    "cifar100": _Format(
        files=("cifar-100-python/train",),
        label_key="fine_labels",
        size=32,
        num_classes=100,
        mean=(129.3, 124.1, 112.4),
        std=(68.2, 65.4, 70.4),
        first_label=0,
        last_label=99,
    ),
    "imagenet16-120": _Format(
        files=tuple(f"ImageNet16/train_data_batch_{i}" for i in range(1, 11)),
        label_key="labels",
        size=16,
        num_classes=120,
        mean=(122.68, 116.66, 104.01),
        std=(63.22, 61.26, 65.09),
        first_label=1,
        last_label=1000,
    ),
}


def load(name_or_path: str, data_dir: Path | None = None) -> ImageSet:
    """Load an image set by name or from a `.npz` file.

    Args:
        name_or_path: `synthetic`, `cifar10`, `cifar100`, `imagenet16-120`, or a path that ends
            in `.npz` with `images` (N, H, W, 3), uint8 or float in [0, 1], `labels` (N,), and
            optionally `num_classes`, `mean` and `std` (pixels in [0, 1]; default 0.5 and 0.25).
        data_dir: where the official files lie; see `ntkscore.downloads.data_home`.

    Returns:
        The training images, in the order of the files.

    Raises:
        InputError: if the set is unknown, absent or not in its format.
    """
    if name_or_path.endswith(".npz"):
        return _load_npz(Path(name_or_path).expanduser())
    name = dataset_name(name_or_path)
    if name == "synthetic":
        return _synthetic()
    if name in _FORMATS:
        return _load_official(name, _FORMATS[name], data_home(data_dir))
    raise InputError(
        f"expected an image set out of {', '.join(NAMES)}, or a path that ends in .npz, "
        f"but '{name_or_path}' came: choose one of these"
    )


def choose(
    images: ImageSet, samples: int, seed: int, balanced: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the scoring images, without replacement.

    The first n of a larger draw with the same seed are the draw of n.

    Args:
        images: the set to draw from.
        samples: how many, N.
        seed: of the draw, at least 0.
        balanced: whether the numbers of images per class differ by at most one; the seed
            decides which classes have one more.

    Returns:
        Pixels (N, H, W, 3) float32 in [0, 1] and labels (N,) int32.

    Raises:
        InputError: if there are not that many images, or not enough in some class.
    """
    total = len(images.labels)
    if samples < 1 or seed < 0:
        raise InputError(
            f"expected at least 1 sample and a seed of at least 0, but {samples} and {seed} came: "
            "raise them"
        )
    if samples > total:
        raise InputError(
            f"expected at most {total} samples, as many as '{images.name}' has images, "
            f"but {samples} came: ask for fewer"
        )
    random = np.random.Generator(np.random.PCG64(seed))
    order = random.permutation(total)
    if balanced:
        order = _deal(order, images.labels, random.permutation(images.num_classes))
    chosen = order[:samples]
    counts = np.bincount(images.labels[chosen], minlength=images.num_classes)
    if balanced and counts.max() - counts.min() > 1:
        raise InputError(
            f"expected enough images of every class for {samples} balanced samples, but "
            f"'{images.name}' has only {counts.min()} of class {counts.argmin()}: ask for fewer "
            "samples or for unbalanced ones"
        )
    return _as_pixels(images.images[chosen]), images.labels[chosen]


def _deal(order: np.ndarray, labels: np.ndarray, class_order: np.ndarray) -> np.ndarray:
    """Rearrange shuffled images into rounds that hold one image of every class."""
    by_class = order[np.argsort(labels[order], kind="stable")]
    ordered = labels[by_class]
    turn = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    return by_class[np.lexsort((class_order[ordered], turn))]


def _as_pixels(images: np.ndarray) -> np.ndarray:
    pixels = images.astype(np.float32)
    return pixels / np.float32(255) if images.dtype == np.uint8 else pixels


def _synthetic() -> ImageSet:
    images, labels = synthetic_images()
    values = images.reshape(-1, 3) / 255.0
    mean, std = _colour(values.mean(axis=0).round(3)), _colour(values.std(axis=0).round(3))
    return _image_set("synthetic", images, labels, CLASSES, mean, std)


def _load_official(name: str, form: _Format, home: Path) -> ImageSet:
    paths = [path for file in form.files if (path := home / file).is_file()]
    if not paths:
        remedy = IMAGENET16_HINT if name == "imagenet16-120" else f"run `ntkscore fetch {name}`"
        raise InputError(
            f"expected {name} at {home / form.files[0]}, but there is no such file: {remedy}, "
            "or set NTKSCORE_DATA to a folder that has it"
        )
    batches = []
    for path in paths:
        images, labels = read_image_batch(path, form.label_key, form.size)
        _check_labels(labels, form.first_label, form.last_label, str(path))
        kept = labels < form.first_label + form.num_classes
        batches.append((images[kept], labels[kept] - form.first_label))
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    mean, std = _colour(np.array(form.mean) / 255), _colour(np.array(form.std) / 255)
    return _image_set(name, images, labels, form.num_classes, mean, std)


def _load_npz(path: Path) -> ImageSet:
    arrays = read_npz(path)
    images, labels = arrays["images"], arrays["labels"]
    classes = int(arrays["num_classes"] if "num_classes" in arrays else labels.max() + 1)
    _check_labels(labels, 0, classes - 1, str(path))
    mean = _colour(arrays.get("mean", np.full(3, 0.5)))
    std = _colour(arrays.get("std", np.full(3, 0.25)))
    return _image_set(path.stem, images, labels, classes, mean, std)


def _check_labels(labels: np.ndarray, first: int, last: int, source: str) -> None:
    outside = labels[(labels < first) | (labels > last)]
    if len(outside):
        raise InputError(
            f"expected labels in {first}..{last} in {source}, but {outside[0]} came: "
            "correct the labels or get the official file again"
        )


def _colour(values: np.ndarray) -> Colour:
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def _image_set(
    name: str, images: np.ndarray, labels: np.ndarray, classes: int, mean: Colour, std: Colour
) -> ImageSet:
    images, labels = np.ascontiguousarray(images), labels.astype(np.int32)
    digest = hashlib.sha256(images.data)
    digest.update(labels.astype("<i4").data)
    return ImageSet(name, images, labels, classes, mean, std, digest.hexdigest())
