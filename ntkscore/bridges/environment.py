"""Where PyTorch's operations run in JAX: torchax, kept to itself, and mended.

Importing torchax gives PyTorch an accelerator of the name `jax`, which breaks what PyTorch does by
itself later on, such as pinning memory. Nothing here needs that name.
"""

import copy
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from unittest import mock

import jax
import jax.numpy as jnp
import torch  # type: ignore[import-not-found]
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.core import Tracer
from jaxtyping import Array, PyTree

from ntkscore.errors import InputError

with (
    mock.patch.object(torch.backends.mha, "_is_fastpath_enabled"),
    mock.patch.object(torch.utils, "rename_privateuse1_backend"),
    mock.patch.object(torch, "_register_device_module"),
):
    import torchax  # type: ignore[import-not-found]

from torch._decomp import decompositions  # type: ignore[import-not-found]
from torch.utils import _pytree as pytree  # type: ignore[import-not-found]
from torchax.ops import jaten, mappings  # type: ignore[import-not-found]
from torchax.ops.ops_registry import Operator  # type: ignore[import-not-found]
from torchax.tensor import OperatorNotFound, Tensor, XLAFunctionMode  # type: ignore[import-not-found]
from torchax.view import NarrowInfo, View  # type: ignore[import-not-found]

# PyTorch imports a module of the device's name where its own code makes a tensor there.
sys.modules.setdefault("torch.privateuseone", torchax.device_module)
DEVICE = torch.device("privateuseone", 0)
"""PyTorch's own name for the device that torchax calls `jax`."""

_ALONE = threading.RLock()
"""One trace at a time: each changes what PyTorch's modules hold, and puts it back."""

VERSION = torchax.__version__
to_array = mappings.t2j
dtype_of = mappings.t2j_dtype


Axes = Sequence[int] | None
Operation = Any
"""An overload of one of PyTorch's operations."""


class ByChance(Exception):
    """An operation draws at random."""


class JaxTensor(Tensor):
    """An array of JAX as a tensor; methods beside torchax's operations call these."""

    device = property(lambda self: DEVICE)

    def detach(self) -> Tensor:
        return self._env.j2t_iso(jax.lax.stop_gradient(self.jax()))

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, other: Tensor) -> None:
        self._elem = _unseen(self._elem, other.jax())

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> torch.Tensor:
        return torch.flatten(self, start_dim, end_dim)

    def type_as(self, other: torch.Tensor) -> torch.Tensor:
        return self.to(other.dtype)

    def __setitem__(self, key: object, value: object) -> None:
        before = self._elem
        super().__setitem__(*self._env.with_leaves((key, value), mixed=True))
        if not torch.is_grad_enabled():
            self._elem = _unseen(before, self._elem)


class JaxView(View):
    """A part of a tensor, which changes with it."""

    device = property(lambda self: DEVICE)
    dtype = property(lambda self: self.parent.dtype)
    detach = JaxTensor.detach

    def __setitem__(self, key: object, value: object) -> None:
        whole = self.torch()
        whole[key] = value
        self.update(whole)


class Environment(torchax.tensor.Environment):
    """PyTorch's operations in JAX.

    The leaves are arrays for tensors of PyTorch that a module may hold beside their names, as in a
    list, by their `id`. All others are constants.
    """

    def __init__(self, leaves: dict[int, Array]) -> None:
        super().__init__()
        self._function_mode = _FunctionMode(self)
        self.leaves = {key: self.j2t_iso(leaf) for key, leaf in leaves.items()}

    def load_ops(self) -> None:
        super().load_ops()
        for func, lowering in _OF_ARRAYS.items():
            self._ops[func] = Operator(func, lowering, True, True, False, False)
        for func, lowering in _OF_TENSORS.items():
            self._ops[func] = Operator(func, lowering, False, True, False, func is _GETITEM)

    def j2t_iso(self, jaxarray: PyTree) -> PyTree:
        return pytree.tree_map_only(jax.Array, lambda array: JaxTensor(array, self), jaxarray)

    def get_and_rotate_prng_key(self, generator: object = None) -> NoReturn:
        raise ByChance("a number at random")

    def _to_copy(
        self, the_tensor: torch.Tensor, new_dtype: torch.dtype, new_device: torch.device
    ) -> torch.Tensor:
        device = None if isinstance(the_tensor, Tensor | View) else new_device
        return super()._to_copy(the_tensor, new_dtype, device)

    def run(self, module: torch.nn.Module, states: dict[str, Array], points: Array) -> PyTree:
        """The module's output: an array for a tensor."""
        # PyTorch promotes dtypes, and so do torchax's operations, whatever the user set for JAX.
        # Gradients count, whatever is set for PyTorch. Tensors that `forward` makes itself are
        # JAX's too.
        with (
            _ALONE,
            mock.patch.object(torch.backends.mha, "_is_fastpath_enabled", False),
            mock.patch.object(torch, DEVICE.type, torchax.device_module, create=True),
            jax.numpy_dtype_promotion("standard"),
            torch.inference_mode(False),
            torch.enable_grad(),
            self,
            DEVICE,
            warnings.catch_warnings(),
        ):
            # torchax asks for PyTorch's 64-bit indices whatever JAX has.
            warnings.filterwarnings("ignore", "Explicitly requested dtype u?int64")
            given = self.j2t_iso(jax.tree.map(jnp.asarray, (states, points)))
            out = torch.func.functional_call(module, *given)
            return self.t2j_iso(self.with_leaves(out, mixed=True))

    def with_leaves(self, tree: PyTree, mixed: bool = False) -> PyTree:
        """The tree with leaves for parameters, and constants for other tensors beside these."""

        def constant(tensor: torch.Tensor) -> torch.Tensor:
            if is_ours(tensor) or not tensor.ndim:  # of no axes: a number, which promotes no dtype
                return tensor
            with jax.ensure_compile_time_eval():
                return JaxTensor(to_array(tensor.detach(), False), self)

        tree = pytree.tree_map_only(
            torch.Tensor, lambda tensor: self.leaves.get(id(tensor), tensor), tree
        )
        if mixed or any(map(is_ours, pytree.tree_leaves(tree))):
            tree = pytree.tree_map_only(torch.Tensor, constant, tree)
        return tree

    def dispatch(self, func: Operation, types: object, args: PyTree, kwargs: PyTree) -> PyTree:
        args, kwargs = self.with_leaves((args, kwargs or {}))
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if is_ours(leaf)]
        if any(isinstance(tensor.jax(), Tracer) for tensor in given):
            return self._dispatched(func, types, args, kwargs)
        # What depends on nothing that is given is known now: masks and indices may need it.
        with jax.ensure_compile_time_eval():
            return self._dispatched(func, types, args, kwargs)

    def _dispatched(self, func: Operation, types: object, args: PyTree, kwargs: PyTree) -> PyTree:
        constant = not torch.is_grad_enabled()
        before = {id(base): (base, base._elem) for base in _bases((args, kwargs)) if constant}
        out = self._changed(func, types, args, kwargs)
        for base, value in before.values():
            if base._elem is not value:  # changed in place, of which autograd knows nothing
                base._elem = _unseen(value, base._elem)

        def given(tensor: Tensor) -> Tensor:
            if constant and id(tensor) not in before:
                return self.j2t_iso(jax.lax.stop_gradient(tensor.jax()))
            if type(tensor) is Tensor:
                return self.j2t_iso(tensor.jax())
            return tensor

        return pytree.tree_map_only((Tensor, View), given, out)

    def _changed(self, func: Operation, types: object, args: PyTree, kwargs: PyTree) -> PyTree:
        """An operation's outcome; one in place gives its first argument new values."""
        if not _is_in_place(func) or not is_ours(args[0]) or _turns_a_view(func, args[0]):
            return super().dispatch(func, types, args, kwargs)
        first, *rest = args
        given = self.v2t_iso(((self.j2t_iso(first.jax()), *rest), kwargs))
        try:
            new = super().dispatch(_not_in_place(func), types, *given)
        except OperatorNotFound:
            super().dispatch(func, types, *given)
            new = given[0][0]
        array = new.jax().astype(dtype_of(first.dtype))
        if isinstance(first, View):
            first.update(array)
        else:
            first._elem = array
        return first


class _FunctionMode(XLAFunctionMode):
    """As torchax's, but the leaves are put in first."""

    def __torch_function__(
        self, func: Operation, types: object, args: PyTree = (), kwargs: PyTree = None
    ) -> PyTree:
        args, kwargs = self.env.with_leaves((args, kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


def is_ours(leaf: object) -> bool:
    return isinstance(leaf, Tensor | View)


def _is_in_place(func: Operation) -> bool:
    """Whether an operation changes its first argument."""
    schema = getattr(func, "_schema", None)
    return schema is not None and schema.is_mutable and schema.name.endswith("_")


def _turns_a_view(func: Operation, first: torch.Tensor) -> bool:
    """Whether an operation in place gives a view another shape, of which its base knows nothing."""
    return isinstance(first, View) and torch.Tag.inplace_view in func.tags


def _not_in_place(func: Operation) -> Operation:
    """The operation that gives a new tensor where another changes its first argument."""
    several = getattr(torch.ops.aten, func._schema.name.removeprefix("aten::")[:-1], func)
    return getattr(several, func._schema.overload_name or "default", several)


def _bases(tree: PyTree) -> list[Tensor]:
    """The tensors of a tree, and for views what they are views of."""
    bases = [leaf for leaf in pytree.tree_leaves(tree) if is_ours(leaf)]
    for i, base in enumerate(bases):
        while isinstance(base, View):
            base = base.parent
        bases[i] = base
    return bases


def _unseen(before: Array, after: Array) -> Array:
    """The value after a change that autograd does not see, with the derivative from before."""
    after = jax.lax.stop_gradient(after)
    if before.shape != after.shape or before.dtype != after.dtype:
        return after
    return after + (before - jax.lax.stop_gradient(before))


def _getitem(tensor: Tensor, index: PyTree) -> torch.Tensor:
    if isinstance(index, list):
        index = (index,)
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, list | torch.Tensor) for part in parts):
        return JaxView(tensor, NarrowInfo(index), tensor._env)
    environment = tensor._env
    parts = [jnp.asarray(part) if isinstance(part, list) else part for part in parts]
    return environment.j2t_iso(tensor.jax()[tuple(environment.t2j_iso(parts))])


def _solve(a: Array, b: Array, *, left: bool = True, **_: object) -> Array:
    vector = b.ndim == 1 or b.shape == a.shape[:-1]
    if not left:
        return _solve(a.mT, b) if vector else _solve(a.mT, b.mT).mT
    solution = jnp.linalg.solve(a, b[..., None] if vector else b)
    return solution[..., 0] if vector else solution


def _convolution(x: Any, w: Any, b: Any, s: Any, p: Any, d: Any, t: bool, o: Any, g: int) -> Any:
    if t and g > 1:  # each group's inputs beside each other: torchax takes them for outputs
        w = w.reshape(g, -1, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)
    return jaten._aten_convolution(x, w, b, s, p, d, t, o, g)


def _root(x: Array, order: float = 2) -> Array:
    """A root whose gradient at 0 is 0, as PyTorch has it for distances and deviations."""
    return jnp.where(x == 0, 0, jnp.where(x == 0, 1, x) ** (1 / order))


def _cdist(x: Array, y: Array, p: float = 2.0, compute_mode: object = None) -> Array:
    if p != 2:
        return jaten._aten_cdist(x, y, p)
    return _root(((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(-1))


def _norm(
    x: Array,
    ord: float = 2,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Array:
    if not 1 < ord < float("inf"):
        return jaten._aten_linalg_vector_norm(x, ord, dim, keepdim, dtype)
    x = x if dtype is None else x.astype(dtype_of(dtype))
    return _root(jnp.sum(jnp.abs(x) ** ord, tuple(dim or ()) or None, keepdims=keepdim), ord)


def _deviation(
    x: Array, dim: Axes = None, correction: int | None = None, keepdim: bool = False
) -> Array:
    correction = 1 if correction is None else correction
    return _root(jnp.var(x, tuple(dim or ()) or None, ddof=correction, keepdims=keepdim))


def _power(x: Array, y: Array | float) -> Array:
    """PyTorch's, which is flat where the exponent is 0."""
    if isinstance(y, int | float) and y == 0:
        return jnp.ones_like(x)
    return jaten._aten_pow(x, y)


def _householder(a: Array, tau: Array) -> Array:
    """The product of reflections I − τ v vᵀ; JAX's own has no derivative."""
    v = jnp.tril(a, -1) + jnp.eye(*a.shape[-2:], dtype=a.dtype)
    q = jnp.eye(*a.shape[-2:], dtype=a.dtype)
    for i in reversed(range(tau.shape[-1])):
        column = v[..., i, None]
        q = q - tau[..., i, None, None] * column * (column.mT @ q)
    return q


_GETITEM = torch.Tensor.__getitem__
_OF_ARRAYS: dict[Operation, Callable[..., Array]] = {
    torch.linalg.solve: _solve,
    torch.ops.aten.convolution: _convolution,
    torch.ops.aten.linalg_householder_product: _householder,
    torch.cdist: _cdist,  # torchax has it in single precision
    torch.ops.aten.linalg_vector_norm: _norm,
    torch.ops.aten.std.correction: _deviation,
    torch.ops.aten.pow.Tensor_Scalar: _power,
}
# PyTorch's own programs in C++ of these turn the shape of a tensor in place.
_OF_TENSORS: dict[Operation, Callable[..., PyTree]] = {
    _GETITEM: _getitem,
    torch.Tensor.data.__get__: lambda tensor, *_: tensor.detach(),
    torch.Tensor.new_tensor: lambda tensor, data, dtype=None, **_: torch.tensor(
        data, dtype=dtype or tensor.dtype
    ),
    torch._VF.gru: decompositions.gru_impl,
    torch._VF.rnn_tanh: decompositions.rnn_tanh_input,
    torch._VF.rnn_relu: decompositions.rnn_relu_input,
}


def function_of(own: torch.nn.Module) -> tuple[Callable[..., PyTree], PyTree]:
    """A module as a function of its parameters and of points as it takes them, and the former.

    Each call works on a copy, whose parameters are the given ones wherever they are kept: nothing
    that `forward` keeps outlives it.
    """
    tensors = dict(own.named_parameters())
    trained = {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}
    if not trained:
        raise InputError(
            "a module with parameters that require a gradient",
            "none",
            "run module.requires_grad_(True) for all of them",
        )
    fixed = {**tensors, **dict(own.named_buffers())}
    constants = {name: _array(name, fixed[name]) for name in fixed.keys() - trained.keys()}
    params = unflatten_dict({name: _array(name, t) for name, t in trained.items()}, sep=".")
    memo = {id(tensor): tensor for tensor in fixed.values()}

    def apply(params: PyTree, points: Array, kind: type[Environment] = Environment) -> PyTree:
        leaves: dict[str, Any] = flatten_dict(jax.tree.map(jnp.asarray, params), sep=".")
        environment = kind({id(tensor): leaves[name] for name, tensor in trained.items()})
        return environment.run(copy.deepcopy(own, dict(memo)), {**constants, **leaves}, points)

    return apply, params


def _array(name: str, tensor: torch.Tensor) -> Array:
    array = to_array(tensor.detach(), use_dlpack=False)
    wanted = dtype_of(tensor.dtype)
    if tensor.is_floating_point() and array.dtype != wanted:
        raise InputError(
            f"float64 to be on in JAX for {name} in {wanted}",
            "it off",
            "run jax.config.update('jax_enable_x64', True), or give module.float()",
        )
    return array
