"""From a network and its images to the kernels of clean, attacked and twice attacked points."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from attacks import Attack
from ntkscore.errors import InputError, check_choice
from ntkscore.grams import in_full_precision, regroup
from ntkscore.kernels.attacks import ATTACKS, check_attack
from ntkscore.kernels.checks import check_pixels
from ntkscore.kernels.implementations import evaluate
from ntkscore.kernels.joint import BLOCKS, POINTS, Stack
from ntkscore.kernels.network import network_of
from ntkscore.kernels.plain import check_kernel
from ntkscore.kernels.readouts import IMPLEMENTATIONS, READOUTS
from ntkscore.kernels.wanted import Wanted
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import NETWORK, quantities
from ntkscore.measures.slopes import correlation
from ntkscore.model import Logits, Model, have_values
from ntkscore.task import check_classes
from ntkscore.trace.compiled import Chain, in_pieces
from ntkscore.trace.content import Function
from ntkscore.trace.parameters import PARAMETER_SETS

Images = Float[Array, "n ..."]
Labels = Int[Array, " n"]
Quantities = dict[str, dict[str, Any]]
CLEAN = POINTS[0]


def loss_gradient(model: Model, labels: Labels) -> Callable[[Images], Images]:
    """The gradient in the images of the summed cross-entropy, per unit of a pixel in [0, 1].

    Attacks follow `Pass.attack_gradient`, which has its direction and does not vanish.
    """
    return lambda images: Pass(model, images, labels).loss_gradient


@dataclass(frozen=True)
class RaisedLoss:
    """The network as attacks ask it (`attacks.Oracle`): called, the gradient that raises the loss.

    Attributes:
        model: the network.
        labels: the images' classes.
        start: the pass at the images where the attack begins, which is not computed again.
    """

    model: Model
    labels: Labels
    start: Pass | None = None

    def _pass(self, images: Images) -> Pass:
        if self.start is not None and images is self.start.points:
            return self.start
        return Pass(self.model, images, self.labels)

    def __call__(self, images: Images) -> Images:
        """The gradient in the images, up to a factor of each."""
        return self._pass(images).attack_gradient

    def logits(self, images: Images) -> Logits:
        """Logits of the images, for attacks that need no gradient."""
        return self._pass(images).logits

    def vjp(self, images: Images) -> tuple[Logits, Callable[[Logits], Images]]:
        """Logits of the images, and the pullback of their cotangents."""
        at = self._pass(images)
        return at.logits, at.pullback


@jax.tree_util.register_pytree_node_class
class KnownLoss(RaisedLoss):
    """The loss of a network known by what it computes; a tree, so that attacks keep their programs.

    Weights and labels are its data.
    """

    def tree_flatten(self) -> tuple[Any, Model]:
        return (self.model.params, self.labels), self.model._replace(params=None)

    @classmethod
    def tree_unflatten(cls, weightless: Model, data: Any) -> "KnownLoss":
        params, labels = data
        return cls(weightless._replace(params=params), labels)


@in_full_precision
def stack(
    model: Model,
    images: Shaped[Array | np.ndarray, "n ..."],
    labels: Labels | Int[np.ndarray, " n"],
    attack: str | Callable[[Array], Attack],
    rhos: Float[Array, " r"] | Sequence[float] | float,
    output: str = "sum",
    parameters: str = "all",
    implementation: str = "auto",
    key: PRNGKeyArray | None = None,
    noise: PRNGKeyArray | None = None,
    memory: float | None = None,
    check: bool | None = None,
) -> Stack:
    """The Gram matrix of clean, attacked and twice attacked images, at every radius.

    Everything clean is computed once. The quantities of other measures are computed beside it.

    Args:
        model: the network at its weights.
        images: X, N of them, pixels in [0, 1].
        labels: their classes.
        attack: a name such as `fgsm` or `pgd`, or the attack of a radius: an `attacks.Attack`, or
            a function of (asked, images, key), where `asked` is an `attacks.Oracle`.
        rhos: the radii, or one, on the pixel scale, as `attacks.Attack` takes them.
        output, parameters, implementation: as for `ntkscore.ntk`.
        key: for the attack's random start.
        noise: random key for GradNorm, Zen and the other measures with passes of their own. If it
            is left out, or the model is `coupled`, they are not computed.
        memory, check: as for `ntkscore.ntk`. Measures of layers and blocks hold all points at once.

    Returns:
        The Gram matrix of each radius, (R, 3N, 3N), whose blocks `Stack.kernel` names; and what
        other measures are read off.

    Raises:
        InputError: if there is no attack or choice of the name, or network, images, labels or
            radii do not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> linear = Model(lambda w, x: x @ w, jnp.eye(2))
        >>> x, y = jnp.full((2, 2), 0.5), jnp.array([0, 1])
        >>> kernels = stack(linear, x, y, "fgsm", [0.1])
        >>> kernels.gram.shape, kernels.kernel("joint_robust", beta=0.5).shape
        ((1, 6, 6), (2, 2))
    """
    if isinstance(attack, str):
        check_choice(attack, ATTACKS)
        attack = ATTACKS[attack]
    check_choice(output, READOUTS, "output")
    check_choice(parameters, PARAMETER_SETS, "parameters")
    check_choice(implementation, ("auto", *IMPLEMENTATIONS), "implementation")
    known = have_values(getattr(model, "params", ()), images, labels, rhos)
    if known:
        images, labels = _checked(images, attack, rhos), np.asarray(labels)
    images = jnp.asarray(images)
    rhos = jnp.atleast_1d(jnp.asarray(rhos, images.dtype))
    network = network_of(model, [(images, labels)], known, implementation, memory)
    if known:
        check_classes(network.classes)
    model, name, labels = network.model, network.implementation, jnp.asarray(labels, jnp.int32)
    at = partial(Pass, model, labels=labels, noise=None if model.coupled else noise)
    clean = at(images)
    # A batch of one radius would batch the network's branches too, and compute all of them.
    together = len(rhos) > 1 and not in_pieces(model.passes)
    # A program is found again by what a network computes, and not by who made it.
    keeps = known and isinstance(model.apply, Function) and not isinstance(model.passes, Chain)
    asks = KnownLoss if keeps else RaisedLoss
    pairs, values = _attacked(at, clean, partial(asks, model, labels), attack, rhos, key, together)
    sets = [_set_of(clean), *pairs]
    points, logits, residuals = zip(*sets, strict=True)
    gram, _, input_gradients = evaluate(
        _set_by_set(model, len(images)) if model.coupled else model,
        jnp.concatenate(points),
        jnp.tile(labels, len(sets)),
        output,
        parameters,
        name,
        groups=len(rhos),
        forward=(logits, residuals),
    )
    if in_pieces(model.passes) and name == "layerwise":
        clean_kernel = images, labels, Wanted(output, parameters), gram[0]
        if not check_kernel(model, *clean_kernel, check):
            rest = (attack, rhos, output, parameters, "ntvp", key, noise, memory)
            return stack(model._replace(coupled=True, passes=None), images, labels, *rest)
    if output != "sum" or input_gradients is None:  # else the kernel's own pass has them
        back = partial(clean.passes.gradient, model.params)
        input_gradients = jnp.concatenate([*map(back, residuals, map(jnp.ones_like, logits))])
    return Stack(gram, regroup(correlation(input_gradients), len(rhos)), values)


Set = tuple[Images, Logits, Any]
"""Images with their logits and residuals."""


def _set_of(at: Pass) -> Set:
    return at.points, at.logits, at.residuals


def _attacked(
    at: Callable[[Images], Pass],
    clean: Pass,
    asked: Callable[[Pass], RaisedLoss],
    attack: Callable[[Array], Attack],
    rhos: Float[Array, " r"],
    key: PRNGKeyArray | None,
    together: bool,
) -> tuple[list[Set], Quantities]:
    """X_ρ and X_2ρ of each radius, pair after pair; and the quantities at all kernels' points.

    Args:
        at: a pass of the network at images.
        asked: the network as an attack asks it that begins at a pass.
        together: whether all radii are one batch.
    """

    def of_radius(rho: Float[Array, ""]) -> tuple[list[Set], Quantities]:
        # Every radius has the same key, so that random starts differ by their scale alone.
        keys = (None, None) if key is None else jax.random.split(key, 2)
        chain = [clean]
        for each in keys:
            chain.append(at(attack(rho)(asked(chain[-1]), chain[-1].points, each)))
        where = {kernel: [chain[k] for k in sorted({*ends})] for kernel, ends in BLOCKS.items()}
        del where[CLEAN]
        return [*map(_set_of, chain[1:])], _quantities_at(where)

    # Each radius's pair (X_ρ, X_2ρ) follows the last one's, the order that `regroup` expects.
    if together:
        batched, values = jax.vmap(of_radius)(rhos)
        radii = range(len(rhos))
        pairs = [jax.tree.map(lambda a, r=r: a[r], one) for r in radii for one in batched]
    else:
        results = [of_radius(rho) for rho in rhos]
        pairs = [pair for each, _ in results for pair in each]
        values = jax.tree.map(lambda *a: jnp.stack(a), *(own for _, own in results))
    once = _quantities_at({CLEAN: [clean], NETWORK: [clean]})
    once = jax.tree.map(lambda a: jnp.broadcast_to(a, (len(rhos), *a.shape)), once)
    return pairs, values | once


def _set_by_set(model: Model, n: int) -> Model:
    """A coupled network at several sets of n points, each a batch of its own."""

    def apply(params: Any, points: Array) -> Array:
        sets = points.reshape(-1, n, *points.shape[1:])
        return jax.vmap(partial(model.apply, params))(sets).reshape(len(points), -1)

    return model._replace(apply=apply)


def _quantities_at(where: Mapping[str, Sequence[Pass]]) -> Quantities:
    """The quantities that the network can give, by place: of the passes there.

    These are one, or those before and after an attack.
    """
    values: Quantities = {place: {} for place in where}
    for quantity in quantities():
        for place in quantity.at:
            at = where.get(place)
            if not at or not quantity.compute or (quantity.own_passes and at[0].noise is None):
                continue
            if (found := quantity.compute(*at)) is not None:
                values[place][quantity.name] = found
    return values


def _checked(images: Any, attack: Callable[..., Any], rhos: Any) -> Array:
    """Images as floating-point numbers; refuses those and radii that do not fit."""
    images = np.asarray(images)
    check_pixels(images)
    if not np.size(rhos):
        raise InputError("a radius", "none", "write 8/255 for eight grey levels")
    for rho in np.ravel(rhos).tolist():
        check_attack(attack, rho, images.shape[1:])
    points = jnp.asarray(images)
    real = jnp.issubdtype(points.dtype, jnp.floating)
    return points if real else points.astype(jnp.result_type(float))
