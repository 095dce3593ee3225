"""Products of the kernel with vectors, for points of which no matrix fits in memory."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy.sparse.linalg import LinearOperator, lobpcg

from ntkscore.errors import InputError, check_choice
from ntkscore.grams import in_full_precision
from ntkscore.kernels.implementations import split_for
from ntkscore.kernels.ntk import Given, ntk, opened
from ntkscore.kernels.readouts import READOUTS, reading_of
from ntkscore.model import Model
from ntkscore.trace.blocks import BLOCK
from ntkscore.trace.parameters import Parameters, join_parameters

STEPS, RESIDUAL = 200, 1e-4
"""Steps of LOBPCG at most, and the residual, relative to λ_max, at which it stops."""


class Estimate(NamedTuple):
    """A number, and how wrong it may be: a standard error, or a bound of an eigenvalue's error."""

    value: float
    error: float


class NTKOperator(LinearOperator):
    """K v = J (Jᵀ v), J the Jacobian of the outputs of M points in the parameters.

    A product takes a backward and a forward pass of each point, and holds one block of them. SciPy
    takes it as a `LinearOperator`; `product` is its function of JAX arrays.

    Args:
        model: the network, as it is now.
        points, labels: M points, and their classes.
        output, parameters: as for `ntk_operator`.
    """

    def __init__(
        self, model: Model, points: Array, labels: Array, output: str, parameters: Parameters
    ) -> None:
        self._model, self._points, self._labels = model, points, labels
        self._output, self._parameters = output, parameters
        self._inside, outside = split_for(model, points, parameters)
        logits = jax.eval_shape(model.apply, model.params, points)
        self._classes = int(logits.shape[1])
        size = len(points) * (self._classes if output == "full" else 1)
        self._block = len(points) if model.coupled else min(BLOCK, len(points))
        super().__init__(np.dtype(logits.dtype), (size, size))

        def outputs(inside: PyTree, x: Array) -> Array:
            return model.apply(join_parameters(inside, outside), x)

        def back(inside: PyTree, x: Array, cotangent: Array) -> PyTree:
            return jax.vjp(lambda inside: outputs(inside, x), inside)[1](cotangent)[0]

        def forth(inside: PyTree, x: Array, tangent: PyTree) -> Array:
            return jax.jvp(lambda inside: outputs(inside, x), (inside,), (tangent,))[1]

        self._back, self._forth = jax.jit(back), jax.jit(forth)

    def _blocks(self, *arrays: Array) -> Iterator[tuple[Array, ...]]:
        for start in range(0, len(self._points), self._block):
            yield tuple(each[start : start + self._block] for each in arrays)

    @cached_property
    def _cotangents(self) -> list[Array]:
        """Of the logits, (M, O), for each reading that is added."""
        forward = jax.jit(self._model.apply)
        logits = [forward(self._model.params, x) for (x,) in self._blocks(self._points)]
        return list(reading_of(self._output)(jnp.concatenate(logits), self._labels))

    @in_full_precision
    def product(self, v: Float[Array, " m"]) -> Float[Array, " m"]:
        """K v."""
        v = jnp.asarray(v, self.dtype).reshape(len(self._points), -1)
        if self._output == "full":
            return self._through(v).reshape(-1)
        parts = [jnp.sum(each * self._through(each * v), 1) for each in self._cotangents]
        return sum(parts[1:], parts[0])

    def _through(self, cotangent: Float[Array, "m o"]) -> Float[Array, "m o"]:
        """J Jᵀ of all logits."""
        inside = self._inside
        total = jax.tree.map(jnp.zeros_like, inside)
        for x, some in self._blocks(self._points, cotangent):
            total = jax.tree.map(jnp.add, total, self._back(inside, x, some))
        parts = [self._forth(inside, x, total) for (x,) in self._blocks(self._points)]
        return jnp.concatenate(parts)

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self.product(jnp.asarray(v.ravel())))

    def _adjoint(self) -> "NTKOperator":
        return self

    def scores(self, probes: int = 30, seed: int = 0) -> dict[str, Estimate]:
        """Scores of the kernel, none of which needs the matrix.

        Args:
            probes: random vectors that the norm is estimated from, two at least.
            seed: of these, and of where the eigenvalues' search starts.

        Returns:
            `trace`, from the gradients' norms, without an error but rounding; `frobenius`, by
            Hutchinson's estimator of ‖K‖² with its standard error; `lambda_max` and `lambda_min` by
            LOBPCG, each with its residual ‖K v − λ v‖: an eigenvalue lies within it.

        Raises:
            InputError: if the points depend on each other, or probes are too few for an error.
        """
        if probes < 2:
            raise InputError("at least two probes", probes, "30 is usual")
        rng, size = np.random.default_rng(seed), self.shape[0]
        output = "classes" if self._output == "full" else self._output
        kernel = {"output": output, "parameters": self._parameters, "labels": self._labels}
        trace = float(jnp.sum(ntk(self._model, self._points, diagonal=True, **kernel)))
        signs = rng.choice([-1.0, 1.0], (probes, size))
        squares = [float(np.sum(np.square(self.matvec(z)))) for z in signs]
        norm = float(np.sqrt(np.mean(squares)))
        spread = float(np.std(squares, ddof=1)) / np.sqrt(probes) / (2 * norm)
        found = {"trace": Estimate(trace, 0.0), "frobenius": Estimate(norm, spread)}
        scale = norm
        for name, largest in (("lambda_max", True), ("lambda_min", False)):
            start = rng.standard_normal((size, 4))
            values, vectors = lobpcg(
                self, start, largest=largest, tol=RESIDUAL * scale, maxiter=STEPS
            )[:2]
            place = int(np.argmax(values) if largest else np.argmin(values))
            value, vector = float(values[place]), vectors[:, place]
            residual = np.linalg.norm(self.matvec(vector) - value * vector)
            found[name] = Estimate(value, float(residual / np.linalg.norm(vector)))
            scale = found["lambda_max"].value
        return found


def ntk_operator(
    model: Model,
    points: Given,
    *,
    labels: Any = None,
    output: str = "sum",
    parameters: Parameters = "all",
) -> NTKOperator:
    """The kernel as an operator: products `K @ v` in the time of a few passes, and no matrix.

    Args:
        model: the network at its weights; its points may depend on each other.
        points: M points of any shape that the network takes.
        labels: their classes; only the outputs `label` and `loss` ask for them.
        output: a reading of the logits, or `full` for all of them, point after point.
        parameters: as for `ntkscore.ntk`.

    Returns:
        An operator (M, M), or (M O, M O) of O logits.

    Raises:
        InputError: if there is no such choice, or the model does not fit it.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from ntkscore.model import Model
        >>> linear = Model(lambda w, x: x @ w, jnp.ones((3, 2)))
        >>> ntk_operator(linear, jnp.eye(3)) @ np.array([1.0, 2.0, 3.0])
        array([2., 4., 6.], dtype=float32)
    """
    check_choice(output, (*READOUTS, "full"), "output")
    network, ((x, y),) = opened(model, points, None, labels, output)
    if not network.known:
        raise InputError("points that have values", "a call inside of jax.jit", "call it outside")
    return NTKOperator(network.model, x, y, output, parameters)
