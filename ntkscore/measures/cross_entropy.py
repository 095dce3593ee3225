"""The cross-entropy, and the gradient that an attack follows to raise it.

Both are functions of the log-odds of an error, which no confidence rounds away: softmax − one-hot
loses the label's part to rounding in float32 at a margin of 17, and all of it at 100.
"""

from collections.abc import Callable
from functools import partial

from jaxtyping import Float, Int

from ntkscore.lazy import Array, jax, jnp
from ntkscore.model import Logits, Points


def log_odds(logits: Float[Array, "n o"], labels: Int[Array, " n"]) -> Float[Array, " n"]:
    """log((1 − p_y)/p_y), p the softmax and y the label: −margin where there are two classes.

    Example:
        >>> log_odds(jnp.array([[1000.0, 0.0], [0.0, 0.0]]), jnp.array([0, 1])).tolist()
        [-1000.0, 0.0]
    """
    of_label = jnp.take_along_axis(logits, labels[:, None], axis=1)
    is_label = jax.nn.one_hot(labels, logits.shape[1], dtype=bool)
    return jax.nn.logsumexp(jnp.where(is_label, -jnp.inf, logits - of_label), axis=1)


def cross_entropy(logits: Float[Array, "n o"], labels: Int[Array, " n"]) -> Float[Array, " n"]:
    """−log of the softmax at the label, in nats: log(1 + e^`log_odds`).

    Example:
        >>> cross_entropy(jnp.zeros((1, 2)), jnp.array([0])).round(4).tolist()  # ln 2
        [0.6930999755859375]
    """
    return jax.nn.softplus(log_odds(logits, labels))


def loss_cotangent(logits: Float[Array, "n o"], labels: Int[Array, " n"]) -> Logits:
    """The gradient of the summed cross-entropy in the logits, softmax − one-hot.

    Example:
        >>> loss_cotangent(jnp.array([[50.0, 0.0]]), jnp.array([0])) * jnp.exp(50.0)
        Array([[-1.,  1.]], dtype=float32)
    """
    return jax.grad(lambda f: jnp.sum(cross_entropy(f, labels)))(logits)


def attack_cotangent(
    logits: Float[Array, "n o"], labels: Int[Array, " n"], together: bool = False
) -> tuple[Logits, Float[Array, " n"]]:
    """The cotangent of the logits that an attack follows, and its factor to the loss's own.

    It is the gradient of the `log_odds`, which has the direction of the loss's gradient and never
    vanishes: the loss's is 1 − p_y times as long.

    Args:
        logits: of the points.
        labels: classes.
        together: whether a point's logits depend on the other points. Then the direction is that
            of the summed loss, and all points have one factor.

    Example:
        >>> attack_cotangent(jnp.array([[1000.0, 0.0]]), jnp.array([0]))
        (Array([[-1.,  1.]], dtype=float32), Array([0.], dtype=float32))
    """
    odds, back = jax.vjp(partial(log_odds, labels=labels), logits)
    of_error, share = jax.nn.log_sigmoid(odds), jnp.ones_like(odds)
    if together:
        largest = jnp.max(of_error)
        of_error, share = jnp.full_like(odds, largest), jnp.exp(of_error - largest)
    return back(share)[0], jnp.exp(of_error)


def attack_gradient(
    network: Callable[[Points], Logits], labels: Int[Array, " n"]
) -> Callable[[Points], Points]:
    """The gradient in the points that an attack follows, as a function of them.

    Args:
        network: logits of points, each point by itself.
        labels: classes.
    """
    return jax.grad(lambda x: jnp.sum(log_odds(network(x), labels)))
