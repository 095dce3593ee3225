"""A network at some weights: the value that attacks, kernels and losses take."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int, Shaped

from attacks.lazy import Array, PyTree, jax
from ntkscore.errors import InputError
from ntkscore.grams import GramByKind

NO_SINGLE_POINTS = (
    "a network whose points do not depend on each other",
    "one that is coupled, of which no point has gradients of its own",
    "choose the implementation ntvp",
)
Points = Shaped[Array, "m ..."]
Labels = Int[Array, " m"]
Sets = Sequence[tuple[Shaped[Array, "_ ..."], Int[Array, " _"]]]
"""Points and their labels; of one set or of two."""
Logits = Float[Array, "m o"]


def have_values(*trees: PyTree) -> bool:
    """Tell whether all arrays have values, as they do outside of functions that are compiled."""
    from jax.core import Tracer

    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


class Activations(NamedTuple):
    """Inputs of a network's ReLUs and outputs of its blocks, layers of one shape together.

    Attributes:
        rectified: a pair for each shape: for each of k arrays how many rectifiers (ReLUs) read it,
            (k,), and the arrays at m points, (k, m, …). Only their signs are used.
        features: outputs of the blocks, first to last, (k, m, …, channels).

    Example:
        >>> import jax.numpy as jnp
        >>> z = jnp.array([[1.0, -1.0], [2.0, 3.0]])  # the inputs of two ReLUs at two points
        >>> Activations([(jnp.ones(1, int), z[None])], [jnp.maximum(z, 0)[None]]).features[0].shape
        (1, 2, 2)
    """

    rectified: Sequence[tuple[Array, Shaped[Array, "k m ..."]]]
    features: Sequence[Float[Array, "k m ... c"]]


@runtime_checkable
class LayerGradient(Protocol):
    """The gradients of one layer's weights at m points."""

    @property
    def kernel(self) -> Array:
        """The weights."""
        ...

    @property
    def gradients(self) -> Float[Array, "m ..."]:
        """Each point's gradient, of the weights' shape."""
        ...

    @property
    def first(self) -> Float[Array, " m"]:
        """Each point's gradient of the first weight alone."""
        ...


Visit = Callable[[LayerGradient], PyTree]
"""A function of a layer's gradients, whose results have one form for all layers."""


@runtime_checkable
class Passes(Protocol):
    """A network's forward pass and its backward passes, apart from each other.

    The residuals of a forward pass serve the attack's gradient and the kernel, so that neither runs
    it again. A class that inherits from this one need not have the methods after `forward`:
    without them it has no gradients of single points, and nothing else is known.
    """

    def forward(self, params: Any, points: Points, /) -> tuple[Logits, Any]:
        """Logits (m, o) of points (m, …), and the residuals that the backward passes need."""
        ...

    def gradient(self, params: Any, residuals: Any, cotangent: Logits) -> Points:
        """The gradient in the points (m, …), from the cotangent (m, o) of their logits."""
        return self.gram_by_kind(params, [residuals], cotangent, {})[0]

    def gram_by_kind(
        self, params: Any, residuals: Sequence[Any], cotangent: Logits, start: GramByKind
    ) -> tuple[Points, GramByKind]:
        """The gradient in the points, and the Gram matrices of the gradients in the parameters.

        Args:
            residuals: of forward passes over sets of points.
            cotangent: of the logits of all of them, set after set.
            start: zero matrices by kind, to which the layers' contributions are added; an empty
                dict for the gradient in the points alone.
        """
        raise InputError(*NO_SINGLE_POINTS)

    def layers(self, params: Any, residuals: Any, cotangent: Logits, visit: Visit, /) -> PyTree:
        """Results of a function of each layer's gradients, layers first; zeros without weights."""
        raise InputError(*NO_SINGLE_POINTS)

    def kinds_of(self, params: Any) -> Sequence[str] | None:
        """The kind of each leaf of the params by its use; None where only names tell it."""
        return None

    def activations(self, params: Any, residuals: Any) -> Activations | None:
        """Inputs of the rectifiers and outputs of the blocks; None where there are none."""
        return None

    def rectifier_values(self, params: Any, residuals: Any) -> Sequence[tuple[Array, Array, Array]]:
        """How many rectifiers read each of k arrays, (k,), the arrays, and what comes of them.

        Triples for arrays of one shape (k, m, …, channels); none where none are known.
        """
        return []

    def pullbacks(self, params: Any, residuals: Any, key: Array) -> Sequence[tuple[Array, Array]]:
        """Gradients at each block's input, of a random sign at each entry of its output; the signs.

        Pairs for blocks of one shape: gradients (k, m, h, w, c), signs (k, m, h2, w2, d).
        """
        return []

    def unnormalized(self, params: Any, points: Points) -> Logits | None:
        """Logits without normalisations; None where it is not known which these are."""
        return None

    def standardized(
        self, params: Any, points: Points, others: Points
    ) -> tuple[Points, Points, Array] | None:
        """Features before the mean over the pixels at two batches, standardised by the first.

        Σ ln σ over the normalisations comes with them; None where these are not known.
        """
        return None


class Model(NamedTuple):
    """A network at some weights.

    Anybody can make one: a function and a pytree, of any library or none. Everything else about
    the network is derived from a trace of the function.

    Attributes:
        apply: logits (m, o) of (params, points (m, …)), differentiable in both.
        params: the weights, any pytree of arrays.
        coupled: whether a point's logits depend on the other points of its batch.
        passes: a program for the same network that a space brings; None to derive it.

    Example:
        >>> import jax.numpy as jnp
        >>> linear = Model(lambda w, x: x @ w, jnp.ones((3, 2)))
        >>> linear.apply(linear.params, jnp.ones((1, 3)))
        Array([[3., 3.]], dtype=float32)
    """

    apply: Callable[[Any, Points], Logits]
    params: PyTree
    coupled: bool = False
    passes: Passes | None = None

    def logits(self, points: Points) -> Logits:
        """Logits of points."""
        return self.apply(self.params, points)


class Trainable(NamedTuple):
    """A network as training sees it: one that may normalise by its batch, and keep statistics.

    Attributes:
        train: logits of (params, statistics, points), and the statistics after this batch.
        evaluate: logits of (params, statistics, points), each point by itself.
        params: the weights, any pytree of arrays.
        statistics: what is kept beside them, such as running means; an empty tuple for nothing.

    Example:
        >>> import jax.numpy as jnp
        >>> linear = Trainable.of(Model(lambda w, x: x @ w, jnp.ones((3, 2))))
        >>> logits, statistics = linear.train(linear.params, (), jnp.ones((1, 3)))
        >>> logits.shape, statistics
        ((1, 2), ())
    """

    train: Callable[[PyTree, PyTree, Points], tuple[Logits, PyTree]]
    evaluate: Callable[[PyTree, PyTree, Points], Logits]
    params: PyTree
    statistics: PyTree = ()

    @classmethod
    def of(cls, model: Model) -> "Trainable":
        """A network without statistics."""
        if model.coupled:
            raise InputError(
                "a network whose points do not depend on each other",
                "one with coupled=True",
                "give a Trainable, which keeps statistics",
            )
        return cls(
            lambda params, statistics, x: (model.apply(params, x), statistics),
            lambda params, statistics, x: model.apply(params, x),
            model.params,
        )

    def at(self, params: PyTree, statistics: PyTree) -> Model:
        """The network at these weights and statistics, for kernels and attacks."""
        return Model(lambda p, x: self.evaluate(p, statistics, x), params)
