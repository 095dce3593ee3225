"""A search space of one's own: networks with one hidden layer, such as `24xtanh`."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import ntkscore

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "softplus": jax.nn.softplus}
WIDTHS = (8, 16, 24, 32)


@dataclass(frozen=True, kw_only=True)
class OneHidden(ntkscore.Space):
    name = "one_hidden"

    scale: float = ntkscore.option(1.0, "Scale of the hidden layer's weights.")
    centred: bool = ntkscore.option(False, "Subtract one half from the pixels.")

    def parse(self, text):
        width, _, activation = str(text).partition("x")
        if not width.isdecimal() or int(width) not in WIDTHS or activation not in ACTIVATIONS:
            raise ntkscore.InputError("WIDTHxACTIVATION", repr(text), "try 24xtanh")
        return int(width), activation

    def identity(self, architecture):
        width, activation = architecture
        return {"network": f"{width}x{activation}", "width": width}

    def costs(self, architecture):
        inputs = int(np.prod(self.task.image_shape))
        return {"params": architecture[0] * (inputs + self.task.num_classes)}

    def architectures(self, which):
        return [(width, activation) for width in WIDTHS for activation in ACTIVATIONS]

    def encode(self, architecture):
        width, activation = architecture
        return np.arange(32) < width, np.int32(list(ACTIVATIONS).index(activation))

    def draw(self, shape, seed, dtype):
        keys = jax.random.split(jax.random.key(seed))
        inputs = int(np.prod(self.task.image_shape))
        hidden = jax.random.normal(keys[0], (inputs, 32), dtype) * self.scale / inputs**0.5
        return hidden, jax.random.normal(keys[1], (32, self.task.num_classes), dtype)

    def model(self, shape, variables, code, images):
        mask, activation = code

        def apply(params, points):
            x = points.reshape(len(points), -1) - 0.5 * self.centred
            features = jax.lax.switch(activation, list(ACTIVATIONS.values()), x @ params[0])
            return features * mask.astype(x.dtype) @ params[1]

        return ntkscore.Model(apply, variables)
