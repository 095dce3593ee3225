"""Measures of rectifiers, of channels and of the Hessian, each against its plain formula."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from cells.nasbench201.space import NASBench201
from ntkscore import Model, Task
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.rectifiers import (
    CIRCLE,
    circle,
    layer_numbers,
    layer_products,
    output_curvature,
    state_patterns,
)
from ntkscore.measures.weight_gradients import fisher, grasp
from ntkscore.trace.blocks import BlockPasses
from ntkscore.trace.passes import TracedPasses

pytestmark = pytest.mark.usefixtures("double")
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(5, 6, 6, 3))
Y = np.array([0, 3, 1, 2, 2])
NOISE = 1
SHAPES = {"first": (7, 3, 3, 3), "second": (3, 3, 7, 8), "head": (8, 4), "bias": (4,)}
PARAMS = {name: RNG.normal(size=shape) for name, shape in SHAPES.items()}


def layers(w: Any, x: Any, zeros: Any = (0, 0, 0)) -> tuple[Any, ...]:
    """The values before and after both rectifiers, and the logits; one kernel stands as in PyTorch.

    Args:
        w, x: weights and images.
        zeros: are added to what the three layers give.
    """
    a = lax.conv_general_dilated(
        x, w["first"], (1, 1), "SAME", None, None, ("NHWC", "OIHW", "NHWC")
    )
    a += zeros[0]
    b = jax.nn.relu(a)
    c = lax.conv_general_dilated(
        b, w["second"], (2, 2), "SAME", None, None, ("NHWC", "HWIO", "NHWC")
    )
    c += zeros[1]
    d = jax.nn.gelu(c)
    return a, b, c, d, jnp.mean(d, (1, 2)) @ w["head"] + zeros[2] + w["bias"]


plain = jax.jit(layers)
NETWORK = Model(lambda w, x: layers(w, x)[-1], PARAMS)


def at_points(model: Model = NETWORK, x: Any = X) -> Pass:
    model = model._replace(params=jax.tree.map(jnp.asarray, model.params))
    x = jnp.asarray(x)
    labels = jnp.resize(Y, (len(x),))
    return Pass(model, x, labels, jax.random.key(NOISE))


def losses(logits: Any) -> Any:
    return -jax.nn.log_softmax(logits)[np.arange(len(Y)), Y]


def found(measure: Callable[[Pass], Any], model: Model = NETWORK, x: Any = X) -> Any:
    """What a measure finds, compiled as a whole."""
    return jax.jit(lambda x: measure(at_points(model, x)))(x)


def numbers(products: Any) -> dict[str, float]:
    assert products is not None
    return layer_numbers(jax.tree.map(np.asarray, products))


def test_near_meco_and_dextr_are_sums_over_the_matrices_of_layers() -> None:
    got = numbers(found(layer_products))
    a, b, c, d, _ = plain(PARAMS, X)
    ranks, conditions, least = [], [], []
    for matrix in (np.asarray(each).reshape(-1, each.shape[-1]) for each in (a, b, c, d)):
        values = np.linalg.svd(matrix)[1]
        share = values / values.sum()
        ranks.append(np.exp(-np.sum(share * np.log(share))))
        conditions.append(values.min() / values.max())
    for matrix in (np.asarray(each).reshape(-1, each.shape[-1]) for each in (a, c)):
        least.append(np.linalg.eigvalsh(np.corrcoef(matrix.T))[0])
    assert got["near"] == pytest.approx(sum(ranks)) and max(ranks) > 1.3 * min(ranks) > 2
    assert got["meco"] == pytest.approx(sum(least), rel=1e-6)
    s, k = np.log1p(sum(conditions)), np.log1p(got["output_curvature"])
    assert got["dextr"] == pytest.approx(s * k / (s + k), rel=1e-6)


def test_the_curvature_is_that_of_the_curve_of_logits() -> None:
    """Of the identity it is that of a circle; of a network that which differences show."""
    flat = Model(lambda w, x: w * x.reshape(len(x), -1), np.array(2.0))
    radius = 2 * np.std(X) * X[0].size ** 0.5
    assert float(found(output_curvature, flat)) == pytest.approx(1 / radius)

    step, bend = 1e-4, Model(lambda w, x: jnp.tanh(layers(w, x)[-1] / 10), PARAMS)

    @jax.jit
    def curve(angles: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(NOISE), CIRCLE)
        return bend.apply(PARAMS, circle(jnp.asarray(X), key)(angles))

    angles = np.arange(5) * 2 * np.pi / 5
    before, here, after = (np.asarray(curve(angles + s)) for s in (-step, 0, step))
    v, a = (after - before) / (2 * step), (after - 2 * here + before) / step**2
    vv, aa, va = (np.sum(p * q, 1) for p, q in ((v, v), (a, a), (v, a)))
    expected = np.mean(np.sqrt(vv * aa - va**2) / vv**1.5)
    assert float(found(output_curvature, bend)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("count", [5, 40])
def test_swap_counts_different_columns_of_states(count: int) -> None:
    x = np.random.default_rng(count).uniform(size=(count, 6, 6, 3))
    a, _, c, _, _ = plain(PARAMS, x)
    states = np.concatenate([np.asarray(each > 0).reshape(count, -1) for each in (a, c)], 1)
    expected = len(np.unique(states.T, axis=0))
    got = found(state_patterns, x=x)
    assert got is not None and int(got) == expected > 20


def test_fisher_is_of_the_channels_outputs_and_their_gradients() -> None:
    expected = 0.0
    a, _, c, _, logits = plain(PARAMS, X)
    outputs = a, c, logits - PARAMS["bias"]

    def loss(zeros: Any) -> Any:
        return jnp.sum(losses(layers(PARAMS, X, zeros)[-1]))

    slopes = jax.device_get(jax.jit(jax.grad(loss))([*map(np.zeros_like, outputs)]))
    for value, slope in zip(outputs, slopes, strict=True):
        for channel in range(value.shape[-1]):
            product = (np.asarray(value) * slope)[..., channel].reshape(len(X), -1)
            expected += 0.5 * np.mean(product.sum(1) ** 2)
    assert float(found(fisher)) == pytest.approx(expected)


def test_grasp_is_the_product_of_weights_hessian_and_gradient() -> None:
    names = "first", "second", "head"
    sizes = np.cumsum([PARAMS[name].size for name in names])[:-1]
    flat = np.concatenate([PARAMS[name].ravel() for name in names])

    def loss(flat: Any) -> Any:
        parts = zip(names, jnp.split(flat, sizes), strict=True)
        w = PARAMS | {name: part.reshape(SHAPES[name]) for name, part in parts}
        return jnp.mean(losses(layers(w, X)[-1]))

    expected = jax.jit(lambda w: -w @ jax.hessian(loss)(w) @ jax.grad(loss)(w))(flat)
    assert float(found(grasp)) == pytest.approx(float(expected))


def test_points_in_blocks_have_the_same_values_and_hidden_rectifiers_none() -> None:
    at = at_points()  # whose passes are compiled one by one here
    shape = jax.ShapeDtypeStruct(X.shape[1:], X.dtype)
    blocks: Any = BlockPasses(TracedPasses(at.model, shape), 1)
    other = Pass(at.model._replace(passes=blocks), at.points, at.labels, at.noise)
    assert numbers(layer_products(other)) == pytest.approx(numbers(found(layer_products)))
    gate = lambda x: lax.cond(x[0] > 0, jax.nn.relu, jnp.tanh, x)  # noqa: E731
    hidden = Model(lambda w, x: jax.vmap(gate)(x.reshape(len(x), -1)) @ w, np.ones((108, 4)))
    assert found(layer_products, hidden) is None
    assert found(state_patterns, hidden) is None


def test_a_layer_that_says_nothing_adds_nothing_and_one_that_is_no_number_is_none() -> None:
    dead = [(np.ones(1), np.zeros((1, 2, 2)))]
    alive = [(np.array([2]), np.eye(3)[None])]
    given = {"inputs": alive + dead, "outputs": dead, "centred": alive + dead, "curvature": 1.0}
    got = layer_numbers(given)
    assert got["near"] == pytest.approx(6) and got["meco"] == pytest.approx(2)
    broken = [(np.ones(1), np.full((1, 2, 2), np.nan))]
    got = layer_numbers(given | {"inputs": broken, "centred": broken})
    assert np.isnan([got["near"], got["meco"], got["dextr"]]).all()


@pytest.mark.slow
def test_a_cells_passes_give_what_the_trace_of_its_network_gives() -> None:
    """In this cell every value is read by one rectifier, as a trace counts them."""
    space = NASBench201(task=Task((8, 8, 3), 4), channels=3, cells_per_stage=2)
    code = jnp.asarray(space.encode(space.parse("303003")))
    x = jnp.asarray(RNG.uniform(size=(4, 8, 8, 3)))
    model: Any = space.model((), space.draw((), 1, jnp.float64), code, x)

    @jax.jit
    def both(x: Any) -> Any:
        pairs = (at_points(each, x) for each in (model, model._replace(passes=None)))
        return [(layer_products(at), state_patterns(at), fisher(at), grasp(at)) for at in pairs]

    (own, *rest), (traced, *others) = jax.tree.map(np.asarray, both(x))
    assert layer_numbers(own) == pytest.approx(layer_numbers(traced), rel=1e-6)
    np.testing.assert_allclose(rest, others, rtol=1e-8)
    assert min(abs(float(each)) for each in rest) > 0
