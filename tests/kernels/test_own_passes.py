"""Measures with passes of their own, each against a plain second formulation."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax_nasbench201 import CellBlock, Head, Network, Reduction

from attacks import fgsm, uniform_in_ball
from cells.cell_space import STATISTICS
from cells.nasbench201.space import NASBench201
from ntkscore import Task
from ntkscore.kernels.joint import POINTS
from ntkscore.kernels.stack import stack
from ntkscore.measures.fisher import FISHER, fisher
from ntkscore.measures.forward_pass import Pass, cross_entropy
from ntkscore.measures.perturbations import (
    displacements,
    flip_distance,
    flip_distances,
    stability,
)
from ntkscore.measures.report import measurements_of
from ntkscore.measures.trainability import PULLBACKS, pullback_products
from ntkscore.measures.weight_gradients import _of_layer, of_gradients
from ntkscore.measures.zen import NOISE, zen
from ntkscore.model import Model

Array = jax.Array
N, CLASSES, STAGES = 3, 4, 3
TASK = Task((8, 8, 3), CLASSES, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
SPACE = NASBench201(task=TASK, channels=3, cells_per_stage=2)
CELL = "132340"

pytestmark = [pytest.mark.usefixtures("double"), pytest.mark.slow]


def points() -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    return jnp.asarray(rng.uniform(size=(N, 8, 8, 3))), jnp.asarray([0, 3, 1], jnp.int32)


def digits() -> Array:
    return jnp.asarray(SPACE.encode(SPACE.parse(CELL)))


def model() -> Any:
    return SPACE.model((), SPACE.draw((), 1, jnp.float64), digits(), points()[0])


def passed(network: Model, x: Array) -> Pass:
    """A forward pass of the network, by its own passes or by those that its trace gives."""
    labels = jnp.resize(points()[1], len(x))
    return Pass(network, x, labels, jax.random.key(3))


def values(quantity: Any, arrays: Any) -> dict[str, float]:
    """What the host reads off a quantity."""
    return {
        name: found.value for name, found in measurements_of(quantity, arrays, np.arange(N)).items()
    }


def unstacked(tree: Any) -> dict[str, np.ndarray]:
    """Every layer's tensor by its name, the cells of a stage one by one."""
    layers = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        names = [entry.key for entry in path]
        if names[0].startswith("stage"):
            layers |= {f"{'/'.join(names)}/{k}": np.asarray(part) for k, part in enumerate(leaf)}
        else:
            layers["/".join(names)] = np.asarray(leaf)
    return layers


@pytest.mark.thorough
def test_gradient_measures_are_sums_over_the_layers_weights() -> None:
    (x, y), network = points(), model()
    got = jax.jit(lambda x: of_gradients(passed(network, x)))(x)

    def loss(params: Any, x: Array, y: Array) -> Array:
        return cross_entropy(network.apply(params, x[None]), y[None])[0]

    gradient = jax.jit(jax.grad(loss))
    slopes = [unstacked(gradient(network.params, *one)) for one in zip(x, y, strict=True)]
    weights = unstacked(network.params)
    norm, snip, zico, without = 0.0, 0.0, 0.0, 0
    for name, weight in weights.items():
        if "kernel" not in name:
            continue
        each = np.stack([slope[name] for slope in slopes])
        mean, deviation = each.mean(0), each.std(0)
        norm += np.linalg.norm(mean)
        snip += np.abs(weight * mean).sum()
        there = deviation > 0
        ratio = (np.abs(each).mean(0)[there] / deviation[there]).sum()
        without += not there.any()
        zico += np.log(ratio) if there.any() else 0
    # Of the cell's three convolutions one is on a path to its output.
    assert without == STAGES * 2 * (2 * 6 - 1)
    assert got["grad_norm"] == pytest.approx(norm, rel=1e-9)
    assert got["snip"] == pytest.approx(snip, rel=1e-9)
    assert got["zico"] == pytest.approx(zico, rel=1e-6)


@pytest.mark.thorough
# A pooling of 2×2 pixels is constant; by its own statistics its gradients are zero, or rounding.
@pytest.mark.parametrize(("bn", "cell"), [("calibrated", "213104"), ("instance", "213101")])
def test_measures_of_weights_by_a_cells_passes_are_those_by_its_forward_function(
    bn: str, cell: str
) -> None:
    x, _ = points()
    space, rng = replace(SPACE, bn=bn, init="ntk"), np.random.default_rng(2)
    # Scales that are not one and shifts that are not zero.
    drawn = jax.tree.map(
        lambda leaf: leaf + rng.uniform(-0.3, 0.3, leaf.shape), space.draw((), 1, jnp.float64)
    )
    code = jnp.asarray(space.encode(space.parse(cell)))

    @jax.jit
    def both(code: Array) -> Any:
        network = space.model((), drawn, code, x)
        assert network.passes is not None
        both = (network, network._replace(passes=None))
        return [(of_gradients(at), fisher(at)) for at in (passed(each, x) for each in both)]

    (fast, quick), (plain, naive) = both(code)
    assert fast.keys() == plain.keys() == {"grad_norm", "snip", "zico"}
    for name, value in plain.items():
        assert float(fast[name]) == pytest.approx(float(value), rel=1e-7), name
    # The layers' order differs, and the one has rows for operations that the cell lacks.
    spectra = [np.linalg.eigvalsh(each)[-8:] for each in (quick, naive)]
    np.testing.assert_allclose(*spectra, rtol=1e-9)
    counts = [np.count_nonzero(np.diag(each)) for each in (quick, naive)]
    # Stem, two reduction blocks of three, head, and two convolutions of each cell; the first
    # weights of some lead to rectifiers that are off.
    assert 8 < counts[0] == counts[1] <= 1 + 2 * 3 + 1 + STAGES * 2 * 2


def test_fisher_is_the_mean_square_of_what_moves_the_labels_log_probability() -> None:
    rng, x = np.random.default_rng(0), jnp.asarray(np.random.default_rng(1).normal(size=(5, 6)))
    params = [jnp.asarray(rng.normal(size=shape)) for shape in ((6, 7), (7, CLASSES))]
    network = Model(lambda w, x: jnp.tanh(x @ w[0]) @ w[1], params)

    def log_chance(first: Array, x: Array, label: int) -> Array:
        moved = [w.at[0, 0].set(value) for w, value in zip(params, first, strict=True)]
        return jax.nn.log_softmax(network.apply(moved, x[None])[0])[label]

    first, expected = jnp.stack([w[0, 0] for w in params]), np.zeros((2, 2))
    both = jax.jit(jax.value_and_grad(log_chance))
    for one in x:
        for label in range(CLASSES):
            value, slope = map(np.asarray, both(first, one, label))
            expected += np.exp(value) * np.outer(slope, slope) / len(x)
    got = jax.jit(lambda x: fisher(passed(network, x)))(x)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_the_fisher_entropy_is_of_the_deciles_of_what_gradients_reach() -> None:
    spectrum = np.array([0.0, 1.0, 2.0, 7.0, 3.0])
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    matrix = np.zeros((7, 7))
    matrix[1:6, 1:6] = turned @ np.diag(spectrum) @ turned.T
    # Of five sorted values the decile k lies at the place 0.4 k, counted from 0.
    deciles = np.array([0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8, 3.8, 5.4])
    share = deciles / deciles.sum()
    got = values(FISHER, matrix)
    assert got["fisher_entropy"] == pytest.approx(-np.sum(share * np.log(share)))
    assert got["vkdnw"] == 5 + got["fisher_entropy"]
    # With one image of two classes the matrix has one eigenvalue that is not rounding.
    single = np.outer(*[np.linspace(1, 2, 12, dtype=np.float32)] * 2)
    for none in (np.zeros((3, 3)), np.full((3, 3), np.nan), single):
        assert np.isnan(list(values(FISHER, none).values())).all()


def test_gradients_whose_squares_vanish_count() -> None:
    with jax.enable_x64(False):
        rng = np.random.default_rng(0)
        gradients, kernel = rng.normal(size=(3, 5)), jnp.ones(5, jnp.float32)

        def found(size: float) -> dict[str, float]:
            each = jnp.asarray(gradients * size, jnp.float32)
            layer = SimpleNamespace(kernel=kernel, gradients=each, first=each[:, 0])
            return {name: float(value) for name, value in _of_layer(layer).items()}

        whole, tiny = found(1), found(1e-30)
    assert tiny["zico"] == pytest.approx(whole["zico"], rel=1e-5)
    for name in ("grad_norm", "snip"):
        assert tiny[name] == pytest.approx(1e-30 * whole[name], rel=1e-5)


@pytest.mark.thorough
def test_what_is_no_number_stays_none() -> None:
    (x, _), network = points(), model()
    broken = Model(lambda w, x: network.apply(w, x) * jnp.nan, network.params)
    found = jax.jit(lambda x: of_gradients(passed(broken, x)))(x)
    assert np.isnan(list(found.values())).all()


def test_stability_is_the_mean_of_products_with_the_whole_jacobian() -> None:
    rng, x, key = np.random.default_rng(0), points()[0], jax.random.key(7)
    w = jnp.asarray(rng.normal(size=(CLASSES, 8, 8, 3)))
    logits = lambda x: jnp.tanh(jnp.einsum("nhwc,ohwc->no", x, w))  # noqa: E731
    jacobian = (1 - logits(x) ** 2)[:, :, None, None, None] * w
    delta = uniform_in_ball(key, x.shape, x.dtype)
    assert (np.linalg.norm(delta.reshape(N, -1), axis=1) <= 1).all()
    moved = np.einsum("nohwc,nhwc->no", jacobian, delta)
    got = displacements(logits, x, key)
    np.testing.assert_allclose(got, np.linalg.norm(moved, axis=1), rtol=1e-9)


def test_flip_distance_is_the_way_to_the_runner_up_of_a_linear_network() -> None:
    rng = np.random.default_rng(0)
    weights, x = jnp.asarray(rng.normal(size=(6, 4))), jnp.asarray(rng.normal(size=(N, 6)))
    logits, pullback = jax.vjp(lambda x: x @ weights, x)
    distances = flip_distances(logits, lambda s: pullback(s)[0])
    order = np.argsort(-logits, axis=1)[:, :2]
    for one, (first, second) in enumerate(order):
        way = np.asarray(weights[:, second] - weights[:, first])
        for factor, chosen in ((0.999, first), (1.001, second)):
            there = x[one] + factor * distances[one] * way / np.linalg.norm(way)
            two = (there @ weights)[order[one]]
            assert order[one][int(np.argmax(two))] == chosen
    # Of one output it is the way to zero; of equal logits there is none to go.
    assert flip_distances(jnp.asarray([[3.0]]), lambda s: 2 * s) == pytest.approx(1.5)
    assert flip_distances(jnp.zeros((1, 4)), lambda s: s) == 0


@pytest.mark.thorough
def test_perturbations_of_a_cell_by_its_passes_are_those_by_its_forward_function() -> None:
    x, network = points()[0], model()

    @jax.jit
    def measured(x: Array) -> list[list[Array]]:
        both = (passed(each, x) for each in (network, network._replace(passes=None)))
        return [[stability(at), flip_distance(at)] for at in both]

    fast, plain = measured(x)
    np.testing.assert_allclose(fast, plain, rtol=1e-9)
    assert min(plain) > 0


@pytest.mark.thorough
def test_zen_draws_its_own_weights_and_passes_over_empty_nodes() -> None:
    x = points()[0]

    def measured(cell: str, init: str) -> float:
        space = replace(SPACE, init=init)
        variables, digits = (
            space.draw((), 1, jnp.float64),
            jnp.asarray(SPACE.parse(cell).operations),
        )
        network: Any = space.model((), variables, digits, x)
        return float(zen(passed(network, x)) or np.nan)

    # The first one's last convolution reads an empty node; the second has none there.
    one, other = measured("300333", "torch"), measured("300330", "torch")
    assert np.isfinite(one) and one == pytest.approx(other, rel=1e-9)
    assert measured("300333", "ntk") == pytest.approx(one, rel=1e-9)


@pytest.mark.thorough
def test_zen_of_a_cell_without_dead_ends_by_its_passes_is_that_of_its_trace() -> None:
    x, _ = points()
    digits = jnp.asarray(SPACE.encode(SPACE.parse("132343")))
    network: Any = SPACE.model((), SPACE.draw((), 1, jnp.float64), digits, x)
    own, other = (
        jax.jit(lambda x, each=each: zen(passed(each, x)))(x)
        for each in (network, network._replace(passes=None))
    )
    assert float(own) == pytest.approx(float(other), rel=1e-9)


@pytest.mark.thorough
def test_zen_is_that_of_the_network_standardised_by_its_own_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (x, _), network = points(), model()
    got = jax.jit(lambda x: zen(passed(network, x)))(x)
    taken: dict[str, Any] = {}

    def watch(params: Any, x: Array, other: Array) -> Any:
        taken.update(params=params, x=x, other=other)
        return network.passes.standardized(params, x, other)

    at = passed(network, x)
    watched = SimpleNamespace(standardized=watch, kinds_of=network.passes.kinds_of)
    monkeypatch.setattr(at, "passes", watched)
    zen(at)
    params = taken["params"]
    kernels = np.concatenate([k.ravel() for n, k in unstacked(params).items() if "kernel" in n])
    assert abs(kernels.mean()) < 0.05 and abs(kernels.std() - 1) < 0.05
    assert abs(np.std(taken["x"]) - 1) < 0.1
    assert np.std(taken["other"] - taken["x"]) == pytest.approx(NOISE, rel=0.1)

    plain, ends = Network(SPACE.on(Task((8, 8, 3), CLASSES))), []

    def look(next_fun: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if isinstance(context.module, Head) and context.method_name == "__call__":
            ends.append(args[0])
        return next_fun(*args, **kwargs)

    variables = SPACE.draw((), 1, jnp.float64)
    given = {"params": params, STATISTICS: variables[STATISTICS]}
    with nn.intercept_methods(look):
        _, new = plain.apply(given, taken["x"], digits(), calibrate=True, mutable=[STATISTICS])
        stored = new[STATISTICS]
        plain.apply({"params": params, STATISTICS: stored}, taken["other"], digits())
    mean, var = (np.asarray(stored["head"][name]) for name in ("mean", "var"))
    here, there = (np.maximum((np.asarray(e) - mean) / np.sqrt(var + 1e-5), 0) for e in ends)
    variances = [v.mean() for name, v in unstacked(stored).items() if "var" in name.split("/")]
    assert np.sum(np.array(variances) == 1) == STAGES * 2 * 3  # edges that the cell leaves out
    deviations = np.log(np.sqrt(variances)).sum()
    expected = np.log(np.abs(here - there).sum((1, 2, 3)).mean()) + deviations
    assert got == pytest.approx(expected, rel=1e-6)


@pytest.mark.thorough
def test_pullbacks_are_those_of_each_block_by_itself() -> None:
    (x, _), network = points(), model()
    _, residuals = network.passes.forward(network.params, x)
    pairs = network.passes.pullbacks(network.params, residuals, jax.random.key(0))
    assert [len(g) for _, g in pairs] == [2, 1, 2, 1, 2]
    params, stored = network.params, network.passes.statistics
    for stage in range(STAGES):
        nodes, width = residuals.nodes[stage], 3 << stage
        dx, signs = pairs[2 * stage]
        assert set(np.unique(signs)) == {-1.0, 1.0}
        for k in range(2):
            pick = lambda tree, k=k, s=stage: jax.tree.map(lambda a: a[k], tree[f"stage_{s}"])  # noqa: E731
            given = {"params": pick(params), STATISTICS: pick(stored)}
            block = CellBlock(width)
            f = lambda z, b=block, v=given: b.apply(v, z, digits())[0]  # noqa: E731
            out, pull = jax.vjp(f, nodes[3 * k])
            np.testing.assert_allclose(out, nodes[3 * k + 3], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(dx[k], pull(signs[k])[0], rtol=1e-9, atol=1e-12)
        if stage:
            dx, signs = pairs[2 * stage - 1]
            name = f"reduction_{stage}"
            given = {"params": params[name], STATISTICS: stored[name]}
            g = lambda z, v=given, w=width: Reduction(w).apply(v, z)  # noqa: E731
            _, pull = jax.vjp(g, residuals.nodes[stage - 1][-1])
            np.testing.assert_allclose(dx[0], pull(signs[0])[0], rtol=1e-9, atol=1e-12)


def test_trainability_compares_what_leaves_a_block_with_what_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    g, dx = rng.normal(size=(2, N, 4, 4, 5)), rng.normal(size=(2, N, 8, 8, 3))
    at = passed(Model(lambda w, x: x @ w, jnp.eye(CLASSES)), jnp.ones((N, CLASSES)))
    pulled = [(jnp.asarray(dx), jnp.asarray(g))]
    monkeypatch.setattr(at, "passes", SimpleNamespace(pullbacks=lambda *given: pulled))
    (got,) = pullback_products(at) or ()
    score = []
    for k in range(2):
        unshuffled = np.stack([dx[k][:, a::2, b::2] for a in (0, 1) for b in (0, 1)], 3)
        rows = unshuffled.reshape(N * 16, 12)
        product = rows.T @ g[k].reshape(N * 16, 5) / (N * 16)
        np.testing.assert_allclose(got[k], product, rtol=1e-12)
        largest = np.linalg.svd(product)[1][0]
        score.append(2 - largest - 1 / (largest + 1e-6))
    assert values(PULLBACKS, [np.asarray(got)])["trainability"] == pytest.approx(np.mean(score))


@pytest.mark.thorough
def test_they_come_by_where_they_are_asked_for_and_where_a_network_can_give_them() -> None:
    (x, y), key = points(), jax.random.key(0)

    def names(network: Model, own: Any) -> set[str]:
        rhos = jnp.asarray([0.05, 0.1])
        measure = lambda x: stack(network, x, y, fgsm, rhos, noise=own)  # noqa: E731
        got = jax.eval_shape(measure, x)
        return {f"{place}.{name}" for place, own in got.quantities.items() for name in own}

    coupled = {"cross.curvature", *(f"{kernel}.loss" for kernel in POINTS)}
    always = {*coupled, "network.synflow"}
    gradients = {f"{k}.{n}" for k in POINTS[:2] for n in ("gradients", "fisher")}
    gradients |= {f"clean.{n}" for n in ("stability", "flip_distance", "channels", "grasp")}
    inside = {"network.zen", "clean.pullbacks", "clean.rectifiers", "clean.patterns"}
    assert inside | gradients < names(model(), key)
    bare = Model(lambda w, x: x.reshape(len(x), -1) @ w, jnp.ones((8 * 8 * 3, CLASSES)))
    assert names(bare, key) == always | gradients
    assert names(bare, None) == always
    assert names(bare._replace(coupled=True), key) == coupled
