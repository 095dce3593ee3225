"""Neural tangent kernels of infinitely wide residual networks, in closed form.

With the activation scaled by the width, k(x, x′) = lim ⟨∂f(x)/∂W, ∂f(x′)/∂W⟩ as the width grows,
over all weights, for the output as printed; the output multiplied by √m has m times as much.

Between two layers a branch has no matrix of its own, so that a layer whose activation has a mean
other than zero is correlated with its skip: the mean of its features counts beside their products.

Source: Wu et al. (2024), "Robust NAS under adversarial training", equations 1 and 2, which gives no
closed form; the recursions are derived here, and the tests hold them against wide networks.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from cells.residual import ResidualConvolutional, Skips
from cells.residual.activations import ACTIVATIONS
from cells.residual.networks import Residual
from experiments.theory.gaussian import mean, moments
from ntkscore.errors import InputError

OFF = 1e-5
"""Distance from length 1 that rounding in float32 explains."""


def infinite_ntk(
    space: Residual, architecture: Skips | str, points: Float[np.ndarray, "n ..."]
) -> Float[np.ndarray, "n n"]:
    """The kernel of a space's network as its width grows, in float64.

    Args:
        space: `Residual` or `ResidualConvolutional`; its width does not count, and outputs are as
            printed, one of them.
        architecture: the skips, with their activations or the space's.
        points: of length 1 each; of a convolutional network (n, …, channels).

    Raises:
        InputError: if a point is not on the sphere, or the activations are not scaled.

    Example:
        >>> from cells.residual import Residual
        >>> points = np.array([[1.0, 0.0], [0.5, 0.75**0.5]])
        >>> infinite_ntk(Residual(), "1", points).round(6)
        array([[1.15836 , 0.583733],
               [0.583733, 1.15836 ]])
    """
    points = np.asarray(points, float)
    check_on_sphere(points)
    skips = space.parse(architecture)
    names = space.activations_of(skips)
    literal = [name for name in names if not ACTIVATIONS[name].homogeneous]
    if space.activation_scaling == "literal" and literal:
        raise InputError(
            "activations scaled by the width",
            f"{literal[0]} as printed, with which wide networks are linear or grow without bound",
            "choose activation_scaling='width'",
        )
    alphas = space.encode(skips).tolist()
    if isinstance(space, ResidualConvolutional):
        variance = 1 / space.filter_size if space.hidden_variance == "1/(κm)" else 1.0
        return _kernel(points, alphas, names, space.filter_size, variance)
    # One pixel, whose channels are all that a point has.
    return _kernel(points.reshape(len(points), 1, -1), alphas, names, 1, 1.0)


def check_on_sphere(points: Float[np.ndarray, "n ..."]) -> None:
    """Refuse points whose Euclidean length is not 1."""
    lengths = np.linalg.norm(points.reshape(len(points), -1), axis=1)
    if (off := ~(np.abs(lengths - 1) <= OFF)).any():
        raise InputError(
            "points of length 1",
            f"{off.sum()} of {len(points)} that are not, the first of length {lengths[off][0]:.4g}",
            "divide each by its length",
        )


def _kernel(
    points: Float[np.ndarray, "n ... d"],
    skips: Sequence[int],
    activations: Sequence[str],
    filter_size: int,
    hidden_variance: float,
) -> Float[np.ndarray, "n n"]:
    """The kernel, of points whose channels are last; the variance is in units of 1/m.

    Without pooling only equal pixels correlate, so that arrays are (n, n, pixel).
    """
    x = points.reshape(len(points), -1, points.shape[-1])
    layers = len(activations) + 1
    gram, means = np.einsum("ipc,jpc->ijp", x, x), np.zeros(x.shape[:2])
    derivatives, before = [], []
    for layer, name in enumerate(activations):
        first = layer == 0
        # G_{l−1} summed over each filter's pixels.
        covered = _neighbourhoods(gram, filter_size)
        covariance = (1.0 if first else hidden_variance) * covered
        sigma, variances = ACTIVATIONS[name], np.einsum("iip->ip", covariance)
        product, derivative = moments(sigma, variances[:, None], variances[None], covariance)
        branch = np.asarray(mean(sigma, variances))
        share, alpha = (1.0, 0) if first else (1 / layers, skips[layer - 1])
        # A branch is correlated with its skip by their means.
        mixed = branch[:, None] * means[None] + means[:, None] * branch[None]
        gram = share**2 * product + alpha * (gram + share * mixed)
        means = share * branch + alpha * means
        before.append(covered)
        derivatives.append(share**2 * derivative)
    kernel, slope = np.sum(gram, 2), np.ones_like(gram)
    for layer in reversed(range(len(activations))):
        pulled = slope * derivatives[layer]
        kernel += np.sum(pulled * before[layer], 2)
        if layer:
            passed = hidden_variance * _neighbourhoods(pulled, filter_size)
            slope = skips[layer - 1] * slope + passed
    return kernel


def _neighbourhoods(a: Float[np.ndarray, "n n p"], size: int) -> Float[np.ndarray, "n n p"]:
    """Sums over the pixels that a filter covers, zero beyond the ends."""
    pixels, half = a.shape[-1], size // 2
    padded = np.pad(a, ((0, 0), (0, 0), (half, half)))
    return sum((padded[..., u : u + pixels] for u in range(1, size)), padded[..., :pixels])
