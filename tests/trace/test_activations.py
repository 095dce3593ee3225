"""Rectifiers, blocks and normalisations that a trace finds, in networks of every build."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from networks import EXACT, M, error

from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.synflow import synflow
from ntkscore.model import Model
from ntkscore.trace.passes import TracedPasses, passes_of

Array = jax.Array

pytestmark = pytest.mark.usefixtures("double")


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape)) for shape in shapes]


def traced(apply: Any, params: Any, points: Array) -> tuple[TracedPasses, Any]:
    """A network's traced passes, and what its forward pass leaves of its activations."""
    passes = passes_of(Model(apply, params), points)
    assert isinstance(passes, TracedPasses)
    return passes, passes.activations(params, passes.forward(params, points)[1])


def same(got: Array, expected: Array) -> None:
    """Each point's values, which the trace has as a batch of one."""
    (only,) = got
    assert only.shape == (len(expected), 1, *expected.shape[1:])
    assert error(only[:, 0], expected) < EXACT


def on(values: Array) -> Array:
    """Which of a rectifier's inputs are above zero."""
    return jnp.where(values > 0, 1.0, -1.0)


RECTIFIERS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "maximum": lambda x: jnp.maximum(x, 0),
    "maximum from the left": lambda x: jnp.maximum(0, x),
    "where": lambda x: jnp.where(x > 0, x, 0),
    "where below": lambda x: jnp.where(x <= 0, 0, x),
    "leaky where": lambda x: jnp.where(x < 0, 0.1 * x, x),
    "relu6": jax.nn.relu6,
    "gelu": jax.nn.gelu,
    "exact gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "silu": jax.nn.silu,
    "swish by a tanh": lambda x: x * ((1 + jnp.tanh(x / 2)) / 2),
    "leaky relu": jax.nn.leaky_relu,
    "elu": jax.nn.elu,
    "selu": jax.nn.selu,
    "mish": jax.nn.mish,
    "squared relu": lambda x: jax.nn.relu(x) ** 2,
    "relu by a rule": jax.custom_jvp(lambda x: jnp.maximum(x, 0)),
}
RECTIFIERS["relu by a rule"].defjvp(  # type: ignore[attr-defined]
    lambda primals, tangents: (
        jnp.maximum(primals[0], 0),
        jnp.where(primals[0] > 0, tangents[0], 0),
    )
)
OTHERS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "softmax": jax.nn.softmax,
    "log softmax": jax.nn.log_softmax,
    "square": jnp.square,
    "sine": jnp.sin,
    "layer norm": lambda x: (
        (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    ),
    "variance that is clamped": lambda x: (
        x
        * lax.rsqrt(
            jnp.maximum(0, (x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2) + 1e-5
        )
    ),
    "deviation that is clamped": lambda x: (
        x
        / jnp.sqrt(
            jnp.maximum((x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2, 0.0) + 1e-5
        )
    ),
    "gate by another value": lambda x: x[:, :2] * jax.nn.sigmoid(x[:, 2:]),
}


@pytest.mark.parametrize("name", RECTIFIERS)
def test_a_rectifiers_input_is_found(name: str) -> None:
    (first, last), (points,) = draw((5, 4), (4, 3)), draw((M, 5))
    apply = lambda w, x: RECTIFIERS[name](x @ w[0]) @ w[1]  # noqa: E731
    _, activations = traced(apply, [first, last], points)
    ((count, before),) = activations.rectified
    assert count.tolist() == [1]
    same(before, on(points @ first))
    # Of no blocks, the rectified values are the features; what is done with them is no part.
    (features,) = activations.features
    after = {"selu": jax.nn.elu, "squared relu": jax.nn.relu}.get(name, RECTIFIERS[name])
    if name == "selu":
        after = lambda x: jax.nn.selu(x) / 1.0507009873554804934193349852946  # noqa: E731
    same(features, after(points @ first))


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_rectify_is_not_taken_for_a_rectifier(name: str) -> None:
    (first, last), (points,) = draw((5, 4), (4, 3)), draw((M, 5))

    def apply(w: Any, x: Array) -> Array:
        y = OTHERS[name](x @ w[0])
        return y @ w[1][: y.shape[1]]

    passes, activations = traced(apply, [first, last], points)
    assert not passes.rectifiers and activations is None


def test_rectifiers_are_found_first_to_last_and_only_behind_weights() -> None:
    weights, (points,) = draw((5, 4), (4, 4), (4, 3)), draw((M, 5))

    def apply(w: Any, x: Array) -> Array:
        x = jnp.maximum(x, 0)  # of the point alone
        y = jax.nn.gelu(jax.nn.relu(x @ w[0]) @ w[1])
        jax.nn.relu(y)  # goes nowhere
        return y @ w[2]

    passes, activations = traced(apply, weights, points)
    first = jnp.maximum(points, 0) @ weights[0]
    expected = [first, jnp.maximum(first, 0) @ weights[1]]
    assert len(passes.rectifiers) == 2
    for (_, got), value in zip(activations.rectified, expected, strict=True):
        same(got, on(value))


def test_a_loop_over_layers_has_a_rectifier_and_a_block_at_each_step() -> None:
    weights, (points,) = draw((3, 4, 4), (4, 2)), draw((M, 4))

    def apply(w: Any, x: Array) -> Array:
        x, _ = lax.scan(lambda x, own: (x + jax.nn.relu(x @ own), None), x @ w[0][0], w[0])
        return x @ w[1]

    passes, activations = traced(apply, weights, points)
    x, expected = points @ weights[0][0], []
    for own in weights[0]:
        expected.append((x @ own, x := x + jnp.maximum(x @ own, 0)))
    assert len(passes.rectifiers) == len(passes.blocks) == 3
    for (before, after), (_, got), features in zip(
        expected, activations.rectified, activations.features, strict=True
    ):
        same(got, on(before))
        same(features, after)


def conv(x: Array, kernel: Array, numbers: tuple[str, str, str]) -> Array:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)


@pytest.mark.parametrize("first", [False, True], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("joined", ["added", "concatenated"])
def test_blocks_end_where_branches_with_weights_meet(joined: str, first: bool) -> None:
    """Channels come last in the features, wherever the network has them."""
    numbers = ("NCHW", "HWIO", "NCHW") if first else ("NHWC", "HWIO", "NHWC")
    weights, (points,) = draw((1, 1, 2, 3), (3, 3, 3, 3), (3,)), draw((M, 4, 4, 2))
    given = jnp.moveaxis(points, -1, 1) if first else points
    axis = 1 if first else 3

    def block(w: Any, x: Array) -> Array:
        x = conv(x, w[0], numbers)
        y = conv(jax.nn.relu(x), w[1], numbers)
        return x + y if joined == "added" else jnp.concatenate([x, y], axis)

    def apply(w: Any, x: Array) -> Array:
        y = jnp.tanh(block(w, x)) * 2 + 1  # neither constants nor biases make a branch
        pixels = tuple({1, 2, 3} - {axis})
        return jnp.mean(y, pixels)[:, :3] + w[2]

    passes, activations = traced(apply, weights, given)
    assert len(passes.blocks) == 1
    (features,) = activations.features
    expected = block(weights, given)
    same(features, jnp.moveaxis(expected, 1, -1) if first else expected)


@pytest.mark.parametrize(
    "joined",
    [
        lambda y, x, w: y + w[1][0],
        lambda y, x, w: y + x[:, :4],
        lambda y, x, w: jnp.maximum(y, 0) + 0.1 * jnp.minimum(y, 0),
        lambda y, x, w: jnp.concatenate([y, x], 1)[:, :4],
        lambda y, x, w: y * jax.nn.sigmoid(y @ w[1]),
        lambda y, x, w: y - jnp.mean(y, -1, keepdims=True),
        lambda y, x, w: y + jnp.sin(y) ** 2,
    ],
    ids=["bias", "the point", "leaky relu as a sum", "with the point", "gate", "mean", "snake"],
)
def test_what_joins_no_branches_ends_no_block(joined: Any) -> None:
    weights, (points,) = draw((5, 4), (4, 4)), draw((M, 5))
    apply = lambda w, x: joined(x @ w[0], x, w) @ w[1]  # noqa: E731
    passes, _ = traced(apply, weights, points)
    assert not passes.blocks


# Normalisations


def batch_norm(x: Array, own: Any, mean: Array, var: Array) -> Array:
    return (x - mean) * lax.rsqrt(var + 1e-3) * own["scale"] + own["bias"]


def layer_norm(x: Array, own: Any) -> Array:
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * own["scale"] + own["bias"]


def rms_norm(x: Array, own: Any) -> Array:
    return x * lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * own["scale"]


def flax_norm(x: Array, own: Any) -> Array:
    """As flax computes it: of mean squares, the scale joined to the root."""
    mean = jnp.mean(x, -1)
    var = jnp.maximum(0, jnp.mean(x**2, -1) - mean**2)
    factor = lax.rsqrt(var + 1e-6)[..., None] * own["scale"]
    return (x - mean[..., None]) * factor + own["bias"]


@pytest.mark.parametrize("name", ["batch", "layer", "rms", "flax"])
def test_without_normalisations_scales_and_shifts_remain(name: str) -> None:
    params = {
        "kernel": draw((5, 4))[0],
        "norm": {"scale": jnp.linspace(0.5, 2, 4), "bias": jnp.linspace(-1, 1, 4)},
        "head": {"kernel": draw((4, 3))[0]},
    }
    (points,) = draw((M, 5))
    mean, var = jnp.linspace(-1, 1, 4), jnp.linspace(0.5, 3, 4)
    norms = {
        "batch": lambda x, own: batch_norm(x, own, mean, var),
        "layer": layer_norm,
        "rms": rms_norm,
        "flax": flax_norm,
    }

    def network(norm: Any) -> Callable[[Any, Array], Array]:
        return lambda w, x: jnp.sin(norm(x @ w["kernel"], w["norm"])) @ w["head"]["kernel"]

    passes, _ = traced(network(norms[name]), params, points)
    shift = 0 if name == "rms" else 1
    affine = network(lambda x, own: x * own["scale"] + shift * own["bias"])
    got = passes.unnormalized(params, points)
    assert error(got, affine(params, points)) < EXACT
    assert error(got, network(norms[name])(params, points)) > 0.1


def test_a_network_without_normalisations_stays_as_it_is() -> None:
    """Neither a root of the point alone, nor one without a small constant, normalises."""
    (kernel,), (points,) = draw((5, 3)), draw((M, 5))

    def apply(w: Array, x: Array) -> Array:
        return (x / jnp.sqrt(jnp.sum(x**2, -1, keepdims=True))) @ w + jnp.sqrt(jnp.abs(x[:, :3]))

    passes, _ = traced(apply, kernel, points)
    assert error(passes.unnormalized(kernel, points), apply(kernel, points)) < EXACT


@pytest.mark.parametrize("activation", ["squareplus", "isru"])
def test_a_root_of_each_number_by_itself_is_an_activation(activation: str) -> None:
    kernel, last = draw((5, 4), (4, 3))
    (points,) = draw((M, 5))
    sigma = {"squareplus": jax.nn.squareplus, "isru": lambda z: z / jnp.sqrt(1 + z**2)}[activation]

    def apply(w: Any, x: Array) -> Array:
        return sigma(rms_norm(x @ w[0], {"scale": 1.0})) @ w[1]

    passes, _ = traced(apply, [kernel, last], points)
    expected = sigma(points @ kernel) @ last
    assert error(passes.unnormalized([kernel, last], points), expected) < EXACT


def test_normalisations_of_a_branch_are_taken_out_or_refused() -> None:
    """What a choice between branches computes is no part of the list of equations."""
    kernel, last = draw((5, 4), (4, 3))
    (points,) = draw((M, 5))
    own = {"scale": jnp.linspace(0.5, 2, 4), "bias": jnp.linspace(-1, 1, 4)}

    def apply(w: Any, x: Array) -> Array:
        ways = (lambda y: layer_norm(y, w["norm"]), lambda y: y)
        return jax.lax.switch(jnp.asarray(0, jnp.int32), ways, x @ w["kernel"]) @ w["last"]

    params = {"kernel": kernel, "norm": own, "last": last}
    passes, _ = traced(apply, params, points)
    got = passes.unnormalized(params, points)
    expected = ((points @ kernel) * own["scale"] + own["bias"]) @ last
    assert got is None or error(got, expected) < EXACT


def test_synflow_tells_biases_without_names_by_their_use() -> None:
    def apply(leaves: list[Array], x: Array) -> Array:
        return jax.nn.relu(x @ leaves[0] + leaves[1]) @ leaves[2]

    leaves = draw((4, 5), (5,), (5, 3))
    x, labels = jnp.ones((2, 4)), jnp.zeros(2, jnp.int32)
    flow = []
    for own in (leaves, [leaves[0], jnp.zeros(5), leaves[2]]):
        model = Model(apply, own)
        flow.append(synflow(Pass(model, x, labels)))
    assert flow[0] == pytest.approx(flow[1])
    paths = np.abs(leaves[0]).sum(0) @ np.abs(leaves[2]).sum(1)
    assert flow[0] == pytest.approx(np.log(2 * paths), rel=1e-5)


@pytest.mark.parametrize("activation", [jax.nn.silu, jnp.tanh, jax.nn.softplus])
def test_synflow_is_taken_at_ones(activation: Callable[[Array], Array]) -> None:
    def apply(leaves: list[Array], x: Array) -> Array:
        return activation(activation(x @ leaves[0]) @ leaves[1]) @ leaves[2]

    leaves = draw((4, 8), (8, 8), (8, 3))
    model, x = Model(apply, leaves), jnp.zeros((2, 4))
    flow = synflow(Pass(model, x, jnp.zeros(2, int)))
    sizes = [jnp.abs(leaf) for leaf in leaves]
    slopes = jax.grad(lambda leaves: jnp.sum(apply(leaves, jnp.ones((1, 4)))))(sizes)
    total = sum(jnp.sum(jnp.abs(w * s)) for w, s in zip(sizes, slopes, strict=True))
    assert flow == pytest.approx(np.log(total), rel=1e-6)


@pytest.mark.parametrize(("activation", "finite"), [(jax.nn.relu, True), (jax.nn.silu, False)])
def test_synflow_beyond_the_range_is_scaled_only_where_that_is_exact(
    activation: Callable[[Array], Array], finite: bool
) -> None:
    with jax.enable_x64(False):
        leaves = [jnp.full((8, 8), 1e6, jnp.float32)] * 6

        def apply(leaves: list[Array], x: Array) -> Array:
            for leaf in leaves:
                x = activation(x @ leaf)
            return x

        model, x = Model(apply, leaves), jnp.zeros((1, 8), jnp.float32)
        flow = float(synflow(Pass(model, x, jnp.zeros(1, int))))
    assert flow == (pytest.approx(np.log(6 * 8**7 * 1e36), rel=1e-5) if finite else np.inf)


@pytest.mark.parametrize("given", ["as data", "as a constant"])
def test_a_mask_of_colours_is_a_part_of_the_network(given: str) -> None:
    weights = draw((12, 3))
    x = jnp.ones((1, 2, 2, 3))

    def flow(mask: Array) -> Array | None:
        def apply(leaves: list[Array], x: Array) -> Array:
            return (((x - 0.5) / 0.2) * mask).reshape(len(x), -1) @ leaves[0]

        model = Model(apply, weights)
        return synflow(Pass(model, x, jnp.zeros(1, int)))

    mask = jnp.array([1.0, 0.0, 1.0])
    expected = np.log(np.abs(weights[0].reshape(4, 3, 3)[:, ::2]).sum())
    assert (jax.jit(flow) if given == "as data" else flow)(mask) == pytest.approx(expected)


def test_synflow_of_a_network_that_normalises_its_images() -> None:
    """At a point of ones that the images' own normaliser does not move."""
    (kernel,) = draw((5, 3))
    scaled = Model(lambda w, x: ((x - 0.5) / 0.2) @ w["kernel"], {"kernel": kernel})
    x = jnp.ones((1, 5))
    flow = synflow(Pass(scaled, x, jnp.zeros(1, int)))
    assert flow is None or np.isfinite(float(flow))


def batch_statistics(z: Array) -> tuple[Array, Array]:
    pixels = tuple(range(z.ndim - 1))
    return jnp.mean(z, pixels), jnp.var(z, pixels)


@pytest.mark.parametrize("pooled", ["mean", "flat", "max", "token"])
def test_a_network_standardised_by_a_batch_of_its_own(pooled: str) -> None:
    """Whatever it normalises by; what follows the mean over the pixels takes no part."""
    first, second, head = draw((3, 3, 3, 4), (1, 1, 4, 5), (5 if pooled != "flat" else 80, 3))
    own = {"scale": jnp.linspace(0.5, 2, 4), "bias": jnp.linspace(-1, 1, 4)}
    params = {"first": first, "second": second, "head": head, "norm": own}
    stored = jnp.linspace(-1, 1, 4), jnp.linspace(0.5, 3, 4)
    pools: dict[str, Callable[[Array], Array]] = {
        "mean": lambda y: jnp.mean(y, (1, 2)),
        "flat": lambda y: y.reshape(len(y), -1),
        "max": lambda y: jnp.max(y, (1, 2)),
        "token": lambda y: y[:, 0, 0],
    }

    def convolve(x: Array, kernel: Array) -> Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    def apply(w: Any, x: Array) -> Array:
        x = (x - 0.5) / 0.2
        y = jax.nn.relu(batch_norm(convolve(x, w["first"]), w["norm"], *stored))
        y = jax.nn.relu(flax_norm(convolve(y, w["second"]), {"scale": 1.0, "bias": 0.1}))
        y = pools[pooled](y)
        if pooled != "flat":
            y = flax_norm(y, {"scale": 1.0, "bias": 0.0})
        return y @ w["head"]

    images, others = draw((2, M, 4, 4, 3))[0]

    def plain(x: Array, statistics: list[tuple[Array, Array]]) -> Array:
        given = list(statistics)

        def norm(z: Array) -> Array:
            mean, var = given.pop(0) if given else measured(z)
            return (z - mean) * lax.rsqrt(var + 1e-5)

        def measured(z: Array) -> tuple[Array, Array]:
            statistics.append(batch_statistics(z))
            return statistics[-1]

        y = jax.nn.relu(norm(convolve(x, first)) * own["scale"] + own["bias"])
        return jax.nn.relu(norm(convolve(y, second)) + 0.1)

    statistics: list[tuple[Array, Array]] = []
    expected = plain(images, statistics), plain(others, statistics)
    assert len(statistics) == 2
    passes, _ = traced(apply, params, images)
    here, there, logs = passes.standardized(params, images, others) or (images,) * 3
    for got, right in ((here, expected[0]), (there, expected[1])):
        assert error(got.reshape(right.shape), right) < EXACT
    assert float(logs) == pytest.approx(sum(np.log(np.mean(v)) / 2 for _, v in statistics))


def test_without_positions_the_last_layers_inputs_are_the_features() -> None:
    hidden, last = draw((5, 4), (4, 3))
    points, others = draw((2, M, 5))[0]

    def apply(w: Any, x: Array) -> Array:
        return jax.nn.relu(layer_norm(x @ w[0], {"scale": 1.0, "bias": 0.0})) @ w[1]

    passes, _ = traced(apply, [hidden, last], points)
    here, _, _ = passes.standardized([hidden, last], points, others) or (points,) * 3
    mean, var = batch_statistics(points @ hidden)
    expected = jax.nn.relu((points @ hidden - mean) * lax.rsqrt(var + 1e-5))
    assert error(here.reshape(expected.shape), expected) < EXACT


@pytest.mark.parametrize("kind", ["rms", "steps"])
def test_what_cannot_be_standardised_is_not_given(kind: str) -> None:
    """A normalisation without a mean; and a network that reads its point step by step."""
    kernel, last = draw((5, 4), (4, 3))
    (points,) = draw((M, 6, 5))

    def rms(w: Any, x: Array) -> Array:
        return jnp.mean(jnp.tanh(rms_norm(x @ w[0], {"scale": 1.0})), 1) @ w[1]

    def steps(w: Any, x: Array) -> Array:
        x = jnp.tanh(x @ w[0])
        return sum((x[:, k] for k in range(6)), jnp.zeros(())) @ w[1]

    passes, _ = traced({"rms": rms, "steps": steps}[kind], [kernel, last], points)
    assert passes.standardized([kernel, last], points, points) is None


@pytest.mark.parametrize("pool", ["window", "sum"])
def test_channels_first_and_groups_are_standardised_by_channel(pool: str) -> None:
    """As PyTorch and equinox have them: images (c, h, w), groups by a reshape."""
    kernel, head = draw((6, 3, 3, 3), (6, 4))
    images, others = draw((2, M, 3, 4, 4))[0]

    def convolve(x: Array, w: Array) -> Array:
        numbers = ("NCHW", "OIHW", "NCHW")
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)

    def group_norm(z: Array) -> Array:
        groups = z.reshape(len(z), 2, 3 * 16)
        mean, var = jnp.mean(groups, 2, keepdims=True), jnp.var(groups, 2, keepdims=True)
        return ((groups - mean) * lax.rsqrt(var + 1e-5)).reshape(z.shape)

    def apply(w: Any, x: Array) -> Array:
        y = jax.nn.relu(group_norm(convolve(x, w[0])))
        if pool == "sum":
            return jnp.sum(y, (2, 3)) @ w[1]
        y = lax.reduce_window(y, 0.0, lax.add, (1, 1, 4, 4), (1, 1, 1, 1), "VALID")
        return y.reshape(len(x), 6) @ w[1]

    params = [kernel, head]
    passes, _ = traced(apply, params, images)
    found = passes.standardized(params, images, others)
    assert found is not None
    z = convolve(images, kernel)
    mean, var = jnp.mean(z, (0, 2, 3)), jnp.var(z, (0, 2, 3))
    for got, x in zip(found[:2], (images, others), strict=True):
        moved = jnp.moveaxis(convolve(x, kernel), 1, -1)
        expected = jax.nn.relu((moved - mean) * lax.rsqrt(var + 1e-5))
        assert error(jnp.moveaxis(got[:, 0], 1, -1), expected) < EXACT
    assert float(found[2]) == pytest.approx(float(jnp.log(jnp.mean(var)) / 2))


def test_a_gate_beside_a_root_is_no_centring() -> None:
    kernel, last = draw((5, 4), (4, 3))
    (points,) = draw((M, 5))

    def apply(w: Any, x: Array) -> Array:
        y = x @ w[0]
        return (rms_norm(y, {"scale": 1.0}) * (1 - jax.nn.sigmoid(y))) @ w[1]

    passes, _ = traced(apply, [kernel, last], points)
    y = points @ kernel
    expected = (y * (1 - jax.nn.sigmoid(y))) @ last
    assert error(passes.unnormalized([kernel, last], points), expected) < EXACT
    assert passes.standardized([kernel, last], points, points) is None


def test_pullbacks_are_those_of_each_block_by_itself() -> None:
    rng = np.random.default_rng(0)
    first, *blocks, last = (jnp.asarray(rng.normal(size=(4, 4))) for _ in range(8))
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))

    def block(h: Any, weights: Any) -> Any:
        return h @ weights[0] + jnp.tanh(h) @ weights[1]

    def apply(params: Any, x: Any) -> Any:
        h = x @ params["first"]
        for weights in params["blocks"]:
            h = block(h, weights)
        return h @ params["last"]

    x, params = (
        jnp.asarray(rng.normal(size=(5, 4))),
        {"first": first, "blocks": pairs, "last": last},
    )
    passes = passes_of(Model(apply, params), x)
    found = passes.pullbacks(params, passes.forward(params, x)[1], jax.random.key(0))
    assert len(found) == 2
    h = block(x @ first, pairs[0])
    for weights, (gradient, signs) in zip(pairs[1:], found, strict=True):
        assert gradient.shape == signs.shape == (1, 5, 1, 1, 4)
        assert {*np.unique(signs)} == {-1.0, 1.0}
        h, pull = jax.vjp(lambda h, weights=weights: block(h, weights), h)
        want = pull(signs.reshape(h.shape).astype(h.dtype))[0]
        np.testing.assert_allclose(gradient.reshape(h.shape), want, rtol=1e-5, atol=1e-6)
