"""An exact Gaussian process, with a mean that is linear in one quantity known before.

Source: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, chapters 2 and 5.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

BESIDE_MEAN = {
    "linear": (-1.5, 0.7),
    "nearby": (-1.5, 0.7),
    "length": (0.5, 0.7),
    "noise": (-1.5, 0.7),
}
"""Mean and standard deviation of the logarithms of a process's settings, in standard deviations of
what it is told (length: of the inputs). The two amplitudes are of what the mean does not tell; they
are small, so that few numbers do not change an order that was known before."""
WITHOUT_MEAN = BESIDE_MEAN | {"linear": (-0.3, 1.0), "nearby": (-0.3, 1.0)}
"""The same where there is no such quantity, and the two terms tell everything."""
BOUNDS = (-6.0, 6.0)
"""Of the logarithms, so wide that the prior alone matters."""
MOST_FITTED = 500
"""Values, drawn at random, that the settings are fitted to; all count in the prediction."""


@dataclass(frozen=True, eq=False)
class Process:
    """A Gaussian process that was told values at some points.

    Its covariance is 1 + m m′ + linear² x·x′ + nearby² exp(−|x − x′|² / 2 length²), and noise² of
    each value, in units of the values' standard deviation. So m, the first number of a point, has a
    slope and an intercept of its own; both are left out where every m is 0.

    Attributes:
        x: points, shape (n, 1 + d).
        y: their values, shape (n,).
        settings: logarithms of linear, nearby, length and noise.
    """

    x: Float[np.ndarray, "n e"]
    y: Float[np.ndarray, " n"]
    settings: Float[np.ndarray, " 4"]

    @classmethod
    def fitted(cls, x: Float[np.ndarray, "n e"], y: Float[np.ndarray, " n"]) -> "Process":
        """The process whose settings have the largest posterior density.

        The likelihood alone misleads with few values.
        """
        prior = BESIDE_MEAN if x[:, 0].any() else WITHOUT_MEAN
        means, widths = np.array(list(prior.values())).T
        few = np.random.default_rng(0).permutation(len(y))[:MOST_FITTED]

        def loss(settings: np.ndarray) -> tuple[float, np.ndarray]:
            away = (settings - means) / widths
            value, slope = cls(x[few], y[few], settings).surprise()
            return value + away @ away / 2, slope + away / widths

        found = minimize(loss, means, jac=True, method="L-BFGS-B", bounds=[BOUNDS] * len(means))
        return cls(x, y, found.x)

    def surprise(self) -> tuple[float, Float[np.ndarray, " 4"]]:
        """The negative logarithm of the values' density, up to a constant, and its gradient."""
        linear, nearby, length, _ = self._own_terms
        inverse = cho_solve((self._lower, True), np.eye(len(self.y)))
        inner = inverse - np.outer(self._weights, self._weights)
        value = self._standard @ self._weights / 2 + np.log(np.diag(self._lower)).sum()
        parts = (2 * linear, 2 * nearby, length, 2 * self.noise**2 * np.eye(len(self.y)))
        return float(value), np.array([(inner * part).sum() / 2 for part in parts])

    @property
    def noise(self) -> float:
        """The standard deviation of a value that is measured again, in those of the values."""
        return float(np.exp(self.settings[3]))

    @property
    def scale(self) -> float:
        """The values' standard deviation."""
        return float(self.y.std())

    def mean(self, x: Float[np.ndarray, "m e"]) -> Float[np.ndarray, " m"]:
        """Expected values at points."""
        return self.y.mean() + self.scale * (self._covariance(x, self.x) @ self._weights)

    def deviation(self, x: Float[np.ndarray, "m e"]) -> Float[np.ndarray, " m"]:
        """Standard deviations at points, without noise."""
        linear, nearby, *_ = np.exp(self.settings)
        before = self._intercept + x[:, 0] ** 2 + linear**2 * (x[:, 1:] ** 2).sum(1) + nearby**2
        told = (self._whitened(x) ** 2).sum(0)
        return self.scale * np.sqrt(np.maximum(before - told, 0))

    def covariance(self, x: Float[np.ndarray, "m e"]) -> Float[np.ndarray, "m m"]:
        """Covariance between points, without noise."""
        whitened = self._whitened(x)
        return self.scale**2 * (self._covariance(x, x) - whitened.T @ whitened)

    def _terms(
        self, a: Float[np.ndarray, "m e"], b: Float[np.ndarray, "n e"]
    ) -> tuple[Float[np.ndarray, "m n"], ...]:
        """The two terms, the derivative of the second by the length's logarithm, and the mean's."""
        linear, nearby, length, _ = np.exp(self.settings)
        products = a[:, 1:] @ b[:, 1:].T
        squares = (a[:, 1:] ** 2).sum(1)[:, None] + (b[:, 1:] ** 2).sum(1) - 2 * products
        squares = np.maximum(squares, 0) / length**2
        near = nearby**2 * np.exp(-squares / 2)
        mean = self._intercept + np.outer(a[:, 0], b[:, 0])
        return linear**2 * products, near, near * squares, mean

    def _covariance(
        self, a: Float[np.ndarray, "m e"], b: Float[np.ndarray, "n e"]
    ) -> Float[np.ndarray, "m n"]:
        linear, nearby, _, mean = self._terms(a, b)
        return mean + linear + nearby

    def _whitened(self, x: Float[np.ndarray, "m e"]) -> Float[np.ndarray, "n m"]:
        return solve_triangular(self._lower, self._covariance(self.x, x), lower=True)

    @property
    def _intercept(self) -> float:
        """Values are centred, which is their mean where there is no m to tell more."""
        return float(self.x[:, 0].any())

    @cached_property
    def _own_terms(self) -> tuple[Float[np.ndarray, "n n"], ...]:
        return self._terms(self.x, self.x)

    @cached_property
    def _standard(self) -> Float[np.ndarray, " n"]:
        return (self.y - self.y.mean()) / self.scale

    @cached_property
    def _lower(self) -> Float[np.ndarray, "n n"]:
        """Cholesky's factor of the covariance of the values."""
        linear, nearby, _, mean = self._own_terms
        return cholesky(mean + linear + nearby + self.noise**2 * np.eye(len(self.y)), lower=True)

    @cached_property
    def _weights(self) -> Float[np.ndarray, " n"]:
        return cho_solve((self._lower, True), self._standard)
