"""What proxies are reduced from, each against a plain second formulation."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax_nasbench201 import CellBlock, Network, Reduction, Stem

from attacks import fgsm
from cells.cell_space import STATISTICS
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore import Task
from ntkscore.kernels.joint import POINTS
from ntkscore.kernels.stack import Stack, stack
from ntkscore.measures.activations import (
    FEATURES,
    equal_states,
    feature_entropies,
    feature_products,
)
from ntkscore.measures.changes import curvature
from ntkscore.measures.forward_pass import Pass, cross_entropy
from ntkscore.measures.registry import NOT_GIVEN, OK
from ntkscore.measures.report import measurements_of
from ntkscore.measures.synflow import synflow
from ntkscore.model import Model

Array = jax.Array
N, CLASSES, RHO = 3, 4, 0.05
TASK = Task((8, 8, 3), CLASSES, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
SPACE = NASBench201(task=TASK, channels=3, cells_per_stage=2)
# No node of theirs is empty: flax would compute it beforehand, and the spy see it once more.
CELLS = ("132340", "323133")

pytestmark = pytest.mark.usefixtures("double")


def points(shape: tuple[int, ...] = (8, 8, 3)) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    labels = jnp.asarray(rng.integers(0, CLASSES, N), jnp.int32)
    return jnp.asarray(rng.uniform(size=(N, *shape))), labels


def digits_of(cell: str) -> Array:
    return jnp.asarray(SPACE.encode(SPACE.parse(cell)))


def seen(cell: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any], Any]:
    """Inputs of ReLUs and outputs of blocks as the flax network runs, line by line; and a model."""
    x, _ = points()
    variables, digits = SPACE.draw((), 1, jnp.float64), digits_of(cell)
    model: Any = SPACE.model((), variables, digits, x)
    inputs, outputs, relu = [], [], nn.relu

    def keep(values: list[Any], value: Array) -> None:
        if not isinstance(value, jax.core.Tracer):  # flax also looks at shapes alone
            values.append(np.asarray(value))

    def watch(next_fun: Any, args: Any, kwargs: Any, context: Any) -> Any:
        out = next_fun(*args, **kwargs)
        block = isinstance(context.module, Stem | CellBlock | Reduction)
        if block and context.method_name == "__call__":
            keep(outputs, out[0] if isinstance(out, tuple) else out)
        return out

    def spied(x: Array) -> Array:
        keep(inputs, x)
        return relu(x)

    given = {**variables, STATISTICS: model.passes.statistics}
    with monkeypatch.context() as patched, jax.disable_jit(), nn.intercept_methods(watch):
        for module in (nn, jax.nn):
            patched.setattr(module, "relu", spied)
        Network(SPACE).apply(given, x, digits)
    return inputs, outputs, model


def entropy(features: np.ndarray) -> float:
    values = np.linalg.eigvalsh(np.cov(features.reshape(-1, features.shape[-1]).T))
    share = np.clip(values, 0, None) / values.sum()
    return -float(np.sum(share * np.log(share + 1e-8)))


@pytest.mark.thorough
@pytest.mark.parametrize("cell", CELLS[:1])
def test_the_inside_of_a_cells_network_is_what_passes_through_it(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, outputs, model = seen(cell, monkeypatch)
    at = Pass(model, *points())
    on = np.concatenate([i.reshape(N, -1) > 0 for i in inputs], 1).astype(float)
    same = on @ on.T + (1 - on) @ (1 - on).T
    np.testing.assert_array_equal(equal_states(at), same)
    np.testing.assert_array_equal(np.diag(same), on.shape[1])
    products = [np.asarray(each) for each in feature_products(at) or ()]
    np.testing.assert_allclose(
        feature_entropies(products), [entropy(o) for o in outputs], rtol=1e-9
    )


@pytest.mark.thorough
@pytest.mark.parametrize("cell", CELLS)
def test_synflow_is_the_sum_over_the_weights_of_weight_times_slope(cell: str) -> None:
    variables, digits = SPACE.draw((), 1, jnp.float64), digits_of(cell)
    x, y = points()
    model = SPACE.model((), variables, digits, x)
    got = jax.jit(lambda x: synflow(Pass(model, x, y)))(x)
    network = NASBench201(task=Task((8, 8, 3), CLASSES), channels=3, cells_per_stage=2, bn="init")

    def change(path: tuple, leaf: Array) -> Array:
        return jnp.zeros_like(leaf) if path[-1].key in ("bias", "shift") else jnp.abs(leaf)

    params = jax.tree_util.tree_map_with_path(change, variables["params"])
    statistics = jax.tree_util.tree_map_with_path(
        lambda p, leaf: leaf - 1e-5 if p[-1].key == "var" else leaf, variables[STATISTICS]
    )

    def flow(params: Any) -> Array:
        given = {"params": params, STATISTICS: statistics}
        return jnp.sum(Network(network).apply(given, jnp.ones((1, 8, 8, 3)), digits))

    slopes = jax.tree_util.tree_leaves_with_path(jax.grad(flow)(params))
    weights = jax.tree.leaves(params)
    total = sum(
        np.abs(np.asarray(w * s)).sum()
        for (path, s), w in zip(slopes, weights, strict=True)
        if path[-1].key == "kernel"
    )
    assert float(got) == pytest.approx(float(np.log(total)), rel=1e-9)


@pytest.mark.slow
def test_synflow_of_a_deep_network_is_in_the_range_of_float32() -> None:
    with jax.enable_x64(False):
        space = NASBench201(channels=16, cells_per_stage=5)
        digits = jnp.asarray(space.encode(space.parse("333333")))
        x = jnp.zeros((1, 32, 32, 3), jnp.float32)
        variables = space.draw((), 0, jnp.float32)

        def flow(variables: Any, x: Array) -> Array | None:
            model = space.model((), variables, digits, x)
            return synflow(Pass(model, x, jnp.zeros(1, jnp.int32)))

        got = jax.jit(flow)(variables, x)
    # The published code computes in double precision for the sake of values such as this one.
    assert np.log(1e38) < float(got) < np.log(1e80)


def of_features(products: list[np.ndarray]) -> dict[str, float]:
    return {name: m.value for name, m in measurements_of(FEATURES, products, np.arange(N)).items()}


def names_in(found: Stack) -> set[str]:
    """What measures are read off, as PLACE.QUANTITY."""
    return {f"{place}.{name}" for place, own in found.quantities.items() for name in own}


SKIPS = "0110"


def residual_space(activation: str = "relu") -> Residual:
    return Residual(width=16, activation=activation, task=Task((5,), CLASSES))


def residual(activation: str = "relu") -> tuple[Model, Array, Array]:
    space = residual_space(activation)
    x, y = points((5,))
    skips = space.parse(SKIPS)
    variables = space.draw(space.shape(skips), 0, jnp.float64)
    return space.model(space.shape(skips), variables, jnp.asarray(space.encode(skips)), x), x, y


def activations_of(model: Model, x: Array) -> tuple[np.ndarray, list[np.ndarray]]:
    """What the hidden layers' rectifiers are given; and what they hand on where skips end."""
    space = residual_space()
    skips = space.parse(SKIPS)
    code, names = jnp.asarray(space.encode(skips)), space.activations_of(skips)
    before, after = zip(*space.hidden(model.params, x, code, names), strict=True)
    return np.stack(before), [np.asarray(f) for f in after[1:]]


def test_images_that_an_attack_does_not_move_have_no_curvature() -> None:
    rng = np.random.default_rng(0)
    model = Model(lambda w, x: x @ w, jnp.asarray(rng.normal(size=(5, 3))))
    x, labels = jnp.asarray(rng.uniform(size=(3, 5))), jnp.arange(3)
    moved = x.at[1:].add(0.1)
    before, after = (Pass(model, at, labels) for at in (x, moved))
    gradient = jax.grad(lambda x: jnp.sum(cross_entropy(model.apply(model.params, x), labels)))
    each = np.sum((gradient(moved) - gradient(x)) ** 2, 1)[1:] / (5 * 0.1**2)
    assert float(curvature(before, after)) == pytest.approx(each.mean())
    assert np.isnan(float(curvature(before, before)))


@pytest.mark.thorough
def test_proxies_at_attacked_points_are_those_of_the_attacked_points() -> None:
    model, x, y = residual()
    rhos = jnp.asarray([RHO, 2 * RHO])
    got: Stack = jax.jit(lambda x: stack(model, x, y, fgsm, rhos))(x)
    gradient = jax.grad(lambda x: jnp.sum(cross_entropy(model.logits(x), y)))
    for i, rho in enumerate((RHO, 2 * RHO)):
        parts = [x]
        for _ in range(2):
            parts.append(jnp.clip(parts[-1] + rho * jnp.sign(gradient(parts[-1])), 0, 1))
        activations = [activations_of(model, part) for part in parts]
        on = [before > 0 for before, _ in activations]
        for kernel, these in zip(POINTS, on, strict=True):
            flat = np.moveaxis(these, 1, 0).reshape(N, -1).astype(float)
            states = got.quantities[kernel]["states"][i]
            np.testing.assert_array_equal(states, flat @ flat.T + (1 - flat) @ (1 - flat).T)
        for kernel, (_, features) in zip(POINTS, activations, strict=True):
            entropies = [entropy(f) for f in features]
            products = got.quantities[kernel]["features"]
            numbers = of_features([np.asarray(each)[i] for each in products])
            assert numbers["expressivity"] == pytest.approx(sum(entropies))
            assert numbers["progressivity"] == pytest.approx(np.diff(entropies).min())
        assert got.quantities["cross"]["flips"][i] == pytest.approx(np.mean(on[0] != on[1]))
        assert got.quantities["cross_twice"]["flips"][i] == pytest.approx(np.mean(on[1] != on[2]))
        change = np.sum((gradient(parts[1]) - gradient(x)) ** 2, 1)
        length = np.sum((parts[1] - x) ** 2, 1)
        assert got.quantities["cross"]["curvature"][i] == pytest.approx(np.mean(change / length))
    assert np.ptp(got.quantities["network"]["synflow"]) == 0


def test_features_that_say_nothing_are_no_numbers() -> None:
    wide, flat = np.eye(3)[None], np.zeros((1, 2, 2))
    # Nothing rises from one block to none.
    one = measurements_of(FEATURES, [wide], np.arange(3))
    assert one["expressivity"] == (pytest.approx(np.log(3)), OK)
    assert one["progressivity"].status == NOT_GIVEN
    for broken in (flat, np.full((1, 2, 2), np.inf)):
        assert np.isnan([*of_features([wide, broken]).values()]).all()


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "swish", "tanh", "softplus"])
def test_what_a_network_does_not_have_is_left_out_and_not_made_up(activation: str) -> None:
    model, x, y = residual(activation)
    rectifies = activation not in ("tanh", "softplus")
    got = jax.eval_shape(lambda x: stack(model, x, y, fgsm, jnp.asarray([RHO])), x)
    inner = {f"{kernel}.{name}" for kernel in POINTS for name in ("features", "states")}
    inner |= {"cross.flips", "cross_twice.flips"}
    alone = {"cross.curvature", *(f"{kernel}.loss" for kernel in POINTS)}
    assert names_in(got) == alone | {"network.synflow"} | (inner if rectifies else set())


@pytest.mark.slow
def test_of_points_that_meet_each_other_only_what_takes_no_single_point_is_there() -> None:
    model, x, y = residual()
    model = model._replace(coupled=True)
    coupled = jax.eval_shape(lambda x: stack(model, x, y, fgsm, jnp.asarray([RHO])), x)
    assert names_in(coupled) == {"cross.curvature", *(f"{kernel}.loss" for kernel in POINTS)}
