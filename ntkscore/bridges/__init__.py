"""Networks of other libraries as a `Model`.

A PyTorch module runs in JAX through torchax, which knows what each of PyTorch's operations is
there. Both are imported when a module comes, not before.
"""

import importlib.util
from typing import Any, Literal

import jax
from jaxtyping import Array, PyTree

from ntkscore.errors import InputError, check_choice
from ntkscore.model import Model


def from_torch(
    module: Any,
    example: Any,
    *,
    channels_last: bool = True,
    statistics: Literal["own", "example", "batch"] = "own",
    check: bool = True,
) -> Model:
    """A PyTorch module as a model, at the weights that it has now.

    The module is copied and stays as it is. The copy is in evaluation mode: dropout is off.
    Buffers, and parameters that require no gradient, are constants. A parameter that several layers
    share is one leaf. Leaves keep their names and dtypes: `params["conv"]["weight"]`.

    Logits, their gradient in the points and that in each parameter are compared with PyTorch's, and
    a module is refused where they differ.

    Args:
        module: a `torch.nn.Module` that takes one tensor and returns logits (m, o).
        example: points as they will be scored, an array or a tensor. Only its shape and dtype
            count, except with `statistics="example"`.
        channels_last: whether points with four axes are images (m, height, width, channels), as
            everywhere here, which the module is given as (m, channels, height, width). All other
            points, and with False these too, it is given as they are.
        statistics: which mean and variance batch normalisations use: "own", their running ones,
            which of a fresh module are 0 and 1; "example", those of the example as one batch, with
            the biased variance, measured layer after layer; "batch", those of each batch at hand,
            which makes the model `coupled`.
        check: whether to compare with PyTorch, which takes one forward and one backward pass of two
            points in double precision in either library.

    Returns:
        The model. Its params are a dict of dicts: PyTorch's names, split at their dots.

    Raises:
        InputError: if PyTorch or torchax is not installed, this is no such module, or it has an
            operation that torchax does not know.

    Example:
        >>> import jax.numpy as jnp
        >>> from torch import nn
        >>> linear = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
        >>> model = from_torch(linear, jnp.zeros((1, 2, 2, 3)))  # an image, channels last
        >>> model.params["1"]["weight"].shape
        (4, 12)
        >>> model.apply(model.params, jnp.zeros((5, 2, 2, 3))).shape
        (5, 4)
    """
    torch = _libraries()
    # Whatever is set in PyTorch counts neither for the copy nor for its gradients, and is kept.
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.random.fork_rng(devices=[]),
        torch.device("cpu"),
    ):
        return _model(module, example, channels_last, statistics, check)


def _model(module: Any, example: Any, channels_last: bool, statistics: str, check: bool) -> Model:
    from ntkscore.bridges import check as checks
    from ntkscore.bridges import environment, prepared, refusals

    check_choice(statistics, ("own", "example", "batch"), "statistics")
    own = prepared.prepared(module, statistics)
    points, has_values = prepared.points_like(example, channels_last)
    if statistics == "example":
        if not has_values:
            raise InputError(
                'points with values for statistics="example"',
                "equal numbers or none",
                "give such as images[:16]",
            )
        prepared.calibrate(own, points)
    function, params = environment.function_of(own)

    def apply(params: PyTree, points: Array) -> Array:
        if channels_last and points.ndim == 4:
            points = points.transpose(0, 3, 1, 2)
        return refusals.logits(function(params, points), len(points))

    shape = tuple(example.shape) if hasattr(example, "shape") else tuple(points.shape)
    dtype = jax.dtypes.canonicalize_dtype(environment.dtype_of(points.dtype))
    try:
        jax.eval_shape(apply, params, jax.ShapeDtypeStruct(shape, dtype))
    except InputError:
        raise
    except Exception as error:  # whatever the module, torchax or JAX raises
        raise refusals.of_points(error, own, points, shape, channels_last) from error
    if check:
        checks.check(own, prepared.two_points(own, points, has_values))
    # The copy does not change, so that its trace is kept.
    return Model(jax.jit(apply), params, coupled=prepared.is_coupled(own))


def _libraries() -> Any:
    """PyTorch, where torchax is there too."""
    try:
        import torch  # type: ignore[import-not-found]

        if importlib.util.find_spec("torchax") is None:
            raise ModuleNotFoundError(name="torchax")
        import ntkscore.bridges.environment  # noqa: F401
    except ImportError as error:
        raise InputError(
            "PyTorch and torchax", f"no {error.name or error}", "run pip install 'ntkscore[torch]'"
        ) from None
    return torch
