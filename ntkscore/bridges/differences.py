"""The first operation of a module that is another in torchax than in PyTorch."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import torch  # type: ignore[import-not-found]
from torch.utils import _pytree as pytree  # type: ignore[import-not-found]

from ntkscore.bridges.environment import Environment, function_of, is_ours, to_array
from ntkscore.bridges.refusals import place


class _Differs(Exception):
    """An operation differs from PyTorch's."""


class _Comparing(Environment):
    """Computes each operation, and its gradient in its arguments, in PyTorch too."""

    comparing = False

    def dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = self.with_leaves((args, kwargs or {}))
        leaves, tree = pytree.tree_flatten((args, kwargs))
        at = [i for i, leaf in enumerate(leaves) if is_ours(leaf)]
        if self.comparing or not at:
            return super().dispatch(func, types, args, kwargs)
        arrays = [leaves[i].jax() for i in at]
        out = super().dispatch(func, types, args, kwargs)  # compares what it consists of

        def in_jax(*arrays: Any) -> list[Any]:
            given = dict(zip(at, map(self.j2t_iso, arrays), strict=True))
            put = [given.get(i, leaf) for i, leaf in enumerate(leaves)]
            args, kwargs = pytree.tree_unflatten(put, tree)
            out = super(_Comparing, self).dispatch(func, types, args, kwargs)
            return [leaf.jax() for leaf in pytree.tree_leaves(out) if is_ours(leaf)]

        self.comparing = True
        try:
            given = dict(zip(at, arrays, strict=True))
            with ThreadPoolExecutor(1) as thread:  # where nothing takes operations to JAX
                expected = thread.submit(_in_torch, func, leaves, tree, given).result()
            got = _with_gradients(in_jax, arrays)
        except Exception:  # an operation that one of them does not run alone
            return out
        finally:
            self.comparing = False
        for ours, theirs in zip(got, expected, strict=False):
            if not np.allclose(ours, theirs, rtol=1e-5, atol=1e-9, equal_nan=True):
                raise _Differs
        return out


def _floating(array: Any) -> bool:
    return jax.numpy.issubdtype(array.dtype, jax.numpy.floating)


def _with_gradients(function: Any, arrays: list[Any]) -> list[Any]:
    """Outputs, and the gradient of the sum of their cosines in each array of numbers."""
    of = [i for i, array in enumerate(arrays) if _floating(array)]

    def read(*some: Any) -> tuple[Any, list[Any]]:
        given = dict(zip(of, some, strict=True))
        outs = function(*[given.get(i, array) for i, array in enumerate(arrays)])
        return sum(jax.numpy.cos(out).sum() for out in outs if _floating(out)), outs

    gradients, outs = jax.grad(read, list(range(len(of))), has_aux=True)(*[arrays[i] for i in of])
    return [*outs, *gradients]


def _in_torch(func: Any, leaves: list[Any], tree: Any, arrays: dict[int, Any]) -> list[Any]:
    given = {i: torch.tensor(np.asarray(array)) for i, array in arrays.items()}
    of = [t.requires_grad_() for t in given.values() if t.is_floating_point()]
    put = [given[i].clone() if i in given else leaf for i, leaf in enumerate(leaves)]
    args, kwargs = pytree.tree_unflatten(put, tree)
    out = func(*args, **kwargs)
    outs = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
    read = sum(out.cos().sum() for out in outs if out.is_floating_point())
    gradients = torch.autograd.grad(read, of, materialize_grads=True)
    return [tensor.detach().numpy() for tensor in (*outs, *gradients)]


def differing(module: Any, points: Any) -> str:
    """The first operation that differs and the module that calls it, if one is found."""
    with jax.enable_x64(True):
        apply, params = function_of(module)
        try:
            apply(params, to_array(points, False), _Comparing)
        except _Differs as error:
            return place(error)
        except Exception:  # without compilation, something else may fail
            return ""
    return ""
