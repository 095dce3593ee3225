"""Counts on a network's trace, against numbers counted by hand."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from cells.nasbench201.network import STATISTICS, abstract_variables
from cells.nasbench201.space import NASBench201
from ntkscore.trace.counts import counts
from ntkscore.trace.program import Program

Array = jax.Array
IMAGE = (32, 32, 3)


def draw(*shape: int) -> Array:
    return jnp.zeros(shape)


def count(apply: Callable[..., Any], params: Any, *shape: int) -> dict[str, float]:
    return counts(Program(apply, params, jax.ShapeDtypeStruct(shape, jnp.float32)))


def count_linen(net: nn.Module, *shape: int) -> dict[str, float]:
    """Of a flax network, whose running statistics are none of its weights."""
    variables = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((1, *shape)))
    params = variables.pop("params")
    rest = jax.tree.map(lambda each: np.ones(each.shape, each.dtype), variables)
    return count(lambda p, x: net.apply({**rest, "params": p}, x), params, *shape)


def field(apply: Callable[[Array], Array], *shape: int) -> float:
    """The field of a 1×1 convolution's outputs after a function of them, before a mean."""
    if not shape:
        shape = IMAGE

    def network(w: Array, x: Array) -> Array:
        y = apply(x @ w)
        return jnp.mean(y, tuple(range(1, y.ndim - 1)))

    return count(network, draw(shape[-1], 4), *shape)["field"]


def convolve(x: Array, kernel: Array, stride: int = 1, pad: Any = "SAME", **options: Any) -> Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), pad, dimension_numbers=numbers, **options
    )


def test_a_perceptron() -> None:
    def apply(params: Any, x: Array) -> Array:
        x = x.reshape(len(x), -1)
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        return x @ params[-1]

    params = [(draw(48, 7), draw(7)), (draw(7, 5), draw(5)), draw(5, 3)]
    assert count(apply, params, 4, 4, 3) == {
        "params": 48 * 7 + 7 + 7 * 5 + 5 + 15,
        "flops": 48 * 7 + 7 * 5 + 15,
        "layers": 3,
        "rectifiers": 2,
        "depth": 3,
        "shortest_path": 3,
        "field": 4,
    }


def test_strides_pools_and_a_flattening() -> None:
    def apply(params: Any, x: Array) -> Array:
        x = jax.nn.relu(convolve(x, params[0], 2, "VALID"))  # 5×5, stride 2: 16 → 6
        x = nn.max_pool(x, (2, 2), (2, 2))  # 3
        x = jax.nn.relu(convolve(x, params[1], 1))  # 3×3
        return x.reshape(len(x), -1) @ params[2]

    found = count(apply, [draw(5, 5, 3, 8), draw(3, 3, 8, 4), draw(36, 10)], 16, 16, 3)
    assert found["flops"] == 36 * 75 * 8 + 9 * 72 * 4 + 360
    assert found["params"] == 600 + 288 + 360
    # 5, then a pool at jump 2, then 3×3 at jump 4.
    assert found["field"] == 5 + 2 + 2 * 4
    assert (found["layers"], found["depth"], found["rectifiers"]) == (3, 3, 2)


def test_branches_of_different_depth() -> None:
    def apply(params: Any, x: Array) -> Array:
        x = convolve(x, params["stem"])
        x = convolve(jax.nn.relu(convolve(x, params["a"], 2)), params["b"]) + convolve(
            x, params["shortcut"], 2
        )
        return jnp.mean(x + 0 * x, (1, 2)) @ params["head"]

    params = {"stem": draw(3, 3, 3, 4), "a": draw(3, 3, 4, 6), "b": draw(3, 3, 6, 6)}
    params |= {"shortcut": draw(1, 1, 4, 6), "head": draw(6, 2), "unused": draw(100)}
    found = count(apply, params, *IMAGE)
    assert (found["layers"], found["depth"], found["shortest_path"]) == (5, 4, 3)
    assert found["field"] == 3 + 2 + 2 * 2
    assert found["params"] == 108 + 216 + 324 + 24 + 12


class Block(nn.Module):
    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        conv = lambda size, stride: nn.Conv(  # noqa: E731
            self.width, (size, size), stride, use_bias=False, padding=size // 2
        )
        norm = lambda: nn.BatchNorm(use_running_average=True)  # noqa: E731
        y = nn.relu(norm()(conv(3, self.stride)(x)))
        y = norm()(conv(3, 1)(y))
        if x.shape != y.shape:
            x = norm()(conv(1, self.stride)(x))
        return nn.relu(x + y)


class ResNet18(nn.Module):
    """With the stem that images of CIFAR's size are given."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Conv(64, (3, 3), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        for stage, width in enumerate((64, 128, 256, 512)):
            for block in range(2):
                x = Block(width, 2 if stage and not block else 1)(x)
        return nn.Dense(10)(jnp.mean(x, (1, 2)))


def test_resnet_18() -> None:
    """Parameters and multiply-adds as published; the field as by Araujo et al. (2019)."""
    found = count_linen(ResNet18(), *IMAGE)
    assert found["params"] == 11_173_962
    assert found["flops"] == 555_422_720
    assert (found["layers"], found["rectifiers"]) == (21, 17)
    assert (found["depth"], found["shortest_path"]) == (18, 5)
    stages = [4 * 2, 2 + 3 * 2 * 2, 2 * 2 + 3 * 2 * 4, 2 * 4 + 3 * 2 * 8]
    assert found["field"] == 3 + sum(stages)


def count_cell(space: NASBench201, digits: str) -> dict[str, float]:
    """Of a cell's network as it is trained, of which no weights are drawn."""
    run = space.training(space.parse(digits))
    shapes = abstract_variables(space)
    fixed = jax.tree.map(lambda each: np.ones(each.shape, each.dtype), shapes[STATISTICS])

    def apply(params: Any, x: Array) -> Array:
        return run(params, fixed, x, train=False)[0]

    return count(apply, shapes["params"], *IMAGE)


@pytest.mark.parametrize("digits", ["323133", "143231"])
def test_a_cell_of_nasbench201(digits: str) -> None:
    """All of these cells' edges reach the output, so that the trace counts what the cell does."""
    space = NASBench201(channels=2, cells_per_stage=1)
    used, cell = count_cell(space, digits), space.parse(digits)
    counted = space.structure(cell)
    expected = {**space.costs(cell), "layers": counted["layers"]}
    assert {name: used[name] for name in expected} == expected
    # Beside the cells: stem and head; two convolutions in a reduction, or one past them.
    assert used["depth"] == 2 + 2 * 2 + 3 * counted["longest_path"]
    assert used["shortest_path"] == 2 + 2 * 1 + 3 * counted["shortest_path"]


@pytest.mark.slow
def test_the_benchmarks_own_size() -> None:
    found = count_cell(NASBench201(), "323133")
    assert found["params"] == 1_073_466
    assert round(found["flops"] / 1e6, 2) == 153.27
    assert found["layers"] == 83
    # A cell widens by 6 pixels, at jumps 1, 2, 4; a reduction by 3×3 before its stride, and after.
    assert found["field"] == 3 + 5 * 6 * (1 + 2 + 4) + (2 + 4) + (4 + 8)


class ViT(nn.Module):
    layers: int = 2
    width: int = 12
    heads: int = 2
    token: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        d = self.width
        x = nn.Conv(d, (4, 4), 4)(x).reshape(len(x), -1, d)
        if self.token:
            own = self.param("token", nn.initializers.zeros, (1, 1, d))
            x = jnp.concatenate([own, x], 1)
        x += self.param("places", nn.initializers.zeros, (1, x.shape[1], d))
        for _ in range(self.layers):
            y = nn.LayerNorm()(x)
            x += nn.MultiHeadDotProductAttention(self.heads)(y, y)
            x += nn.Dense(d)(nn.gelu(nn.Dense(2 * d)(nn.LayerNorm()(x))))
        x = nn.LayerNorm()(x)
        return nn.Dense(3)(x[:, 0] if self.token else jnp.mean(x, 1))


@pytest.mark.parametrize("token", [True, False])
def test_a_vision_transformer(token: bool) -> None:
    found = count_linen(ViT(token=token), *IMAGE)
    d, t = 12, 64 + token
    attention = 2 * t * t * d
    dense = t * (4 * d * d + 2 * 2 * d * d)
    assert found["flops"] == 64 * 48 * d + 2 * (attention + dense) + 3 * d
    assert found["layers"] == 1 + 2 * 6 + 1
    # The rectifiers: a GELU in each layer. The longest path: q or k, the output, and two more.
    assert (found["rectifiers"], found["depth"]) == (2, 1 + 2 * 4 + 1)
    assert found["shortest_path"] == 2
    assert found["field"] == 32


def test_a_mixer_sees_the_whole_image_through_products_by_weights() -> None:
    def apply(params: Any, x: Array) -> Array:
        x = x.reshape(1, 8, 4, 8, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(1, 64, 48)
        x = x @ params["patches"]
        if "mix" in params:
            x += jnp.swapaxes(jnp.swapaxes(x, 1, 2) @ params["mix"], 1, 2)
        return jnp.mean(x, 1) @ params["head"]

    params = {"patches": draw(48, 6), "mix": draw(64, 64), "head": draw(6, 2)}
    assert count(apply, params, *IMAGE)["field"] == 32
    del params["mix"]
    assert count(apply, params, *IMAGE)["field"] == 4


@pytest.mark.parametrize(("groups", "before"), [(1, 8), (2, 4), (8, 1)])
def test_convolutions_in_groups(groups: int, before: int) -> None:
    def apply(params: Any, x: Array) -> Array:
        x = convolve(x, params[0], feature_group_count=groups)
        return jnp.mean(x, (1, 2)) @ params[1]

    found = count(apply, [draw(3, 3, before, 16), draw(16, 2)], 6, 6, 8)
    assert found["flops"] == 36 * 9 * before * 16 + 32
    assert (found["params"], found["field"]) == (9 * before * 16 + 32, 3)


def test_a_depthwise_convolution_first_leaves_colours_to_the_next() -> None:
    def apply(params: Any, x: Array) -> Array:
        x = convolve(x, params[0], feature_group_count=3)
        x = convolve(x, params[1])
        return jnp.mean(x, (1, 2)) @ params[2]

    params = [draw(3, 3, 1, 3), draw(1, 1, 3, 4), draw(4, 2)]
    assert count(apply, params, *IMAGE)["field"] == 3


def test_a_transposed_convolution_multiplies_no_zeros() -> None:
    def apply(params: Any, x: Array) -> Array:
        return jnp.mean(lax.conv_transpose(x, params, (2, 2), "SAME"), (1, 2))

    found = count(apply, draw(2, 2, 3, 5), 8, 8, 3)
    assert found["flops"] == 64 * 4 * 3 * 5
    assert found["field"] == 1


@pytest.mark.parametrize("length", [3, 100])
@pytest.mark.parametrize("shared", [False, True])
def test_a_loop_over_layers(length: int, shared: bool) -> None:
    """A long one stays an equation of its own."""

    def apply(params: Any, x: Array) -> Array:
        def step(x: Array, w: Array) -> tuple[Array, Array]:
            return jnp.tanh(x @ (params["w"] if shared else w)), x

        x, steps = lax.scan(step, x, None if shared else params["w"], length)
        return (x + steps[0]) @ params["head"]

    params = {"w": draw(*([] if shared else [length]), 4, 4), "head": draw(4, 2)}
    found = count(apply, params, 4)
    assert found["flops"] == length * 16 + 8
    assert found["layers"] == (1 if shared else length) + 1
    assert found["depth"] == length + 1
    assert found["params"] == (1 if shared else length) * 16 + 8


def test_a_branch_that_the_network_chooses_counts_as_the_largest() -> None:
    def apply(params: Any, x: Array) -> Array:
        small = lambda x: x @ params["a"]  # noqa: E731
        large = lambda x: jnp.tanh(x @ params["b"]) @ params["c"]  # noqa: E731
        return lax.cond(jnp.sum(x) > 0, small, large, x)

    found = count(apply, {"a": draw(4, 2), "b": draw(4, 8), "c": draw(8, 2)}, 4)
    assert (found["flops"], found["layers"], found["depth"]) == (32 + 16, 2, 2)


@pytest.mark.parametrize("length", [3, 100])
def test_a_branch_that_a_loop_counts_to_is_known(length: int) -> None:
    def apply(w: Any, x: Array) -> Array:
        first = lambda k, x: lax.cond(k == 0, lambda x: x @ w, jnp.tanh, x)  # noqa: E731
        return lax.fori_loop(0, length, first, x)

    found = count(apply, draw(4, 4), 4)
    assert (found["flops"], found["layers"], found["depth"]) == (16, 1, 1)


def test_nobody_counts_a_loop_that_numbers_end() -> None:
    def apply(params: Any, x: Array) -> Array:
        def body(x: Array) -> Array:
            return x @ params

        return lax.while_loop(lambda x: jnp.sum(x) < 3, body, x)

    found = count(apply, draw(4, 4), 4)
    assert found["layers"] == 1
    assert all(np.isnan(found[name]) for name in ("flops", "depth", "shortest_path"))


def test_functions_with_derivatives_of_their_own() -> None:
    @jax.custom_vjp
    def layer(x: Array, w: Array) -> Array:
        return convolve(x, w)

    layer.defvjp(lambda x, w: (layer(x, w), (x, w)), lambda residuals, g: residuals)

    def apply(params: Any, x: Array) -> Array:
        return jnp.mean(layer(x, params), (1, 2))

    found = count(apply, draw(3, 3, 3, 4), *IMAGE)
    assert (found["flops"], found["layers"], found["field"]) == (1024 * 27 * 4, 1, 3)


def test_a_weight_used_several_times_is_one_layer() -> None:
    def apply(params: Any, x: Array) -> Array:
        x = x @ params["w"]
        x = jnp.tanh(x) @ (0.5 * params["w"].T)
        return x @ params["both"][:, :2] + x @ params["both"][:, 2:]

    found = count(apply, {"w": draw(4, 6), "both": draw(4, 4)}, 4)
    assert (found["layers"], found["depth"], found["flops"]) == (3, 3, 24 + 24 + 16)


@pytest.mark.parametrize("length", [3, 100])
def test_a_weight_that_a_loop_puts_together_is_one_layer(length: int) -> None:
    def apply(params: Any, x: Array) -> Array:
        def step(x: Array, _: None) -> tuple[Array, None]:
            return jnp.tanh(x @ jnp.concatenate([params["a"], params["b"]], 1)), None

        return lax.scan(step, x, None, length)[0]

    found = count(apply, {"a": draw(4, 2), "b": draw(4, 2)}, 4)
    assert (found["layers"], found["depth"]) == (1, length)


def test_a_weight_made_twice_is_one_layer() -> None:
    def apply(w: Any, x: Array) -> Array:
        for _ in range(2):
            x = jnp.tanh(x @ (w / (1e-5 + jnp.sum(w**2))))
        return x

    found = count(apply, draw(4, 4), 4)
    assert (found["layers"], found["depth"]) == (1, 2)


def test_logits_of_weights_alone() -> None:
    found = count(lambda w, x: jnp.broadcast_to(w, (len(x), 2)), draw(2), 4)
    assert {*found.values()} == {0}


def pooled_by_slices(x: Array) -> Array:
    return x[:, ::2, ::2] + x[:, 1::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, 1::2]


def averaged(x: Array) -> Array:
    return nn.avg_pool(x, (3, 3), (1, 1), "SAME", count_include_pad=False)


def gate(x: Array) -> Array:
    return x * jax.nn.sigmoid(jnp.mean(x, (1, 2), keepdims=True))


FIELDS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "nothing": (lambda x: x, 1),
    "dilation": (lambda x: convolve(x, jnp.ones((3, 3, 4, 4)), rhs_dilation=(4, 2)), 9),
    "one side": (lambda x: convolve(x, jnp.ones((1, 7, 4, 4))), 7),
    "max pool": (lambda x: nn.max_pool(nn.max_pool(x, (2, 2), (2, 2)), (2, 2), (2, 2)), 4),
    "average pool": (averaged, 3),
    "pool by a reshape": (lambda x: jnp.mean(x.reshape(1, 16, 2, 16, 2, 4), (2, 4)), 2),
    "pool by slices": (pooled_by_slices, 2),
    "shifts": (lambda x: jnp.roll(x, 2, 1) + x, 31),
    "shifts of padded": (lambda x: jnp.pad(x, ((0, 0), (2, 0), (0, 0), (0, 0)))[:, :-2] + x, 3),
    "reflection": (
        lambda x: averaged(jnp.pad(x, ((0,) * 2, (1,) * 2, (1,) * 2, (0,) * 2), "reflect")),
        3,
    ),
    "channels first": (lambda x: averaged(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3), 3),
    "space to depth": (
        lambda x: (
            x.reshape(1, 8, 4, 8, 4, 4).transpose(0, 1, 3, 2, 4, 5).reshape(1, 8, 8, 64)
            @ jnp.ones((64, 4))
        ),
        float("nan"),
    ),
    "gate": (lambda x: gate(averaged(x)), 3),
    "global pool by a window": (
        lambda x: lax.reduce_window(averaged(x), 0.0, lax.add, (1, 32, 32, 1), (1,) * 4, "VALID"),
        3,
    ),
    "a mean along one side": (lambda x: averaged(x) + jnp.mean(x, 1, keepdims=True), 3),
    "branches": (lambda x: averaged(averaged(x)) + x, 5),
    "parts": (lambda x: jnp.concatenate([averaged(x[..., :2]), x[..., 2:]], -1), 3),
    "windows": (
        lambda x: (lambda y: y + jnp.einsum("btc,bsc->bts", y, y) @ y)(
            x.reshape(1, 4, 8, 4, 8, 4).transpose(0, 1, 3, 2, 4, 5).reshape(16, 64, 4)
        ).reshape(1, 1024, 4),
        8,
    ),
    "linear attention": (lambda x: jnp.einsum("bhwc,bijc,bije->bhwe", x, x, x), 32),
    "a resizing": (lambda x: jax.image.resize(x, (1, 16, 16, 4), "linear"), float("nan")),
    "a sum so far": (lambda x: jnp.cumsum(x, 1), float("nan")),
    "stacked and reduced": (
        lambda x: jnp.mean(
            jnp.stack([averaged(x), x, nn.max_pool(x, (5, 5), (1, 1), "SAME")], 3), 3
        ),
        5,
    ),
    "a loop over rows": (
        lambda x: lax.map(lambda row: nn.max_pool(row, (5,)), x[0])[None],
        5,
    ),
    "rows so far": (
        lambda x: jnp.moveaxis(
            lax.scan(lambda c, r: (c + r, c + r), x[:, 0], jnp.moveaxis(x, 1, 0))[1], 0, 1
        ),
        32,
    ),
    "nothing is added": (lambda x: jnp.concatenate([averaged(x), x[:, :0]], 1), 3),
    "a reduction of one's own": (
        lambda x: lax.reduce_window(
            (x, x),
            (0.0, 0.0),
            lambda a, b: (a[0] + b[0], a[1] * b[1]),
            (1, 3, 3, 1),
            (1, 1, 1, 1),
            "SAME",
        )[0],
        float("nan"),
    ),
    "halves": (lambda x: jnp.concatenate(jnp.split(averaged(x), 2, 1), 1), 3),
    "upside down": (lambda x: averaged(x[:, ::-1])[:, ::-1], 3),
    "transposed and flattened": (
        lambda x: averaged(lax.reshape(x, (1, 1024, 4), (0, 2, 1, 3)).reshape(1, 32, 32, 4)),
        3,
    ),
    "doubled until it is large": (
        lambda x: lax.while_loop(lambda x: jnp.sum(x) < 3, lambda x: 2 * x, averaged(x)),
        3,
    ),
    "averaged until it is large": (
        lambda x: lax.while_loop(lambda x: jnp.sum(x) < 3, averaged, x),
        float("nan"),
    ),
    "a choice by a mean": (lambda x: lax.cond(jnp.mean(x) > 0, averaged, averaged, x), 3),
    "a choice by a pixel": (lambda x: lax.cond(x[0, 0, 0, 0] > 0, averaged, averaged, x), 33),
    "order": (lambda x: jnp.sort(x, 1), float("nan")),
    "order of what attention gives": (
        lambda x: jnp.sort(jnp.einsum("bhwc,bijc,bije->bhwe", x, x, x), 1),
        32,
    ),
    "order of features": (lambda x: x + jnp.sort(jnp.mean(x, (1, 2), keepdims=True)), 1),
}


@pytest.mark.parametrize("name", FIELDS)
def test_the_field(name: str) -> None:
    function, expected = FIELDS[name]
    np.testing.assert_equal(field(function), expected)


@pytest.mark.parametrize("norm", ["BatchNorm", "GroupNorm", "LayerNorm", "InstanceNorm"])
def test_normalisations_widen_nothing(norm: str) -> None:
    options = {"BatchNorm": {"use_running_average": True}, "GroupNorm": {"num_groups": 2}}

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Array) -> Array:
            for _ in range(2):
                x = getattr(nn, norm)(**options.get(norm, {}))(nn.Conv(4, (3, 3))(x))
            return nn.Dense(2)(jnp.mean(x, (1, 2)))

    found = count_linen(Net(), *IMAGE)
    assert (found["field"], found["depth"]) == (5, 3)


def test_a_recurrent_network_sees_all_steps() -> None:
    def apply(params: Any, x: Array) -> Array:
        def step(h: Array, x: Array) -> tuple[Array, Array]:
            h = jnp.tanh(x @ params["in"] + h @ params["own"])
            return h, h

        _, states = lax.scan(step, jnp.zeros(5), x[0])
        return jnp.mean(states, 0)[None]

    assert count(apply, {"in": draw(3, 5), "own": draw(5, 5)}, 7, 3)["field"] == 7


def test_a_sequence_has_as_many_positions_as_steps() -> None:
    def apply(params: Any, x: Array) -> Array:
        x = x @ params[0]
        x = lax.conv_general_dilated(
            x, params[1], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        return jnp.mean(x, 1)

    assert count(apply, [draw(100, 6), draw(3, 6, 2)], 9, 100)["field"] == 3
