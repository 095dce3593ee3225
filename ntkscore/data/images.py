"""Labelled images in memory: loaded by name or from a file, and drawn for scoring."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from os import PathLike
from pathlib import Path

import numpy as np

from ntkscore.data.datasets import DATASETS, SAMPLES, Colour, dataset_name
from ntkscore.data.image_formats import Labelled, read_npz
from ntkscore.errors import InputError
from ntkscore.paths import data_home
from ntkscore.task import Task, check_labels


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images, the numbers that normalise them, and how they are drawn for scoring.

    Attributes:
        name: name of the data set; for a file, the file's stem.
        images: (N, H, W, C), uint8 in 0..255 or float32 in [0, 1]; C is 3, or 1 for grey ones.
        labels: (N,) int32 in 0..num_classes-1.
        num_classes: O, how many classes there are.
        mean, std: per channel, in pixels in [0, 1].
        checksum: SHA-256 of images and labels, and of what a file says beside them, in hexadecimal.
        samples: N, images of a draw; None for the whole set, in its order.
        balanced: whether the numbers of drawn images per class differ by at most one.

    Raises:
        InputError: if the normaliser is not of these images, or not on the scale of pixels in
            [0, 1], or `samples` is no number of images.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    num_classes: int
    mean: Colour
    std: Colour
    checksum: str
    samples: int | None = None
    balanced: bool = False

    @classmethod
    def of(
        cls,
        images: np.ndarray,
        labels: np.ndarray,
        *,
        mean: Colour | None = None,
        std: Colour | None = None,
        num_classes: int | None = None,
        name: str = "images",
    ) -> "ImageSet":
        """Images of your own, which are scored as they are: all, in their order.

        Args:
            images: (N, height, width, colours), floats in [0, 1]; for networks of your own also
                points of another shape.
            labels: (N,) classes.
            mean, std: the normaliser by colour, pixel scale [0, 1], so 125.3 is 125.3/255; 0.5 and
                0.25 if left out. It is the first layer of a search space's networks.
            num_classes: number of logits; the largest label plus one if left out.
            name: for the rows.

        Raises:
            InputError: if images and labels do not fit, or the normaliser is not of these images.

        Example:
            >>> x, y = np.zeros((4, 8, 8, 3)), np.array([0, 1, 0, 1])
            >>> ImageSet.of(x, y).task.num_classes
            2
        """
        images, labels = np.asarray(images), np.asarray(labels)
        images = _in_unit_range(images)
        numbers = labels if labels.dtype.kind in "iu" else np.zeros(0, int)
        count = int(numbers.max(initial=-1)) + 1 if num_classes is None else num_classes
        check_labels(labels, len(images), count)
        colours = images.shape[-1]
        mean = tuple([0.5] * colours) if mean is None else mean
        std = tuple([0.25] * colours) if std is None else std
        return _image_set(name, images, labels, count, mean, std)

    def __post_init__(self) -> None:
        n = self.samples
        if n is not None and (isinstance(n, bool) or not isinstance(n, Integral) or n < 1):
            raise InputError("at least 1 sample, or None for the whole set", repr(n), "write 50")
        if not isinstance(self.balanced, bool | np.bool_):
            raise InputError("balanced to be True or False", repr(self.balanced), "write one")
        if len(self.task.mean) != (colours := self.images.shape[-1]):
            raise InputError(
                f"a mean and a std for each of {colours} colours in {self.name}",
                len(self.task.mean),
                "give as many",
            )

    @property
    def pixels(self) -> np.ndarray:
        """All images (N, H, W, C) float32 in [0, 1]."""
        return as_pixels(self.images)

    @property
    def task(self) -> Task:
        """The shape of an image, the classes and the normaliser: what a network must fit."""
        return Task(self.images.shape[1:], self.num_classes, self.mean, self.std)

    @property
    def drawn(self) -> dict[str, int | bool]:
        """How many images a draw has and whether it is balanced, as runs record it."""
        count = len(self.labels) if self.samples is None else self.samples
        return {"samples": int(count), "balanced": bool(self.balanced)}

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw images and their labels, without replacement.

        The first n of a larger draw with the same seed are the draw of n.

        Args:
            seed: random seed of the draw, at least 0; of a balanced one, it also decides which
                classes have one image more.

        Returns:
            Pixels (N, H, W, C) in [0, 1], float32 where they are drawn, and labels (N,) int32.

        Raises:
            InputError: if there are not that many images, or not enough in some class.

        Example:
            >>> images = load_images("synthetic", samples=20, balanced=True)
            >>> pixels, labels = images.draw(seed=0)
            >>> pixels.shape, np.bincount(labels).tolist()
            ((20, 32, 32, 3), [2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
        """
        samples, total = self.samples, len(self.labels)
        if samples is None:
            return _in_unit_range(self.images), self.labels
        if seed < 0:
            raise InputError("a seed of at least 0", seed, "raise it")
        if samples > total:
            raise InputError(
                f"at most {total} samples, as many as '{self.name}' has images",
                samples,
                f"ask for fewer (--samples, in Python load_images(…, samples={total}))",
            )
        rng = np.random.Generator(np.random.PCG64(seed))
        order = rng.permutation(total)
        if self.balanced:
            order = _deal(order, self.labels, rng.permutation(self.num_classes))
        chosen = order[:samples]
        counts = np.bincount(self.labels[chosen], minlength=self.num_classes)
        if self.balanced and counts.max() - counts.min() > 1:
            raise InputError(
                f"enough images of every class for {samples} balanced samples",
                f"but '{self.name}' has only {counts.min()} of class {counts.argmin()}",
                "ask for fewer samples or for unbalanced ones",
            )
        return as_pixels(self.images[chosen]), self.labels[chosen]


def load_images(
    name_or_path: str | PathLike[str],
    data_dir: Path | None = None,
    test: bool = False,
    *,
    samples: int | None = SAMPLES,
    balanced: bool = False,
) -> ImageSet:
    """Load labelled images by the name of a data set or from a `.npz` file.

    Args:
        name_or_path: a name in `ntkscore.data.datasets.DATASETS`, such as `synthetic` or `cifar10`;
            or a path that ends in `.npz` with `images` (N, H, W, 3), uint8 or float in [0, 1],
            `labels` (N,), and optionally `num_classes`, `mean` and `std` (pixels in [0, 1]; default
            0.5 and 0.25).
        data_dir: where the official files lie; see `ntkscore.paths.data_home`.
        test: the official test images in place of the training images; a file has one set.
        samples, balanced: how many images networks are scored on, and whether classes are drawn
            equally often; training and evaluation take the whole set.

    Returns:
        The images, in the order of the files.

    Raises:
        InputError: if the set is unknown, absent or not in its format.

    Example:
        >>> images = load_images("synthetic")
        >>> images.pixels.shape, images.num_classes
        ((1000, 32, 32, 3), 10)
    """
    if not isinstance(name_or_path, str | PathLike):
        raise InputError(
            "an ImageSet, the name of one or a path that ends in .npz",
            type(name_or_path).__name__,
            "save arrays with numpy.savez(FILE, images=…, labels=…), and give the file",
        )
    name_or_path = os.fspath(name_or_path)
    if name_or_path.endswith(".npz"):
        found = _load_npz(Path(name_or_path).expanduser())
        return replace(found, samples=samples, balanced=balanced)
    name = dataset_name(name_or_path)
    if name not in DATASETS:
        raise InputError(
            f"an image set of {', '.join(DATASETS)}, or a path that ends in .npz",
            repr(name_or_path),
            "choose one of these",
        )
    facts = DATASETS[name]
    if test and not facts.tests:
        raise InputError(
            "test images",
            f"but {name} has none of its own",
            "keep some images out of training, or name others, such as an .npz file",
        )
    paths = []
    if source := facts.source:
        files = facts.tests if test else source.contents
        paths = [data_home(data_dir) / source.folder / file for file in files]
        if not any(path.is_file() for path in paths):
            remedy = source.by_hand or f"run `ntkscore fetch {name}`"
            raise InputError(
                f"{name} at {paths[0]}",
                "but there is no such file",
                f"{remedy}, or set NTKSCORE_DATA to a folder that has it",
            )
    batches = [
        _classes(batch, facts.file_labels, facts.num_classes)
        for batch in facts.read(paths, facts.image_size)
    ]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    found = _image_set(name, images, labels, facts.num_classes, facts.mean, facts.std)
    return replace(found, samples=samples, balanced=balanced)


def _deal(order: np.ndarray, labels: np.ndarray, class_order: np.ndarray) -> np.ndarray:
    """Rearrange shuffled images into rounds that hold one image of every class."""
    by_class = order[np.argsort(labels[order], kind="stable")]
    ordered = labels[by_class]
    turn = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    return by_class[np.lexsort((class_order[ordered], turn))]


def as_pixels(images: np.ndarray) -> np.ndarray:
    """Images in float32, pixel scale [0, 1], where integers count grey levels."""
    pixels = images.astype(np.float32)
    return pixels / np.float32(255) if images.dtype == np.uint8 else pixels


def _in_unit_range(images: np.ndarray) -> np.ndarray:
    """Images as they are, but those that count grey levels in [0, 1]."""
    return as_pixels(images) if images.dtype == np.uint8 else images


def _load_npz(path: Path) -> ImageSet:
    arrays = read_npz(path)
    labels = arrays["labels"]
    count = int(arrays["num_classes"] if "num_classes" in arrays else int(labels.max()) + 1)
    images, labels = _classes((arrays["images"], labels, path), range(count), count)
    mean, std = (
        tuple(map(float, arrays.get(name, np.full(3, default))))
        for name, default in (("mean", 0.5), ("std", 0.25))
    )
    # What a network is built from belongs to the checksum where the file states it.
    stated = [arrays[name] for name in ("num_classes", "mean", "std") if name in arrays]
    return _image_set(path.stem, images, labels, count, mean, std, stated)


def _classes(batch: Labelled, allowed: range, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The images of the first `count` classes, and their labels from 0 on."""
    images, labels, path = batch
    outside = labels[(labels < allowed.start) | (labels >= allowed.stop)]
    if len(outside):
        raise InputError(
            f"labels in {allowed.start}..{allowed.stop - 1} in {path}",
            outside[0],
            "correct the labels or get the official file again",
        )
    classes = labels.astype(np.int64) - allowed.start
    return images[classes < count], classes[classes < count]


def _image_set(
    name: str,
    images: np.ndarray,
    labels: np.ndarray,
    classes: int,
    mean: Colour,
    std: Colour,
    stated: Sequence[np.ndarray] = (),
) -> ImageSet:
    images, labels = np.ascontiguousarray(images), labels.astype(np.int32)
    digest = hashlib.sha256(images.data)
    digest.update(labels.astype("<i4").data)
    for array in stated:
        digest.update(array.astype("<f8").data)
    return ImageSet(name, images, labels, classes, mean, std, digest.hexdigest())
