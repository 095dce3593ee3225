import json
import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import refuses

from cells import Residual
from ntkscore.data.image_formats import read_pickle
from ntkscore.data.images import ImageSet, load_images
from ntkscore.run.scoring import Scoring

CIFAR10 = "cifar-10-batches-py/data_batch_1"


@pytest.fixture(scope="module")
def synthetic() -> ImageSet:
    return load_images("synthetic")


def make_set(counts: list[int]) -> ImageSet:
    """A set with so many images per class; the first value of an image is its number."""
    labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    images = np.zeros((len(labels), 2, 2, 3), np.float32)
    images[:, 0, 0, 0] = np.arange(len(labels))
    grey = (0.5, 0.5, 0.5)
    return ImageSet("made", images, labels, len(counts), grey, grey, "")


def write_pickle(home: Path, file: str, content: Any) -> Path:
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))
    return path


def batch(labels: list[int], size: int = 32, key: str = "labels") -> dict[str, Any]:
    data = np.arange(len(labels) * 3 * size * size) % 251
    return {"data": data.astype(np.uint8).reshape(len(labels), -1), key: labels}


def test_synthetic_has_natural_spectra_and_spread_pixels(synthetic: ImageSet) -> None:
    pixels = synthetic.pixels
    assert pixels.shape == (1000, 32, 32, 3)
    assert pixels.dtype == np.float32
    assert pixels.min() == 0
    assert pixels.max() == 1
    assert ((pixels == 0) | (pixels == 1)).mean() < 0.05
    assert np.allclose(pixels.mean(axis=(0, 1, 2)), synthetic.mean, atol=5e-4)
    assert np.allclose(pixels.std(axis=(0, 1, 2)), synthetic.std, atol=5e-4)
    assert all(0.15 < value < 0.3 for value in synthetic.std)
    grey = pixels.mean(axis=-1)
    amplitude = np.abs(np.fft.fft2(grey - grey.mean(axis=(1, 2), keepdims=True))).mean(axis=0)
    cycles = 32 * np.hypot(np.fft.fftfreq(32)[:, None], np.fft.fftfreq(32))
    ring = (cycles >= 1) & (cycles <= 15)
    slope = np.polyfit(np.log(cycles[ring]), np.log(amplitude[ring]), 1)[0]
    assert -1.5 < slope < -1.0


def test_synthetic_has_classes(synthetic: ImageSet) -> None:
    assert np.bincount(synthetic.labels).tolist() == [100] * 10
    train, test = synthetic.pixels[:500].reshape(500, -1), synthetic.pixels[500:].reshape(500, -1)
    means = np.stack([train[synthetic.labels[:500] == c].mean(axis=0) for c in range(10)])
    nearest = ((test[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
    assert 0.3 < (nearest == synthetic.labels[500:]).mean() < 0.99


def test_synthetic_is_the_same_everywhere(synthetic: ImageSet) -> None:
    assert (
        synthetic.checksum
        == load_images("Synthetic").checksum
        == "f1cf00809df7c10f60bba0b711544ee76ed5d2655d1deab5094fff0ecd3a4b05"
    )


def test_cifar10_as_published(data_dir: Path) -> None:
    images = load_images("cifar10", data_dir)
    assert images.images.shape[1:] == (32, 32, 3)
    assert images.images.dtype == np.uint8
    assert images.labels.dtype == np.int32
    assert images.labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert images.images[0, 0, 0].tolist() == [59, 62, 63]  # the frog's first pixel
    assert np.allclose(images.pixels.mean(axis=(0, 1, 2)), images.mean, atol=0.01)
    assert np.allclose(images.pixels.std(axis=(0, 1, 2)), images.std, atol=0.01)
    assert len(images.checksum) == 64


def test_cifar100_as_published(data_dir: Path) -> None:
    images = load_images("CIFAR-100", data_dir)
    assert images.num_classes == 100
    assert images.labels[:5].tolist() == [19, 29, 0, 11, 1]
    assert np.allclose(images.pixels.mean(axis=(0, 1, 2)), images.mean, atol=0.03)


def test_parity_files_are_image_sets(data_dir: Path) -> None:
    images = load_images(str(data_dir / "parity" / "cell_00173_c4_n1.npz"))
    assert images.name == "cell_00173_c4_n1"
    assert images.num_classes == 10


def test_cifar10_takes_the_batches_that_are_there(tmp_path: Path) -> None:
    write_pickle(tmp_path, "cifar-10-batches-py/data_batch_2", batch([1, 2]))
    write_pickle(tmp_path, "cifar-10-batches-py/data_batch_5", batch([9]))
    images = load_images("cifar10", tmp_path)
    assert images.labels.tolist() == [1, 2, 9]
    assert images.images[0, 0, :3, 0].tolist() == [0, 1, 2]  # the red plane comes first
    assert images.images[0, 0, 0].tolist() == [0, 1024 % 251, 2048 % 251]
    assert images.mean == pytest.approx((125.3 / 255, 123 / 255, 113.9 / 255))


def test_imagenet16_keeps_the_first_120_classes(tmp_path: Path) -> None:
    write_pickle(tmp_path, "ImageNet16/train_data_batch_1", batch([120, 121, 1000], 16))
    write_pickle(tmp_path, "ImageNet16/train_data_batch_10", batch([1], 16))
    images = load_images("imagenet", tmp_path)
    assert images.name == "imagenet16-120"
    assert images.images.shape == (2, 16, 16, 3)
    assert images.labels.tolist() == [119, 0]
    assert images.num_classes == 120


def test_data_folder_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pickle(tmp_path, CIFAR10, batch([3]))
    monkeypatch.setenv("NTKSCORE_DATA", str(tmp_path))
    assert load_images("cifar10").labels.tolist() == [3]


def test_absent_image_sets(tmp_path: Path) -> None:
    page = "https://image-net.org/download-images"
    with refuses(expected=("cifar10", tmp_path / CIFAR10), remedy="`ntkscore fetch cifar10`"):
        load_images("cifar10", tmp_path)
    with refuses(expected=tmp_path / "ImageNet16/train_data_batch_1", remedy=page):
        load_images("imagenet16-120", tmp_path)
    with refuses("svhn"):
        load_images("svhn", tmp_path)
    with refuses("none", expected="gone.npz"):
        load_images("gone.npz")


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


def test_pickles_cannot_run_anything(tmp_path: Path) -> None:
    path = write_pickle(tmp_path, CIFAR10, {"data": _Evil()})
    with refuses(f"{os.name}.system", expected=path):
        load_images("cifar10", tmp_path)
    write_pickle(tmp_path, CIFAR10, np.random.default_rng)
    with refuses("numpy.random.default_rng", expected=path):
        read_pickle(path)


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_arrays_and_plain_containers(tmp_path: Path, protocol: int) -> None:
    content = {"data": np.eye(3, dtype=np.uint8), "labels": [1, np.int64(2)], "name": ("a", b"b")}
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    came = read_pickle(path)
    assert (came["data"] == content["data"]).all()
    assert came["labels"] == content["labels"]
    assert came["name"] == ("a", b"b")


@pytest.mark.parametrize("kept", [0, 1, 50, 3000])
def test_truncated_pickle(tmp_path: Path, kept: int) -> None:
    path = write_pickle(tmp_path, CIFAR10, batch([1, 2]))
    path.write_bytes(path.read_bytes()[:kept])
    with refuses("UnpicklingError" if kept else "EOFError", expected=path):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"not a pickle", "UnpicklingError"),
        (b"\x80\x63.", "ValueError"),
        (b"0.", "UnpicklingError"),
        (b"(dp0\nS'\xff", "UnpicklingError"),
        (b"\x82\x01.", "ValueError"),
    ],
)
def test_damaged_pickle(tmp_path: Path, content: bytes, error: str) -> None:
    (tmp_path / "batch").write_bytes(content)
    with refuses(error, expected=tmp_path / "batch"):
        read_pickle(tmp_path / "batch")


@pytest.mark.parametrize(
    ("content", "got", "expected"),
    [
        ([1], ["list"], "data_batch_1"),
        ({"data": 1}, ["labels"], ("data", "labels")),
        (batch([1], 16), ["uint8", (1, 768)], ("uint8", "(N, 3072)")),
        ({"data": [[1]], "labels": [1]}, ["list", (1, 1)], "(N, 3072)"),
        (batch([1, 2]) | {"labels": [1]}, [(1,)], (2, "labels")),
        (batch([1, 2]) | {"labels": ["a", "b"]}, ["<U1", (2,)], (2, "labels")),
        (batch([1, 10]), [10], ("0..9", "data_batch_1")),
        (batch([1, -1]), [-1], ("0..9", "data_batch_1")),
    ],
)
def test_altered_batches(tmp_path: Path, content: Any, got: list, expected: Any) -> None:
    write_pickle(tmp_path, CIFAR10, content)
    with refuses(*got, expected=expected):
        load_images("cifar10", tmp_path)


def test_imagenet16_labels_start_at_one(tmp_path: Path) -> None:
    write_pickle(tmp_path, "ImageNet16/train_data_batch_1", batch([0], 16))
    with refuses(0, expected="1..1000"):
        load_images("imagenet16-120", tmp_path)


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    images = np.full((4, 5, 6, 3), 51, np.uint8)
    np.savez(path, images=images, labels=np.array([0, 2, 1, 2]), ignored=np.zeros(2))
    plain = load_images(str(path))
    assert (plain.name, plain.num_classes) == ("mine", 3)
    assert (plain.mean, plain.std) == ((0.5,) * 3, (0.25,) * 3)
    assert plain.pixels == pytest.approx(np.full((4, 5, 6, 3), 0.2))
    numbers = {"num_classes": 7, "mean": [0.1, 0.2, 0.3], "std": [0.2, 0.3, 1]}
    np.savez_compressed(path, images=images / 255, labels=np.array([0, 2, 1, 2]), **numbers)
    full = load_images(str(path))
    assert (full.num_classes, full.mean, full.std) == (7, (0.1, 0.2, 0.3), (0.2, 0.3, 1.0))
    assert full.images.dtype == full.pixels.dtype == np.float32
    assert full.checksum != plain.checksum
    np.savez(path, images=images, labels=np.array([0, 2, 1, 255], np.uint8))
    assert load_images(str(path)).num_classes == 256


@pytest.mark.parametrize(
    ("change", "got", "expected"),
    [
        ({"images": None}, ["images"], ("images", "labels")),
        ({"images": np.zeros((2, 8, 8))}, ["float64", (2, 8, 8)], ("images", "(N, H, W, 3)")),
        ({"images": np.full((2, 1, 1, 3), 200.0)}, [200.0], ("images", "[0, 1]")),
        ({"images": np.full((2, 1, 1, 3), np.nan)}, ["nan"], ("images", "[0, 1]")),
        ({"images": np.array([None])}, ["ValueError", "allow_pickle=False"], ".npz"),
        ({"labels": np.array([0, 1, 1])}, ["int64", (3,)], (2, "labels")),
        ({"labels": np.array([0.0, 1.0])}, ["float64", (2,)], (2, "labels")),
        ({"labels": np.array([0, -1])}, [-1], ("labels", "0..0")),
        ({"num_classes": 1}, [1], ("labels", "0..0")),
        ({"num_classes": 2.5}, ["float64"], "num_classes"),
        ({"mean": [0.5]}, ["float64", (1,)], "mean"),
        ({"std": [0.1, 0.1, 0.0]}, [0.1, 0], ("std", 1)),
        ({"std": [0.1, 0.1, -0.1]}, [0.1, -0.1], ("std", 1)),
        ({"std": [63.0, 62.1, 66.7]}, [63, 62.1, 66.7], ("std", 1)),
        ({"mean": [125, 123, 114]}, [125, 123, 114], ("mean", 1)),
    ],
)
def test_bad_npz(tmp_path: Path, change: Any, got: list, expected: Any) -> None:
    path = tmp_path / "bad.npz"
    arrays = {"images": np.zeros((2, 1, 1, 3), np.uint8), "labels": np.array([0, 1])} | change
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    with refuses(*got, expected=expected):
        load_images(str(path))


def test_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, images=np.zeros((2, 9, 9, 3), np.uint8), labels=np.array([0, 1]))
    path.write_bytes(path.read_bytes()[:-30])
    with refuses("BadZipFile", expected=path):
        load_images(str(path))


@given(
    counts=st.lists(st.integers(3, 6), min_size=1, max_size=7),
    seed=st.integers(0, 2**63),
    balanced=st.booleans(),
    data=st.data(),
)
def test_draw(counts: list[int], seed: int, balanced: bool, data: st.DataObject) -> None:
    of = make_set(counts)
    most = 3 * len(counts) if balanced else sum(counts)
    samples = data.draw(st.integers(1, most))
    images = replace(of, samples=samples, balanced=balanced)
    pixels, labels = images.draw(seed)
    numbers = pixels[:, 0, 0, 0].astype(int)
    assert pixels.dtype == np.float32
    assert labels.dtype == np.int32
    assert len(set(numbers)) == samples
    assert (images.labels[numbers] == labels).all()
    if balanced:
        per_class = np.bincount(labels, minlength=len(counts))
        assert per_class.max() - per_class.min() <= 1
    fewer, _ = replace(images, samples=max(1, samples // 2)).draw(seed)
    assert (fewer == pixels[: len(fewer)]).all()


def test_draw_follows_the_seed(synthetic: ImageSet) -> None:
    images = replace(synthetic, samples=7, balanced=True)
    first, again, other = map(images.draw, (0, 0, 1))
    assert (first[0] == again[0]).all()
    assert set(first[1].tolist()) != set(other[1].tolist())


def test_draw_scales_pixels(synthetic: ImageSet) -> None:
    pixels, _ = replace(synthetic, samples=1000).draw(0)
    assert pixels.mean() == pytest.approx(synthetic.pixels.mean(), rel=1e-5)


def test_balanced_choice_uses_up_small_classes() -> None:
    _, labels = replace(make_set([1, 5, 5]), samples=5, balanced=True).draw(0)
    assert np.bincount(labels).tolist() == [1, 2, 2]


def test_choices_that_cannot_be_made() -> None:
    images = make_set([1, 5, 5])
    with refuses(-1):
        replace(images, samples=2).draw(-1)
    with refuses(12, expected=(11, "made"), remedy="--samples"):
        replace(images, samples=12).draw(0)
    with refuses("made", 1, 0):
        replace(images, samples=7, balanced=True).draw(0)


@pytest.mark.parametrize("samples", [0, -2, "8", True, 2.5])
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_number_of_images_is_refused(samples: Any) -> None:
    with refuses(samples, expected="1 sample"):
        load_images("synthetic", samples=samples)


def test_a_whole_set_is_drawn_in_its_order_on_the_scale_of_pixels(synthetic: ImageSet) -> None:
    for data in (load_images("synthetic", samples=None), replace(synthetic, samples=None)):
        pixels, labels = data.draw(7)
        np.testing.assert_array_equal(pixels, synthetic.pixels)
        np.testing.assert_array_equal(labels, synthetic.labels)
        assert data.drawn == {"samples": 1000, "balanced": False}
    own = ImageSet.of(np.full((2, 4, 4, 3), 0.1), np.array([0, 1]))
    assert own.draw(0)[0].dtype == np.float64  # as they are


def test_a_files_own_normaliser_is_part_of_its_checksum(tmp_path: Path) -> None:
    images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)
    checksums = set()
    for name, said in (
        ("plain", {}),
        ("mean", {"mean": np.ones(3)}),
        ("classes", {"num_classes": 9}),
    ):
        np.savez(tmp_path / f"{name}.npz", images=images, labels=labels, **said)
        checksums.add(load_images(str(tmp_path / f"{name}.npz")).checksum)
    assert len(checksums) == 3


MNIST = ("MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/train-labels-idx1-ubyte")


def write_idx(home: Path, count: int = 3, side: int = 28) -> tuple[Path, Path]:
    """Files of images whose pixels are their number, labelled 0, 1, …"""
    images, labels = (home / file for file in MNIST)
    images.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.repeat(np.arange(count, dtype=np.uint8), side * side)
    images.write_bytes(struct.pack(">4I", 2051, count, side, side) + pixels.tobytes())
    labels.write_bytes(struct.pack(">2I", 2049, count) + bytes(range(count)))
    return images, labels


def test_mnist_as_published(data_dir: Path) -> None:
    images = load_images("MNIST", data_dir)
    assert images.images.shape == (3600, 28, 28, 1)
    assert images.task.image_shape == (28, 28, 1)
    assert images.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert np.bincount(images.labels)[:2].tolist() == [342, 404]
    assert float(images.pixels.mean()) == pytest.approx(images.mean[0], abs=0.01)
    assert float(images.pixels.std()) == pytest.approx(images.std[0], abs=0.01)


def test_idx_files(tmp_path: Path) -> None:
    write_idx(tmp_path)
    images = load_images("mnist", tmp_path)
    assert images.labels.tolist() == [0, 1, 2]
    assert images.images[:, 5, 5, 0].tolist() == [0, 1, 2]


def test_altered_idx_files(tmp_path: Path) -> None:
    images, labels = write_idx(tmp_path)
    whole = images.read_bytes()
    images.write_bytes(whole[:-1])
    with refuses(2367, expected=images):
        load_images("mnist", tmp_path)
    images.write_bytes(whole[:9])
    with refuses(9, expected=images):
        load_images("mnist", tmp_path)
    images.write_bytes(b"\x1f\x8b\x08\x00")
    with refuses("31 139 8 0", expected=images):
        load_images("mnist", tmp_path)
    images.write_bytes(b"")
    with refuses("nothing", expected=images):
        load_images("mnist", tmp_path)
    write_idx(tmp_path, side=27)
    with refuses((3, 27, 27), expected=images):
        load_images("mnist", tmp_path)
    write_idx(tmp_path)
    labels.write_bytes(struct.pack(">2I", 2049, 2) + bytes(2))
    with refuses((2,), expected=(3, labels)):
        load_images("mnist", tmp_path)
    labels.unlink()
    with refuses(labels, expected=labels):
        load_images("mnist", tmp_path)
    write_idx(tmp_path, count=12)
    with refuses(10, expected=("0..9", labels)):
        load_images("mnist", tmp_path)


@pytest.mark.parametrize("samples", [None, 4])
def test_pixels_that_are_no_pixels_are_not_scored(samples: int | None) -> None:
    grey = ImageSet.of(np.full((6, 32, 32, 3), 200.0), np.arange(6) % 3)
    with refuses("200 to 200", expected="pixels"):
        _ = Scoring.of(replace(grey, samples=samples), space=Residual(width=8)).draws
    levels = load_images("synthetic", samples=samples)
    assert Scoring.of(levels, space=Residual(width=8)).draws[0][0].max() <= 1


@pytest.mark.usefixtures("unchecked")
def test_a_draw_is_recorded_in_plain_values() -> None:
    data = load_images("synthetic", samples=np.int64(4), balanced=np.bool_(True))
    assert json.dumps(data.drawn) == '{"samples": 4, "balanced": true}'
    with refuses("'no'", expected="balanced"):
        replace(data, balanced="no")
