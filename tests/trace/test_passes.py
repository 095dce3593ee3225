"""Traced passes of networks of every build against the plain Jacobian, point by point."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from networks import CLASSES, EXACT, M, error
from tiny import refuses

from ntkscore.grams import zero_grams
from ntkscore.kernels.ntk import ntk
from ntkscore.model import Model
from ntkscore.trace import product_kernels
from ntkscore.trace.parameters import PARAMETER_SETS, total
from ntkscore.trace.passes import TracedPasses, passes_of

Array = jax.Array
BFLOAT16 = 2e-2
"""Sums of numbers with 8 bits may be taken in another order: a few units in the last place."""

pytestmark = pytest.mark.usefixtures("double")


class Case(NamedTuple):
    """A network.

    Attributes:
        apply: logits of parameters and points.
        shapes: of the parameters, a pytree of tuples.
        point: the shape of a point.
        tolerance: of the kernel's relative error.
    """

    apply: Callable[[Any, Array], Array]
    shapes: Any
    point: tuple[int, ...]
    tolerance: float = EXACT


def draw(shapes: Any, seed: int = 0) -> Any:
    """Parameters of these shapes, none of them zero or one."""
    rng = np.random.default_rng(seed)
    is_shape = lambda each: isinstance(each, tuple) and all(isinstance(n, int) for n in each)  # noqa: E731
    normal = lambda shape: jnp.asarray(rng.normal(size=shape) / 2)  # noqa: E731
    return jax.tree.map(normal, shapes, is_leaf=is_shape)


def draw_points(case: Case) -> tuple[Array, Array]:
    """Points, and a cotangent of their logits."""
    rng = np.random.default_rng(1)
    points = jnp.asarray(rng.normal(size=(M, *case.point)))
    outputs = jax.eval_shape(case.apply, draw(case.shapes), points).shape
    return points, jnp.asarray(rng.normal(size=outputs))


# Networks. What they compute means nothing: each has one more way in which weights are used.


def head(x: Array) -> Array:
    """Logits that depend on every number of x, and not linearly."""
    x = jnp.tanh(x.reshape(len(x), -1))
    mix = np.random.default_rng(x.shape[1]).normal(size=(x.shape[1], CLASSES))
    return x @ jnp.asarray(mix, x.dtype)


def dense(w: Any, x: Array) -> Array:
    hidden = jax.nn.relu(x @ w["first"]["kernel"] + w["first"]["bias"])
    return hidden @ w["last"]["kernel"] + w["last"]["bias"]


DENSE = {"first": {"kernel": (6, 7), "bias": (7,)}, "last": {"kernel": (7, CLASSES), "bias": (3,)}}


def conv(
    sides: tuple[int, ...] = (3, 3),
    groups: int = 1,
    numbers: tuple[str, str, str] = ("NHWC", "HWIO", "NHWC"),
    point: tuple[int, ...] = (7, 6, 4),
    **options: Any,
) -> Case:
    """A convolution of a point of 4 channels by a kernel to 8, after a convolution of one pixel."""
    channels, width = 4, 8
    size = dict(zip("HW", sides, strict=False)) | {"I": channels // groups, "O": width}
    ones = dict.fromkeys("HW", 1) | {"I": channels, "O": channels}
    shape, first = (tuple(each[axis] for axis in numbers[1]) for each in (size, ones))
    options = {"window_strides": (1,) * len(sides), "padding": "SAME"} | options

    def apply(w: Any, x: Array) -> Array:
        y = lax.conv_general_dilated(
            x, w["first"], (1,) * len(sides), "VALID", dimension_numbers=numbers
        )
        return head(
            lax.conv_general_dilated(
                jnp.sin(y),
                w["kernel"],
                dimension_numbers=numbers,
                feature_group_count=groups,
                **options,
            )
        )

    return Case(apply, {"first": first, "kernel": shape}, point)


def transposed_conv(w: Any, x: Array) -> Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return head(lax.conv_transpose(x, w["kernel"], (2, 2), "SAME", dimension_numbers=numbers))


def pooled_with_overlap(w: Any, x: Array) -> Array:
    y = lax.conv_general_dilated(
        x, w["a"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return head(y)


def weights_left(w: Any, x: Array) -> Array:
    """Products whose weight is the left factor; (tokens, features) from both sides."""
    mixed = jnp.einsum("st,ntf->nsf", w["tokens"], jnp.sin(x))
    return head(jnp.einsum("dk,nsk->nsd", w["features"], mixed))


def batched_products(w: Any, x: Array) -> Array:
    """A weight for each head or expert."""
    y = jnp.einsum("nthf,hfd->nthd", x.reshape(len(x), 5, 2, 3), w["heads"])
    return head(jnp.einsum("hde,nthd->nhet", w["left"], jnp.sin(y)))


def tied(w: Any, x: Array) -> Array:
    """A leaf that is used at three places, once transposed."""
    x = jnp.tanh(x @ w["kernel"])
    x = jnp.tanh(x @ w["kernel"].T)
    return head(x @ w["kernel"])


def tied_elsewhere(w: Any, x: Array) -> Array:
    """A leaf that is a factor of a product, and added."""
    return head(jnp.tanh(x @ w["kernel"]) + w["kernel"][0]) + jnp.sum(w["kernel"] ** 2)


def standardised(w: Any, x: Array) -> Array:
    """Weight standardisation: what multiplies the point is a function of the leaf."""
    kernel = w["kernel"] - jnp.mean(w["kernel"], 0)
    kernel *= lax.rsqrt(jnp.var(kernel, 0) + 1e-4) * w["gain"]
    return head(x @ kernel)


def qkv(split: Callable[[Array], list[Array]]) -> Callable[[Any, Array], Array]:
    """Attention of which one leaf has all projections."""

    def apply(w: Any, x: Array) -> Array:
        q, k, v = (x @ part for part in split(w["kernel"]))
        weights = jax.nn.softmax(jnp.einsum("nsf,ntf->nst", q, k) / q.shape[-1] ** 0.5)
        return head(jnp.einsum("nst,ntf->nsf", weights, v) @ w["out"])

    return apply


def fused_activations(w: Any, x: Array) -> Array:
    """One product, of which the outcome is split."""
    q, k, v = jnp.split(x @ w["kernel"], 3, -1)
    return head(jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v @ w["out"])


def overlapping_parts(w: Any, x: Array) -> Array:
    """Two slices of a leaf that have entries in common."""
    return head(x @ w["kernel"][:, :5]) + head(x @ w["kernel"][:, 3:])


def slices_of_slices(w: Any, x: Array) -> Array:
    upper = w["kernel"][:, :6]
    return head(x @ upper[:, 3:]) + head(x @ w["kernel"][:, 2:5] * 2)


def strided_slices(w: Any, x: Array) -> Array:
    """Even columns and odd ones have limits in common, but no entry; a slice of them has some."""
    even = w["kernel"][:, ::2]
    return head(x @ even[:, :2]) + head(x @ even[:, 2:]) + head(x @ w["kernel"][:, 1::2])


def shared_slice(w: Any, x: Array) -> Array:
    """A part of a leaf that is used twice, beside one that is used once."""
    x = jnp.tanh(x @ w["kernel"][0])
    return head(jnp.tanh(x @ w["kernel"][0]) @ w["kernel"][1])


def layers_by_scan(reverse: bool, remat: bool = False) -> Callable[[Any, Array], Array]:
    def apply(w: Any, x: Array) -> Array:
        def layer(x: Array, own: Any) -> tuple[Array, Array]:
            x = jnp.tanh(x @ own["kernel"] + own["bias"])
            return x, jnp.sum(x, -1)

        step = jax.checkpoint(layer) if remat else layer
        x, seen = lax.scan(step, x, w["layers"], reverse=reverse)
        return head(x @ w["kernel"]) + seen.T @ jnp.arange(9.0).reshape(3, 3)

    return apply


def recurrent(length: int, reverse: bool = False) -> Case:
    """One weight at every step."""

    def apply(w: Any, x: Array) -> Array:
        def step(h: Array, x: Array) -> tuple[Array, None]:
            return jnp.tanh(h @ w["recurrent"]["kernel"] + x @ w["kernel"] + w["bias"]), None

        start = jnp.zeros((len(x), 4), x.dtype)
        return head(lax.scan(step, start, x.swapaxes(0, 1), reverse=reverse)[0])

    return Case(
        apply,
        {"recurrent": {"kernel": (4, 4)}, "kernel": (2, 4), "bias": (4,)},
        (length, 2),
    )


def loop_of_fixed_length(w: Any, x: Array) -> Array:
    return head(lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ w["kernel"]), x))


def remat(w: Any, x: Array) -> Array:
    block = jax.checkpoint(lambda x: jnp.tanh(x @ w["kernel"] + w["bias"]))
    return head(block(block(x)))


def embedded(w: Any, x: Array) -> Array:
    """Tokens are made of the point; a row of the table is taken at several places."""
    tokens = (jnp.abs(x) * 3).astype(jnp.int32) % 5
    return head(jnp.take(w["embedding"], tokens, axis=0) * x[..., None])


def scattered(w: Any, x: Array) -> Array:
    """A weight that is written into an array of the point, and one that is found by a max."""
    return head(x.at[:, 1].set(w["kernel"][0]) * jnp.max(w["kernel"]))


def layer_norm(w: Any, x: Array) -> Array:
    def norm(x: Array, own: Any) -> Array:
        mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) * lax.rsqrt(var + 1e-5) * own["scale"] + own["bias"]

    return head(norm(norm(x, w["one"]) @ w["kernel"], w["two"]))


def group_norm(w: Any, x: Array) -> Array:
    n, h, width, c = x.shape
    groups = x.reshape(n, h, width, 2, c // 2)
    mean = jnp.mean(groups, (1, 2, 4), keepdims=True)
    var = jnp.maximum(jnp.mean(groups**2, (1, 2, 4), keepdims=True) - mean**2, 0)
    x = ((groups - mean) / jnp.sqrt(var + 1e-5)).reshape(x.shape)
    return head(jax.nn.relu(x * w["scale"] + w["bias"]) @ w["kernel"])


def attention(w: Any, x: Array) -> Array:
    """A transformer's block with a class token and positions, and several heads."""
    token = jnp.broadcast_to(w["token"], (len(x), 1, x.shape[-1]))
    x = jnp.concatenate([token, x], 1) + w["positions"]
    q, k, v = (
        jnp.einsum("ntf,fhd->nhtd", x, w[name]["kernel"]) + w[name]["bias"][:, None]
        for name in ("q", "k", "v")
    )
    weights = jax.nn.softmax(jnp.einsum("nhsd,nhtd->nhst", q, k) / 3**0.5)
    x += jnp.einsum("nhst,nhtd,hdf->nsf", weights, v, w["out"])
    x += jax.nn.gelu(x @ w["up"]) @ w["down"]
    return x[:, 0] @ w["head"]


ATTENTION = {
    "token": (1, 1, 6),
    "positions": (1, 6, 6),
    **{name: {"kernel": (6, 2, 3), "bias": (2, 3)} for name in ("q", "k", "v")},
    "out": (2, 3, 6),
    "up": (6, 8),
    "down": (8, 6),
    "head": (6, CLASSES),
}


def half_precision(w: Any, x: Array) -> Array:
    """Products in bfloat16, of weights and points that are cast."""
    cast = partial(jnp.asarray, dtype=jnp.bfloat16)
    x = jnp.tanh(cast(x) @ cast(w["kernel"]) + cast(w["bias"]))
    return jnp.asarray(x @ cast(w["out"]), w["out"].dtype)


@jax.custom_vjp
def product_with_a_rule(x: Array, kernel: Array) -> Array:
    return jnp.sin(x @ kernel)


product_with_a_rule.defvjp(
    lambda x, kernel: (product_with_a_rule(x, kernel), (x, kernel)),
    lambda residuals, g: (
        (g * jnp.cos(residuals[0] @ residuals[1])) @ residuals[1].T,
        residuals[0].T @ (g * jnp.cos(residuals[0] @ residuals[1])),
    ),
)


@jax.custom_jvp
def scaled_with_a_rule(x: Array, scale: Array) -> Array:
    return jnp.tanh(x) * scale


@scaled_with_a_rule.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, scale), (dx, dscale) = primals, tangents
    slope = (1 - jnp.tanh(x) ** 2) * dx * scale + jnp.tanh(x) * dscale
    return scaled_with_a_rule(x, scale), slope


def with_rules(w: Any, x: Array) -> Array:
    x = product_with_a_rule(x, w["kernel"])
    return head(scaled_with_a_rule(x, w["scale"]))


def with_a_rule_and_no_leaf_in_it(w: Any, x: Array) -> Array:
    return head(product_with_a_rule(jax.nn.relu6(x @ w["kernel"]), jnp.eye(4)))


def times_constants(w: Any, x: Array) -> Array:
    x = jnp.tanh(x @ (0.3 * w["kernel"]) + w["bias"] / 3)
    x = jnp.tanh(x @ (-(w["square"] * 2) / 7))
    return head(x @ (2 / (3 + w["square"] ** 2)))


def times_a_fixed_array(w: Any, x: Array) -> Array:
    """A mask, as in a masked convolution: not one number for all entries."""
    return head(x @ (w["kernel"] * jnp.asarray(np.tri(6, 4))) + w["bias"])


def branches(w: Any, x: Array) -> Array:
    """A branch by the first point's own sign, with weights in both."""

    def one(x: Array) -> Array:
        ways = lambda x: jnp.sin(x @ w["a"]), lambda x: jnp.cos(x @ w["b"])
        return lax.cond(x[0] > 0, *ways, x)

    return head(jax.vmap(one)(x))


def branch_by_a_number(w: Any, x: Array) -> Array:
    ways = lambda x: jnp.sin(x @ w["a"]), lambda x: jnp.cos(x @ w["b"])
    return head(lax.switch(jnp.asarray(1, jnp.int32), ways, x))


def alone_and_unused(w: Any, x: Array) -> Array:
    """A leaf that nothing is done with, one that reaches no logit, and one without the point."""
    jnp.sum(x @ w["dead"])
    return head(x @ w["kernel"]) + jnp.sum(w["alone"]) * 0 + x[:, :1]


def threshold(w: Any, x: Array) -> Array:
    """A weight in a comparison, which has no gradient."""
    y = x @ w["kernel"]
    return jnp.where(y > w["least"], y, 0.1 * y) @ w["out"]


def bias_of_logits(w: Any, x: Array) -> Array:
    """Weights that are added to the logits, and to another weight."""
    return head(x @ w["kernel"]) + (w["bias"] + w["shift"] * w["bias"])


def low_rank(w: Any, x: Array) -> Array:
    """A product of two leaves, as in LoRA, beside a leaf."""
    return head(x @ (w["kernel"] + 0.5 * w["down"] @ w["up"]))


def hypernetwork(w: Any, x: Array) -> Array:
    """Weights that the point itself makes."""
    own = (x @ w["kernel"]).reshape(len(x), 6, 4)
    return head(jnp.einsum("nf,nfd->nd", x, own))


def weights_of_other_shapes(w: Any, x: Array) -> Array:
    """Leaves that are reshaped, moved, turned and broadcast."""
    kernel = jnp.flip(w["kernel"].reshape(4, 6).T, 0)
    x = jnp.tanh(x @ kernel) + w["bias"][None]
    return head(x * jnp.broadcast_to(w["scale"], (4,))) * jnp.squeeze(w["number"])


def sorted_features(w: Any, x: Array) -> Array:
    return head(jnp.sort(x @ w["kernel"], -1) * jnp.cumsum(w["scale"]))


def conv_tied(w: Any, x: Array) -> Array:
    """One kernel at two sizes of an image."""
    f = partial(
        lax.conv_general_dilated,
        window_strides=(2, 2),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return head(f(jnp.tanh(f(x, w["kernel"])), w["kernel"]))


def conv_tied_otherwise(w: Any, x: Array) -> Array:
    """One kernel by two strides and dilations."""
    f = partial(lax.conv_general_dilated, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    a = f(x, w["kernel"], (1, 1), "SAME")
    return head(a) + head(f(jnp.sin(a), w["kernel"], (2, 1), [(0, 1), (2, 0)], rhs_dilation=(1, 2)))


SPLITS = {
    "slices": lambda a: [a[:, 6 * k : 6 * k + 6] for k in range(3)],
    "split": lambda a: jnp.split(a, 3, 1),
    "uneven": lambda a: [a[:, :6], *jnp.split(a[:, 6:], 2, 1)],
    "reshaped": lambda a: list(jnp.moveaxis(a.reshape(6, 3, 6), 1, 0)),
}
NCHW = ("NCHW", "OIHW", "NCHW")
QKV = {"kernel": (6, 18), "out": (6, 4)}
KERNEL = {"kernel": (6, 4)}
SQUARE = {"kernel": (4, 4)}
LAYERS = {"layers": {"kernel": (3, 4, 4), "bias": (3, 4)}, "kernel": (4, 4)}

CASES: dict[str, Case] = {
    "dense": Case(dense, DENSE, (6,)),
    "dense of tokens": Case(lambda w, x: head(dense(w, x)), DENSE, (5, 6)),
    "conv": conv(),
    "conv of stride 2": conv(window_strides=(2, 2)),
    "conv of strides 1 and 2": conv(window_strides=(1, 2)),
    "conv of strides 2 and 1": conv(window_strides=(2, 1)),
    "conv without padding": conv(padding="VALID"),
    "conv with more on one side": conv(padding=[(0, 3), (2, 1)], window_strides=(2, 1)),
    "conv with less than none": conv(padding=[(-1, 0), (1, -2)]),
    "conv dilated": conv(rhs_dilation=(2, 1), padding=[(2, 1), (0, 1)]),
    "conv dilated of stride 2": conv(rhs_dilation=(2, 3), window_strides=(2, 2)),
    "conv of an even side": conv((2, 4)),
    "conv of patches": conv((2, 2), window_strides=(2, 2), padding="VALID"),
    "conv in groups": conv(groups=2),
    "conv in groups of stride 2": conv(groups=2, window_strides=(2, 2), padding="VALID"),
    "conv depthwise": conv(groups=4, window_strides=(1, 2)),
    "conv after gaps": conv(lhs_dilation=(2, 3), padding=[(1, 1), (2, 0)]),
    "conv after gaps in groups": conv(
        groups=2, lhs_dilation=(2, 1), rhs_dilation=(1, 2), padding=[(2, 2), (1, 3)]
    ),
    "conv of one axis": conv((3,), numbers=("NHC", "HIO", "NHC"), point=(9, 4)),
    "conv of one axis in groups": conv((4,), 2, ("NCH", "OIH", "NCH"), (4, 9), padding=[(0, 3)]),
    "conv NCHW": conv(numbers=NCHW, point=(4, 7, 6), window_strides=(2, 1)),
    "conv NCHW in groups": conv(groups=2, numbers=NCHW, point=(4, 7, 6)),
    "conv into NCHW": conv(numbers=("NHWC", "OIHW", "NHWC"), window_strides=(1, 2)),
    "conv transposed": Case(transposed_conv, {"kernel": (3, 3, 4, 5)}, (4, 3, 4)),
    "conv tied": Case(conv_tied, {"kernel": (3, 3, 2, 2)}, (8, 8, 2)),
    "conv tied, otherwise": Case(conv_tied_otherwise, {"kernel": (3, 3, 2, 2)}, (6, 6, 2)),
    "pooling with overlap": Case(pooled_with_overlap, {"a": (3, 3, 2, 3)}, (5, 5, 2)),
    "weights left": Case(weights_left, {"tokens": (3, 5), "features": (4, 6)}, (5, 6)),
    "batched products": Case(batched_products, {"heads": (2, 3, 4), "left": (2, 4, 3)}, (5, 6)),
    "tied": Case(tied, KERNEL, (6,)),
    "tied of tokens": Case(tied, KERNEL, (3, 6)),
    "tied elsewhere": Case(tied_elsewhere, KERNEL, (6,)),
    "weight standardisation": Case(standardised, {"kernel": (6, 4), "gain": (4,)}, (6,)),
    **{f"qkv {name}": Case(qkv(split), QKV, (5, 6)) for name, split in SPLITS.items()},
    "qkv by one product": Case(fused_activations, QKV, (5, 6)),
    "overlapping parts": Case(overlapping_parts, {"kernel": (6, 8)}, (6,)),
    "slices of slices": Case(slices_of_slices, {"kernel": (6, 8)}, (6,)),
    "strided slices": Case(strided_slices, {"kernel": (6, 8)}, (6,)),
    "shared slice": Case(shared_slice, {"kernel": (2, 4, 4)}, (4,)),
    "scan over layers": Case(layers_by_scan(False), LAYERS, (4,)),
    "scan in reverse": Case(layers_by_scan(True), LAYERS, (4,)),
    "scan with remat": Case(layers_by_scan(False, remat=True), LAYERS, (4,)),
    "recurrence": recurrent(5),
    "recurrence in reverse": recurrent(5, reverse=True),
    "long recurrence": recurrent(80),
    "loop of fixed length": Case(loop_of_fixed_length, SQUARE, (4,)),
    "remat": Case(remat, {"kernel": (4, 4), "bias": (4,)}, (4,)),
    "embedding": Case(embedded, {"embedding": (5, 4)}, (6,)),
    "scatter": Case(scattered, SQUARE, (3, 4)),
    "layer norm": Case(
        layer_norm,
        {
            "one": {"scale": (6,), "bias": (6,)},
            "kernel": (6, 4),
            "two": {"scale": (4,), "bias": (4,)},
        },
        (3, 6),
    ),
    "group norm": Case(group_norm, {"scale": (4,), "bias": (4,), "kernel": (4, 3)}, (3, 2, 4)),
    "attention": Case(attention, ATTENTION, (5, 6)),
    "bfloat16": Case(
        half_precision, {"kernel": (6, 4), "bias": (4,), "out": (4, 3)}, (6,), BFLOAT16
    ),
    "custom rules": Case(with_rules, {"kernel": (6, 4), "scale": (4,)}, (6,)),
    "custom rule without a leaf": Case(with_a_rule_and_no_leaf_in_it, KERNEL, (6,)),
    "times constants": Case(
        times_constants, {"kernel": (6, 4), "bias": (4,), "square": (4, 4)}, (6,)
    ),
    "times a fixed array": Case(times_a_fixed_array, {"kernel": (6, 4), "bias": (4,)}, (6,)),
    "branches": Case(branches, {"a": (6, 4), "b": (6, 4)}, (6,)),
    "branch by a number": Case(branch_by_a_number, {"a": (6, 4), "b": (6, 4)}, (6,)),
    "unused leaves": Case(
        alone_and_unused, {"kernel": (6, 4), "dead": (6, 2), "alone": (3,), "unused": (2,)}, (6,)
    ),
    "threshold": Case(threshold, {"kernel": (6, 4), "least": (4,), "out": (4, 3)}, (6,)),
    "bias of logits": Case(bias_of_logits, {"kernel": (6, 4), "bias": (3,), "shift": (3,)}, (6,)),
    "low rank": Case(low_rank, {"kernel": (6, 4), "down": (6, 2), "up": (2, 4)}, (6,)),
    "hypernetwork": Case(hypernetwork, {"kernel": (6, 24)}, (6,)),
    "other shapes": Case(
        weights_of_other_shapes,
        {"kernel": (2, 12), "bias": (4,), "scale": (1,), "number": (1, 1)},
        (6,),
    ),
    "sorted features": Case(sorted_features, {"kernel": (6, 4), "scale": (4,)}, (6,)),
}


QUICK = ("dense", "conv of stride 2", "qkv slices", "tied", "scan over layers", "custom rules")
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]


def plain(case: Case, params: Any, points: Array, cotangent: Array) -> tuple[Array, list[Array]]:
    """Each point's gradient in the points, and in every leaf, from the whole Jacobians."""

    def one(params: Any, x: Array) -> Array:
        return case.apply(params, x[None])[0]

    def pulled(jacobian: Array) -> Array:
        return jnp.einsum("mo,mo...->m...", cotangent, jacobian)

    of_leaves, of_point = jax.vmap(jax.jacrev(one, (0, 1)), (None, 0))(params, points)
    return pulled(of_point), [pulled(each) for each in jax.tree.leaves(of_leaves)]


def gram(rows: list[Array]) -> Array:
    flat = [row.reshape(len(row), -1) for row in rows]
    return sum((row @ row.T for row in flat), jnp.zeros((M, M)))


class Found(NamedTuple):
    """What passes say of a network at some points."""

    logits: Array
    gradient: Array
    gram: Array
    squares: Array
    apart: Array
    flow: Array


@lru_cache
def found(name: str) -> tuple[Found, Found]:
    """What traced passes say, and what the whole Jacobians say, by one program."""
    case = CASES[name]
    model = Model(case.apply, draw(case.shapes))

    @jax.jit
    def compute(params: Any, points: Array, cotangent: Array) -> tuple[Found, Found]:
        passes = passes_of(model, points)
        assert isinstance(passes, TracedPasses)
        logits, residuals = passes.forward(params, points)
        start = zero_grams(PARAMETER_SETS["all"], points, 1)
        gradient, by_kind = passes.gram_by_kind(params, [residuals], cotangent, start)
        layers = passes.layers(params, residuals, cotangent, seen)
        squares, apart, flow = jnp.sum(layers[0], 0), jnp.max(layers[1]), jnp.sum(layers[2])
        got = Found(logits, gradient, total(by_kind, "all")[0], squares, apart, flow)

        slopes, rows = plain(case, params, points, cotangent)
        leaves = jax.tree.leaves(params)
        weights = [k for k, kind in enumerate(passes.kinds) if kind == "weight"]
        squares = sum(jnp.sum(jnp.square(rows[k].reshape(M, -1)), 1) for k in weights)
        flow = sum(jnp.sum(leaves[k] * jnp.mean(rows[k], 0)) for k in weights)
        zero = jnp.zeros(())
        return got, Found(case.apply(params, points), slopes, gram(rows), squares, zero, flow)

    return compute(model.params, *draw_points(case))


def seen(layer: Any) -> tuple[Array, Array, Array]:
    """Of a layer, or a part of one: numbers of which the sums are those of all weights."""
    rows = layer.gradients.reshape(M, -1)
    flow = jnp.sum(layer.kernel * jnp.mean(layer.gradients, 0))
    # Of a leaf that is used in several ways there are all gradients, those of other parts zero.
    first = rows[:, 0 if layer.products else layer.offset]
    return jnp.sum(jnp.square(rows), 1), jnp.max(jnp.abs(layer.first - first)), flow


@pytest.mark.parametrize("name", NAMES)
def test_passes_are_those_of_the_plain_jacobian(name: str) -> None:
    got, expected = found(name)
    tolerance = CASES[name].tolerance
    assert error(got.logits, expected.logits) < tolerance
    assert error(got.gradient, expected.gradient) < tolerance
    assert float(jnp.linalg.norm(expected.gram)) > 1e-3
    assert error(got.gram, expected.gram) < tolerance


@pytest.mark.parametrize("name", NAMES)
def test_each_layers_gradients_are_those_of_the_plain_jacobian(name: str) -> None:
    got, expected = found(name)
    tolerance = CASES[name].tolerance
    assert error(got.squares, expected.squares) < tolerance
    assert float(got.apart) < tolerance
    assert error(got.flow, expected.flow) < max(1e-9, tolerance)


IN_PIECES = ("conv of strides 1 and 2", "conv of strides 2 and 1", "conv in groups", "conv tied")


@pytest.mark.parametrize("chunk, columns", [(500, 10**6), (10**6, 5), (2000, 5)])
@pytest.mark.parametrize("name", [*IN_PIECES, "conv tied, otherwise", "dense of tokens"])
def test_gradients_in_pieces_have_the_kernel_of_all(
    name: str, chunk: int, columns: int, monkeypatch
) -> None:
    """A few features or columns at a time, the last piece filled up; no product by positions."""
    monkeypatch.setattr(product_kernels, "CPU_CHUNK_BYTES", chunk)
    monkeypatch.setattr(product_kernels, "CPU_COLUMNS", columns)
    monkeypatch.setattr(product_kernels, "cheaper_by_positions", lambda *of: False)
    case = CASES[name]
    passes = passes_of(Model(case.apply, params := draw(case.shapes)), draw_points(case)[0])
    points, cotangent = draw_points(case)
    _, residuals = jax.jit(passes.forward)(params, points)

    def kernel(residuals: Any) -> Array:
        start = zero_grams(PARAMETER_SETS["all"], points, 1)
        _, by_kind = passes.gram_by_kind(params, [residuals], cotangent, start)
        return total(by_kind, "all")[0]

    product_kernels.gram.clear_cache()
    traced = jax.jit(kernel).trace(residuals)
    product_kernels.gram.clear_cache()
    assert "while" in str(traced.jaxpr) or "scan" in str(traced.jaxpr)
    got = traced.lower().compile()(residuals)
    assert error(got, found(name)[1].gram) < EXACT


def test_sets_of_points_have_the_kernel_of_all() -> None:
    """A forward pass over each set; groups of them have the first set in common."""
    case = CASES["attention"]
    params, (points, cotangent) = draw(case.shapes), draw_points(case)
    passes = passes_of(Model(case.apply, params), points)
    sets = [points, points + 0.1, points * 0.9, points - 0.2, jnp.sin(points)]
    together, every = jnp.concatenate(sets), jnp.tile(cotangent, (5, 1))

    @jax.jit
    def compute(params: Any) -> tuple[Array, list[Array]]:
        _, residuals = zip(*(passes.forward(params, each) for each in sets), strict=True)
        start = zero_grams(PARAMETER_SETS["all"], together, 2)
        _, by_kind = passes.gram_by_kind(params, residuals, every, start)
        return total(by_kind, "all"), plain(case, params, together, every)[1]

    grams, rows = compute(params)
    flat = [row.reshape(len(row), -1) for row in rows]
    whole = sum(row @ row.T for row in flat)
    for group, got in enumerate(grams):
        members = np.r_[0:M, M + 2 * M * group : M + 2 * M * (group + 1)]
        assert error(got, whole[np.ix_(members, members)]) < EXACT


def test_parts_by_kind_follow_what_is_done_with_a_leaf_and_else_its_name() -> None:
    def apply(w: Any, x: Array) -> Array:
        x = (x @ w[0]) * w[1] + w[2]
        return head(jnp.take(w[3], jnp.argmax(x, -1), axis=0) + x - w[4])

    params = draw([(6, 4), (4,), (4,), (4, 4), (4,)])
    unnamed = passes_of(Model(apply, params), jnp.ones((1, 6)))
    assert isinstance(unnamed, TracedPasses)
    assert unnamed.kinds == ["weight", "scale", "shift", "weight", "shift"]
    names = ("bias", "kernel", "scale", "shift", "weight")
    named = dict(zip(names, params, strict=True))
    ordered = Model(lambda w, x: apply([w[name] for name in names], x), named)
    passes = passes_of(ordered, jnp.ones((1, 6)))
    assert isinstance(passes, TracedPasses)
    # As `jax.tree.leaves` has them; what rows are taken of tells nothing.
    assert passes.kinds == ["weight", "scale", "shift", "shift", "shift"]


def test_a_constant_of_one_entry_is_a_number() -> None:
    """As the deviation of a normalisation of one channel is, which multiplies the scale."""

    def apply(w: Any, x: Array) -> Array:
        return jnp.tanh(x @ w[0] * (jnp.array([3.0]) * w[1])) @ w[2]

    params, x = (
        draw([(6, 1), (1,), (1, 4)]),
        jnp.asarray(np.random.default_rng(0).uniform(size=(3, 6))),
    )
    x = x.astype(params[0].dtype)
    rows = jax.vmap(jax.grad(lambda w, x: jnp.sum(apply(w, x[None]))), (None, 0))(params, x)
    flat = jnp.concatenate([row.reshape(3, -1) for row in rows], 1)
    assert error(ntk(Model(apply, params), x), flat @ flat.T) < 1e-5


def test_a_trace_at_one_point_serves_any_number() -> None:
    case = CASES["scan over layers"]
    params, (points, cotangent) = draw(case.shapes), draw_points(case)
    passes = passes_of(Model(case.apply, params), points[:1])
    logits, residuals = passes.forward(params, points)
    assert error(logits, case.apply(params, points)) < EXACT
    expected = jax.grad(lambda x: jnp.sum(case.apply(params, x) * cotangent))(points)
    assert error(passes.gradient(params, residuals, cotangent), expected) < EXACT


@pytest.mark.parametrize(
    ("apply", "params", "expected", "remedy"),
    [
        (lambda w, x: x[:, :2], {}, "weights", "Model(apply, params)"),
        (lambda w, x: jnp.broadcast_to(w, (len(x), 3)), jnp.ones(3), "images", "apply"),
    ],
)
def test_networks_without_weights_or_points_are_refused(
    apply: Any, params: Any, expected: str, remedy: str
) -> None:
    with refuses(expected=expected, remedy=remedy):
        passes_of(Model(apply, params), jnp.ones((1, 3)))


def test_a_networks_own_passes_come_first_and_coupled_points_have_two() -> None:
    own: Any = passes_of(Model(lambda w, x: x @ w, jnp.ones((3, 2))), jnp.ones((1, 3)))
    assert passes_of(Model(lambda w, x: x, (), passes=own), jnp.ones((1, 3))) is own
    case = CASES["layer norm"]
    params, (points, cotangent) = draw(case.shapes), draw_points(case)
    apply = lambda w, x: case.apply(w, x - jnp.mean(x, 0))  # noqa: E731
    whole = passes_of(Model(apply, params, coupled=True), points)
    logits, residuals = whole.forward(params, points)
    expected, pullback = jax.vjp(lambda x: apply(params, x), points)
    assert error(logits, expected) < EXACT
    assert error(whole.gradient(params, residuals, cotangent), pullback(cotangent)[0]) < EXACT
