"""Digits by regression with the NTK of a small convolutional network: python docs/mnist.py 10000.

The first 3,000 digits of MNIST's training file are fitted, with copies of them that are moved by up
to two pixels where more are asked for, and 600 others are tested. Prints accuracies and seconds.
"""

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from scipy.sparse.linalg import aslinearoperator
from sklearn.kernel_ridge import KernelRidge

import ntkscore
from ntkscore.data.images import load_images
from ntkscore.regression import KernelRegression

OWN, TESTED, RIDGE = 3000, 600, 1e-3
"""Digits of their own, digits to test, and the ridge in units of the kernel's mean diagonal."""


def digits(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (count, 28, 28, 1), pixels in [0, 1], and labels to fit; then those to test."""
    data, rng = load_images("mnist"), np.random.default_rng(0)
    images = np.asarray(data.images[: OWN + TESTED], np.float32) / 255
    labels = data.labels[: OWN + TESTED]
    moves = rng.integers(-2, 3, (count, 2)) * (np.arange(count) >= OWN)[:, None]
    copies = [np.roll(images[k % OWN], tuple(move), (0, 1)) for k, move in enumerate(moves)]
    return np.stack(copies), labels[np.arange(count) % OWN], images[OWN:], labels[OWN:]


def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Two convolutions with ReLUs and means of 2×2 pixels, and one output."""
    for name in ("first", "second"):
        x = lax.conv_general_dilated(
            x, params[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x)
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return x.reshape(len(x), -1) @ params["head"]


def network(seed: int = 0) -> ntkscore.Model:
    """6,320 weights by He's rule."""
    shapes = {"first": (3, 3, 1, 16), "second": (3, 3, 16, 32), "head": (7 * 7 * 32, 1)}
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    draws = zip(shapes.items(), keys, strict=True)
    params = {n: jax.random.normal(k, s) * (2 / np.prod(s[:-1])) ** 0.5 for (n, s), k in draws}
    return ntkscore.Model(jax.jit(apply), params)


def told(name: str, compute: Callable[[], Any]) -> Any:
    """What a function returns; its seconds and the process's peak memory are printed."""
    start = time.perf_counter()
    found = jax.block_until_ready(compute())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name}: {time.perf_counter() - start:.1f} s, peak {memory:.1f} GiB", flush=True)
    return found


def main(count: int, size: int = 4096) -> dict[str, float]:
    """Shares of the tested digits that are named rightly, by method."""
    images, labels, tested, wanted = digits(count)
    targets, model, found = np.eye(10)[labels], network(), {}

    def right(name: str, predictions: np.ndarray) -> None:
        found[name] = float(np.mean(predictions.argmax(1) == wanted))
        print(f"{name}: {found[name]:.4f} of {len(wanted)} digits", flush=True)

    kernel = np.asarray(told(f"kernel of {count} digits", lambda: ntkscore.ntk(model, images)))
    cross = np.asarray(told("cross kernel", lambda: ntkscore.ntk(model, tested, images)))
    ridge = RIDGE * float(np.trace(kernel)) / count
    cg = told(
        "conjugate gradients",
        lambda: KernelRegression(ridge).fit(aslinearoperator(kernel.astype(float)), targets),
    )
    right("conjugate gradients", cg.predict(cross))
    if count <= 2000:
        theirs = KernelRidge(alpha=ridge, kernel="precomputed")
        ours = told("Cholesky", lambda: KernelRegression(ridge).fit(kernel, targets))
        told("scikit-learn", lambda: theirs.fit(kernel.astype(float), targets))
        right("Cholesky", ours.predict(cross))
        right("scikit-learn", theirs.predict(cross))
        print(
            f"largest difference: {np.abs(ours.predict(cross) - theirs.predict(cross)).max():.1e}"
        )
    there, here = (
        np.asarray(
            told(
                f"{size} features of {len(x)} digits",
                lambda x=x: ntkscore.gradient_features(model, x, size),
            ),
            float,
        )
        for x in (tested, images)
    )
    inner = here.T @ here + ridge * np.eye(size)
    weights = told("regression with features", lambda: np.linalg.solve(inner, here.T @ targets))
    right("features", there @ weights)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
