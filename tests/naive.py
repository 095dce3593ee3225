"""The oracle: kernels from whole Jacobians, written out as the definition reads.

It holds the gradient of every image in every parameter, for any apply-function, in the precision
of what it is given, and shares no code with `ntkscore.kernels`.
"""

from functools import partial

import jax
import jax.numpy as jnp

OUTPUTS = ("sum", "trace", "label", "loss")
LEAVES = {
    "all": ("kernel", "scale", "shift", "bias"),
    "weights": ("kernel", "scale"),
    "conv_linear": ("kernel",),
}


def readings(logits, labels):
    """What is differentiated, by output: arrays (image, reading), whose kernels are summed."""
    chosen = labels[:, None]
    return {
        "sum": logits.sum(1, keepdims=True),
        "trace": logits / logits.shape[1] ** 0.5,
        "label": jnp.take_along_axis(logits, chosen, 1),
        "loss": -jnp.take_along_axis(jax.nn.log_softmax(logits), chosen, 1),
    }


def gram(jacobian, parameters):
    """The inner products of gradients (image, reading, *leaf), summed over readings and leaves."""
    total = 0.0
    for path, leaf in jax.tree_util.tree_leaves_with_path(jacobian):
        if path[-1].key in LEAVES[parameters]:
            rows = leaf.reshape(*leaf.shape[:2], -1)
            total += jnp.einsum("ikp,jkp->ij", rows, rows, precision="highest")
    return total


def kernels(apply, params, images, labels):
    """Every kernel of these images, by (output, parameter set); logits are apply(params, images).

    Where batch normalisation couples the images, the gradient of one image's logits is that
    through the whole batch.
    """
    jacobians = jax.jacrev(lambda params: readings(apply(params, images), labels))(params)
    return {(output, name): gram(jacobians[output], name) for output in OUTPUTS for name in LEAVES}


@partial(jax.jit, static_argnums=(0, 4, 5))
def kernel(apply, params, images, labels, output="sum", parameters="all"):
    """One of `kernels`."""
    read = lambda params: readings(apply(params, images), labels)[output]  # noqa: E731
    return gram(jax.jacrev(read)(params), parameters)
