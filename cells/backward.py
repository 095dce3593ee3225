"""The way back through layers, from their forward computations, with visits of their weights.

A layer's gradients are visited while its backward pass runs, so that no layer's per-image gradients
outlive the layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from cells.choice import Place, add_at, at, choose
from cells.layers import Layer
from cells.rules import Rules, Weights
from ntkscore.convolutions import kernel_gradients
from ntkscore.grams import Gram, GramByKind, groups_of, self_product

Visited = list[PyTree]
"""What is made of one layer, or of several layers along a new first axis."""
Pull = Callable[..., tuple[PyTree, Visited]]
"""The cotangent of an input, and what is made of the layers, last layer first."""
TINY = 1e-20
"""A scale whose square is negligible beside that of any other."""


@dataclass
class Backward:
    """A backward pass through a network, last layer to first.

    Attributes:
        rules, params, stored: as in the forward passes.
        visit: what is made of each layer with weights, trees as many and of the same shapes for all
            convolutions; if left out, no layer is visited.
        total: a tree to which these are added; if left out, they are `outputs`.
        outputs: those of the layers so far, along the first axis of each.
    """

    rules: Rules
    params: Weights
    stored: Weights
    visit: Callable[[Layer], Visited] | None = None
    total: PyTree = None
    outputs: Visited = field(default_factory=list)

    def layer(self, *path: str) -> tuple[PyTree, PyTree]:
        """Weights and statistics by their path."""
        weights, stored = self.params, self.stored
        for name in path:
            weights, stored = weights[name], stored[name]
        return weights, stored

    def pull(
        self, compute: Callable[..., PyTree], x: Array, g: Array, *layer: PyTree
    ) -> tuple[Array, Visited]:
        """The cotangent of x from that of an output, and what is made of the layers, last first.

        Args:
            compute: the output, or it and more, of (rules, x, *layer).
            x: the input.
            g: the cotangent of the output.
            layer: weights and statistics.
        """
        layers: list[Layer] = []

        def run(x: Array, zeros: Sequence[Array] = ()) -> tuple[Array, list[Array]]:
            layers.clear()

            def note(layer: Layer) -> Array:
                layers.append(layer)
                # What is added to an output has the output's cotangent.
                return layer.g + zeros[len(layers) - 1] if zeros else layer.g

            y = compute(replace(self.rules, note=note), x, *layer)
            noted = [each.x if zeros else each.g for each in layers]
            return y[0] if isinstance(y, tuple) else y, noted

        if self.visit is None:
            return jax.vjp(lambda x: run(x)[0], x)[1](g)[0], []
        zeros = [jnp.zeros(y.shape, y.dtype) for y in jax.eval_shape(run, x)[1]]
        _, back, inputs = jax.vjp(run, x, zeros, has_aux=True)
        dx, cotangents = back(g)
        visited = []
        for each, x, g in reversed([*zip(layers, inputs, cotangents, strict=True)]):
            visited += self.visit(each._replace(x=x, g=g))
        return dx, visited

    def collect(self, visited: Visited) -> None:
        """Take what was made of layers."""
        if self.total is None:
            self.outputs += jax.tree.map(lambda leaf: leaf[None], visited)
            return
        for each in visited:
            self.total = jax.tree.map(jnp.add, self.total, each)

    def through(self, compute: Callable[..., PyTree], x: Array, g: Array, *layer: PyTree) -> Array:
        """`pull`, whose layers' trees are collected."""
        dx, visited = self.pull(compute, x, g, *layer)
        self.collect(visited)
        return dx

    def loop(
        self, step: Callable[["Backward", PyTree, PyTree], PyTree], carry: PyTree, layers: PyTree
    ) -> PyTree:
        """The carry after steps over layers, last first, of (the loop's pass, carry, layer)."""

        def body(
            both: tuple[PyTree, PyTree], layer: PyTree
        ) -> tuple[tuple[PyTree, PyTree], Visited]:
            own = replace(self, total=both[1], outputs=[])
            carry = step(own, both[0], layer)
            return (carry, own.total), own.outputs

        (carry, self.total), outputs = lax.scan(body, (carry, self.total), layers, reverse=True)
        self.outputs += jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs)
        return carry


def pull_edges(
    back: Backward, branches: Sequence[Pull], cotangents: PyTree, first: Place | int, edges: PyTree
) -> PyTree:
    """The cotangents of a cell's nodes, with those that its edges pull from their targets added.

    Args:
        back: the backward pass.
        branches: the operations' pullbacks, functions of (place of the source among all nodes,
            cotangent of the output, *layer).
        cotangents: those of the cell's nodes; of several arrays the targets are in the last.
        first: the place of the cell's first node among all.
        edges: operations, sources, targets and layers, with an entry for each edge.
    """

    def pull_edge(back: Backward, cotangents: PyTree, edge: PyTree) -> PyTree:
        digit, source, target, *layer = edge
        *_, nodes = jax.tree.leaves(cotangents)
        dx, visited = choose(digit, branches, first + source, at(nodes, target), *layer)
        back.collect(visited)
        return jax.tree.map(lambda nodes, dx: add_at(nodes, source, dx), cotangents, dx)

    return back.loop(pull_edge, cotangents, edges)


def filled(branches: Sequence[Pull], longest: int) -> list[Pull]:
    """Pullbacks that make as much of layers as one of them does, the others of zeros."""

    def fill(branch: Pull) -> Pull:
        def pull_filled(*given: PyTree) -> tuple[PyTree, Visited]:
            dx, visited = branch(*given)
            _, most = jax.eval_shape(branches[longest], *given)
            return dx, visited + jax.tree.map(jnp.zeros_like, most[len(visited) :])

        return branch if branch is branches[longest] else pull_filled

    return [fill(branch) for branch in branches]


def grams_like(start: GramByKind) -> Callable[[Layer], Visited]:
    """A layer's contribution to the Gram matrix of per-image parameter gradients.

    For the cotangent s of a layer's outputs

        ⟨(∂f(x_i)/∂θ)ᵀ s_i, (∂f(x_j)/∂θ)ᵀ s_j⟩,   i, j = 1 … M,

    separately for the three kinds of parameters: `weight` (convolution and linear kernels), `scale`
    and `shift` (of the normalisation; the linear bias is a shift).

    Args:
        start: zeros of the matrices' shapes, by kind.
    """

    def products(**gradients: Array) -> dict[str, Gram]:
        zeros = {kind: jnp.zeros_like(gram) for kind, gram in start.items()}
        groups = groups_of(start)
        return zeros | {kind: self_product(rows, groups) for kind, rows in gradients.items()}

    def grams(layer: Layer) -> dict[str, Gram]:
        x, g, norm = layer.x, layer.g, layer.norm
        total = jnp.sum(g, (1, 2))
        if layer.kernel.ndim == 1:
            return products(scale=jnp.sum(g * x, (1, 2)), shift=total)
        if layer.biased:
            matrices = products(weight=x, shift=g)
            return matrices | {"weight": layer.gain**2 * matrices["weight"] * matrices["shift"]}
        if layer.depthwise:
            return products(weight=layer.gradients)
        factor = jnp.ones((), g.dtype) if norm is None else norm.factor
        # A scale of zero hides its channel; as a tiny one it still leaves its own gradient.
        visible = jnp.where(factor == 0, TINY, factor)
        sides = layer.kernel.shape[:2]
        gradients = kernel_gradients(x, g * (layer.gain * visible), sides, layer.window)
        if norm is None:
            return products(weight=gradients)
        # Σ g z over the pixels, from z = kernel ∗ x, without keeping or recomputing z.
        product = jnp.sum(gradients * layer.kernel.transpose(0, 2, 1, 3), (1, 2, 3)) / visible
        scale = (product - total * norm.mean) * norm.inverse
        return products(weight=gradients, scale=scale, shift=total)

    return lambda layer: [grams(layer)]
