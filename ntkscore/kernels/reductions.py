"""Train-free measures from the matrices that a program hands out, on the host.

`ntkscore.kernels.proxies` declares them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float


def feature_entropies(products: Sequence[Float[np.ndarray, "_ _ _"]]) -> Float[np.ndarray, "b"]:
    """Entropy in nats of the normalised spectrum of the features' covariance, block by block.

    Source: Lee and Ham (2024), AZ-NAS, expressivity.

    Args:
        products: `ntkscore.kernels.probes.feature_products`, blocks of one shape together.

    Example:
        >>> feature_entropies([np.eye(3)[None]]).round(6)  # three equal shares: ln 3
        array([1.098612])
    """

    def entropies(products: Float[np.ndarray, "k d d"]) -> Float[np.ndarray, "k"]:
        spectrum = np.linalg.eigvalsh(products.astype(float))
        share = np.clip(spectrum, 0, None) / np.sum(spectrum, 1, keepdims=True)
        return -np.sum(share * np.log(share + 1e-8), 1)

    return np.concatenate([entropies(each) for each in products])


def of_features(products: Sequence[Float[np.ndarray, "_ _ _"]]) -> dict[str, float]:
    """`expressivity` and `progressivity` of a network's blocks; of a single block the first alone.

    NaN where a block's features are all equal or not finite.

    Args:
        products: as for `feature_entropies`.
    """
    count = sum(map(len, products))
    with np.errstate(invalid="ignore"):
        finite = _finite(products)
        entropies = feature_entropies(products) if finite else np.full(count, np.nan)
    found = {"expressivity": float(np.sum(entropies))}
    return found | ({"progressivity": float(np.min(np.diff(entropies)))} if count > 1 else {})


def of_pullbacks(products: Sequence[Float[np.ndarray, "_ _ _"]]) -> dict[str, float]:
    """`trainability`: 0 where every block hands gradients on at their length, negative elsewhere.

    Source: Lee and Ham (2024), AZ-NAS.

    Args:
        products: `ntkscore.kernels.own_passes.pullback_products`.

    Example:
        >>> round(of_pullbacks([np.eye(3)[None]])["trainability"], 5)
        0.0
    """
    if not _finite(products):
        return {"trainability": np.nan}
    largest = np.concatenate([np.linalg.norm(each.astype(float), 2, (1, 2)) for each in products])
    return {"trainability": float(np.mean(2 - largest - 1 / (largest + 1e-6)))}


def of_fisher(products: Sequence[Float[np.ndarray, "_ _ _"]]) -> dict[str, float]:
    """`fisher_entropy` and `vkdnw`, of the layers whose first weight moves a logit.

    NaN where there is none, and where fewer than a tenth of the eigenvalues are more than rounding:
    each image brings as many as there are classes, less one.

    Source: Týbl and Neumann (2025), VKDNW: nats, of the nine deciles between the least and the
    largest eigenvalue, divided by their sum.

    Args:
        products: `ntkscore.kernels.weight_gradients.fisher`, a matrix.

    Example:
        >>> round(of_fisher([np.eye(3)[None]])["fisher_entropy"], 6)  # nine equal deciles: ln 9
        2.197225
    """
    (matrix,) = products[0]
    moved = np.diag(matrix) != 0
    if not np.isfinite(matrix).all() or not moved.any():
        return {"fisher_entropy": np.nan, "vkdnw": np.nan}
    spectrum = np.linalg.eigvalsh(matrix[np.ix_(moved, moved)].astype(float))
    deciles = np.quantile(np.clip(spectrum, 0, None), np.arange(1, 10) / 10)
    if deciles[-1] <= len(spectrum) * np.finfo(matrix.dtype).eps * spectrum[-1]:
        return {"fisher_entropy": np.nan, "vkdnw": np.nan}
    share = deciles[deciles > 0] / np.sum(deciles)
    entropy = -float(np.sum(share * np.log(share)))
    return {"fisher_entropy": entropy, "vkdnw": len(spectrum) + entropy}


def reduced(products: Mapping[str, Any]) -> dict[str, float]:
    """Every measure that matrices are reduced to, by KERNEL.MEASURE.

    Args:
        products: of a program, by KERNEL.NAME; the names are those in `REDUCED`.
    """
    found: dict[str, float] = {}
    for name, matrices in products.items():
        kernel, what = name.split(".")
        found |= {f"{kernel}.{measure}": v for measure, v in REDUCED[what](matrices).items()}
    return found


def _finite(matrices: Sequence[np.ndarray]) -> bool:
    return all(np.isfinite(each).all() for each in matrices)


REDUCED: dict[str, Callable[[Any], dict[str, float]]] = {
    "features": of_features,
    "pullbacks": of_pullbacks,
    "fisher": of_fisher,
}
"""How matrices that a program hands out become measures."""
