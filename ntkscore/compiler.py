"""Which of XLA's libraries compute a program on a CPU.

For products, reductions and convolutions XLA has two: its own, and YNNPACK, which it takes unless
it is told otherwise. YNNPACK's convolutions use a single core; its Gram matrices are three times as
fast. It reduces axes other than the last one slowly. The two round differently.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, lru_cache
from typing import Any

import jax
from jax.core import Tracer

from ntkscore.platforms import platform

OPTION = "xla_cpu_experimental_ynn_fusion_type"
TRAINING = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
"""What YNNPACK computes of programs of training, of their attacks, and of many cells."""
NETWORK = "LIBRARY_FUSION_TYPE_REDUCE"
"""The same of the passes of any network."""
GRAMS = "LIBRARY_FUSION_TYPE_DOT"
"""The same of Gram matrices of gradients."""
_for_any_layout = ContextVar("for_any_layout", default=False)


@contextmanager
def for_any_layout() -> Iterator[None]:
    """Compile for the same bits whatever the number of devices, as runs do."""
    token = _for_any_layout.set(True)
    try:
        yield
    finally:
        _for_any_layout.reset(token)


def compiler_options(fusions: str = TRAINING) -> dict[str, str]:
    """Options for programs on a device that has all cores to itself.

    Where each core is a device, convolutions stay YNNPACK's: the other library computes the first
    four of 150 images wrongly there (50 images, C = 16, jaxlib 0.10.2).

    Args:
        fusions: what YNNPACK computes.
    """
    several = platform() != "cpu" or jax.local_device_count() > 1
    return {} if several or not _is_known() else {OPTION: fusions}


@lru_cache
def _is_known() -> bool:
    """Whether this version of XLA knows the option."""
    try:
        jax.jit(lambda: 0, compiler_options={OPTION: GRAMS}).lower().compile()
    except Exception:
        return False
    return True


class Jit:
    """What `jax.jit` gives, with `compiler_options` where it is no part of another program.

    Args:
        function: to compile.
        fusions: as for `compiler_options`.
        static: names of arguments that are no arrays.
    """

    def __init__(
        self, function: Callable[..., Any], fusions: str, static: tuple[str, ...] = ()
    ) -> None:
        self._function, self._fusions, self._static = function, fusions, static
        self._plain: Any = jax.jit(function, static_argnames=static)

    @cached_property
    def _fast(self) -> Callable[..., Any]:
        options = compiler_options(self._fusions)
        return jax.jit(self._function, static_argnames=self._static, compiler_options=options)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        leaves = jax.tree.leaves((arguments, named))
        inside = any(isinstance(leaf, Tracer) for leaf in leaves)
        return (self._plain if inside or _for_any_layout.get() else self._fast)(*arguments, **named)

    def clear_cache(self) -> None:
        """Compile anew from here on."""
        self._plain.clear_cache()
        vars(self).pop("_fast", None)
