"""A search space with nothing but what it must have: convolutional networks such as `8x3x5`."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import ntkscore

KERNELS = (1, 3, 5)


@dataclass(frozen=True, kw_only=True)
class Convolutional(ntkscore.Space):
    name = "convolutional"

    def parse(self, text):
        width, *kernels = map(int, str(text).split("x"))
        if not set(kernels) <= set(KERNELS):
            raise ntkscore.InputError(f"kernels of {KERNELS}", repr(text), "try 8x3x5")
        return width, *kernels

    def identity(self, architecture):
        return {"network": "x".join(map(str, architecture))}

    def architectures(self, which):
        return [(8, one, two) for one in KERNELS for two in KERNELS]

    def shape(self, architecture):
        return architecture

    def draw(self, shape, seed, dtype):
        width, *kernels = shape
        colours, classes = self.task.image_shape[-1], self.task.num_classes
        sizes = [(side, side, width if k else colours, width) for k, side in enumerate(kernels)]
        keys = jax.random.split(jax.random.key(seed), len(sizes) + 1)
        draw = jax.nn.initializers.he_normal()
        drawn = [
            draw(key, size, dtype)
            for key, size in zip(keys, [*sizes, (width, classes)], strict=True)
        ]
        return {"convs": drawn[:-1], "head": drawn[-1]}

    def model(self, shape, weights, code, images):
        def apply(weights, x):
            for kernel in weights["convs"]:
                numbers = ("NHWC", "HWIO", "NHWC")
                y = jax.lax.conv_general_dilated(
                    x, kernel, (1, 1), "SAME", dimension_numbers=numbers
                )
                x = jax.nn.relu(y)
            return jnp.mean(x, (1, 2)) @ weights["head"]

        return ntkscore.Model(apply, weights)
