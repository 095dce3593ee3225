"""The optional door to neural-tangents, which current JAX would otherwise refuse to open.

The last release of neural-tangents (0.6.5, 2023) imports names that JAX has since moved to
`jax.extend.core` or dropped. Its infinite-width kernels, its Jacobian contraction and its
NTK-vector products still work once it is imported; its structured derivatives do not. So the
missing names are lent to JAX for the length of that one import, and JAX is then as it was.
"""

import importlib
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.core
import jax.extend.core
import jax.interpreters.ad

from ntkscore.errors import InputError

MOVED = ("Jaxpr", "JaxprEqn", "Literal", "Primitive", "Var")
"""Names that neural-tangents takes from `jax.core` and that `jax.extend.core` has now."""


def _safe_map(function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    return [function(*row) for row in zip(*arguments, strict=True)]


def _safe_zip(*arguments: Iterable[Any]) -> list[tuple[Any, ...]]:
    return list(zip(*arguments, strict=True))


@contextmanager
def _lent_names() -> Iterator[None]:
    """JAX with the names that neural-tangents misses; what JAX has itself is left alone."""
    wanted = [(jax.core, name, getattr(jax.extend.core, name)) for name in MOVED]
    # It is only a key of a table of rules: nothing binds this primitive any more.
    wanted.append((jax.interpreters.ad, "zeros_like_p", jax.extend.core.Primitive("zeros_like")))
    # `vars`, because `hasattr` on a name that JAX deprecates would warn.
    lent = [entry for entry in wanted if entry[1] not in vars(entry[0])]
    for module, name, value in lent:
        setattr(module, name, value)
    util = ModuleType("jax.util")
    vars(util).update(safe_map=_safe_map, safe_zip=_safe_zip)
    lends_util = importlib.util.find_spec(util.__name__) is None
    if lends_util:
        sys.modules[util.__name__] = util
    try:
        yield
    finally:
        for module, name, _ in lent:
            delattr(module, name)
        if lends_util:
            del sys.modules[util.__name__]


def neural_tangents() -> ModuleType:
    """The module `neural_tangents`, imported so that it works on current JAX.

    Raises:
        InputError: if it, or TensorFlow, which it imports, is not installed.

    Source: Novak et al. (2020), "Neural Tangents: fast and easy infinite neural networks".
    """
    try:
        with _lent_names():
            import neural_tangents as module  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        raise InputError(
            "neural-tangents to be installed",
            f"no module named {error.name!r}",
            "run pip install 'ntkscore[tangents]'",
        ) from error
    return module


def snippets(page: Path) -> Iterator[tuple[str, str, str]]:
    """(`theirs`, `ours` or nothing, the thread's number, code) of a page's blocks."""
    for head, code in re.findall(
        r"```python([^\n]*)\n(.*?)```", page.read_text("utf-8"), re.DOTALL
    ):
        who, _, thread = head.strip().partition("=")
        yield who, thread, code


def measured(page: Path, who: str, thread: str) -> tuple[int, float, float]:
    """Lines of a block, seconds with compilation, and seconds of its calls again."""
    names: dict[str, Any] = {"nt": neural_tangents()}
    importlib.import_module("neural_tangents.predict")
    seconds, lines = [], []
    for each, number, code in snippets(page):
        if not each:
            exec(code, names)
        elif (each, number) == (who, thread):
            lines = code.strip().splitlines()
            for run in (code, "\n".join(x for x in lines if not x.startswith("kernel_fn ="))):
                start = time.perf_counter()
                exec(run, names)
                jax.block_until_ready(names[f"{who}_{thread}"])
                seconds.append(time.perf_counter() - start)
    return len(lines), seconds[0], seconds[1]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print("{} | {:.2f} ({:.2f})".format(*measured(Path(sys.argv[1]), *sys.argv[2:])))
    else:
        for thread in dict.fromkeys(n for _, n, _ in snippets(Path(sys.argv[1])) if n):
            row = [
                subprocess.check_output(
                    [sys.executable, __file__, sys.argv[1], who, thread], text=True
                ).strip()
                for who in ("theirs", "ours")
            ]
            print(f"| {thread} | {' | '.join(row)} |", flush=True)
