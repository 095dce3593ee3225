"""Regression with a kernel that is computed, and the likeness of two kernels.

`ntkscore.ntk` gives the kernels. In float64, whatever precision they have.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from ntkscore.errors import InputError
from ntkscore.measures.kernel import check_symmetric

CHOLESKY_POINTS = 10_000
"""Above so many points, conjugate gradients solve in place of a Cholesky factor."""
RANK = 500
"""Columns that the preconditioner is made of."""
TOLERANCE = 1e-6
"""Relative residual at which conjugate gradients stop."""
STEPS = 1000
"""Steps after which they give up."""
Matrix = Any
"""A kernel (m, n): an array, or anything that `scipy.sparse.linalg.aslinearoperator` takes."""
Columns = Callable[[np.ndarray], np.ndarray]


class KernelRegression:
    """Ridge regression by a kernel: f(x) = f₀(x) + k(x, X) (K + αI)⁻¹ (y − f₀(X)).

    With f₀ = 0 it is kernel ridge regression and the mean of a Gaussian process. With the network's
    own outputs as f₀ and its NTK as kernel it is the linearised network, trained to the end, and
    after any time of gradient flow. Up to 10,000 points it is solved by a Cholesky factor; above
    them, and of linear operators, by conjugate gradients with a Nyström preconditioner.

    Args:
        alpha: α, the ridge, or the variance of the observations' noise.
        seed: of the preconditioner's draws.

    Attributes:
        dual_coef_: (K + αI)⁻¹ (y − f₀(X)), (N,) or (N, T).

    Example:
        >>> kernel = lambda a, b: np.exp(-np.square(a[:, None] - b))
        >>> x = np.linspace(0, 3, 10)
        >>> fitted = KernelRegression(1e-6).fit(kernel(x, x), np.sin(x))
        >>> new = np.array([1.5])
        >>> float(fitted.predict(kernel(new, x)).round(3)[0])
        0.997

    Source: Jacot, Gabriel and Hongler (2018), section 5; Lee et al. (2019), equations 8 to 16.
    """

    def __init__(self, alpha: float = 1e-6, *, seed: int = 0) -> None:
        self.alpha, self.seed = alpha, seed

    def fit(self, kernel: Matrix, y: Any, outputs: Any = 0.0) -> "KernelRegression":
        """Solve for the dual coefficients.

        Args:
            kernel: K(X, X), (N, N).
            y: targets, (N,) or (N, T); of classes, one-hot vectors or ±1.
            outputs: f₀(X), of the shape of the targets.

        Raises:
            InputError: if shapes do not fit, numbers are not finite, the kernel is not symmetric, α
                is negative, K + αI is not positive definite, or conjugate gradients do not
                converge.
        """
        y = np.asarray(y, np.float64)
        self._residual = y - _like(outputs, y.shape, "outputs of the shape of the targets")
        count = len(self._residual)
        kernel = np.asarray(kernel) if isinstance(kernel, list | tuple) else kernel
        if tuple(kernel.shape) != (count, count):
            raise InputError(
                f"a square kernel of the {count} targets' points",
                f"the shape {tuple(kernel.shape)}",
                "give ntk(model, X)",
            )
        is_dense = hasattr(kernel, "__array__") and count <= CHOLESKY_POINTS
        self._kernel = np.asarray(kernel, np.float64) if is_dense else None
        _check_finite(self._residual, "targets and outputs")
        if self._kernel is not None:
            _check_finite(self._kernel, "entries of the kernel")
            check_symmetric(self._kernel, "give K(X, X), not that of other points")
        if not (0 < self.alpha < np.inf or (is_dense and self.alpha == 0)):
            raise InputError(
                f"alpha {'of at least' if is_dense else 'above'} 0", f"{self.alpha:g}", "raise it"
            )
        self._known_inverse: np.ndarray | None = None
        self._solve = self._by_factor() if is_dense else self._by_gradients(kernel, count)
        self.dual_coef_ = self._solve(self._residual)
        return self

    def _by_factor(self) -> Callable[[np.ndarray], np.ndarray]:
        """(K + αI)⁻¹ of some columns, by a Cholesky factor."""
        shifted = np.array(self._kernel)
        shifted[np.diag_indices(len(shifted))] += self.alpha
        try:
            factor = scipy.linalg.cho_factor(shifted, overwrite_a=True)
        except scipy.linalg.LinAlgError:
            raise InputError(
                "a positive definite K + αI",
                f"one that is singular at alpha {self.alpha:g}",
                "raise alpha, such as to 1e-6 of the mean of K's diagonal",
            ) from None
        return lambda b: scipy.linalg.cho_solve(factor, b)

    def _by_gradients(self, kernel: Matrix, count: int) -> Callable[[np.ndarray], np.ndarray]:
        """(K + αI)⁻¹ of some columns, by conjugate gradients."""
        dense = hasattr(kernel, "__array__")
        operator = aslinearoperator(np.asarray(kernel, np.float64) if dense else kernel)
        precondition = nystrom_preconditioner(operator, self.alpha, RANK, self.seed)

        def solve(b: np.ndarray) -> np.ndarray:
            product = lambda v: operator.matmat(v) + self.alpha * v  # noqa: E731
            found, steps = conjugate_gradients(product, b.reshape(count, -1), precondition)
            if steps == STEPS:
                raise InputError(
                    f"conjugate gradients to converge in {STEPS} steps",
                    f"a residual above {TOLERANCE:g}",
                    "raise alpha",
                )
            return found.reshape(b.shape)

        return solve

    def predict(
        self, cross: Matrix, outputs: Any = 0.0, *, time: float | None = None
    ) -> Float[np.ndarray, "m ..."]:
        """Predictions at other points.

        Args:
            cross: K(x, X), (M, N).
            outputs: f₀(x).
            time: of gradient flow on ½ Σ (f − y)², from f₀ on; to the end if left out. The ridge
                has no part in it.

        Returns:
            (M,) or (M, T).

        Raises:
            InputError: if shapes do not fit, or a time is asked for that is negative or infinite,
                or where no eigenvalues are at hand.
        """
        cross = self._crossing(cross)
        shape = (cross.shape[0], *self.dual_coef_.shape[1:])
        start = _like(outputs, shape, "outputs of the shape of the predictions")
        if time is None:
            return start + cross @ self.dual_coef_
        if not 0 <= time < np.inf:
            raise InputError("a time from 0 on", f"{time:g}", "leave it out for the end")
        values, vectors = scipy.linalg.eigh(self._dense("predictions at a time"))
        # (1 − exp(−λt)) / λ, which is t where λ is zero; below it is rounding.
        rate = np.clip(values, 0, None) * time
        gain = time * np.where(np.abs(rate) > 1e-12, -np.expm1(-rate) / np.where(rate, rate, 1), 1)
        step = vectors @ (gain * (vectors.T @ self._residual).T).T
        return start + cross @ step

    def variance(self, cross: Matrix, diagonal: Any) -> Float[np.ndarray, " m"]:
        """The Gaussian process's variance k(x, x) − k(x, X)(K + αI)⁻¹k(X, x), without the noise.

        Args:
            cross: K(x, X), (M, N).
            diagonal: k(x, x), (M,), as `ntk(model, x, diagonal=True)` gives it.
        """
        cross = np.asarray(self._crossing(cross))
        explained = np.sum(cross * self._solve(cross.T).T, 1)
        of_each = _like(diagonal, explained.shape, "the kernel of each of these points with itself")
        return np.clip(of_each - explained, 0, None)

    def leave_one_out(
        self, cross: Matrix | None = None, y: Any = None
    ) -> Float[np.ndarray, "n ..."]:
        """The error y_i − f(x_i) at each point of a regression without it: c_i / ((K + αI)⁻¹)_ii.

        Args:
            cross: K(x′, X), (N, N), to test at other points x′_i without the i-th of X, such as at
                the i-th image attacked; the same points if left out.
            y: the targets less f₀ there, (N, …); those of X if left out.

        Source: Craven and Wahba (1979); Rasmussen and Williams (2006), equation 5.12.
        """
        inverse = self._inverse("errors without a point")
        errors = (self.dual_coef_.T / np.diag(inverse)).T
        if cross is None:
            return errors
        cross = np.asarray(self._crossing(cross))
        # Without i the coefficients are c − A⁻¹[:, i] c_i / A⁻¹_ii, of which the i-th is zero.
        own = np.sum(cross * inverse, 1)
        found = cross @ self.dual_coef_ - (own * errors.T).T
        y = self._residual if y is None else y
        return _like(y, found.shape, "targets of the shape of those that were fitted") - found

    def generalized_cross_validation(self) -> float:
        """N ‖c‖² / (tr (K + αI)⁻¹)², c the dual coefficients; the mean over several targets.

        Source: Golub, Heath and Wahba (1979), equation 1.4.
        """
        inverse = self._inverse("generalised cross-validation")
        squares = np.sum(self.dual_coef_**2, 0)
        return float(np.mean(len(inverse) * squares / np.trace(inverse) ** 2))

    def score(self, cross: Matrix, y: Any, outputs: Any = 0.0) -> float:
        """The coefficient of determination R² of the predictions, as scikit-learn's.

        Of targets that are all equal it is 0, unless the predictions are these, which is 1; the
        mean over several targets.

        Args:
            cross, outputs: as for `predict`.
            y: the targets there.
        """
        found = self.predict(cross, outputs)
        y = _like(y, found.shape, "targets of the shape of the predictions")
        errors = np.sum((y - found) ** 2, 0)
        spread = np.sum((y - y.mean(0)) ** 2, 0)
        lost = np.where(spread > 0, errors / np.where(spread > 0, spread, 1), errors > 0)
        return float(np.mean(1 - lost))

    def _crossing(self, cross: Matrix) -> Matrix:
        """K(x, X), in float64 where it is an array."""
        if hasattr(cross, "__array__") or isinstance(cross, list | tuple):
            cross = np.asarray(cross, np.float64)
        if len(cross.shape) != 2 or cross.shape[1] != len(self.dual_coef_):
            raise InputError(
                f"a kernel (m, {len(self.dual_coef_)}) of points with those that were fitted",
                f"the shape {tuple(cross.shape)}",
                "give ntk(model, x, X)",
            )
        return cross

    def _dense(self, what: str) -> np.ndarray:
        if self._kernel is None:
            raise InputError(
                f"at most {CHOLESKY_POINTS:,} points and a kernel that is an array for {what}",
                "more of them, or an operator",
                "take some of the points",
            )
        return self._kernel

    def _inverse(self, what: str) -> Float[np.ndarray, "n n"]:
        """(K + αI)⁻¹, computed once."""
        if self._known_inverse is None:
            self._known_inverse = self._solve(np.eye(len(self._dense(what))))
        return self._known_inverse


def _like(numbers: Any, shape: tuple[int, ...], expected: str) -> np.ndarray:
    """Numbers in float64, of a shape or a single one: others NumPy would stretch silently."""
    numbers = np.asarray(numbers, np.float64)
    if numbers.shape not in ((), shape):
        raise InputError(f"{expected}, {shape}", f"{numbers.shape}", "reshape them")
    return numbers


def _check_finite(numbers: np.ndarray, what: str) -> None:
    """Refuse numbers that are NaN or infinite."""
    if bad := int(np.sum(~np.isfinite(numbers))):
        raise InputError(f"finite {what}", f"{bad} that are not", "leave these points out")


def conjugate_gradients(
    product: Columns, b: Float[np.ndarray, "n t"], precondition: Columns
) -> tuple[Float[np.ndarray, "n t"], int]:
    """Solutions of A x = b, and the steps that were taken, at most `STEPS`.

    All columns go together, so that A is read once a step.

    Args:
        product: A, symmetric and positive definite, times columns.
        b: the columns.
        precondition: an approximate inverse of A, times columns.
    """
    x, residual, step = np.zeros_like(b), b, 0
    direction, before = np.zeros_like(b), np.inf
    least = TOLERANCE * np.linalg.norm(b, axis=0)
    # Written so that a column of NaN is never solved.
    while step < STEPS and (left := ~(np.linalg.norm(residual, axis=0) <= least)).any():
        towards = precondition(residual)
        now = np.sum(residual * towards, 0)
        # Columns that are solved stay as they are.
        direction = np.where(left, towards + now / before * direction, 0)
        image, before = product(direction), np.where(left, now, np.inf)
        size = np.where(left, now, 0) / np.where(left, np.sum(direction * image, 0), 1)
        x, residual, step = x + size * direction, residual - size * image, step + 1
    return x, step


def nystrom_preconditioner(kernel: LinearOperator, alpha: float, rank: int, seed: int) -> Columns:
    """An approximate inverse of K + αI, of columns, exact on the kernel's largest eigenvalues.

    Args:
        kernel: K, (N, N), positive semidefinite.
        alpha: α, positive.
        rank: of the approximation, N / 2 at most.

    Source: Frangella, Tropp and Udell (2023), "Randomized Nyström preconditioning", algorithms 2.1
    and 5.1.
    """
    count = kernel.shape[0]
    rank = max(1, min(rank, count // 2))
    test = np.linalg.qr(np.random.default_rng(seed).standard_normal((count, rank)))[0]
    image = np.asarray(kernel.matmat(test), np.float64)
    shift = np.sqrt(count) * np.finfo(np.float32).eps * np.linalg.norm(image)
    image += shift * test
    inner = test.T @ image
    factor = np.linalg.cholesky((inner + inner.T) / 2)
    half = scipy.linalg.solve_triangular(factor, image.T, lower=True).T
    vectors, singular, _ = np.linalg.svd(half, full_matrices=False)
    values = np.clip(singular**2 - shift, 0, None)
    gain = (values[-1] + alpha) / (values + alpha) - 1

    return lambda v: v + vectors @ (gain[:, None] * (vectors.T @ v))


def alignment(kernel: Matrix, other: Matrix, centred: bool = True) -> float:
    """⟨K, K′⟩ / (‖K‖ ‖K′‖), the cosine of the angle of two kernels of the same points, at most 1.

    Of the NTK and y yᵀ, or Y Yᵀ of one-hot classes, it is the alignment with the labels.

    Args:
        kernel, other: K and K′, (N, N).
        centred: whether to subtract the means of rows and columns first.

    Returns:
        From -1 to 1; NaN where a kernel is zero, as a constant one is when it is centred.

    Raises:
        InputError: if they are no square kernels of as many points.

    Example:
        >>> y = np.array([1.0, 1.0, -1.0, -1.0])
        >>> alignment(np.outer(y, y) + np.eye(4), np.outer(y, y)).__round__(3)
        0.962

    Source: Cristianini et al. (2001); centred: Cortes, Mohri and Rostamizadeh (2012), definition 4.
    """
    pair = [np.asarray(each, np.float64) for each in (kernel, other)]
    shapes = [k.shape for k in pair]
    if len({*shapes, shapes[0][::-1]}) != 1 or len(shapes[0]) != 2:
        raise InputError(
            "two square kernels of the same points",
            f"the shapes {shapes[0]} and {shapes[1]}",
            "of labels y give y yᵀ, such as np.outer(y, y)",
        )
    if centred:
        pair = [k - k.mean(0) - k.mean(1)[:, None] + k.mean() for k in pair]
    one, two = pair
    sizes = np.linalg.norm(one) * np.linalg.norm(two)
    return float(np.sum(one * two) / sizes) if sizes else np.nan


def distance(kernel: Matrix, other: Matrix) -> float:
    """1 − ⟨K, K′⟩ / (‖K‖ ‖K′‖): how far a kernel has turned, from 0 to 1.

    Source: Fort et al. (2020), "Deep learning versus kernel learning", equation 3.
    """
    return 1 - alignment(kernel, other, centred=False)
