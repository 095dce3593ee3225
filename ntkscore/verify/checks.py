"""The self-check: comparison of this machine's backend with float64 reference values.

Attacks, and kernels of attacked points, are checked at the file's own attacked points.

The gradient of a ReLU network jumps where an activation changes its sign. In a deep network in
float32, rounding changes the signs of a few activations in some million. So PGD's steps are checked
one by one along the float64 path, since one flipped pixel changes all later steps. And a float32
kernel beyond its tolerance is compared with the kink bound: the distance that the kernel moves in
exact arithmetic when the images move by about one rounding error of their activations, plus the
rounding errors of that jump and of the kernel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

import attacks
from ntkscore.data.datasets import DATASETS
from ntkscore.kernels import joint
from ntkscore.kernels.implementations import layerwise_by_kind
from ntkscore.kernels.ntk import ntk
from ntkscore.kernels.stack import loss_gradient
from ntkscore.measures.cross_entropy import cross_entropy
from ntkscore.trace.parameters import total
from ntkscore.verify.reference import KERNELS, Reference

RHO = 8 / 255
PGD_STEPS, PGD_STEP = 7, 2 / 255
OUTPUTS = ("sum", "trace", "label", "loss")
BETAS = (0.0, 0.25, 0.5, 1.0)
SAME_PIXEL = 1e-5
"""Largest difference of two pixels that count as equal; an attack's step is at least 2/255."""

FLOAT32 = {"logits": 1e-4, "loss": 1e-4, "gradient": 2e-2, "kernel": 1e-3, "pixels": 1e-3}
FLOAT64 = {"logits": 1e-8, "loss": 1e-8, "gradient": 1e-6, "kernel": 1e-6, "pixels": 0.0}
"""Largest error of each kind: relative Frobenius, or for pixels the share that differs."""

ACTIVATION_ROUNDING = 5e-7
"""Float32's error in a deep network's activations, relative to their standard deviation."""
KINK_DRAWS = 8
KERNEL_ROUNDING = 1e-5
"""Float32's relative error in a kernel with no activation near a kink; measured below 1e-6."""
JUMP_ROUNDING = 1e-2
"""Float32's relative error in a kink's jump, that of the gradients."""


@dataclass(frozen=True)
class Check:
    """One quantity: its error against the reference, and the largest that is accepted.

    Attributes:
        error: relative Frobenius error, or the share of pixels that differs.
        kink_bound: a larger error that is accepted in float32 beyond the tolerance; else NaN.
    """

    quantity: str
    error: float
    tolerance: float
    kink_bound: float = float("nan")

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance or self.error <= self.kink_bound


def relative_error(value: ArrayLike, reference: np.ndarray) -> float:
    """‖value − reference‖_F / ‖reference‖_F."""
    return float(
        np.linalg.norm(np.asarray(value, np.float64) - reference) / np.linalg.norm(reference)
    )


def differing(value: ArrayLike, reference: np.ndarray) -> float:
    """The share of pixels that differ."""
    return float(np.mean(np.abs(np.asarray(value, np.float64) - reference) > SAME_PIXEL))


def _kernel_program(reference: Reference) -> Callable[[ArrayLike], dict[str, np.ndarray]]:
    """A compiled function from the stack to every kernel but the coupled one, by name."""
    labels = jnp.tile(reference.labels, 3)
    n = len(reference.labels)

    @jax.jit
    def by_output(points: jax.Array) -> Any:
        return layerwise_by_kind(reference.model(), points, labels, OUTPUTS)[0]

    def parity_kernels(points: ArrayLike) -> dict[str, np.ndarray]:
        parts = jax.tree.map(lambda gram: np.asarray(gram[0], np.float64), by_output(points))
        grams: dict[str, Any] = dict(zip(OUTPUTS, parts, strict=True))
        stack = np.asarray(total(grams["sum"], "all"))
        kernels = {"ntk_sum_all_stack": stack}
        for symbol, kernel in (("k_all", "joint_clean"), ("k_tilde_all", "joint_robust")):
            for beta in BETAS:
                kernels[f"{symbol}_beta_{beta}"] = joint.joint_kernel(stack, kernel, beta, n)
        for name, (output, parameters) in KERNELS.items():
            kernels[name] = np.asarray(total(grams[output], parameters))[:n, :n]
        return kernels

    return parity_kernels


def _kink_bounds(at: Callable[[DTypeLike], Reference]) -> dict[str, float]:
    """The kink bound of each kernel, from its changes in float64 when the images are perturbed."""
    with jax.enable_x64(True):
        exact = at(jnp.float64)
        parity_kernels = _kernel_program(exact)
        points = np.asarray(exact.stack)
        still = parity_kernels(jnp.asarray(points))
        rng = np.random.default_rng(0)
        scale = ACTIVATION_ROUNDING * np.asarray(DATASETS["cifar10"].std)
        worst = dict.fromkeys(still, 0.0)
        for _ in range(KINK_DRAWS):
            moved = points + scale * rng.standard_normal(points.shape)
            for name, kernel in parity_kernels(jnp.asarray(moved)).items():
                worst[name] = max(worst[name], relative_error(kernel, still[name]))
        return {name: kink_bound(move) for name, move in worst.items()}


def kink_bound(move: float) -> float:
    """The error accepted in float32, by the relative move of the exact kernel under rounding."""
    return (1 + JUMP_ROUNDING) * move + KERNEL_ROUNDING


def _pgd_path(at: Callable[[DTypeLike], Reference]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start points of PGD's steps in float64, the signs of their gradients, and the end point."""
    with jax.enable_x64(True):
        exact = at(jnp.float64)

        @jax.jit
        def path(x: jax.Array) -> Any:
            gradient = loss_gradient(exact.model(), exact.labels)
            attack = attacks.pgd(RHO, PGD_STEPS, PGD_STEP)

            def advance(z: jax.Array, _: None) -> Any:
                return attack.step(gradient, z, x), (z, jnp.sign(gradient(z)))

            end, (starts, signs) = jax.lax.scan(advance, x, length=PGD_STEPS)
            return starts, signs, end

        starts, signs, end = map(np.asarray, path(exact.images))
        return starts, signs, end


def verify(at: Callable[[DTypeLike], Reference], x64: bool = False) -> Iterator[Check]:
    """Check every quantity of a reference (`Space.reference`), one after the other."""
    dtype = jnp.float64 if x64 else jnp.float32
    tolerance = FLOAT64 if x64 else FLOAT32
    path_starts, path_signs, path_end = _pgd_path(at)
    with jax.enable_x64(x64):
        reference = at(dtype)
        arrays, labels = reference.arrays, reference.labels
        for bn in ("calibrated", "init", "batch"):
            logits = jax.jit(lambda x, bn=bn: reference.model(bn).logits(x))
            error = relative_error(logits(reference.images), arrays[f"logits_bn_{bn}"])
            yield Check(f"logits_bn_{bn}", error, tolerance["logits"])

        @jax.jit
        def loss_and_gradient(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            model = reference.model()
            loss = jnp.sum(cross_entropy(model.logits(x), labels))
            return loss, loss_gradient(model, labels)(x)

        gradient = lambda x: loss_and_gradient(x)[1]  # noqa: E731
        for name, points in (("clean", "images"), ("fgsm_8", "fgsm_8"), ("pgd7_8", "pgd7_8")):
            loss, _ = loss_and_gradient(reference.points(points))
            error = relative_error(loss, arrays[f"loss_{name}"])
            yield Check(f"loss_{name}", error, tolerance["loss"])
        error = relative_error(gradient(reference.images), arrays["input_grad"])
        yield Check("input_grad", error, tolerance["gradient"])

        fgsm = attacks.fgsm(RHO)
        for name, start in (("fgsm_8", "images"), ("fgsm_8_twice", "fgsm_8")):
            error = differing(fgsm(gradient, reference.points(start)), arrays[name])
            yield Check(name, error, tolerance["pixels"])
        yield Check("pgd7_8 in float64", differing(path_end, arrays["pgd7_8"]), 0.0)
        signs = np.stack([np.sign(gradient(jnp.asarray(z, dtype))) for z in path_starts])
        error = float(np.mean(signs != path_signs))
        yield Check("pgd7_8 step by step", error, tolerance["pixels"])

        bounds: dict[str, float] = {}
        for name, kernel in _kernel_program(reference)(reference.stack).items():
            error = relative_error(kernel, arrays[name])
            if error > tolerance["kernel"] and not x64:
                bounds = bounds or _kink_bounds(at)
            yield Check(name, error, tolerance["kernel"], bounds.get(name, float("nan")))
        name = "ntk_sum_weights_bn_batch_coupled"
        kernel = ntk(
            reference.model("batch"), reference.images, labels=labels, parameters="weights"
        )
        yield Check(name, relative_error(kernel, arrays[name]), tolerance["kernel"])
