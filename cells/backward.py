"""The way back through layers, from their forward computations, with visits of their weights.

A layer's gradients are visited while its backward pass runs, so that no layer's per-image gradients
outlive the layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from cells.layers import Norm, depthwise_gradients
from ntkscore.grams import kernel_gradients

Visited = list[PyTree]
"""A visitor's outputs at one layer, or at several layers along a new first axis."""


class Layer(NamedTuple):
    """A layer with weights in a backward pass; its gradients are a `ntkscore.model.LayerGradient`.

    Attributes:
        x: its input, (m, h, w, c); of a normalisation alone the standardised one.
        kernel: (k, k, c, d), which the layer multiplies by its gain; (k, k, 1, c) of a depthwise
            convolution, (1, 1, c, o) of a linear layer; None of a normalisation alone.
        norm: the normalisation behind the convolution.
        gain, stride, dilation: of the convolution.
        depthwise: whether each channel has a kernel of its own.
        biased: whether it is a linear layer, with a bias.
        g: the cotangent of the output.
    """

    x: Array
    kernel: Any = None
    norm: Norm | None = None
    gain: float = 1.0
    stride: int = 1
    dilation: int = 1
    depthwise: bool = False
    biased: bool = False
    g: Any = None

    @property
    def gradients(self) -> Float[Array, "m k k c d"]:
        """Each image's gradient of the weights."""
        g = self.g if self.norm is None else self.g * self.norm.factor
        x, g, size = self.x, self.gain * g, len(self.kernel)
        if self.depthwise:
            return depthwise_gradients(x, g, size, self.stride, self.dilation)
        gradients = kernel_gradients(x, g, (size, size), (self.stride,) * 2)
        return gradients.transpose(0, 1, 3, 2, 4)

    @property
    def first(self) -> Float[Array, " m"]:
        """Each image's gradient of the kernel's first weight alone."""
        norm = self.norm and Norm(*(leaf[..., :1] for leaf in self.norm))
        corner = {"x": self.x[..., :1], "kernel": self.kernel[..., :1, :1], "g": self.g[..., :1]}
        return self._replace(**corner, norm=norm).gradients[:, 0, 0, 0, 0]


class Tape:
    """Layers with weights in the order in which they are computed.

    Args:
        zeros: what is added to their outputs, whose cotangents then are those of the outputs.
    """

    def __init__(self, zeros: list[Array] | None = None) -> None:
        self.layers: list[Layer] = []
        self.outputs: list[Array] = []
        self._zeros = zeros

    def note(self, y: Array, layer: Layer) -> Array:
        """A layer's output."""
        place = len(self.layers)
        self.layers.append(layer)
        self.outputs.append(y)
        return y if self._zeros is None else y + self._zeros[place]


class Visitor:
    """What a backward pass does with each layer that has weights; this one does nothing."""

    def visit(self, layer: Layer) -> Visited:
        """Trees of arrays, as many and of the same shapes for all convolutions."""
        return []

    def collect(self, total: PyTree, visited: Visited) -> tuple[PyTree, Visited]:
        """Add a layer's outputs to the total; also return those to stack over the layers."""
        return total, visited


@dataclass
class Backward:
    """A backward pass through a network, last layer to first.

    Attributes:
        rules: of the layers (`cells.rules.Rules`).
        params, stored: as in the forward passes.
        visitor: visits each layer with weights.
        total: the visitor's sum over the layers so far.
        outputs: its other outputs so far, layers along the first axis of each.
    """

    rules: Any
    params: Any
    stored: Any
    visitor: Visitor = field(default_factory=Visitor)
    total: PyTree = ()
    outputs: Visited = field(default_factory=list)

    def layer(self, *path: str) -> tuple[Any, Any]:
        """Weights and statistics by their path."""
        weights, stored = self.params, self.stored
        for name in path:
            weights, stored = weights[name], stored[name]
        return weights, stored

    def pull(
        self, compute: Callable[..., Any], x: Array, g: Array, *layer: Any
    ) -> tuple[Array, Visited]:
        """The cotangent of x from that of an output, and the visitor's outputs, last layer first.

        Args:
            compute: the output, or it and more, of (rules, x, *layer).
            x: the input.
            g: the cotangent of the output.
            layer: weights and statistics.
        """
        tape, visited = Tape(), []

        def run(x: Array, zeros: list[Array] | None = None) -> tuple[Array, list[Array]]:
            nonlocal tape
            tape = Tape(zeros)
            y = compute(replace(self.rules, tape=tape), x, *layer)
            noted = tape.outputs if zeros is None else [each.x for each in tape.layers]
            return y[0] if isinstance(y, tuple) else y, noted

        if type(self.visitor) is Visitor:
            return jax.vjp(lambda x: run(x)[0], x)[1](g)[0], visited
        zeros = [jnp.zeros(y.shape, y.dtype) for y in jax.eval_shape(run, x)[1]]
        _, back, inputs = jax.vjp(run, x, zeros, has_aux=True)
        dx, cotangents = back(g)
        for each, x, g in reversed([*zip(tape.layers, inputs, cotangents, strict=True)]):
            visited += self.visitor.visit(each._replace(x=x, g=g))
        return dx, visited

    def collect(self, visited: Visited) -> None:
        """Take the visitor's outputs at a layer."""
        self.total, outputs = self.visitor.collect(self.total, visited)
        self.outputs += jax.tree.map(lambda leaf: leaf[None], outputs)

    def through(self, compute: Callable[..., Any], x: Array, g: Array, *layer: Any) -> Array:
        """`pull`, whose visitor's outputs are collected."""
        dx, visited = self.pull(compute, x, g, *layer)
        self.collect(visited)
        return dx

    def loop(
        self, step: Callable[["Backward", Any, Any], Any], carry: Any, layers: PyTree
    ) -> PyTree:
        """The carry after steps over layers, last first, of (the loop's pass, carry, layer)."""

        def body(both: tuple[Any, PyTree], layer: Any) -> tuple[tuple[Any, PyTree], Visited]:
            own = replace(self, total=both[1], outputs=[])
            carry = step(own, both[0], layer)
            return (carry, own.total), own.outputs

        (carry, self.total), outputs = lax.scan(body, (carry, self.total), layers, reverse=True)
        self.outputs += jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs)
        return carry


def filled(branches: Sequence[Callable[..., Any]], longest: int) -> list[Callable[..., Any]]:
    """Pullbacks whose visitor's outputs are as many as those of one of them, others zeros."""

    def fill(branch: Callable[..., Any]) -> Callable[..., Any]:
        def pull_filled(*given: Any) -> Any:
            dx, visited = branch(*given)
            _, most = jax.eval_shape(branches[longest], *given)
            return dx, visited + jax.tree.map(jnp.zeros_like, most[len(visited) :])

        return branch if branch is branches[longest] else pull_filled

    return [fill(branch) for branch in branches]
