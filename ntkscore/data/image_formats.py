"""Other people's image files: the official pickles, idx files and `.npz` archives.

Nothing in a file is ever run: pickles may name numpy arrays and plain containers only.
"""

import codecs
import math
import pickle
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ntkscore.errors import UNREADABLE, InputError, altered

Labelled = tuple[np.ndarray, np.ndarray, Path]
"""Images (N, size, size, C) uint8, labels (N,) as in the file, and the file that has the labels."""

# Looked up here instead of imported by the name in the file: that name is the file's to choose,
# and numpy has moved `numpy.core` to `numpy._core`.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_SCALAR = np.float64(0).__reduce__()[0]
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.multiarray", "scalar"): _SCALAR,
    ("numpy._core.multiarray", "scalar"): _SCALAR,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise InputError(
                "a pickle of numpy arrays and plain containers only",
                f"but it asks for '{module_name}.{global_name}'",
                "do not use this file, get the official one",
            ) from None


def read_pickle(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary of arrays and plain containers; text of Python 2 is Latin-1."""
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="latin1").load()
    except InputError as error:
        raise InputError(f"in {path} {error.expected}", error.got, error.remedy) from None
    except Exception as error:  # a damaged pickle may raise anything, says the pickle module
        raise InputError(
            f"an undamaged pickle at {path}",
            f"but reading it failed ({type(error).__name__}: {error})",
            "get the official file again",
        ) from error
    if not isinstance(content, dict):
        raise altered(path, "a pickled dictionary", f"a {type(content).__name__}")
    return content


def read_batches(paths: Sequence[Path], size: int, label_key: str = "labels") -> Iterator[Labelled]:
    """Read batch files of CIFAR or downsampled ImageNet, as many of them as exist.

    Args:
        size: height and width in pixels.
        label_key: the key of the labels; the images are under `data`.

    Source: https://www.cs.toronto.edu/~kriz/cifar.html; Chrabaszcz, Loshchilov and Hutter 2017,
    arXiv:1707.08819 (the same layout).
    """
    width = 3 * size * size
    for path in filter(Path.is_file, paths):
        content = read_pickle(path)
        if missing := {"data", label_key} - set(content):
            expected = f"the keys 'data' and '{label_key}'"
            raise altered(path, expected, f"no {' and no '.join(missing)}")
        rows, labels = content["data"], np.asarray(content[label_key])
        is_bytes = isinstance(rows, np.ndarray) and rows.dtype == np.uint8
        if not (is_bytes and rows.ndim == 2 and rows.shape[1] == width):
            found = f"{getattr(rows, 'dtype', type(rows).__name__)} of shape {np.shape(rows)}"
            raise altered(path, f"'data' of uint8 and the shape (N, {width})", found)
        if labels.dtype.kind not in "iu" or labels.shape != (len(rows),):
            expected = f"{len(rows)} integers under '{label_key}', one per image,"
            raise altered(path, expected, _form(labels))
        yield rows.reshape(-1, 3, size, size).transpose(0, 2, 3, 1), labels, path


def read_idx_pair(paths: Sequence[Path], size: int) -> Iterator[Labelled]:
    """Read grey images, size × size pixels, and their labels from two idx files, MNIST's format."""
    images, labels = map(_read_idx, paths)
    if images.shape[1:] != (size, size):
        raise altered(paths[0], f"images of {size}x{size} pixels", f"the shape {images.shape}")
    if labels.shape != (len(images),):
        expected = f"{len(images)} labels, one per image,"
        raise altered(paths[1], expected, f"the shape {labels.shape}")
    yield images[..., None], labels, paths[1]


def _read_idx(path: Path) -> np.ndarray:
    """The array of bytes in an idx file, with as many axes as the file says.

    Source: http://yann.lecun.com/exdb/mnist: two zeros, the type (8 for bytes), the number of axes,
    their lengths as big-endian integers of four bytes, and the values.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"an idx file at {path}",
            f"but reading it failed ({error})",
            "get the official file again",
        ) from error
    magic, axes = content[:4], content[3] if len(content) > 3 else 0
    if magic[:3] != bytes([0, 0, 8]) or not axes:
        found = " ".join(map(str, magic)) or "nothing"
        raise altered(path, "0 0 8, of uncompressed idx bytes, at the start", f"{found} there")
    start = 4 * (axes + 1)
    shape = np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4").tolist()
    size = start + math.prod(shape)
    if len(content) != size:
        raise altered(path, f"{size} bytes, as its head says,", f"{len(content)} bytes")
    return np.frombuffer(content[start:], np.uint8).reshape(shape)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read labelled images from a `.npz` archive.

    Returns:
        `images` (N, H, W, 3), uint8 in 0..255 or float32 in [0, 1]; `labels` (N,) integers; and,
        where the archive has them, `num_classes` (an integer), `mean` and `std` (3,).
    """
    arrays = _read_arrays(path)
    images, labels = arrays["images"], arrays["labels"]
    if (
        images.ndim != 4
        or images.shape[-1] != 3
        or not images.size
        or images.dtype.kind not in "uf"
    ):
        raise InputError(
            f"'images' in {path} of shape (N, H, W, 3), uint8 or float",
            f"but they are {_form(images)}",
            "bring them into that form",
        )
    if images.dtype != np.uint8:
        if not ((images >= 0) & (images <= 1)).all():
            raise InputError(
                f"'images' in {path} to be uint8, or finite values in [0, 1]",
                f"but they are {images.dtype} from {images.min()} to {images.max()}",
                "divide them by the largest value that a pixel can have",
            )
        arrays["images"] = images.astype(np.float32)
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        raise InputError(
            f"{len(images)} integers as 'labels' in {path}, one per image",
            f"but they are {_form(labels)}",
            "correct them",
        )
    classes = arrays.get("num_classes", np.array(1))
    if classes.shape != () or classes.dtype.kind not in "iu":
        raise InputError(
            f"'num_classes' in {path} to be one integer",
            f"but it is {_form(classes)}",
            "correct it",
        )
    for name in {"mean", "std"} & set(arrays):
        value = arrays[name]
        if value.shape != (3,) or value.dtype.kind not in "iuf" or not np.isfinite(value).all():
            raise InputError(
                f"'{name}' in {path} to be three finite numbers",
                f"but it is {_form(value)}",
                "correct it",
            )
    return arrays


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    required, optional = {"images", "labels"}, {"num_classes", "mean", "std"}
    if not path.is_file():
        raise InputError(f"an .npz file at {path}", "none there", "check the path")
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
        if required <= names:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in names & (required | optional)}
    except UNREADABLE as error:
        raise InputError(
            f"a readable .npz file at {path}",
            f"but reading it failed ({type(error).__name__}: {error})",
            "write it with numpy.savez",
        ) from error
    raise InputError(
        f"the arrays 'images' and 'labels' in {path}",
        f"no {' and no '.join(sorted(required - names))}",
        "write both with numpy.savez",
    )


def _form(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
