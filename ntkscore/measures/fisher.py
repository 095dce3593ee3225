"""VKDNW: the Fisher information of one weight of each layer, and the entropy of its spectrum.

Source: Týbl and Neumann (2025), "Training-free neural architecture search through variance of
knowledge of deep network weights".
"""

from functools import partial

import numpy as np
from jaxtyping import Float

from attacks.lazy import Array, jax, jnp
from ntkscore.grams import PRECISION
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.registry import ATTACKED_ONCE, Measure, Quantity
from ntkscore.model import LayerGradient


def fisher(at: Pass) -> Float[Array, "p p"]:
    """The Fisher information of one weight of every convolution and linear layer, their first.

    The mean over the points of Jᵀ(diag π − ππᵀ)J, J the logits' derivatives and π their softmax.
    A layer whose first weight changes no logit has zeros. The rank is at most (classes − 1) for
    each point. As in the source, the labels are the network's own.

    Example:
        >>> from ntkscore.model import Model
        >>> linear, x = Model(lambda w, x: x @ w, jnp.zeros((3, 2))), jnp.ones((1, 3))
        >>> fisher(Pass(linear, x, jnp.array([0])))  # π = (½, ½)
        Array([[0.25]], dtype=float32)
    """
    from ntkscore.trace.compiled import one_by_one

    def derivatives(chosen: Float[Array, " o"]) -> Float[Array, "p n"]:
        """One logit's derivative in the first weight of each layer."""
        return at.layers(jnp.broadcast_to(chosen, at.logits.shape), _first)

    classes = jnp.eye(at.logits.shape[1], dtype=at.logits.dtype)
    jacobian = one_by_one(at.passes, derivatives, classes)
    chance = jax.nn.softmax(at.logits).T
    product = partial(jnp.einsum, precision=PRECISION)
    mean = product("on,opn->pn", chance, jacobian)
    centred = jacobian - mean
    return product("on,opn,oqn->pq", chance, centred, centred) / at.logits.shape[0]


def _first(layer: LayerGradient) -> Float[Array, " n"]:
    return layer.first


def count_and_entropy(matrix: Float[np.ndarray, "p p"]) -> tuple[int, float]:
    """The number of layers whose first weight changes a logit, and the entropy of their spectrum.

    The entropy in nats is that of the nine deciles between the least and the largest eigenvalue,
    divided by their sum. It is NaN where there is no such layer, and where fewer than a tenth of
    the eigenvalues are above rounding: each image adds (classes − 1) of them.

    Example:
        >>> count, entropy = count_and_entropy(np.eye(3))
        >>> count, round(entropy, 6)  # nine equal deciles: ln 9
        (3, 2.197225)
    """
    moved = np.diag(matrix) != 0
    count = int(np.sum(moved))
    if not np.isfinite(matrix).all() or not count:
        return count, np.nan
    spectrum = np.linalg.eigvalsh(matrix[np.ix_(moved, moved)].astype(float))
    deciles = np.quantile(np.clip(spectrum, 0, None), np.arange(1, 10) / 10)
    if deciles[-1] <= count * np.finfo(matrix.dtype).eps * spectrum[-1]:
        return count, np.nan
    share = deciles[deciles > 0] / np.sum(deciles)
    return count, -float(np.sum(share * np.log(share)))


FISHER = Quantity("fisher", ATTACKED_ONCE, fisher, count_and_entropy, own_passes=True)

MEASURES = (
    Measure(
        "fisher_entropy",
        +1,
        "entropy of the deciles of the Fisher information's spectrum",
        FISHER,
        lambda found: found[1],
        source="Týbl and Neumann (2025), VKDNW, a weight a layer",
    ),
    Measure(
        "vkdnw",
        +1,
        "fisher_entropy, and one for each layer with weights",
        FISHER,
        sum,
        source="Týbl and Neumann (2025), VKDNW, single",
    ),
)
