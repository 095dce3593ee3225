"""Products of the point and a weight: matrix multiplications and convolutions.

A product is put as Y_p = X_p W with positions p (pixels, tokens, steps): the gradient of W is
Σ_p X_pᵀ G_p, G the cotangent of Y. One that is added here has a row in `ntkscore.trace.operations`.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ntkscore.convolutions import (
    Window,
    gradients_of_each_channel,
    kernel_gradients,
    kernel_operands,
    of_each_channel,
    shifts,
)
from ntkscore.grams import PRECISION
from ntkscore.trace.layouts import Layout, is_plain
from ntkscore.trace.program import Equation, Value


@dataclass(frozen=True)
class Product(ABC):
    """A site that is linear in one weight and in one value of the point.

    Products of the same shapes are equal, so that they share compiled programs.

    Attributes:
        batch, positions, before, after: numbers of independent products (b), of positions (p), and
            of features before (k) and after (d).
    """

    batch: int
    positions: int
    before: int
    after: int

    @property
    @abstractmethod
    def order(self) -> Hashable:
        """What decides the order of the entries of `rows`: only equal ones can be added."""

    @abstractmethod
    def inputs(self, x: Array) -> Float[Array, "b p k"]:
        """The features before the product at each position, from the value at a point."""

    @abstractmethod
    def outputs(self, g: Array) -> Float[Array, "b p d"]:
        """The features after it at each position, from the cotangent of the output at a point."""

    @abstractmethod
    def weight(self, gradient: Float[Array, "b k d"]) -> Array:
        """The gradient in the weight's shape, from that by features."""

    def operands(
        self, x: Float[Array, "m ..."], g: Float[Array, "m ..."]
    ) -> tuple[Float[Array, "m b p k"], Float[Array, "m b p d"]]:
        """Two arrays whose product over the positions holds each point's gradient.

        They are the fastest to compute, and may order features otherwise than `inputs` and
        `outputs`.

        Args:
            x: values at the points.
            g: cotangents of the output.
        """
        return jax.vmap(self.inputs)(x), jax.vmap(self.outputs)(g)

    def rows(self, x: Float[Array, "m ..."], g: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
        """Per-point gradients, their entries in an order that equal products share."""
        return jnp.einsum("mbpk,mbpd->mbkd", *self.operands(x, g), precision=PRECISION)

    def gradients(self, x: Float[Array, "m ..."], g: Float[Array, "m ..."]) -> Array:
        """Per-point gradients (m, *weight) from values and cotangents."""
        return jax.vmap(self.weight)(self.rows(x, g))


@dataclass(frozen=True)
class MatrixProduct(Product):
    """A matrix multiplication of which the point is the left factor, or the right one.

    Attributes:
        of_point, of_weight: axes that are multiplied one by one, free, and summed over.
        weight_shape: of the weight.
        left: whether the point is the left factor.
    """

    of_point: tuple[tuple[int, ...], ...]
    of_weight: tuple[tuple[int, ...], ...]
    weight_shape: tuple[int, ...]
    left: bool

    @classmethod
    def of(cls, equation: Equation, x: Value, w: Value) -> "MatrixProduct":
        """The product that an equation is, of the point's value x by a weight w."""
        dimensions, left = equation.options["dimension_numbers"], equation.inputs[0] == x
        (cx, cw), (bx, bw) = (pair if left else pair[::-1] for pair in dimensions)
        (fx, fw) = (
            tuple(axis for axis in range(len(each.shape)) if axis not in used)
            for each, used in ((x, {*cx, *bx}), (w, {*cw, *bw}))
        )
        b, p, k = (prod(x.shape[axis] for axis in axes) for axes in (bx, fx, cx))
        d = prod(w.shape[axis] for axis in fw)
        axes = tuple(map(tuple, (bx, fx, cx))), tuple(map(tuple, (bw, fw, cw)))
        return cls(b, p, k, d, *axes, w.shape, left)

    @property
    def order(self) -> Hashable:
        return self.of_weight

    def inputs(self, x: Array) -> Float[Array, "b p k"]:
        x = x.transpose(*(axis for axes in self.of_point for axis in axes))
        return x.reshape(self.batch, self.positions, self.before)

    def outputs(self, g: Array) -> Float[Array, "b p d"]:
        if self.left:
            return g.reshape(self.batch, self.positions, self.after)
        return g.reshape(self.batch, self.after, self.positions).swapaxes(1, 2)

    def weight(self, gradient: Float[Array, "b k d"]) -> Array:
        batch, free, contracted = self.of_weight
        order = (*batch, *contracted, *free)
        shape = [self.weight_shape[axis] for axis in order]
        return gradient.reshape(shape).transpose(np.argsort(order))


@dataclass(frozen=True)
class Convolution(Product):
    """A convolution of the point by a kernel: each of the kernel's places is a shift.

    Attributes:
        sides: of the kernel.
        images: how many a point has.
        layout: of the arrays, and how the kernel moves.
    """

    sides: tuple[int, ...]
    images: int
    layout: Layout

    @classmethod
    def of(cls, equation: Equation, x: Value, w: Value) -> "Convolution | None":
        """The convolution of the point's value x by a kernel w.

        None where the point is the kernel, or the batch is convolved in groups.
        """
        if equation.inputs[0] != x or not is_plain(equation.name, equation.options):
            return None
        layout, (out,) = Layout.of(equation.options), equation.outputs
        images, *pixels = (out.shape[axis] for axis in layout.output[:-1])
        *sides, channels, width = (w.shape[axis] for axis in layout.kernel)
        groups, positions = layout.window.groups, images * prod(pixels)
        sizes = groups, positions, channels * prod(sides), width // groups
        return cls(*sizes, tuple(sides), images, layout)

    @property
    def order(self) -> Hashable:
        sizes = self.batch, self.before, self.after
        return self.layout.kernel, self.sides, sizes, self.of_images, self.of_each_channel

    def inputs(self, x: Array) -> Float[Array, "b p k"]:
        shifted = shifts(x.transpose(self.layout.image), self.sides, self.layout.window)
        cuts = [each.reshape(self.positions, self.batch, -1) for each in shifted]
        stacked = jnp.stack(cuts, 2).swapaxes(0, 1)
        return stacked.reshape(self.batch, self.positions, self.before)

    def outputs(self, g: Array) -> Float[Array, "b p d"]:
        g = g.transpose(self.layout.output)
        return g.reshape(self.positions, self.batch, self.after).swapaxes(0, 1)

    def weight(self, gradient: Float[Array, "b k d"]) -> Array:
        gradient = gradient.reshape(self.batch, *self.sides, -1, self.after)
        gradient = jnp.moveaxis(gradient, 0, -2)
        gradient = gradient.reshape(*gradient.shape[:-2], self.batch * self.after)
        return gradient.transpose(np.argsort(self.layout.kernel))

    @property
    def of_images(self) -> bool:
        """Whether it is an ordinary one of two axes, which `kernel_operands` computes faster."""
        plain = {*self.layout.window.lhs_dilation} == {1}
        return plain and len(self.sides) == 2 and self.images == self.batch == 1

    @property
    def of_each_channel(self) -> bool:
        """Whether each channel of an image has a small kernel of its own."""
        inputs = self.before // prod(self.sides)
        kernel = *self.sides, inputs, self.after * self.batch
        return self.images == 1 and of_each_channel(kernel, self.batch)

    @property
    def _moves(self) -> tuple[tuple[int, ...], Window, bool]:
        """The kernel's sides and window, and whether images have their channels first."""
        return self.sides, self.layout.window, self.layout.image[-1] < self.layout.image[1]

    def _images(self, x: Float[Array, "m ..."], g: Float[Array, "m ..."]) -> tuple[Array, Array]:
        """Values and cotangents as images with the features last."""
        of_image = lambda axes: jax.vmap(lambda array: array.transpose(axes)[0])  # noqa: E731
        return of_image(self.layout.image)(x), of_image(self.layout.output)(g)

    def operands(
        self, x: Float[Array, "m ..."], g: Float[Array, "m ..."]
    ) -> tuple[Float[Array, "m b p k"], Float[Array, "m b p d"]]:
        if not self.of_images:
            return super().operands(x, g)
        one = lambda x, g: kernel_operands(x, g, *self._moves)  # noqa: E731
        left, right = jax.vmap(one)(*self._images(x, g))
        return left[:, None], right[:, None]

    def rows(self, x: Float[Array, "m ..."], g: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
        if self.of_each_channel:
            both = self._images(x, g)
            rows = gradients_of_each_channel(*both, self.sides, self.layout.window)
            return rows.swapaxes(1, 2)[..., None]
        if not self.of_images:
            return super().rows(x, g)
        return kernel_gradients(*self._images(x, g), *self._moves)

    def gradients(self, x: Float[Array, "m ..."], g: Float[Array, "m ..."]) -> Array:
        if not self.of_images:
            return super().gradients(x, g)
        rows = self.rows(x, g).transpose(0, 1, 3, 2, 4)
        return rows.transpose(0, *(1 + axis for axis in np.argsort(self.layout.kernel)))
