"""From a network and its images to the kernels of clean, attacked and twice attacked points."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from attacks import Attack
from cells.model import Logits, Model
from ntkscore.kernels.gram import evaluate
from ntkscore.kernels.implementations import PRECISION, per_group, regroup

Images = Float[Array, "n ..."]
Labels = Int[Array, "n"]


TINY = 1e-30
"""Where even the largest entry of a gradient is below it, the gradient counts as zero."""


class Stack(NamedTuple):
    """The kernels and losses of one network, for R radii.

    Attributes:
        gram: for each radius, 3N×3N over (X, X_ρ, X_2ρ).
        slopes: likewise, the correlation over the pixels of the points' gradients of the logit
            sum; zero where a gradient is the same for all pixels.
        losses: for each radius, the mean cross-entropy at X, X_ρ and X_2ρ.
    """

    gram: Float[Array, "r m m"]
    slopes: Float[Array, "r m m"]
    losses: Float[Array, "r 3"]


def cross_entropy(logits: Float[Array, "n o"], labels: Labels) -> Float[Array, "n"]:
    """−log of the softmax at the label, in nats."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def loss_gradient(model: Model, labels: Labels) -> Callable[[Images], Images]:
    """The gradient in the images of the summed cross-entropy, per unit of a pixel in [0, 1]."""
    return lambda images: _Forward(model, images).loss_gradient(labels)


def correlation(rows: Float[Array, "m ..."]) -> Float[Array, "m m"]:
    """Pearson's correlation of each row with each; zero with one of equal entries."""
    rows = rows.reshape(len(rows), -1)
    # Means of what is far from 1 would overflow when squared.
    rows = rows / jnp.maximum(jnp.max(jnp.abs(rows), 1, keepdims=True), TINY)
    rows -= jnp.mean(rows, 1, keepdims=True)
    norms = jnp.linalg.norm(rows, axis=1, keepdims=True)
    rows /= jnp.where(norms > 0, norms, 1)
    return jnp.matmul(rows, rows.T, precision=PRECISION)


class _Forward:
    """A forward pass, with what it left for the way back."""

    def __init__(self, model: Model, points: Images) -> None:
        self.points = points
        if (passes := model.passes) is not None:
            self.logits, self.kept = passes.forward(model.params, points)
            self._pullback = lambda s: passes.gradient(model.params, self.kept, s)
        else:
            self.logits, pullback = jax.vjp(model.logits, points)
            self.kept, self._pullback = None, lambda s: pullback(s)[0]

    def loss_gradient(self, labels: Labels) -> Images:
        summed = lambda logits: jnp.sum(cross_entropy(logits, labels))  # noqa: E731
        return self._pullback(jax.grad(summed)(self.logits))


def stack(
    model: Model,
    images: Images,
    labels: Labels,
    attack: Callable[[Array], Attack],
    rhos: Float[Array, "r"],
    output: str = "sum",
    parameters: str = "all",
    implementation: str = "auto",
    key: PRNGKeyArray | None = None,
) -> Stack:
    """The Gram matrix of clean, attacked and twice attacked images, at every radius.

    Everything clean is computed once.

    Args:
        model: the network at its weights.
        images: X, N of them, pixels in [0, 1].
        labels: their classes.
        attack: the attack of a radius.
        rhos: the radii, pixel scale [0, 1].
        output, parameters, implementation: as for `ntkscore.ntk`.
        key: for the attack's random start.

    Example:
        >>> import jax.numpy as jnp
        >>> from attacks import fgsm
        >>> linear = Model(lambda w, x: x @ w, jnp.eye(2))
        >>> x, y = jnp.full((2, 2), 0.5), jnp.array([0, 1])
        >>> stack(linear, x, y, fgsm, jnp.array([0.1])).gram.shape
        (1, 6, 6)
    """
    gradient, clean = loss_gradient(model, labels), _Forward(model, images)

    def attacked(rho: Float[Array, ""]) -> list[tuple[Images, Logits, Any]]:
        """X_ρ and X_2ρ, their logits, and what their forward passes left."""
        # Every radius has the same key, so that random starts differ by their scale alone.
        forward, passed = clean, []
        for each in (None, None) if key is None else jax.random.split(key, 2):
            slope = forward.loss_gradient(labels)
            forward = _Forward(model, attack(rho)(gradient, forward.points, each, slope))
            passed.append((forward.points, forward.logits, forward.kept))
        return passed

    # Each radius's pair (X_ρ, X_2ρ) follows the last one's, the order that `per_group` expects.
    radii = len(rhos)
    if radii == 1:
        pairs = attacked(rhos[0])
    else:
        together = jax.vmap(attacked)(rhos)
        pairs = [jax.tree.map(lambda a, r=r: a[r], one) for r in range(radii) for one in together]
    sets = [(clean.points, clean.logits, clean.kept), *pairs]
    points, tiled = jnp.concatenate([s[0] for s in sets]), jnp.tile(labels, len(sets))
    gram, logits, slopes = evaluate(
        model,
        points,
        tiled,
        output,
        parameters,
        implementation,
        groups=radii,
        forwards=None if model.passes is None else [(logits, kept) for _, logits, kept in sets],
    )
    if output != "sum" or slopes is None:  # else the kernel's own pass has been there
        ones = jnp.ones_like(logits)
        if (passes := model.passes) is not None:
            slopes, _ = passes.parts(model.params, [kept for _, _, kept in sets], ones, {})
        else:
            (slopes,) = jax.vjp(model.logits, points)[1](ones)
    losses = per_group(cross_entropy(logits, tiled), radii).reshape(radii, 3, -1).mean(2)
    return Stack(gram, regroup(correlation(slopes), radii), losses)
