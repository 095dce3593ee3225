"""The cross-entropy, and the gradient that an attack follows to raise it.

Both are functions of the log-odds of an error, which no confidence rounds away: softmax − one-hot
loses the label's part to rounding in float32 at a margin of 17, and all of it at 100.
"""

from functools import partial

from jaxtyping import Float, Int

from attacks.lazy import Array, jax, jnp
from attacks.losses import cross_entropy as cross_entropy
from attacks.losses import log_odds
from ntkscore.model import Logits


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
