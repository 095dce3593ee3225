"""Networks of other libraries as a `Model`.

A PyTorch module runs in JAX through torchax, which knows what each of PyTorch's operations is
there. Both are imported when a module comes, not before.
"""

import copy
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, PyTree

from ntkscore.errors import InputError
from ntkscore.model import Model


def from_torch(
    module: Any, example: Any, *, channels_last: bool = True, training: bool = False
) -> Model:
    """A PyTorch module as a model, at the weights that it has now.

    The module is copied and stays as it is. The copy is in evaluation mode: dropout is off, and
    normalisations use their running statistics, which of a fresh module are mean 0 and variance 1.
    Buffers, and parameters that require no gradient, are constants. A parameter that several layers
    share is one leaf. Leaves keep their names and dtypes: `params["conv"]["weight"]`.

    Args:
        module: a `torch.nn.Module` that takes one tensor and returns logits (m, o).
        example: points as they will be scored, an array or a tensor of any values; only its shape
            and dtype count.
        channels_last: whether points with four axes are images (m, height, width, channels), as
            everywhere here, which the module is given as (m, channels, height, width). All other
            points, and with False these too, it is given as they are.
        training: whether batch normalisations use the statistics of the batch at hand, which makes
            the model `coupled`. Dropout stays off.

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
    torch, torchax = _libraries()
    own = _prepared(torch, module, training)
    tensors = dict(own.named_parameters())
    trained = {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}
    if not trained:
        raise InputError(
            "expected a module with parameters that require a gradient, got none; run "
            "module.requires_grad_(True) for all of them"
        )
    fixed = {**tensors, **dict(own.named_buffers()), **_attributes(torch, own)}
    constants = {
        name: _array(torchax, name, tensor) for name, tensor in fixed.items() if name not in trained
    }
    leaves = {name: _array(torchax, name, tensor) for name, tensor in trained.items()}
    params = unflatten_dict(leaves, sep=".")
    environment = torchax.default_env()

    def apply(params: PyTree, points: Array) -> Array:
        states = {**constants, **flatten_dict(params, sep=".")}
        if channels_last and points.ndim == 4:
            points = points.transpose(0, 3, 1, 2)
        # PyTorch promotes dtypes, and so do torchax's operations, whatever the user set for JAX.
        # Tensors that `forward` makes itself are JAX's too.
        with jax.numpy_dtype_promotion("standard"), environment, torch.device("jax"):
            given = environment.j2t_iso((states, points))
            out = torch.func.functional_call(own, *given)
        return _logits(torch, environment, out, len(points))

    _check(torchax, apply, params, _like(torch, torchax, example), channels_last)
    return Model(apply, params, coupled=_is_coupled(torch, own))


def _libraries() -> tuple[ModuleType, ModuleType]:
    """PyTorch and torchax."""
    try:
        import torch  # type: ignore[import-not-found]
        import torchax  # type: ignore[import-not-found]
    except ImportError as error:
        raise InputError(
            f"expected PyTorch and torchax, got no {error.name or error}; run "
            "pip install 'ntkscore[torch]'"
        ) from None
    return torch, torchax


def _prepared(torch: Any, module: Any, training: bool) -> Any:
    """A copy of the module in the mode that is asked for."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"expected a torch.nn.Module, got {module!r} of type {type(module).__name__}; give an "
            "instance, such as from_torch(Net(), images)"
        )
    # What torch.compile returns holds the module itself.
    module = getattr(module, "_orig_mod", module)
    if any(torch.nn.parameter.is_lazy(tensor) for tensor in module.parameters()):
        raise InputError(
            "expected parameters that have a shape, got uninitialised ones of a lazy module; call "
            "the module once"
        )
    try:
        own = copy.deepcopy(module).eval()
    except RuntimeError as error:
        raise InputError(
            f"expected a module that can be copied, got {_first_line(error)}; weights that are "
            "computed on the way, as by torch.nn.utils.weight_norm, are named in "
            "torch.nn.utils.parametrizations"
        ) from error
    for part in own.modules():
        if _is_batch_norm(torch, part):
            part.train(training)
    return own


def _is_batch_norm(torch: Any, part: Any) -> bool:
    return isinstance(part, torch.nn.modules.batchnorm._BatchNorm)


def _is_coupled(torch: Any, module: Any) -> bool:
    """Tell whether a normalisation measures the batch: in training, or without own statistics."""
    return any(
        _is_batch_norm(torch, part) and (part.training or part.running_mean is None)
        for part in module.modules()
    )


def _attributes(torch: Any, module: Any) -> dict[str, Any]:
    """Tensors that are neither parameters nor buffers, by their names as if they were."""
    return {
        f"{path}.{name}" if path else name: value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def _array(torchax: Any, name: str, tensor: Any) -> Array:
    array = torchax.ops.mappings.t2j(tensor.detach(), use_dlpack=False)
    wanted = torchax.ops.mappings.t2j_dtype(tensor.dtype)
    if tensor.is_floating_point() and array.dtype != wanted:
        raise InputError(
            f"expected float64 to be on in JAX for {name} in {wanted}, got it off; run "
            "jax.config.update('jax_enable_x64', True), or give module.float()"
        )
    return array


def _logits(torch: Any, environment: Any, out: Any, count: int) -> Array:
    """The module's output as an array of logits."""
    got = f"a {type(out).__name__}"
    if isinstance(out, torch.Tensor):
        logits = environment.t2j_iso(out)
        if logits.ndim == 2 and len(logits) == count:
            return logits
        got = f"a tensor {logits.shape}"
    raise InputError(
        f"expected logits ({count}, classes) of {count} points from the module, got {got}; wrap it "
        "in a module whose forward returns them, such as self.module(x).logits"
    )


def _like(torch: Any, torchax: Any, example: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of points, as JAX has them."""
    if isinstance(example, torch.Tensor):
        dtype = torchax.ops.mappings.t2j_dtype(example.dtype)
    else:
        if not hasattr(example, "dtype"):
            example = np.asarray(example)
        dtype = example.dtype
    return jax.ShapeDtypeStruct(tuple(example.shape), jax.dtypes.canonicalize_dtype(dtype))


def _check(
    torchax: Any,
    apply: Callable[[PyTree, Array], Array],
    params: PyTree,
    points: jax.ShapeDtypeStruct,
    channels_last: bool,
) -> None:
    """Refuse a module that does not run in JAX on such points; nothing is computed."""
    try:
        jax.eval_shape(apply, params, points)
    except InputError:
        raise
    except torchax.tensor.OperatorNotFound as error:
        raise InputError(
            f"expected operations that torchax {torchax.__version__} knows, got another one: "
            f"{_first_line(error)}; write that part of the module with others, or in JAX"
        ) from error
    except (AssertionError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, AssertionError) and _raised_in(error, torchax.__name__):
            raise InputError(
                f"expected tensors that the module holds by name, got {_first_line(error)}; "
                "register what forward uses from lists or from outside the module as buffers"
            ) from error
        images = channels_last and len(points.shape) == 4
        n, *_ = shape = points.shape
        seen = (n, shape[3], *shape[1:3]) if images else shape
        advice = (
            "PyTorch's modules take the channels first, and images have them last here: give "
            "images as (m, height, width, channels), or channels_last=False"
            if images
            else "give points as the module takes them"
        )
        raise InputError(
            f"expected points that the module takes, got {shape} {points.dtype}, which it is given "
            f"as {seen}: {type(error).__name__}: {_first_line(error)}; {advice}"
        ) from error


def _raised_in(error: BaseException, package: str) -> bool:
    """Tell whether it was a line of this package that failed."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "").split(".")[0] == package


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
