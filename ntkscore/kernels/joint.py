"""The joint kernels of clean and robust accuracy, from one Gram matrix of the stacked points.

The stack is (X, X_ρ, X_2ρ): clean images, images attacked once, and images attacked again from
there. Its 3N×3N Gram matrix holds every kernel, so any number of β cost nothing.

Source: Wu et al. (2024), "Robust NAS under adversarial training", equations 4 and 5.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.lazy import Array
from ntkscore.errors import InputError, check_choice

Kernel = Float[np.ndarray, "n n"]

BLOCKS = {
    "clean": (0, 0),
    "cross": (0, 1),
    "robust": (1, 1),
    "cross_twice": (1, 2),
    "twice": (2, 2),
}
"""Row and column of each kernel in the stack's Gram matrix: K, K̄_ρ, K̂_ρ, K̄_2ρ, K̂_2ρ."""

JOINT = {
    "joint_clean": ("clean", "cross", "robust"),
    "joint_robust": ("robust", "cross_twice", "twice"),
}
"""The three kernels that each joint kernel mixes."""

ASYMMETRIC = ("cross", "cross_twice")
POINTS = tuple(kernel for kernel in BLOCKS if kernel not in ASYMMETRIC)
"""The kernels of X, X_ρ and X_2ρ each with itself, which name these points for other measures."""
KERNELS = (*BLOCKS, *JOINT)


def check_beta(beta: float) -> None:
    """Refuse a weight of adversarial training outside of [0, 1]."""
    if not 0 <= beta <= 1:
        raise InputError("beta from 0 to 1", f"{beta:g}", "0 is clean")


def block(gram: Float[np.ndarray, "m m"], kernel: str, n: int) -> Kernel:
    """One of `BLOCKS` of the stack's Gram matrix, for stacks of n images."""
    row, column = BLOCKS[kernel]
    return gram[row * n : (row + 1) * n, column * n : (column + 1) * n]


def mix(inner: Kernel, cross: Kernel, outer: Kernel, beta: float) -> Kernel:
    """(1−β)² K + β(1−β)(K̄ + K̄ᵀ) + β² K̂, the Gram matrix of (1−β)J(X) + βJ(X_ρ).

    Args:
        inner, cross, outer: the kernels K, K̄ and K̂.
        beta: weight of adversarial training, from 0 to 1.
    """
    return (1 - beta) ** 2 * inner + beta * (1 - beta) * (cross + cross.T) + beta**2 * outer


def joint_kernel(gram: Float[np.ndarray, "m m"], kernel: str, beta: float, n: int) -> Kernel:
    """K_all (`joint_clean`, equation 4) or K̃_all (`joint_robust`, equation 5).

    Args:
        gram: of the stack; 2n×2n is enough for `joint_clean`.
        kernel: a name in `JOINT`.
        beta: weight of adversarial training, from 0 to 1.
        n: images in each part of the stack.

    Returns:
        The kernel (n, n).

    Raises:
        InputError: if there is no such kernel, or β is outside of [0, 1].

    Example:
        >>> gram = np.diag([1.0, 1.0, 4.0, 4.0])
        >>> joint_kernel(gram, "joint_clean", beta=0.5, n=2)
        array([[1.25, 0.  ],
               [0.  , 1.25]])
    """
    check_choice(kernel, JOINT)
    check_beta(beta)
    inner, cross, outer = (block(gram, part, n) for part in JOINT[kernel])
    return mix(inner, cross, outer, beta)


def every_kernel(
    gram: Float[np.ndarray, "m m"], n: int, betas: Sequence[float]
) -> Iterator[tuple[str, float | None, Kernel]]:
    """Name, β (None where there is none) and matrix of every kernel in a stack's Gram matrix.

    Args:
        gram: 3n×3n over (X, X_ρ, X_2ρ).
        n: images in each part of the stack.
        betas: weights of the joint kernels.
    """
    for kernel in BLOCKS:
        yield kernel, None, block(gram, kernel, n)
    for kernel in JOINT:
        for beta in betas:
            yield kernel, beta, joint_kernel(gram, kernel, beta, n)


class Stack(NamedTuple):
    """The kernels of one network for R radii, and what its other measures are read off.

    Attributes:
        gram: (R, 3N, 3N), for each radius the Gram matrix of (X, X_ρ, X_2ρ).
        slopes: (R, 3N, 3N), Pearson's correlation over the pixels between the points' gradients of
            the logit sum; zero where a gradient is the same for all pixels.
        quantities: arrays of `ntkscore.measures`, by the kernel at whose points they are, or
            `network`, and by the quantity's name; the first axis is that of the radii.
    """

    gram: Float[Array | np.ndarray, "r m m"]
    slopes: Float[Array | np.ndarray, "r m m"]
    quantities: Mapping[str, Mapping[str, Any]]

    def kernel(self, name: str, beta: float = 0.5, radius: int = 0) -> Float[np.ndarray, "n n"]:
        """One kernel, by its name.

        Args:
            name: `clean`, `cross`, `robust`, `cross_twice` or `twice`, or of the joint ones
                `joint_clean` (K_all) or `joint_robust` (K̃_all).
            beta: weight of adversarial training, for the joint ones.
            radius: which of the radii, counted from 0.

        Raises:
            InputError: if there is no such kernel or radius, or β is outside of [0, 1].
        """
        grams = np.asarray(self.gram)
        if not 0 <= radius < len(grams):
            raise InputError(
                f"the number of a radius from 0 to {len(grams) - 1}",
                radius,
                "count the radii from 0",
            )
        gram, n = grams[radius], grams.shape[1] // 3
        check_choice(name, KERNELS)
        check_beta(beta)
        if name in BLOCKS:
            return block(gram, name, n)
        return joint_kernel(gram, name, beta, n)
