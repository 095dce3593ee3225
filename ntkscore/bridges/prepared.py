"""A PyTorch module as it is scored: a copy in evaluation mode, on the CPU, with statistics."""

import copy
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from torch.utils import _pytree as pytree  # type: ignore[import-not-found]

from ntkscore.errors import InputError


def prepared(module: torch.nn.Module, statistics: str) -> torch.nn.Module:
    """A copy of the module in evaluation mode; with "batch", normalisations measure the batch."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            "a torch.nn.Module",
            f"{module!r} of type {type(module).__name__}",
            "give an instance, such as from_torch(Net(), images)",
        )
    # These hold the module itself: as torch.compile returns it, and on several devices.
    wrappers = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    while hasattr(module, "_orig_mod") or isinstance(module, wrappers):
        module = module.module if isinstance(module, wrappers) else module._orig_mod
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise InputError(
                "modules in Python",
                f"one of torch.jit{_at(name)}",
                "give the module that torch.jit.script or torch.jit.trace was called with",
            )
    if any(torch.nn.parameter.is_lazy(tensor) for tensor in module.parameters()):
        raise InputError(
            "parameters that have a shape",
            "uninitialised ones of a lazy module",
            "call the module once",
        )
    own = _copied(module).eval().cpu()
    for part in own.modules():
        if isinstance(part, torch.nn.DataParallel):
            part.device_ids = []  # it then only calls the module that it holds
        if is_batch_norm(part):
            part.train(statistics == "batch")
            if part.momentum is None:  # a mean over all batches, whose number it would read
                part.momentum = 0.0
    return own


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    """A copy. What was computed from parameters is a constant there, until it is computed again."""
    memo = {}
    for part in module.modules():
        for tensor in pytree.tree_leaves({**vars(part), "_modules": None}):
            if isinstance(tensor, torch.Tensor) and not tensor.is_leaf:
                memo[id(tensor)] = tensor.detach().clone()
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:  # whatever an attribute raises
        raise InputError(
            "a module that can be copied",
            first_line(error),
            "delete what it keeps beside its parameters and buffers, or call it under "
            "torch.no_grad() before",
        ) from error


def is_batch_norm(part: torch.nn.Module) -> bool:
    return isinstance(part, torch.nn.modules.batchnorm._BatchNorm)


def is_coupled(module: torch.nn.Module) -> bool:
    """Tell whether a normalisation measures the batch: in training, or without own statistics."""
    return any(
        is_batch_norm(part) and (part.training or part.running_mean is None)
        for part in module.modules()
    )


def widened(module: torch.nn.Module) -> torch.nn.Module:
    """A copy in double precision, also of tensors that are neither parameters nor buffers."""
    wide = copy.deepcopy(module).double()
    for part in wide.modules():
        for tensor in pytree.tree_leaves(vars(part)):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                tensor.data = tensor.data.double()
    return wide


def calibrate(module: torch.nn.Module, points: torch.Tensor) -> None:
    """Give each batch normalisation the mean and the biased variance of its input, in place.

    One layer after the other, each on what the ones before it give for these points as one batch.
    """

    def measure(part: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        (x,) = args
        axes = [axis for axis in range(x.ndim) if axis != 1]
        if x.numel() == x.shape[1]:
            raise InputError(
                "several values for each channel",
                f"{tuple(x.shape)} at a batch normalisation",
                "give an example of more points",
            )
        variance, mean = torch.var_mean(x, axes, unbiased=False)
        part.running_mean.copy_(mean)
        part.running_var.copy_(variance)

    wide = widened(module)
    hooks = [
        part.register_forward_pre_hook(measure)
        for part in wide.modules()
        if is_batch_norm(part) and part.running_mean is not None
    ]
    if not hooks:
        return
    with torch.no_grad():
        wide(points.double() if points.is_floating_point() else points)
        for part, measured in zip(module.modules(), wide.modules(), strict=True):
            if is_batch_norm(part) and part.running_mean is not None:
                part.running_mean.copy_(measured.running_mean)
                part.running_var.copy_(measured.running_var)


def points_like(example: Any, channels_last: bool) -> tuple[torch.Tensor, bool]:
    """The example as the module takes it, and whether it holds values: they differ."""
    if isinstance(example, torch.Tensor):
        tensor = example.detach().cpu()
    else:
        has_values = hasattr(example, "__array__") or not hasattr(example, "shape")
        array = np.asarray(example) if has_values else np.zeros(example.shape, example.dtype)
        # NumPy has no name for some of PyTorch's dtypes.
        dtype = getattr(torch, array.dtype.name)
        tensor = torch.tensor(array.astype(float) if dtype.is_floating_point else array).to(dtype)
    if tensor.dtype in (torch.int8, torch.int16, torch.int32):
        tensor = tensor.long()  # PyTorch's whole numbers
    if channels_last and tensor.ndim == 4:
        tensor = tensor.permute(0, 3, 1, 2)
    return tensor, bool(tensor.numel() and (tensor != tensor.flatten()[0]).any())


def two_points(module: torch.nn.Module, points: torch.Tensor, has_values: bool) -> torch.Tensor:
    """Two points of the kind: random ones, in the range of the values where there are some.

    Whole numbers are those that are given, or without values small ones that embeddings know.
    """
    shape, rng = (2, *points.shape[1:]), torch.Generator().manual_seed(1)
    if points.is_floating_point():
        low, high = (points.min(), points.max()) if has_values else (0, 1)
        random = torch.rand(shape, generator=rng, dtype=torch.float64)
        return (low + (high - low) * random).to(points.dtype)
    if has_values:
        return torch.stack([points[0], points[-1]])
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    known = [part.num_embeddings for part in module.modules() if isinstance(part, embeddings)]
    return torch.randint(0, min([2, *known]), shape, generator=rng).to(points.dtype)


def _at(name: str) -> str:
    return f" at {name!r}" if name else ""


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
