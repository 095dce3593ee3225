"""What is said of a module that cannot be computed: the operation, its place and the way out."""

import traceback

import jax
import torch  # type: ignore[import-not-found]
from jaxtyping import Array

from ntkscore.bridges.environment import VERSION, ByChance, Environment
from ntkscore.bridges.prepared import first_line, widened
from ntkscore.errors import InputError


def refusal(error: Exception) -> InputError:
    """The error for a module that PyTorch computes at these points and torchax does not."""
    where = place(error)
    said = f"{type(error).__name__}: {first_line(error)}"
    if isinstance(error, ByChance):
        return by_chance(where)
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return InputError(
            "shapes that do not depend on values",
            f"those of a mask as an index{where}",
            "write torch.where(mask, x, y)",
        )
    values = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)
    if isinstance(error, values):
        return InputError(
            "a module that does the same at all weights and points",
            f"one that reads a value of a tensor to go on{where}",
            "write torch.where(condition, x, y) for a branch",
        )
    return InputError(
        f"operations that torchax {VERSION} knows, with their gradients",
        f"another one{where}: {said}",
        "write that part of the module with others, or in JAX",
    )


def by_chance(where: str) -> InputError:
    return InputError(
        "a module that draws nothing at random in evaluation mode",
        f"one that does{where}",
        "write dropout as F.dropout(x, p, self.training), and switch off all noise",
    )


def place(error: BaseException) -> str:
    """The operation and the module in which it was raised, as far as they are known."""
    root = module = operation = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        held = frame.f_locals.get("self")
        if isinstance(held, torch.nn.Module):
            root, module, operation = root or held, held, None
        elif isinstance(held, Environment) and frame.f_code.co_name == "dispatch":
            operation = operation or frame.f_locals["func"]
    name = operation and (torch.overrides.resolve_name(operation) or str(operation))
    parts = [f" in {name}"] if name else []
    if root is not None and module is not None:
        names = {id(part): name for name, part in root.named_modules()}
        at = names.get(id(module))
        parts.append(f", of the {type(module).__name__}" + (f" {at!r}" if at else ""))
    return "".join(parts)


def of_points(
    error: Exception,
    module: torch.nn.Module,
    points: torch.Tensor,
    shape: tuple[int, ...],
    channels_last: bool,
) -> InputError:
    """The error for a module that does not run in JAX at points: theirs, if PyTorch's does not."""
    if cause := failure(module, points):
        advice = "give points as the module takes them"
        if points.ndim == 4:
            size = " × ".join(map(str, shape[1:]))
            advice = (
                f"the network does not take {size} images: change its first or its linear layer, "
                "or choose another data set"
            )
        if channels_last and points.ndim == 4 and not failure(module, points.permute(0, 2, 3, 1)):
            advice = (
                "PyTorch's modules take the channels first, and images have them last here: give "
                "images as (m, height, width, channels), or channels_last=False"
            )
        dtype = str(points.dtype).removeprefix("torch.")
        return InputError(
            "points that the module takes",
            f"{shape} {dtype}, which it is given as {tuple(points.shape)}: "
            f"{type(cause).__name__}: {first_line(cause)}",
            advice,
        )
    return refusal(error)


def failure(module: torch.nn.Module, points: torch.Tensor) -> Exception | None:
    """What PyTorch raises for the module at points; None where it computes."""
    try:
        with torch.no_grad():
            widened(module)(points.double() if points.is_floating_point() else points)
    except Exception as cause:  # whatever the module raises
        return cause
    return None


def logits(out: object, count: int) -> Array:
    """The module's output, if it is logits."""
    got = f"a {type(out).__name__}"
    if isinstance(out, jax.Array):
        if out.ndim == 2 and len(out) == count:
            return out
        got = f"a tensor {out.shape}"
    raise InputError(
        f"logits ({count}, classes) of {count} points from the module",
        got,
        "wrap it in a module whose forward returns them, such as self.module(x).logits",
    )
