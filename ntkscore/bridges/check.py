"""The same module in PyTorch and in JAX: equal logits and gradients, or a refusal."""

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import jax
import numpy as np
import torch  # type: ignore[import-not-found]
from flax.traverse_util import flatten_dict
from jax.extend.core import Jaxpr, jaxpr_as_fun, jaxprs_in_params
from jaxtyping import Array, PyTree
from torch.utils import _pytree as pytree  # type: ignore[import-not-found]
from torch.utils._python_dispatch import TorchDispatchMode  # type: ignore[import-not-found]

from ntkscore.bridges.differences import differing
from ntkscore.bridges.environment import VERSION, function_of, to_array
from ntkscore.bridges.prepared import first_line, widened
from ntkscore.bridges.refusals import by_chance, refusal
from ntkscore.errors import InputError
from ntkscore.kernels.plain import QUICKLY
from ntkscore.trace.program import Program, value_of

LOGITS, POINTS, PARAMETER = "the logits", "the gradient in the points", "the gradient of "
TOLERANCES = {64: 1e-6, 32: 1e-4, 16: 3e-2}
"""Relative to the size of an array, by the fewest bits of the numbers that are computed with."""
Compute = Callable[[PyTree, Array], Array]
MOST = 2**27
"""Entries of dense kernels that a compiler may make."""


def check(own: torch.nn.Module, points: torch.Tensor) -> None:
    """Compare logits and their gradients in the points and in each parameter with PyTorch's.

    It is done once, at two points, in double precision, with random weights of the logits.
    """
    with _one_thread():
        module, points, (expected, weights, bits) = _expected(own, points)

    def wrong(compute: Compute) -> tuple[str, float] | None:
        got, narrowest = _in_jax(compute, params, points, weights)
        return _first_wrong(expected, got, TOLERANCES[min(bits, narrowest)])

    try:
        with jax.enable_x64(True):
            apply, params = function_of(module)
            whole = jax.make_jaxpr(apply)(params, to_array(points, False))
            # Of convolutions in groups XLA makes dense ones on a CPU, which memory may not hold.
            if _dense_entries(whole.jaxpr) > MOST:
                with suppress(Exception):  # such as of a batch of one point
                    if wrong(partial(of_each_point, apply)) is None:
                        return
            found = wrong(lambda p, x: jaxpr_as_fun(whole)(*jax.tree.leaves(p), x)[0])
    except Exception as error:  # whatever a rule for a gradient raises
        raise refusal(error) from error
    if found is None:
        return
    name, error = found
    advice = differing(module, points) or (
        "; its operations agree one by one, and what may differ is a gradient of its own "
        "(torch.autograd.Function, a hook), a change through a view or .data, or chance"
    )
    raise InputError(
        f"{name} as in PyTorch",
        f"it otherwise from torchax {VERSION}, by {error:.2g} of its size{advice}",
        "write that part of the module with other operations, or in JAX",
    )


def _first_wrong(
    expected: dict[str, np.ndarray], got: dict[str, np.ndarray], tolerance: float
) -> tuple[str, float] | None:
    """The name and the relative error of an array that is not as expected; None where all are."""
    norms = {name: np.linalg.norm(value) for name, value in expected.items()}
    of_all = max((n for name, n in norms.items() if name != LOGITS and np.isfinite(n)), default=0)
    for name, norm in norms.items():
        # A zero is rounded to what is small beside the rest.
        size = norm if name == LOGITS else max(norm, 1e-6 * of_all)
        error = np.linalg.norm(got[name] - expected[name]) / (size or 1)
        if np.isfinite(norm) and not error <= tolerance:
            return name, float(error)
    return None


def _dense_entries(jaxpr: Jaxpr) -> int:
    """Entries of the kernels that convolutions in groups have without groups."""
    total = 0
    for equation in jaxpr.eqns:
        if (groups := equation.params.get("feature_group_count", 1)) > 1:
            kernel: Any = equation.invars[1].aval
            total += groups * kernel.size
        total += sum(map(_dense_entries, jaxprs_in_params(equation.params)))
    return total


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch on one thread: on a busy machine, several wait for each other at each operation."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _expected(
    own: torch.nn.Module, points: torch.Tensor
) -> tuple[torch.nn.Module, torch.Tensor, tuple[dict[str, np.ndarray], torch.Tensor, int]]:
    """A module and points to compare, and what PyTorch has for them."""
    kinds = (widened, torch.Tensor.double), (copy.deepcopy, torch.clone)  # some insist on a dtype
    failed = Exception()
    for kind, of_points in kinds:
        rng = torch.Generator().manual_seed(0)
        module = _varied(kind(own), rng)
        given = of_points(points) if points.is_floating_point() else points
        try:
            return module, given, _in_torch(module, given, rng)
        except InputError:
            raise
        except Exception as error:  # whatever the module raises
            failed = error
    raise InputError(
        "a module that PyTorch differentiates at two random points like the example",
        f"{type(failed).__name__}: {first_line(failed)}",
        "give an example with values that differ, or check=False",
    ) from failed


def _varied(module: torch.nn.Module, rng: torch.Generator) -> torch.nn.Module:
    """The module with random numbers for equal ones, such as zeros, which hide what is behind."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point() and bool((tensor == tensor.flatten()[:1]).all()):
            tensor.data += 0.1 * torch.rand(tensor.shape, generator=rng, dtype=torch.float64)
    return module


def _in_torch(
    module: torch.nn.Module, points: torch.Tensor, rng: torch.Generator
) -> tuple[dict[str, np.ndarray], torch.Tensor, int]:
    """PyTorch's logits, gradients of their sum with weights, these, and the fewest bits."""
    # It may keep tensors. Its parameters are not copied: they may be large.
    module = copy.deepcopy(module, {id(tensor): tensor for tensor in module.parameters()})
    inputs = {PARAMETER + name: p for name, p in module.named_parameters() if p.requires_grad}
    if points.is_floating_point():
        inputs[POINTS] = points = points.clone().requires_grad_()
    state = torch.get_rng_state()
    with _Bits() as mode:
        logits = module(points)
    if not torch.equal(state, torch.get_rng_state()):
        raise by_chance("")
    weights = torch.randn(logits.shape, generator=rng, dtype=torch.float64).to(logits.dtype)
    reading, of = (weights * logits).sum(), list(inputs.values())
    gradients = (
        torch.autograd.grad(reading, of, materialize_grads=True)
        if reading.requires_grad
        else map(torch.zeros_like, of)
    )
    tensors = {LOGITS: logits.detach(), **dict(zip(inputs, gradients, strict=True))}
    return (
        {name: tensor.double().numpy() for name, tensor in tensors.items()},
        weights,
        mode.bits,
    )


class _Bits(TorchDispatchMode):
    """The fewest bits of a number that operations give."""

    bits = 64

    def __torch_dispatch__(
        self, func: Callable[..., PyTree], types: object, args: PyTree = (), kwargs: PyTree = None
    ) -> PyTree:
        out = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.ndim:
                self.bits = min(self.bits, 8 * tensor.dtype.itemsize)
        return out


def of_each_point(apply: Callable[..., Array], params: PyTree, points: Array) -> Array:
    """Logits of each point by itself, as the kernel computes them (`ntkscore.trace`)."""
    program = Program(apply, params, jax.ShapeDtypeStruct(points.shape[1:], points.dtype))
    derived = program.derive(jax.tree.leaves(params))
    return jax.vmap(lambda point: value_of(program.run(derived, point), program.logits))(points)


def _in_jax(
    compute: Compute, params: PyTree, points: torch.Tensor, weights: torch.Tensor
) -> tuple[dict[str, np.ndarray], int]:
    """The same from torchax, and the fewest bits of its numbers."""
    array, weights = to_array(points, False), to_array(weights, False)
    whole = not points.is_floating_point()

    def gradients(params: PyTree, array: Array, weights: Array) -> tuple[PyTree, ...]:
        of_points = () if whole else (array,)
        logits, pull = jax.vjp(lambda p, *x: compute(p, *(x or (array,))), params, *of_points)
        return logits, *pull(weights.astype(logits.dtype))  # others may be promoted

    lowered = jax.jit(gradients).lower(params, array, weights)
    logits, of_params, *of_points = lowered.compile(QUICKLY)(params, array, weights)
    named = {PARAMETER + name: leaf for name, leaf in flatten_dict(of_params, sep=".").items()}
    named |= dict(zip([POINTS], of_points, strict=False)) | {LOGITS: logits}
    bits = min(map(int, re.findall(r"x[b]?f(\d+)>", lowered.as_text())))
    return {name: np.asarray(leaf, np.float64) for name, leaf in named.items()}, bits
