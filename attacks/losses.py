"""What an attack raises: losses of logits, and a network as attacks ask it.

The cross-entropy is a function of the log-odds of an error, which no confidence rounds away:
softmax − one-hot loses the label's part to rounding in float32 at a margin of 17.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from jaxtyping import Float, Int

from attacks.core import Images
from attacks.errors import AttackError
from attacks.lazy import Array, jax, jnp

Logits = Float[Array, "n o"]
Labels = Int[Array, " n"]
Values = Float[Array, " n"]
LossName = Literal["ce", "margin", "dlr"]
LOSSES: tuple[str, ...] = get_args(LossName)
FEWEST_CLASSES = {"dlr": 3, "targeted dlr": 4}
"""Fewest classes of losses that need more than two: the difference of logits ratio divides by one
of three or four."""
TINY = 1e-12


def log_odds(logits: Logits, labels: Labels) -> Values:
    """log((1 − p_y)/p_y), p the softmax and y the label: −margin where there are two classes.

    Example:
        >>> import jax.numpy as jnp
        >>> log_odds(jnp.array([[1000.0, 0.0], [0.0, 0.0]]), jnp.array([0, 1])).tolist()
        [-1000.0, 0.0]
    """
    of_label = jnp.take_along_axis(logits, labels[:, None], axis=1)
    return jax.nn.logsumexp(_without(logits - of_label, labels), axis=1)


def cross_entropy(logits: Logits, labels: Labels) -> Values:
    """−log of the softmax at the label, in nats: log(1 + e^`log_odds`).

    Example:
        >>> import jax.numpy as jnp
        >>> cross_entropy(jnp.zeros((1, 2)), jnp.array([0])).round(4).tolist()  # ln 2
        [0.6930999755859375]
    """
    return jax.nn.softplus(log_odds(logits, labels))


def margin(logits: Logits, labels: Labels) -> Values:
    """The largest other logit less the label's, positive where the point is misclassified.

    Source: Carlini and Wagner (2017), "Towards evaluating the robustness of neural networks".
    """
    return jnp.max(_without(logits, labels), axis=1) - _at(logits, labels)


def loss(name: str, logits: Logits, labels: Labels, targets: Labels | None = None) -> Values:
    """A loss that an attack raises, of each point.

    Args:
        name: `ce`, the cross-entropy; `margin`, the difference of the largest other logit and the
            label's; or `dlr`, this difference over that of the largest and the third logit.
        logits, labels: of the points.
        targets: classes that the points shall be taken for, of a targeted attack: `ce` is the
            target's, with a minus; `margin` and `dlr` have the target for the largest other logit,
            and `dlr` is over the difference of the largest and the mean of the third and fourth.

    Source: Croce and Hein (2020), "Reliable evaluation of adversarial robustness with an ensemble
    of diverse parameter-free attacks", equations 4 and 5.

    Example:
        >>> import jax.numpy as jnp
        >>> logits, label = jnp.array([[4.0, 3.0, 2.0, 0.0]]), jnp.array([0])
        >>> loss("dlr", logits, label), loss("dlr", logits, label, label + 3).round(2)
        (Array([-0.5], dtype=float32), Array([-1.3299999], dtype=float32))
    """
    if name in LOG_LOSSES:
        of = LOG_LOSSES[name](logits, labels if targets is None else targets)
        return of if targets is None else -of
    rise = margin(logits, labels) if targets is None else _at(logits, targets) - _at(logits, labels)
    if name == "margin":
        return rise
    top = jax.lax.top_k(logits, 3 if targets is None else 4)[0]
    low = top[:, 2] if targets is None else (top[:, 2] + top[:, 3]) / 2
    return rise / (top[:, 0] - low + TINY)


LOG_LOSSES = {"ce": cross_entropy, "log-odds": log_odds}
"""The cross-entropy, and what grows with it and has its gradient's direction without vanishing."""


def _at(logits: Logits, classes: Labels) -> Values:
    return jnp.take_along_axis(logits, classes[:, None], axis=1)[:, 0]


def _without(logits: Logits, labels: Labels) -> Logits:
    return jnp.where(jax.nn.one_hot(labels, logits.shape[1], dtype=bool), -jnp.inf, logits)


def classes_of(network: Callable[[Images], Logits], images: Images) -> int:
    """The number of logits of each image, by their shape alone.

    Raises:
        AttackError: if the network does not return logits of these images.
    """
    logits = jax.eval_shape(network, images)
    shape = getattr(logits, "shape", type(logits).__name__)
    if len(shape) != 2 or shape[0] != len(images):
        raise AttackError(
            f"logits of shape ({len(images)}, classes) from the network",
            shape,
            "name the axes that the network squeezes or reduces",
        )
    return int(shape[1])


@runtime_checkable
class Oracle(Protocol):
    """A network, and the labels of its images, as attacks ask it.

    Called, it returns the gradient in the images that raises the cross-entropy, up to a positive
    factor of each image: all that `attacks.Attack` asks for. An image's logits depend on that image
    alone.
    """

    def __call__(self, images: Images) -> Images: ...

    @property
    def labels(self) -> Labels: ...

    def logits(self, images: Images) -> Logits:
        """Logits of the images, for attacks that need no gradient."""
        ...

    def vjp(self, images: Images) -> tuple[Logits, Callable[[Logits], Images]]:
        """Logits of the images, and the pullback of cotangents of these logits."""
        ...


@dataclass(frozen=True)
class Victim:
    """A network under attack: an `Oracle` of any function of images.

    Attributes:
        network: returns logits (n, o) of images (n, …), each image by itself. With `draws`, of
            images and a key.
        labels: classes (n,) of the images.
        draws: of a network with chance, over which gradients are averaged; 0 for one without.
        key: of these draws.

    Example:
        >>> import jax.numpy as jnp
        >>> from attacks import fgsm
        >>> victim = Victim(lambda x: x @ jnp.eye(2), jnp.array([0]))
        >>> fgsm(0.125)(victim, jnp.array([[0.5, 0.375]]))
        Array([[0.375, 0.5  ]], dtype=float32)

    Source: Athalye et al. (2018), "Synthesizing robust adversarial examples", for `draws`.
    """

    network: Callable[..., Logits]
    labels: Labels
    draws: int = 0
    key: Any = None

    def __call__(self, images: Images) -> Images:
        """The gradient in the images of the summed log-odds of an error."""
        logits, pull = self.vjp(images)
        return pull(jax.grad(lambda f: jnp.sum(log_odds(f, self.labels)))(logits))

    def logits(self, images: Images) -> Logits:
        """Logits of the images; of the first draw."""
        return self._network(0)(images)

    def vjp(self, images: Images) -> tuple[Logits, Callable[[Logits], Images]]:
        """Logits of the images, and the pullback of cotangents of these logits, 0 for NaN."""
        logits, pull = jax.vjp(self._network(0), images)
        # A slope that is no number, such as that of a root at 0, would make the whole image one.
        return logits, lambda g: jnp.nan_to_num(pull(g)[0])

    def _network(self, draw: Array | int) -> Callable[[Images], Logits]:
        if not self.draws:
            return self.network
        return lambda x: self.network(x, jax.random.fold_in(self.key, draw))

    def at_step(self, step: Array | int) -> "Victim":
        """The same network with draws of its own at a step."""
        return replace(self, key=jax.random.fold_in(self.key, step)) if self.draws else self


class At(NamedTuple):
    """A network at images: logits (n, o), the loss (n,), and its gradient in the images."""

    logits: Logits
    loss: Values
    gradient: Images


def ask(
    victim: Oracle, images: Images, name: str, targets: Labels | None = None, step: Any = 0
) -> At:
    """Logits, loss and gradient of a network at images, with its chance averaged.

    Without chance `ce` is the log-odds of an error, which orders points as the cross-entropy does
    and whose gradient has its direction, however sure the network is.

    Args:
        victim: the network with its labels.
        images: to ask it at.
        name, targets: of `loss`.
        step: of the attack, which decides the draws of a network with chance.
    """

    def once(each: Oracle) -> At:
        logits, pull = each.vjp(images)
        of = lambda f: loss(name, f, each.labels, targets)  # noqa: E731
        values, back = jax.vjp(of, logits)
        return At(logits, values, pull(back(jnp.ones_like(values))[0]))

    if not isinstance(victim, Victim) or not victim.draws:
        name = "log-odds" if name == "ce" else name
        return once(victim)
    at = victim.at_step(step)
    draw = lambda i: once(replace(at, key=jax.random.fold_in(at.key, i)))  # noqa: E731

    def add(i: Array, so_far: At) -> At:
        new = draw(i)
        total = (so_far.loss + new.loss, so_far.gradient + new.gradient)
        return At(new.logits, *total)

    found = jax.lax.fori_loop(1, at.draws, add, draw(0))
    return At(found.logits, found.loss / at.draws, found.gradient / at.draws)
