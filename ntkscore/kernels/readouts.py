"""Readings of the logits that a kernel is taken of, and the names of its implementations."""

from collections.abc import Callable

from jaxtyping import Float

from attacks.lazy import Array, jax, jnp
from ntkscore.measures.cross_entropy import loss_cotangent
from ntkscore.model import Labels, Logits

Cotangents = Float[Array, "k m o"]
"""The cotangents s of the logits whose pullbacks are the per-point gradients of the kernel: the
kernel is the sum over the first axis of ⟨(∂f(x_i)/∂θ)ᵀ s_i, (∂f(x_j)/∂θ)ᵀ s_j⟩."""


def chosen(logits: Logits, labels: Labels) -> Float[Array, "m o"]:
    """One-hot labels, in the logits' dtype."""
    return jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)


def logit_sum(logits: Logits, labels: Labels) -> Cotangents:
    """Σ_c f_c, with the terms between different classes (TE-NAS)."""
    return jnp.ones_like(logits)[None]


def trace(logits: Logits, labels: Labels) -> Cotangents:
    """The mean over the classes of each logit's own kernel (neural-tangents' default)."""
    classes = logits.shape[-1]
    unit = jnp.eye(classes, dtype=logits.dtype)[:, None, :] / classes**0.5
    return jnp.broadcast_to(unit, (classes, *logits.shape))


def label(logits: Logits, labels: Labels) -> Cotangents:
    """The logit f_y of the point's own class (HNAS)."""
    return chosen(logits, labels)[None]


def loss(logits: Logits, labels: Labels) -> Cotangents:
    """The cross-entropy of f and y (KNAS, NASI)."""
    return loss_cotangent(logits, labels)[None]


READOUTS: dict[str, Callable[[Logits, Labels], Cotangents]] = {
    "sum": logit_sum,
    "trace": trace,
    "label": label,
    "loss": loss,
}

WHOLE = ("classes", "full")
"""Outputs that are no reading: the kernel of each logit, and that of each two."""


def reading_of(output: str) -> Callable[[Logits, Labels], Cotangents]:
    """The cotangents of an output: of a reading, or those of each logit."""
    return READOUTS.get(output, each_logit)


def number_of(output: str, classes: int) -> int:
    """How many cotangents an output has, of a network of so many logits."""
    logits = jax.ShapeDtypeStruct((1, classes), jnp.result_type(float))
    return len(jax.eval_shape(reading_of(output), logits, jax.ShapeDtypeStruct((1,), jnp.int32)))


def each_logit(logits: Logits, labels: Labels) -> Cotangents:
    """Each logit f_c."""
    unit = jnp.eye(logits.shape[-1], dtype=logits.dtype)[:, None, :]
    return jnp.broadcast_to(unit, (logits.shape[-1], *logits.shape))


IMPLEMENTATIONS = ("layerwise", "contraction", "ntvp")
"""`ntkscore.kernels.implementations` has them."""
