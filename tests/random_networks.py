"""Networks drawn at random: lists of small operations, written as users write them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

WIDTH, POINTS = 4, 3
Step = Callable[[dict[str, Any], jax.Array], jax.Array]


class Network(NamedTuple):
    """A network, by the names of its operations.

    Attributes:
        names: of the operations on features (m, WIDTH), or on images (m, 4, 4, WIDTH) before them.
        apply: logits of (params, points).
        params: drawn in float64.
        points: POINTS of them.
        held: names of leaves that are no parameters.
    """

    names: tuple[str, ...]
    apply: Callable[[Any, jax.Array], jax.Array]
    params: dict[str, Any]
    points: jax.Array
    held: frozenset[str]


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


def _conv(h, kernel, **options):
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(h, kernel, (1, 1), "SAME", dimension_numbers=names, **options)


def _scan(p, h):
    step = lambda c, x: (jnp.tanh(c @ p["w"] + x[:, None] * p["v"]), None)  # noqa: E731
    return lax.scan(step, jnp.zeros_like(h), h.T)[0]


def _attention(p, h):
    tokens = h[..., None] * p["v"]
    scores = jax.nn.softmax(jnp.einsum("mtc,msc->mts", tokens @ p["w"], tokens))
    return jnp.einsum("mts,msc->mtc", scores, tokens)[..., 0]


def _normalised(h):
    return (h - h.mean(-1, keepdims=True)) * lax.rsqrt(h.var(-1, keepdims=True) + 1e-3)


VECTORS: dict[str, Step] = {
    "dense": lambda p, h: h @ p["w"] + p["v"],
    "scale": lambda p, h: h * p["v"],
    "divided": lambda p, h: h / (2 + jnp.square(p["v"])),
    "relu": lambda p, h: jax.nn.relu(h),
    "rectified": lambda p, h: h * (h > 0) + jnp.maximum(h, p["v"] * h),
    "gelu": lambda p, h: jax.nn.gelu(h @ p["w"]),
    "residual": lambda p, h: h + jnp.tanh(h @ p["w"]),
    "layer norm": lambda p, h: _normalised(h) * p["v"] + p["v2"],
    "running": lambda p, h: (h - p["mean"]) * lax.rsqrt(p["var"] + 1e-5) * p["v"],
    "variance": lambda p, h: h / jnp.sqrt(jnp.exp(p["v"]) + 1e-3),
    "temperature": lambda p, h: h @ p["w"] / jnp.sqrt(jnp.square(p["v"][0]) + 0.1),
    "middle of a sum": lambda p, h: h * jnp.cumsum(p["w"], 0)[1] + jnp.cumsum(h, 1)[:, 1:2],
    "reversed": lambda p, h: lax.cumsum(h, 1, reverse=True)[:, 2:3] * p["v"],
    "window": lambda p, h: lax.reduce_window(
        jnp.pad(h[:, 1:2] * p["v"][0], ((0, 0), (2, 2))), 0.0, lax.add, (1, 2), (1, 1), "VALID"
    ),
    "concatenated": lambda p, h: jnp.concatenate([h[:, :2] * p["v"][:2], jnp.sin(h[:, 2:])], 1),
    "taken": lambda p, h: h[:, jnp.array([2, 0, 3, 1])] * p["w"][0] + p["w"][:, 1],
    "row of the weights": lambda p, h: h + p["w"][jnp.argmax(h, 1)],
    "twice": lambda p, h: jnp.tanh(h @ p["w"]) @ p["w"].T,
    "weight norm": lambda p, h: h @ (p["w"] / jnp.linalg.norm(p["w"], axis=0) * p["v"]),
    "of a matrix": lambda p, h: h @ jnp.linalg.solve(2 * jnp.eye(WIDTH) + 0.1 * p["w"], p["w2"]),
    "recurrent": _scan,
    "attention": _attention,
    "spectrum": lambda p, h: jnp.abs(jnp.fft.rfft(h) @ p["w"][:3] + 0.1),
    "complex": lambda p, h: jnp.imag(jnp.fft.fft(h) @ (1j * p["w"])),
    "own derivative": lambda p, h: clipped(h @ p["w"]),
    "branch": lambda p, h: lax.cond(True, lambda h: h @ p["w"], lambda h: h, h),
    "remembered": lambda p, h: jax.checkpoint(lambda w, h: jnp.tanh(h @ w))(p["w"], h),
    "mapped": lambda p, h: jax.vmap(lambda x: jnp.sin(p["w"] @ x))(h),
    "outer": lambda p, h: (h[:, :, None] * p["w"]).sum(1),
    "steps": lambda p, h: lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ p["w"]), h),
    "held": lambda p, h: h @ lax.stop_gradient(p["w"]) + h @ p["w2"],
    "largest": lambda p, h: h + jnp.sort(h @ p["w"], 1)[:, -1:],
}
IMAGES: dict[str, Step] = {
    "convolution": lambda p, h: _conv(h, p["k"]) + p["v"],
    "grouped": lambda p, h: _conv(h, p["k"][:, :, :2], feature_group_count=2),
    "depthwise": lambda p, h: _conv(h, p["k"][:, :, :1], feature_group_count=WIDTH),
    "dilated": lambda p, h: _conv(h, p["k"], rhs_dilation=(2, 2)),
    "pixel norm": lambda p, h: _normalised(h) * p["pixels"],
    "image relu": lambda p, h: jax.nn.relu(h),
    "pooled": lambda p, h: lax.reduce_window(
        h, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    ),
    "one pixel of a pool": lambda p, h: (
        h + lax.reduce_window(h, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "VALID")[:, :1, 1:]
    ),
    "skip": lambda p, h: h + _conv(jnp.tanh(h), p["k"]),
    "transposed": lambda p, h: lax.conv_transpose(h, p["k"], (1, 1), "SAME"),
}
SHAPES: dict[str, tuple[int, ...]] = {
    "w": (WIDTH, WIDTH),
    "w2": (WIDTH, WIDTH),
    "v": (WIDTH,),
    "v2": (WIDTH,),
    "mean": (WIDTH,),
    "var": (WIDTH,),
    "k": (3, 3, WIDTH, WIDTH),
    "pixels": (4, 4, WIDTH),
}


def network(images: list[str], vectors: list[str], seed: int) -> Network:
    """The network of some operations, those on images first."""
    rng = np.random.default_rng(seed)
    names = (*images, *vectors)
    params: dict[str, Any] = {"head": jnp.asarray(rng.normal(size=(WIDTH, 3)))}
    for place, name in enumerate(names):
        params[str(place)] = {
            leaf: jnp.asarray(rng.uniform(0.5, 1.5, shape) if leaf == "var" else own)
            for leaf, shape in SHAPES.items()
            for own in [rng.normal(size=shape) / np.sqrt(shape[-1])]
            if leaf not in ("mean", "var") or name == "running"
        }

    def apply(params, points):
        h = points
        for place, name in enumerate(names):
            if place == len(images) and h.ndim == 4:
                h = h.mean((1, 2))
            h = (IMAGES | VECTORS)[name](params[str(place)], h)
        return (h.mean((1, 2)) if h.ndim == 4 else h) @ params["head"]

    shape = (POINTS, 4, 4, WIDTH) if images else (POINTS, WIDTH)
    points = jnp.asarray(rng.uniform(size=shape))
    return Network(names, apply, params, points, frozenset({"mean", "var"}))
