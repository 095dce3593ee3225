"""From a network and its images to the kernels of clean, attacked and twice attacked points."""

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from attacks import ATTACKS, Attack
from ntkscore.errors import InputError
from ntkscore.grams import regroup
from ntkscore.kernels.checks import (
    check_coupling,
    check_labels,
    check_pixels,
    checked_model,
    classes_of,
    have_values,
)
from ntkscore.kernels.gram import evaluate
from ntkscore.kernels.implementations import Forward
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
from ntkscore.model import Activations, Model, Passes
from ntkscore.trace.blocks import BlockPasses, passes_at
from ntkscore.trace.passes import passes_of

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
    return lambda images: _Pass(model, passes_of(model, images), images).loss_gradient(labels)


class _Pass:
    """A forward pass over one set of points, with what it left for the way back."""

    def __init__(self, model: Model, passes: Passes, points: Images) -> None:
        self.model, self.passes, self.points = model, passes, points
        self.logits, self.kept = passes.forward(model.params, points)

    @property
    def forward(self) -> Forward:
        return Forward(self.passes, [self.logits], [self.kept])

    @cached_property
    def inside(self) -> Activations | None:
        """Inputs of the rectifiers and outputs of the blocks, where there are any."""
        return self.passes.activations(self.model.params, self.kept)

    def pullback(self, cotangent: Array) -> Images:
        """The gradient in the points, from the cotangent of the logits."""
        return self.passes.gradient(self.model.params, self.kept, cotangent)

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
    memory: int | None = None,
) -> Stack:
    """The Gram matrix of clean, attacked and twice attacked images, at every radius.

    Everything clean is computed once. Also collects the inputs of the other measures.

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
        memory: as for `ntkscore.ntk`.

    Raises:
        InputError: if there is no attack of the name, or network, images, labels or radii do not
            fit.

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
    if have_values(getattr(model, "params", ()), images, labels, rhos):
        model, images, labels = _checked(model, images, labels, rhos)
    images, labels = jnp.asarray(images), jnp.asarray(labels, jnp.int32)
    rhos = jnp.asarray(rhos, images.dtype)
    passes = passes_at(model, images, memory)
    check_coupling(model, passes, images)
    at = partial(_Pass, model, passes)
    clean, gradient = at(images), lambda images: at(images).loss_gradient(labels)
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
            forwards.append(at(points))
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
    if radii == 1 or isinstance(passes, BlockPasses):
        # A batch of one radius would batch the network's branches too, and compute all of them.
        results = [attacked(rho) for rho in rhos]
        pairs = [pair for passed, *_ in results for pair in passed]
        rest = [result[1:] for result in results]
        states, numbers, products = jax.tree.map(lambda *a: jnp.stack(a), *rest)
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
    gram, _, slopes = evaluate(
        model,
        points,
        tiled,
        output,
        parameters,
        implementation,
        groups=radii,
        forward=Forward(passes, [logits for _, logits, _ in sets], [kept for *_, kept in sets]),
    )
    if output != "sum" or slopes is None:  # else the kernel's own pass has been there
        back = partial(passes.gradient, model.params)
        slopes = jnp.concatenate([back(kept, jnp.ones_like(own)) for _, own, kept in sets])
    return Stack(gram, regroup(correlation(slopes), radii), states, numbers, products)


def _checked(model: Model, images: Any, labels: Any, rhos: Any) -> tuple[Model, Array, np.ndarray]:
    """Refuse what does not fit before anything is computed."""
    model, images, labels = checked_model(model), np.asarray(images), np.asarray(labels)
    check_pixels(images)
    points = jnp.asarray(images)
    classes = classes_of(model, points)
    if classes < 2:
        raise InputError(
            "expected logits of at least two classes, since attacks raise the cross-entropy, got "
            "one; give the network an output for each class"
        )
    check_labels(labels, len(images), classes)
    if wrong := [rho for rho in np.ravel(rhos) if not 0 <= rho <= 1]:
        raise InputError(
            f"expected radii from 0 to 1 on the pixel scale, got {wrong[0]:g}; write 8/255 for "
            "eight grey levels"
        )
    return model, points, labels


def _at_clean(
    clean: _Pass, labels: Labels, noise: PRNGKeyArray | None
) -> tuple[dict[str, Array], dict[str, list[Array]]]:
    """Numbers and products at the clean images, and of the network alone."""
    model, kernel = clean.model, POINTS[0]
    numbers = {f"{kernel}.{LOSS}": jnp.mean(cross_entropy(clean.logits, labels))}
    products = _features(kernel, clean)
    if (
        not model.coupled
        and (flow := synflow(clean.passes, model.params, clean.points)) is not None
    ):
        numbers[f"{NETWORK}.synflow"] = flow
    if noise is not None:
        more = _of_weights(kernel, clean, labels)
        numbers, products = numbers | more[0], products | more[1]
        key = jax.random.fold_in(noise, PERTURBATIONS)
        found = of_perturbations(model, clean.points, clean.logits, clean.pullback, key)
        numbers |= {f"{kernel}.{name}": number for name, number in found.items()}
        first, second = jax.random.split(noise)
        energy = zen(clean.passes.standardized, model.params, clean.points, first)
        if energy is not None:
            numbers[f"{NETWORK}.zen"] = energy
        if pairs := clean.passes.pullbacks(model.params, clean.kept, second):
            products[f"{kernel}.pullbacks"] = pullback_products(pairs)
    return numbers, products


def _features(kernel: str, forward: _Pass) -> dict[str, list[Array]]:
    """Products of the blocks' features, where the network says what they are."""
    inside = forward.inside
    return {} if inside is None else {f"{kernel}.features": feature_products(inside)}


def _of_weights(
    kernel: str, forward: _Pass, labels: Labels
) -> tuple[dict[str, Array], dict[str, list[Array]]]:
    """Numbers of the weights' gradients, and the Fisher information."""
    found = of_gradients(forward.forward, forward.model.params, labels)
    numbers = {f"{kernel}.{name}": number for name, number in found.items()}
    matrix = fisher(forward.forward, forward.model.params)
    return numbers, {f"{kernel}.fisher": [matrix[None]]}


def _states(forward: _Pass) -> Float[Array, "n n"] | None:
    return None if forward.inside is None else equal_states(forward.inside)
