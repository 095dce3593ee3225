"""Gradients of single points on few random numbers, whose kernel is the NTK in the mean."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ntkscore.errors import InputError, check_choice
from ntkscore.grams import in_full_precision
from ntkscore.kernels.checks import check_same_network
from ntkscore.kernels.ntk import Given, opened
from ntkscore.kernels.readouts import READOUTS, WHOLE, number_of, reading_of
from ntkscore.model import Labels, Model
from ntkscore.results.checkpoints import ArrayFolder, fingerprint
from ntkscore.trace.blocks import BlockPasses, count_of
from ntkscore.trace.coupling import jitted
from ntkscore.trace.parameters import Parameters, counted
from ntkscore.trace.product_kernels import Factors

PART = 1024
"""Rows of a file."""


@in_full_precision
def gradient_features(
    model: Model,
    points: Given,
    size: int = 4096,
    *,
    labels: Any = None,
    output: str = "sum",
    parameters: Parameters = "all",
    factored: bool = False,
    seed: int = 0,
    memory: float | None = None,
    out: str | PathLike[str] | None = None,
) -> Float[Array | np.ndarray, "m s"]:
    """Each point's gradient ∂f(x)/∂θ, projected on S random numbers.

    φ(x)·φ(x′) is the kernel in the mean over the draws, with a standard deviation of at most
    √((k(x, x) k(x′, x′) + k(x, x′)²) / S): 2.2 % of the diagonal's size for 4,096. The draws are of
    the network and the seed: points of two calls have features that fit each other.

    Args:
        model: the network at its weights.
        points: M points; any number of them, since one block is held.
        size: S. The kernel's rank is S at most, so that scores of single eigenvalues want S far
            above M.
        labels, output, parameters, memory: as for `ntkscore.ntk`. Of several logits, as with
            `trace` and `classes`, each has S numbers of its own, one after the other.
        factored: whether the inputs X of a layer and their cotangents G are projected apart,
            Σ_p (X_p A) ⊗ (G_p B), which never forms a gradient. It is faster for wide layers. The
            standard deviation is √((1 + 2/s)(1 + 2/t) − 1) of √(k(x, x) k(x′, x′)) at most, for
            S = s t, s and t as near to each other as they can be: 25 % for 4,096.
        seed: of the draws.
        out: a folder that keeps finished rows, 1,024 in a file; the same call goes on there.

    Returns:
        (M, S) features, or (M, O S) of O logits; from a folder an array of NumPy's.

    Raises:
        InputError: if the model's points depend on each other, something does not fit, or the
            folder has features of something else.

    Example:
        >>> import jax.numpy as jnp
        >>> from ntkscore import Model
        >>> linear = Model(lambda w, x: x @ w, jnp.ones((3, 2)))
        >>> features = gradient_features(linear, jnp.eye(3), size=2**14)
        >>> (features @ features.T).round(1)[0]
        Array([2., 0., 0.], dtype=float32)

    Source: Charikar, Chen and Farach-Colton (2002); the factored form is that of Choe et al.
    (2024), "What is your data worth to GPT?", section 3.
    """
    check_choice(output, (*READOUTS, *WHOLE), "output")
    if size < 1:
        raise InputError("a size of at least 1", size, "4096 err by about 2 % of the diagonal")
    chosen = "layerwise", memory, False
    network, ((x, y),) = opened(model, points, None, labels, output, *chosen)
    network.check_alone("features")
    model, passes = network.model, network.model.passes
    if not isinstance(passes, BlockPasses):
        raise InputError(
            "points and weights that have values", "a call inside of jax.jit", "call it outside"
        )
    are_in = counted(model.params, passes.kinds_of(model.params), parameters)
    leaves = {place for place, is_in in enumerate(are_in) if is_in}
    read = reading_of(output)
    readings = number_of(output, passes.logits.shape[0])
    keys = list(jax.random.split(jax.random.key(seed), readings))

    def sketched(factors: list[Factors], key: Array) -> Array:
        uses = zip(passes.traced.weight_uses, factors, strict=True)
        few = (
            each.sketches(own, jax.random.fold_in(key, place), size, factored)
            for place, (each, own) in enumerate(uses)
            if not leaves.isdisjoint(each.leaves)
        )
        rows = (rows for each in few for leaf, rows in each.items() if leaf in leaves)
        nothing = jnp.zeros((count_of(factors), size), passes.logits.dtype)
        return passes.at(0, jax.block_until_ready(sum(rows, nothing)))

    def rows_of(x: Array, y: Labels) -> Array:
        blocks = passes.forward_and_back(model.params, x, lambda f, y: list(read(f, y)), y)
        rows = [jnp.concatenate([*map(sketched, each, keys)], 1) for each in blocks]
        return jnp.concatenate(rows)[: len(x)]

    if out is None:
        return rows_of(x, y)
    settings = [size, output, sorted(leaves), factored, seed]
    return _kept(Path(out), model, x, y, settings, rows_of)


def _kept(path: Path, model: Model, x: Any, y: Any, settings: list, rows_of: Any) -> np.ndarray:
    """Features from a folder, to which those that it lacks are added.

    Raises:
        InputError: if it has those of another network, other points or settings.
    """
    is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
    leaves = jax.tree.leaves(model.params)
    arrays = [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]
    given = {"weights and points": fingerprint([*arrays, x, y]), "points": len(x)}
    folder = ArrayFolder(path, {**given, "settings": settings})

    def kept(name: str, compute: Callable[[], Array | np.ndarray]) -> np.ndarray:
        if (found := folder.get(name)) is None:
            found = folder[name] = {name: np.asarray(compute())}
        return found[name]

    logits = np.asarray(jitted(model.apply)(model.params, x[:2]))
    check_same_network(kept("logits", lambda: logits), logits, path)
    parts = (slice(start, start + PART) for start in range(0, len(x), PART))
    rows = [kept(f"{p.start:09d}", lambda p=p: rows_of(x[p], y[p])) for p in parts]
    return np.concatenate(rows)
