"""Kernels held against the plain Jacobian of their network, which knows nothing of a trace.

The Jacobian is JAX's own, of one point after the other, in float64 where the network allows it. It
is compiled on the CPU without optimizations, so that it shares neither our equations nor the
compiler's simplifications with the kernel that it checks.
"""

import logging
from collections.abc import Set
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ntkscore.kernels.readouts import READOUTS
from ntkscore.kernels.wanted import Wanted, kernel_of
from ntkscore.model import Model, Points
from ntkscore.trace.blocks import BlockPasses
from ntkscore.trace.compiled import SHOWN
from ntkscore.trace.coupling import first_other
from ntkscore.trace.parameters import PARAMETER_SETS, is_floating
from ntkscore.trace.passes import TracedPasses

LARGEST = 100
"""Equations of a network whose kernel is checked unless it is asked for otherwise."""
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""How the compiler is told to do little, for programs that run once."""
PLAINLY = QUICKLY | {"xla_disable_hlo_passes": "algsimp"}
"""How the compiler is told to leave a program as it is."""
ROUNDING = 1e-3
"""Relative difference of two kernels that float32 explains; above it, float64 decides."""
EXACT = 1e-5
"""Relative difference that float64 explains."""
log = logging.getLogger("ntkscore")
ByLeaf = dict[int, Float[np.ndarray, "m m"]]
"""Kernels of single leaves, by place."""


def check_kernel(
    model: Model,
    points: Points,
    labels: Array,
    wanted: Wanted,
    gram: Float[Array, "s s"] | None,
    check: bool | None,
) -> bool:
    """Tell whether a kernel from a trace is the plain Jacobian's at two points; warn if it is not.

    Args:
        model: the network; nothing is checked unless its passes are in blocks.
        points, labels: as for `ntkscore.ntk`.
        wanted: what the kernel is of, the square one of a reading.
        gram: that kernel, whose first rows are of the points; computed at two of them if None.
        check: whether to look; if None, once for a network of at most `LARGEST` equations.
    """
    choices, passes = (wanted.output, str(wanted.parameters)), model.passes
    if check is False or not isinstance(passes, BlockPasses):
        return True
    if check is None and (len(passes.traced.program.live) > LARGEST or choices in passes.right):
        return True
    two = np.unique([0, int(first_other(points))])
    some = points[two], labels[two]
    own = kernel_of(model, [some], wanted) if gram is None else gram[np.ix_(two, two)]
    wrong = wrong_leaves(own, model, *some, *choices)
    if wrong is None:
        passes.right.add(choices)
        return True
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    log.warning(
        "the trace of the network gives another kernel than its Jacobian for params%s%s; it is "
        "computed from that instead: please report the network",
        ", ".join(wrong[:SHOWN]),
        more,
    )
    return False


def wrong_leaves(
    gram: Float[Array, "m m"],
    model: Model,
    points: Points,
    labels: Array,
    output: str,
    parameters: str,
) -> list[str] | None:
    """The leaves whose kernel is not that of the plain Jacobian; None where the kernel is right.

    Args:
        gram: the kernel of a few points, from a trace of the network.
        points, labels, output, parameters: as for `ntkscore.ntk`.
    """
    arrays = jax.device_put((model.params, points, labels), _host())
    found, exact, allowed = np.asarray(gram, np.float64), None, ROUNDING
    chosen: list[int] = []
    with jax.default_device(_host()):
        for dtype in (jnp.float64, None):
            with jax.enable_x64(True) if dtype else nullcontext():
                params, at, classes = jax.tree.map(lambda a, d=dtype: _cast(a, d), arrays)
                same = model._replace(params=params)
                try:
                    passes = TracedPasses(same, jax.ShapeDtypeStruct(at.shape[1:], at.dtype))
                    same = same._replace(passes=passes)
                    plain = plain_kernels(same, passes.fixed, at, classes, output)
                except (TypeError, ValueError):
                    if dtype:  # a network that takes its own dtypes alone
                        continue
                    raise
                paths, kinds = passes.program.paths, PARAMETER_SETS[parameters]
                chosen = [k for k in plain if passes.kinds[k] in kinds]
                want = sum((plain[k] for k in chosen), np.zeros(found.shape))
                if exact is not None:  # what rounding does to the plain Jacobian too
                    allowed = max(ROUNDING, 2 * distance(want, exact, exact))
                if distance(found, want, want) <= allowed:
                    return None
                exact, traced = want, traced_kernels(same, at, classes, output)
                limit = (EXACT if dtype else ROUNDING) / max(1, len(chosen))
                wrong = [k for k in chosen if distance(traced[k], plain[k], want) > limit]
                if wrong:
                    return [jax.tree_util.keystr(paths[k]) for k in wrong]
    return [jax.tree_util.keystr(paths[k]) for k in chosen]


def plain_kernels(
    model: Model, fixed: Set[int], points: Points, labels: Array, output: str
) -> ByLeaf:
    """The kernel of each leaf that is not fixed, by the plain Jacobian."""
    leaves, tree = jax.tree.flatten(model.params)
    trained = [place for place in range(len(leaves)) if place not in fixed]

    def one(own: list[Array], leaves: list[Array], point: Array, cotangent: Array) -> Any:
        def of_own(own: list[Array]) -> Array:
            changed = dict(zip(trained, own, strict=True))
            whole = [changed.get(place, leaf) for place, leaf in enumerate(leaves)]
            return model.apply(jax.tree.unflatten(tree, whole), point[None])[0]

        logits, pullback = jax.vjp(of_own, own)
        return logits, pullback(cotangent)[0]

    own = [leaves[place] for place in trained]
    like = jax.eval_shape(model.apply, model.params, points[:1])
    nothing = jnp.zeros(like.shape[1:], like.dtype)
    lowered = jax.jit(one).lower(own, leaves, points[0], nothing)
    compiled = lowered.compile(compiler_options=dict(PLAINLY))
    logits = jnp.stack([compiled(own, leaves, point, nothing)[0] for point in points])
    found: ByLeaf = {place: np.zeros((len(points),) * 2) for place in trained}
    for cotangents in READOUTS[output](logits, labels):
        pairs = zip(points, cotangents, strict=True)
        rows = [compiled(own, leaves, point, cotangent)[1] for point, cotangent in pairs]
        for place, *each in zip(trained, *rows, strict=True):
            found[place] += _square(each)
    return found


def traced_kernels(
    model: Model, points: Points, labels: Array, output: str
) -> list[Float[np.ndarray, "m m"]]:
    """The kernel of each leaf by the trace."""

    def compute(params: PyTree, points: Points) -> PyTree:
        by_leaf = Wanted(output, per_leaf=True)
        return kernel_of(model._replace(params=params), [(points, labels)], by_leaf)

    return [*map(np.asarray, jax.tree.leaves(jax.jit(compute)(model.params, points)))]


def distance(got: np.ndarray, want: np.ndarray, whole: np.ndarray) -> float:
    """The largest difference of two kernels' entries, relative to the points' own in the whole."""
    sizes = np.sqrt(np.abs(np.diag(whole)))
    scale = np.maximum(np.outer(sizes, sizes), np.finfo(np.float64).tiny)
    return float(np.nan_to_num(np.abs(got - want) / scale, nan=np.inf).max())


def _square(rows: Any) -> np.ndarray:
    flat = np.stack([np.asarray(row, np.float64).ravel() for row in rows])
    return flat @ flat.T


def _cast(array: Array, dtype: Any) -> Array:
    return array.astype(dtype) if dtype and is_floating(array) else array


def _host() -> Any:
    """The CPU, or the first device where JAX has none."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]
