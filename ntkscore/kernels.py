"""Empirical neural tangent kernels of any network at any images.

k(x, x′) = ⟨∂f(x)/∂θ, ∂f(x′)/∂θ⟩ for a scalar reading f of the logits, or the mean of several.
Kernels are raw sums over the parameters, divided by neither the number of images nor theirs.

Two implementations, which must agree:

- `jacobian`: one backward pass for the whole batch. It needs a network whose layers report their
  own contributions (see `cells.layers`), and one whose logits for an image depend on that image
  alone. Memory is that of one layer's per-image gradients.
- `ntvp`: vmapped Jacobian-vector products of vector-Jacobian products, for any function of
  (params, images), also where batch normalisation couples the images. It needs as many backward
  and forward passes as there are images.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

Logits = Float[Array, "m o"]
Seeds = Float[Array, "k m o"]
Gram = Float[Array, "*r s s"]
Images = Float[Array, "m h w c"]

Output = Literal["sum", "trace", "label", "loss"]
OUTPUTS: tuple[str, ...] = get_args(Output)
Parameters = Literal["all", "weights", "conv_linear"]
PARAMETER_SETS: dict[str, tuple[str, ...]] = {
    "all": ("weight", "scale", "shift"),
    "weights": ("weight", "scale"),
    "conv_linear": ("weight",),
}
"""Which kinds of parameters each set holds; biases count as shifts."""

KIND_OF_LEAF = {"kernel": "weight", "scale": "scale", "shift": "shift", "bias": "shift"}
PRECISION = lax.Precision.HIGHEST


def readout(output: Output, logits: Logits, labels: Int[Array, "m"]) -> Seeds:
    """The cotangents of the logits whose pullbacks are the per-image gradients of the kernel.

    The kernel is the sum over the first axis of ⟨(∂f(x_i)/∂θ)ᵀ s_i, (∂f(x_j)/∂θ)ᵀ s_j⟩.

    Args:
        output: `sum` of the logits, `trace` (the mean of the logits' own kernels), the logit of
            the `label`, or the cross-entropy `loss`.
        logits: of the m images.
        labels: classes of the m images.
    """
    classes = logits.shape[-1]
    if output == "sum":
        return jnp.ones_like(logits)[None]
    if output == "trace":
        unit = jnp.eye(classes, dtype=logits.dtype)[:, None, :] / classes**0.5
        return jnp.broadcast_to(unit, (classes, *logits.shape))
    chosen = jax.nn.one_hot(labels, classes, dtype=logits.dtype)
    if output == "label":
        return chosen[None]
    if output == "loss":
        return (jax.nn.softmax(logits) - chosen)[None]
    raise ValueError(f"expected one of {', '.join(OUTPUTS)}, got {output!r}; choose one of them")


def gram_by_kind(
    apply: Callable[[Images, Mapping[str, Gram]], Logits],
    images: Images,
    labels: Int[Array, "m"],
    outputs: Sequence[Output] = ("sum",),
    shape: tuple[int, ...] | None = None,
) -> tuple[list[dict[str, Gram]], Logits]:
    """For each output, the kernel's parts by kind of parameter; and the logits.

    Args:
        apply, images, labels: as for `jacobian`.
        outputs: readings of the logits, which share one compiled backward pass.
        shape: (M, M), which is the default, or (R, S, S) for R groups that share their first
            images (see `cells.contributions`).
    """
    shape = shape or (len(images), len(images))
    empty = {kind: jnp.zeros(shape, images.dtype) for kind in PARAMETER_SETS["all"]}
    logits, pullback = jax.vjp(lambda grams: apply(images, grams), empty)
    seeds = [readout(output, logits, labels) for output in outputs]
    together = jnp.concatenate(seeds)
    if len(together) == 1:
        return [pullback(together[0])[0]], logits
    parts = lax.map(lambda seed: pullback(seed)[0], together)
    ends = list(itertools.accumulate(map(len, seeds), initial=0))
    grams = [
        jax.tree.map(lambda part, a=a, b=b: jnp.sum(part[a:b], 0), parts)
        for a, b in itertools.pairwise(ends)
    ]
    return grams, logits


def gather(grams: Mapping[str, Any], parameters: str) -> Any:
    """The kernel over a set of parameters, from its parts by kind."""
    first, *others = (grams[kind] for kind in PARAMETER_SETS[parameters])
    return sum(others, first)


def jacobian(
    apply: Callable[[Images, Mapping[str, Gram]], Logits],
    images: Images,
    labels: Int[Array, "m"],
    output: Output = "sum",
    parameters: Parameters = "all",
) -> Gram:
    """The kernel by one backward pass (one for each class with the output `trace`).

    Args:
        apply: logits of images; its second argument is the mapping whose pullback collects the
            layers' contributions (see `cells.layers`).
        images: the m points.
        labels: their classes.
        output: which reading of the logits (`readout`).
        parameters: which of the parameters (`PARAMETER_SETS`).
    """
    (grams,), _ = gram_by_kind(apply, images, labels, (output,))
    return gather(grams, parameters)


def split_parameters(params: Any, parameters: Parameters) -> tuple[Any, Any]:
    """The parameters that the set holds and the others, as two trees with None for what is absent.

    A leaf's kind is read from its name: `kernel`, `scale`, `shift` or `bias`.
    """

    def held(path: tuple, leaf: Array) -> bool:
        return KIND_OF_LEAF[path[-1].key] in PARAMETER_SETS[parameters]

    inside = jax.tree_util.tree_map_with_path(lambda p, x: x if held(p, x) else None, params)
    outside = jax.tree_util.tree_map_with_path(lambda p, x: None if held(p, x) else x, params)
    return inside, outside


def join_parameters(inside: Any, outside: Any) -> Any:
    """The inverse of `split_parameters`."""
    return jax.tree.map(
        lambda a, b: b if a is None else a, inside, outside, is_leaf=lambda leaf: leaf is None
    )


def ntvp(
    apply: Callable[[Any, Images], Logits],
    params: Any,
    images: Images,
    labels: Int[Array, "m"],
    output: Output = "sum",
    parameters: Parameters = "all",
    chunk: int = 8,
) -> Gram:
    """The kernel column by column: K e_j = J (Jᵀ e_j), several columns at a time.

    Args:
        apply: logits from (params, images); anything that JAX can differentiate both ways.
        params: nested dictionaries with leaves named `kernel`, `scale`, `shift` or `bias`.
        images, labels, output, parameters: as for `jacobian`.
        chunk: columns computed at once; memory grows with it.
    """
    held, others = split_parameters(params, parameters)
    function = lambda held: apply(join_parameters(held, others), images)  # noqa: E731
    logits, push = jax.linearize(function, held)
    pull = jax.linear_transpose(push, held)
    seeds = readout(output, logits, labels)

    def column(seed: Logits, j: Int[Array, ""]) -> Float[Array, "m"]:
        cotangent = seed * (jnp.arange(len(seed)) == j)[:, None].astype(seed.dtype)
        tangents = push(pull(cotangent)[0])
        return jnp.sum(tangents * seed, 1)

    points = jnp.arange(len(images))
    columns = [lax.map(lambda j, s=s: column(s, j), points, batch_size=chunk) for s in seeds]
    return sum(columns[1:], columns[0]).T
