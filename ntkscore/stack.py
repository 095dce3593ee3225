"""From one cell and its images to the Gram matrices of clean, attacked and twice attacked points.

The one place where network, attack and kernel meet. The digits of the cell, the radius and the
weights are data, so a shape is compiled once and serves every cell, seed and radius.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from attacks import twice
from cells.network import STATISTICS, Network
from cells.space import EDGES, IMAGE_CHANNELS
from ntkscore import kernels
from ntkscore.config import Config

Images = Float[Array, "n h w c"]
Labels = Int[Array, "n"]


class Stack(NamedTuple):
    """What is computed for one cell and seed.

    Attributes:
        gram: for each radius, 3N×3N over (X, X_ρ, X_2ρ).
        losses: for each radius, the mean cross-entropy at X, X_ρ and X_2ρ.
    """

    gram: Float[Array, "r m m"]
    losses: Float[Array, "r 3"]


def dtype_of(config: Config) -> Any:
    return jnp.float64 if config.x64 else jnp.float32


def draw_weights(network: Network, seed: int, dtype: Any = jnp.float32) -> dict[str, Any]:
    """Weights and fresh statistics of the network; a function of the seed and the shape alone.

    Args:
        network: whose weights to draw.
        seed: of the draw, in float32 whatever the dtype, so that both precisions share weights.
        dtype: of the arrays returned.
    """
    images = jnp.zeros((1, 8, 8, IMAGE_CHANNELS), jnp.float32)
    digits = jnp.zeros((len(EDGES),), jnp.int32)
    # Optimising a program that runs once costs four times what it costs to run.
    options = {"xla_backend_optimization_level": 0}
    draw = jax.jit(lambda key: network.init(key, images, digits), compiler_options=options)
    variables = draw(jax.random.key(seed))
    # The pass that draws may have measured its blank images; statistics start afresh.
    fresh = jax.tree_util.tree_map_with_path(
        lambda path, leaf: (jnp.ones if path[-1].key == "var" else jnp.zeros)(leaf.shape, dtype),
        variables[STATISTICS],
    )
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), variables["params"])
    return {"params": params, STATISTICS: fresh}


def cross_entropy(logits: Float[Array, "n o"], labels: Labels) -> Float[Array, "n"]:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


class CellFunctions(NamedTuple):
    """One cell's network, calibrated, as the functions that attacks and kernels want.

    Attributes:
        logits: of images, with the mapping that collects Gram contributions (or None, or empty).
        loss_gradient: of the summed cross-entropy in the images, pixel scale.
        gram: the kernel of m points with their labels, and the logits there; m is a multiple of
            the batch size. Its last argument is the number of radii: with R of them the points
            are X and R pairs (X_ρ, X_2ρ), and the kernels are R×3N×3N.
    """

    logits: Callable[..., Array]
    loss_gradient: Callable[[Images], Images]
    gram: Callable[..., tuple[Array, Array]]


def cell_functions(
    network: Network,
    variables: dict[str, Any],
    digits: Int[Array, "6"],
    images: Images,
    labels: Labels,
    config: Config,
) -> CellFunctions:
    """Calibrate the network on the clean images and freeze it.

    Args:
        network: the network of the config's shape.
        variables: as `draw_weights` or `read_state_dict` give them.
        digits: the cell.
        images: X, the clean batch, pixels in [0, 1].
        labels: its classes.
        config: which kernel, by which implementation.
    """
    if STATISTICS not in variables:
        variables = {**variables, **draw_weights(network, 0, images.dtype), **variables}
    if network.bn == "calibrated":
        _, measured = network.apply(variables, images, digits, calibrate=True, mutable=[STATISTICS])
        variables = {**variables, **measured}
    coupled = network.bn == "batch"

    def apply(params: Any, points: Images, grams: Any = None) -> Array:
        def forward(x: Images) -> Any:
            given = {**variables, "params": params}
            return network.apply(given, x, digits, None if coupled else grams)

        if not coupled:
            return forward(points)
        # Each batch of N is normalised by itself.
        batches = points.reshape(-1, *images.shape)
        return jax.vmap(forward)(batches).reshape(len(points), -1)

    def logits(points: Images, grams: Any = None) -> Array:
        return apply(variables["params"], points, grams)

    def gram(points: Images, labels: Labels, radii: int = 1) -> tuple[Array, Array]:
        size = 3 * len(images)
        if config.resolved_implementation == "jacobian":
            shape = (radii, size, size) if radii > 1 else None
            parts, values = kernels.gram_by_kind(logits, points, labels, (config.output,), shape)
            return kernels.gather(parts[0], config.parameters), values
        kernel = kernels.ntvp(
            apply, variables["params"], points, labels, config.output, config.parameters
        )
        if radii > 1:
            members = per_radius(jnp.arange(len(points)), radii)
            kernel = kernel[members[:, :, None], members[:, None, :]]
        return kernel, logits(points)

    loss_gradient = jax.grad(lambda x: jnp.sum(cross_entropy(logits(x, {}), labels)))
    return CellFunctions(logits, loss_gradient, gram)


def per_radius(values: Float[Array, "m ..."], radii: int) -> Float[Array, "r s ..."]:
    """Values at X and at R pairs (X_ρ, X_2ρ), regrouped as R triples (X, X_ρ, X_2ρ)."""
    n = len(values) // (2 * radii + 1)
    pairs = values[n:].reshape(radii, 2 * n, *values.shape[1:])
    clean = jnp.broadcast_to(values[:n], (radii, n, *values.shape[1:]))
    return jnp.concatenate([clean, pairs], 1)


def compute_stack(
    network: Network,
    config: Config,
    variables: dict[str, Any],
    digits: Int[Array, "6"],
    images: Images,
    labels: Labels,
    rhos: Float[Array, "r"],
    step_sizes: Float[Array, "r"],
    key: Array,
) -> Stack:
    """The stacks of one cell at every radius, with everything clean computed once.

    Args:
        network, config, variables, digits, images, labels: as for `cell_functions`.
        rhos: radii of the attack, pixel scale [0, 1].
        step_sizes: of the attack at each radius, pixel scale.
        key: for the attack's random start.
    """
    cell = cell_functions(network, variables, digits, images, labels, config)
    start = key if config.random_start else None

    def attacked(rho: Array, step_size: Array) -> Images:
        attack = config.attack_at(rho, step_size)
        return jnp.concatenate(twice(attack, cell.loss_gradient, images, start))

    radii = len(rhos)
    if radii == 1:
        pairs = attacked(rhos[0], step_sizes[0])
    else:
        pairs = jax.vmap(attacked)(rhos, step_sizes).reshape(-1, *images.shape[1:])
    tiled = jnp.tile(labels, 2 * radii + 1)
    gram, logits = cell.gram(jnp.concatenate([images, pairs]), tiled, radii)
    losses = per_radius(cross_entropy(logits, tiled), radii).reshape(radii, 3, -1).mean(2)
    return Stack(gram.reshape(radii, *gram.shape[-2:]), losses)
