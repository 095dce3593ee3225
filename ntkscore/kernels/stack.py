"""From a network and its images to the kernels of clean, attacked and twice attacked points."""

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from attacks import ATTACKS, Attack
from cells.model import Activations, Model
from ntkscore.errors import InputError
from ntkscore.kernels.gram import evaluate
from ntkscore.kernels.implementations import regroup
from ntkscore.kernels.joint import ASYMMETRIC, BLOCKS, JOINT, KERNELS, POINTS, block, joint_kernel
from ntkscore.kernels.own_passes import of_perturbations, pullback_products, zen
from ntkscore.kernels.probes import (
    correlation,
    cross_entropy,
    curvature,
    equal_states,
    feature_products,
    flips,
    synflow,
)
from ntkscore.kernels.proxies import LOSS, NETWORK
from ntkscore.kernels.weight_gradients import fisher, of_gradients

Images = Float[Array, "n ..."]
Labels = Int[Array, "n"]
PERTURBATIONS = 1
"""Folded into the key of the draws for measures of perturbations."""


class Stack(NamedTuple):
    """The kernels and measures of one network, for R radii.

    Attributes:
        gram: for each radius, 3N×3N over (X, X_ρ, X_2ρ).
        slopes: likewise, the correlation over the pixels of the points' gradients of the logit
            sum; zero where a gradient is the same for all pixels.
        states: for each radius, at each of X, X_ρ and X_2ρ, the number of rectifiers that two
            images have in the same state; None where the network does not report them.
        numbers: for each radius, further measures by KERNEL.MEASURE; those that the network can
            give.
        products: for each radius, by KERNEL.NAME, matrices that are reduced to further measures
            (`ntkscore.kernels.reductions`); likewise.
    """

    gram: Float[Array, "r m m"]
    slopes: Float[Array, "r m m"]
    states: Float[Array, "r 3 n n"] | None
    numbers: dict[str, Float[Array, "r"]]
    products: dict[str, list[Float[Array, "_ _ _ _"]]]

    def kernel(self, name: str, beta: float = 0.5, radius: int = 0) -> Float[np.ndarray, "n n"]:
        """One kernel, by its name.

        Args:
            name: `clean`, `cross`, `robust`, `cross_twice` or `twice`, or of the joint ones
                `joint_clean` (K_all) or `joint_robust` (K̃_all).
            beta: weight of adversarial training, for the joint ones.
            radius: which of the radii, counted from 0.

        Raises:
            InputError: if there is no such kernel.
        """
        gram = np.asarray(self.gram[radius])
        n = len(gram) // 3
        if name in BLOCKS:
            return block(gram, name, n)
        if name not in JOINT:
            raise InputError(f"expected one of {', '.join(KERNELS)}, got {name!r}; choose one")
        return joint_kernel(gram, name, beta, n)


def loss_gradient(model: Model, labels: Labels) -> Callable[[Images], Images]:
    """The gradient in the images of the summed cross-entropy, per unit of a pixel in [0, 1]."""
    return lambda images: _Forward(model, images).loss_gradient(labels)


class _Forward:
    """A forward pass, with what it left for the way back."""

    def __init__(self, model: Model, points: Images) -> None:
        self.model, self.points = model, points
        if (passes := model.passes) is not None:
            self.logits, self.kept = passes.forward(model.params, points)
            self.pullback = lambda s: passes.gradient(model.params, self.kept, s)
        else:
            self.logits, pullback = jax.vjp(model.logits, points)
            self.kept, self.pullback = None, lambda s: pullback(s)[0]

    @cached_property
    def inside(self) -> Activations | None:
        """What the points look like inside the network, where it says so."""
        if (passes := self.model.passes) is not None:
            return passes.activations(self.model.params, self.kept)
        look = self.model.activations
        return None if look is None else look(self.model.params, self.points)

    def loss_gradient(self, labels: Labels) -> Images:
        summed = lambda logits: jnp.sum(cross_entropy(logits, labels))  # noqa: E731
        return self.pullback(jax.grad(summed)(self.logits))


def stack(
    model: Model,
    images: Images | Float[np.ndarray, "n ..."],
    labels: Labels | Int[np.ndarray, "n"],
    attack: str | Callable[[Array], Attack],
    rhos: Float[Array, "r"] | Sequence[float],
    output: str = "sum",
    parameters: str = "all",
    implementation: str = "auto",
    key: PRNGKeyArray | None = None,
    noise: PRNGKeyArray | None = None,
) -> Stack:
    """The Gram matrix of clean, attacked and twice attacked images, at every radius.

    Everything clean is computed once. What other measures are taken from comes by.

    Args:
        model: the network at its weights.
        images: X, N of them, pixels in [0, 1].
        labels: their classes.
        attack: a name such as `fgsm` or `pgd`, or the attack of a radius.
        rhos: the radii, pixel scale [0, 1].
        output, parameters, implementation: as for `ntkscore.ntk`.
        key: for the attack's random start.
        noise: for what measures with passes of their own draw; they are left out without it, as
            they are where a point's logits depend on others.

    Raises:
        InputError: if there is no attack of the name.

    Example:
        >>> import jax.numpy as jnp
        >>> linear = Model(lambda w, x: x @ w, jnp.eye(2))
        >>> x, y = jnp.full((2, 2), 0.5), jnp.array([0, 1])
        >>> kernels = stack(linear, x, y, "fgsm", [0.1])
        >>> kernels.gram.shape, kernels.kernel("joint_robust", beta=0.5).shape
        ((1, 6, 6), (2, 2))
    """
    if isinstance(attack, str):
        if attack not in ATTACKS:
            raise InputError(f"expected one of {', '.join(ATTACKS)}, got {attack!r}; choose one")
        attack = ATTACKS[attack]
    images, labels = jnp.asarray(images), jnp.asarray(labels)
    rhos = jnp.asarray(rhos, images.dtype)
    gradient, clean = loss_gradient(model, labels), _Forward(model, images)
    noise = None if model.coupled else noise

    def attacked(rho: Float[Array, ""]) -> tuple[list[Any], list[Any], dict[str, Any], dict]:
        """X_ρ and X_2ρ, their logits and what their passes left; states; numbers; products."""
        # Every radius has the same key, so that random starts differ by their scale alone.
        keys = (None, None) if key is None else jax.random.split(key, 2)
        forwards, slopes = [clean], []
        for each in keys:
            last = forwards[-1]
            slopes.append(last.loss_gradient(labels))
            points = attack(rho)(gradient, last.points, each, slopes[-1])
            forwards.append(_Forward(model, points))
        numbers = {"cross.curvature": curvature(images, forwards[1].points, *slopes)}
        products: dict[str, list[Array]] = {}
        for kernel, forward in zip(POINTS[1:], forwards[1:], strict=True):
            numbers[f"{kernel}.{LOSS}"] = jnp.mean(cross_entropy(forward.logits, labels))
            products |= _features(kernel, forward)
        if noise is not None:
            more = _of_weights(POINTS[1], forwards[1], labels)
            numbers, products = numbers | more[0], products | more[1]
        for kernel, (before, after) in zip(ASYMMETRIC, itertools.pairwise(forwards), strict=True):
            if before.inside is not None and after.inside is not None:
                numbers[f"{kernel}.flips"] = flips(before.inside, after.inside)
        passed = [(f.points, f.logits, f.kept) for f in forwards[1:]]
        return passed, [_states(f) for f in forwards[1:]], numbers, products

    # Each radius's pair (X_ρ, X_2ρ) follows the last one's, the order that `per_group` expects.
    radii = len(rhos)
    if radii == 1:
        # A batch of one radius would batch the network's branches too, and compute all of them.
        pairs, *rest = attacked(rhos[0])
        states, numbers, products = jax.tree.map(lambda a: a[None], rest)
    else:
        together, states, numbers, products = jax.vmap(attacked)(rhos)
        pairs = [jax.tree.map(lambda a, r=r: a[r], one) for r in range(radii) for one in together]
    repeat = lambda a: jnp.broadcast_to(a, (radii, *a.shape))  # noqa: E731
    once = jax.tree.map(repeat, _at_clean(clean, labels, noise))
    numbers, products = numbers | once[0], products | once[1]
    own = _states(clean)
    states = None if own is None else jnp.stack([repeat(own), *states], 1)
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
    return Stack(gram, regroup(correlation(slopes), radii), states, numbers, products)


def _at_clean(
    clean: _Forward, labels: Labels, noise: PRNGKeyArray | None
) -> tuple[dict[str, Array], dict[str, list[Array]]]:
    """Numbers and products at the clean images, and of the network alone."""
    model, kernel = clean.model, POINTS[0]
    numbers = {f"{kernel}.{LOSS}": jnp.mean(cross_entropy(clean.logits, labels))}
    products = _features(kernel, clean)
    if model.unnormalized is not None:
        numbers[f"{NETWORK}.synflow"] = synflow(model, clean.points)
    if noise is not None:
        more = _of_weights(kernel, clean, labels)
        numbers, products = numbers | more[0], products | more[1]
        key = jax.random.fold_in(noise, PERTURBATIONS)
        found = of_perturbations(model, clean.points, clean.logits, clean.pullback, key)
        numbers |= {f"{kernel}.{name}": number for name, number in found.items()}
        if (passes := model.passes) is not None:
            first, second = jax.random.split(noise)
            numbers[f"{NETWORK}.zen"] = zen(passes.standardized, model.params, clean.points, first)
            pairs = passes.pullbacks(model.params, clean.kept, second)
            products[f"{kernel}.pullbacks"] = pullback_products(pairs)
    return numbers, products


def _features(kernel: str, forward: _Forward) -> dict[str, list[Array]]:
    """Products of the blocks' features, where the network says what they are."""
    inside = forward.inside
    return {} if inside is None else {f"{kernel}.features": feature_products(inside)}


def _of_weights(
    kernel: str, forward: _Forward, labels: Labels
) -> tuple[dict[str, Array], dict[str, list[Array]]]:
    """Numbers of the weights' gradients, and the Fisher information."""
    model, left = forward.model, (forward.logits, forward.kept)
    found = of_gradients(model, forward.points, labels, left)
    numbers = {f"{kernel}.{name}": number for name, number in found.items()}
    return numbers, {f"{kernel}.fisher": [fisher(model, forward.points, left)[None]]}


def _states(forward: _Forward) -> Float[Array, "n n"] | None:
    return None if forward.inside is None else equal_states(forward.inside)
