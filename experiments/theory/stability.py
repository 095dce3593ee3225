"""Perturbation stability at initialisation and during training, and how far weights travel.

The stability 𝒫(f, ε) = E ‖∇f(x)ᵀ(x − x̂)‖, over x, x̂ uniform within ε of x and the weights, is the
distance that outputs move to first order. It is linear in ε: here ε = 1. Smaller is more robust.
`ntkscore.measures.perturbations.displacements` measures it. At initialisation it has exact values
for networks with d inputs, m features a layer, o outputs and L layers.

Two-layer networks f(x) = (1/α) Σ a_r relu(w_r·x), with a_r ~ N(0, β₂²) and w_r ~ N(0, β₁² I), are
trained in both layers by gradient flow on ½ Σ (f(x_i) − y_i)². A large α makes outputs small, so
that weights must travel.

Source: Zhu et al. (2022), "Robustness in deep learning: the good (width), the bad (depth), and the
ugly (initialization)", appendix B to D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import gammaln

from experiments.theory.least_eigenvalue import Bound
from experiments.theory.networks import INITIALISATIONS

Points = Float[Array, "n d"]
Kernel = Float[Array, "n n"]


def gain(initialisation: str, dimension: int, width: int) -> float:
    """γ = β√(m/2), the growth of a signal's length by a hidden layer."""
    return float(INITIALISATIONS[initialisation](dimension, width)[1] * np.sqrt(width / 2))


def second_moment(
    initialisation: str, dimension: int, width: int, outputs: int, layers: int
) -> float:
    """E ‖∇f(x)ᵀ(x − x̂)‖² of a random network, exactly, at any width: its bound is met.

    Source: Zhu et al. (2022), lemma 5, with E ‖x − x̂‖² = d/(d + 2).

    Example:
        >>> round(second_moment("he", 10, 64, outputs=1, layers=4), 4)
        0.1667
    """
    first, _, last = INITIALISATIONS[initialisation](dimension, width)
    scale = width * outputs * first**2 * last**2 / 2
    grown = gain(initialisation, dimension, width) ** (2 * (layers - 2))
    return float(scale * grown * dimension / (dimension + 2))


def stability_at_initialisation(
    initialisation: str, dimension: int, width: int, outputs: int, layers: int
) -> float:
    """𝒫/ε of a random network, to leading order of a log-normal in (L − 1)/m.

    Source: derived; the first factor is of lemma 5 of Zhu et al. (2022).
    """
    root = np.sqrt(second_moment(initialisation, dimension, width, outputs, layers))
    log_ratio = gammaln((outputs + 1) / 2) - gammaln(outputs / 2)
    of_outputs = np.sqrt(2 / outputs) * np.exp(log_ratio)
    return float(root * of_outputs * np.exp(-5 * (layers - 1) / (8 * width)))


def hidden_kernel(
    weights: Float[Array, "d m"], a: Float[Array, " m"], x: Points, alpha: float = 1.0
) -> Kernel:
    """H: the part of the NTK that is of W, whose columns are w_r.

    Source: Zhu et al. (2022), appendix D; with `output_kernel` it is the NTK (lemma 6).
    """
    active = (x @ weights > 0).astype(x.dtype)
    return (x @ x.T) * ((active * a**2) @ active.T) / alpha**2


def output_kernel(weights: Float[Array, "d m"], x: Points, alpha: float = 1.0) -> Kernel:
    """G: the part of the NTK that is of the output weights.

    Example:
        >>> output_kernel(jnp.eye(2), jnp.asarray([[3.0, 4.0], [1.0, -1.0]]))
        Array([[25.,  3.],
               [ 3.,  1.]], dtype=float32)
    """
    hidden = jnp.maximum(x @ weights, 0)
    return hidden @ hidden.T / alpha**2


def expected_hidden_kernel(
    x: Float[np.ndarray, "n d"], width: int, output_std: float, alpha: float = 1.0
) -> Float[np.ndarray, "n n"]:
    """H^∞ = E H at the start of points of length 1: (m β₂²/α²) x·x′ (π − arccos(x·x′))/(2π).

    Example:
        >>> expected_hidden_kernel(np.eye(2), 8, 1.0)
        array([[4., 0.],
               [0., 4.]])
    """
    inner = np.clip(x @ x.T, -1, 1)
    return width * (output_std / alpha) ** 2 * inner * (np.pi - np.arccos(inner)) / (2 * np.pi)


@dataclass(frozen=True)
class TwoLayer:
    """Sizes of a two-layer network and of its points, which the bounds are made of.

    Attributes:
        points: n.
        width: m.
        hidden_std: β₁.
        output_std: β₂.
        least: λ₀, the least eigenvalue of H^∞.
        alpha: α.
    """

    points: int
    width: int
    hidden_std: float
    output_std: float
    least: float
    alpha: float = 1.0

    def output_radius(self) -> float:
        """R_a, how far every a_r may be from its start for H to stay within λ₀/4.

        Source: Zhu et al. (2022), lemma 8. What is printed is negative at any size
        (`printed_output_radius`); this is the root of the proof's own inequality.

        Example:
            >>> sizes = TwoLayer(100, 512, 1.0, 1.0, least=2.0, alpha=512**0.5)
            >>> sizes.printed_output_radius() < 0 < sizes.output_radius()
            True
        """
        shift = np.sqrt(2 / np.pi) * self.output_std
        room = self.alpha**2 * self.least / (8 * self.points**3 * self.width)
        # (√(s² + r) − s), without what cancels.
        return float(room / (shift + np.sqrt(shift**2 + room)))

    def printed_output_radius(self) -> float:
        """(α/n) √(λ₀/(8 n m)) − √(2/π) β₂, lemma 8 as it is printed."""
        root = np.sqrt(self.least / (8 * self.points * self.width))
        return float(self.alpha / self.points * root - np.sqrt(2 / np.pi) * self.output_std)

    def hidden_radius(self) -> float:
        """R_w, how far every w_r may be from its start for H to stay within λ₀/4.

        Source: Zhu et al. (2022), equation 17.
        """
        r = self.output_radius()
        spread = r * (r + np.sqrt(8 / np.pi) * self.output_std) + self.output_std**2
        above = np.sqrt(2 * np.pi) * self.alpha**2 * self.least * self.hidden_std
        return float(above / (32 * self.points**3 * self.width * spread))

    def _speeds(self, residual: float) -> tuple[float, float]:
        """The limits of R*_w(t) and R*_a(t) as t grows."""
        n, m = self.points, self.width
        scale = 2 * np.sqrt(n) / (self.alpha * self.least) * residual
        of_hidden = np.sqrt(n) * self.output_std + self.output_radius()
        of_output = 3 * self.hidden_std * np.sqrt(np.log(m * n**2)) + self.hidden_radius()
        return float(scale * of_hidden), float(scale * of_output)

    def time(self, residual: float) -> float:
        """t*, until when the weights are known to be within R_w and R_a; inf if always.

        The residual is ‖y − f(0)‖, here and below.

        Source: Zhu et al. (2022), lemmas 9 to 11.
        """
        radii = (self.hidden_radius(), self.output_radius())
        times = [
            -2 / self.least * np.log1p(-radius / speed) if radius < speed else np.inf
            for radius, speed in zip(radii, self._speeds(residual), strict=True)
        ]
        return float(min(times))

    def travelled(self, time: float, residual: float) -> tuple[float, float]:
        """R*_w(t) and R*_a(t), which bound the way of every w_r and a_r until t ≤ t*."""
        share = -np.expm1(-self.least * time / 2)
        of_hidden, of_output = self._speeds(residual)
        return float(of_hidden * share), float(of_output * share)

    def stability_bound(self, time: float, residual: float) -> Bound:
        """𝒫(f_t, ε)/ε at most, `vacuous` after t*.

        Source: Zhu et al. (2022), theorem 3 (equation 25), with √m where the weights' dimension
        would ask for √d, as printed.

        Example:
            >>> sizes = TwoLayer(100, 512, 512**-1.5, 512**-1.5, least=1e-6)
            >>> sizes.stability_bound(sizes.time(7.0), 7.0).status
            'ok'
            >>> sizes.stability_bound(1e9, 7.0).status
            'vacuous'
        """
        if time > self.time(residual):
            return Bound(float("inf"), "vacuous")
        of_hidden, of_output = self.travelled(time, residual)
        n, m = self.points, self.width
        outputs = of_output + np.sqrt(2 / np.pi) * n * self.output_std
        hidden = of_hidden + self.hidden_std * (4 * np.sqrt(m) + 2 * np.sqrt(np.log(n)))
        return Bound(float(m / self.alpha * outputs * hidden))


class Travel(NamedTuple):
    """The way of one layer's weights.

    Attributes:
        start, end: Frobenius norms at the beginning and at the end.
        relative: κ_l = ‖W_l(t) − W_l(0)‖/‖W_l(0)‖, how far from lazy.
    """

    start: float
    end: float
    relative: float


def travel(start: Sequence[Array], end: Sequence[Array]) -> list[Travel]:
    """The way of each layer's weights.

    Example:
        >>> travel([jnp.ones(4)], [jnp.zeros(4)])
        [Travel(start=2.0, end=0.0, relative=1.0)]
    """
    norm = lambda w: float(jnp.linalg.norm(w))  # noqa: E731
    return [
        Travel(norm(before), norm(after), norm(after - before) / norm(before))
        for before, after in zip(start, end, strict=True)
    ]


def least_norm(layers: Sequence[Travel], output: float, alpha: float = 1.0) -> float:
    """(α |f|)^(1/L) − (1/L) Σ ‖W_i(0)‖, below every layer's norm under gradient flow.

    The output |f| is at a point of length 1.

    Source: Zhu et al. (2022), equation 15, where |f| is 1/4.

    Example:
        >>> layers = travel([jnp.full(1, 0.1)] * 2, [jnp.full(1, 1.0)] * 2)
        >>> round(least_norm(layers, 1.0), 4)
        0.9
    """
    power = (alpha * output) ** (1 / len(layers))
    return float(power - np.mean([layer.start for layer in layers]))
