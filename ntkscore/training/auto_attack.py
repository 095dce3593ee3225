"""AutoAttack by its authors' PyTorch package, on networks in JAX."""

from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from ntkscore.data.images import as_pixels
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.run.devices import compiler_options
from ntkscore.trace.parameters import dtype_of_weights

RADIUS = 8
"""The benchmark's radius, in grey levels."""
FEWEST_CLASSES = 4
"""Fewest classes that the attack's targeted loss, the difference of logits ratio, needs."""
TARGETS = 9
BATCH = 250


def right_after_autoattack(
    model: Model,
    images: np.ndarray,
    labels: Int[np.ndarray, " n"],
    rho: float,
    seed: int = 0,
) -> Bool[np.ndarray, " n"]:
    """Mask of the images that are still classified correctly after the standard version.

    It runs APGD on the cross-entropy, targeted APGD, targeted FAB and Square with 5,000 queries,
    each on the images that the attacks before have not changed to another class.

    Args:
        model: logits of pixels in [0, 1], each image by itself.
        images: (N, height, width, colours), uint8 or pixels in [0, 1].
        labels: classes.
        rho: radius in the maximum norm, pixel scale [0, 1].
        seed: of random starts and squares.

    Raises:
        InputError: if PyTorch or the package is missing, or there are fewer than four classes.

    Source: Croce and Hein (2020), "Reliable evaluation of adversarial robustness with an ensemble
    of diverse parameter-free attacks".
    """
    torch, package, classes = check(model, images)
    network = in_pytorch(model)
    x = torch.from_numpy(np.ascontiguousarray(as_pixels(images).transpose(0, 3, 1, 2)))
    y = torch.from_numpy(np.asarray(labels, np.int64))
    attack = package.AutoAttack(network, eps=rho, seed=seed, verbose=False, device="cpu")
    for targeted in (attack.apgd_targeted, attack.fab):
        targeted.n_target_classes = min(TARGETS, classes - 1)
    attacked = attack.run_standard_evaluation(x, y, bs=BATCH)
    with torch.no_grad():
        classified = [network(part).argmax(1) for part in attacked.split(BATCH)]
    return (torch.cat(classified) == y).numpy()


def check(model: Model, images: np.ndarray) -> tuple[ModuleType, ModuleType, int]:
    """PyTorch, `autoattack`, and the number of the network's classes.

    Args:
        model, images: as for `right_after_autoattack`.

    Raises:
        InputError: if one of the packages is not installed, or the classes are too few.
    """
    try:
        import autoattack  # type: ignore[import-not-found]
        import torch  # type: ignore[import-not-found]
    except ImportError as error:
        raise InputError(
            "PyTorch and the authors' package for AutoAttack",
            f"no {error.name}",
            "run pip install torch git+https://github.com/fra31/auto-attack",
        ) from None
    one = jax.ShapeDtypeStruct((1, *images.shape[1:]), dtype_of_weights(model.params))
    classes = jax.eval_shape(model.apply, model.params, one).shape[1]
    if classes < FEWEST_CLASSES:
        raise InputError(
            f"at least {FEWEST_CLASSES} classes for AutoAttack, whose loss compares so many logits",
            classes,
            "leave it out",
        )
    return torch, autoattack, classes


def in_pytorch(model: Model) -> Any:
    """The network as a function of a PyTorch tensor (n, colours, height, width), with a gradient.

    Args:
        model: logits of pixels in [0, 1], each image by itself.
    """
    import torch  # type: ignore[import-not-found]

    dtype = dtype_of_weights(model.params)
    compiled = partial(jax.jit, compiler_options=compiler_options())
    logits = compiled(model.apply)

    @compiled
    def pull(params: Any, x: jax.Array, g: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: model.apply(params, x), x)[1](g)[0]

    def to_jax(tensor: Any) -> jax.Array:
        """The rows, padded with zeros to a power of two, so that few shapes are compiled."""
        rows = tensor.detach().numpy()
        filled = np.zeros((1 << (len(rows) - 1).bit_length(), *rows.shape[1:]), rows.dtype)
        filled[: len(rows)] = rows
        return jnp.asarray(filled, dtype)

    def to_torch(array: jax.Array, like: Any) -> Any:
        return torch.from_numpy(np.array(array[: len(like)])).to(like.dtype)

    class Logits(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            context.save_for_backward(x)
            return to_torch(logits(model.params, to_jax(x.permute(0, 2, 3, 1))), x)

        @staticmethod
        def backward(context: Any, g: Any) -> Any:
            (x,) = context.saved_tensors
            gradient = pull(model.params, to_jax(x.permute(0, 2, 3, 1)), to_jax(g))
            return to_torch(gradient, x).permute(0, 3, 1, 2)

    return Logits.apply
