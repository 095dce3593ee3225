"""DARTS' passes, whose genotype is data, against a plain network of one genotype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from cells.darts.forward import CellRules
from cells.darts.genotype import MAX_POOL, NONE, OPERATIONS, SKIP, Genotype, random_genotype
from cells.darts.network import Shape, draw
from cells.darts.passes import Passes
from ntkscore.grams import zero_taps
from ntkscore.trace.parameters import kind_of

SHAPE = Shape(channels=2, layers=6, num_classes=4)
KINDS = ("weight", "scale", "shift")


def bn(z, p, s):
    return (z - s["mean"]) / jnp.sqrt(s["var"] + 1e-5) * p["scale"] + p["shift"]


def conv(x, kernel, stride=1, dilation=1, groups=1):
    pad = dilation * (kernel.shape[0] // 2)
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        [(pad, pad)] * 2,
        rhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def factorized(x, w, s):
    x = jax.nn.relu(x)
    kernels = (w[name]["kernel"] for name in ("first", "second"))
    parts = [conv(x[:, k::2, k::2], kernel) for k, kernel in enumerate(kernels)]
    return bn(jnp.concatenate(parts, -1), w, s)


def pool(x, operation, stride):
    def windowed(x, start, function):
        around = ((0, 0), (1, 1), (1, 1), (0, 0))
        return lax.reduce_window(x, start, function, (1, 3, 3, 1), (1, stride, stride, 1), around)

    if operation == MAX_POOL:
        return windowed(x, -jnp.inf, lax.max)
    return windowed(x, 0.0, lax.add) / windowed(jnp.ones_like(x), 0.0, lax.add)


def operate(operation, x, w, s, stride):
    name = OPERATIONS[operation]
    if operation == NONE:
        return 0 * x[:, ::stride, ::stride]
    if operation == SKIP:
        return x if stride == 1 else factorized(x, w[name], s["first"])
    if "pool" in name:
        return pool(x, operation, stride)
    for k, half in enumerate(w[name]):
        depthwise, pointwise = w[name][half]["depthwise"], w[name][half]["pointwise"]
        dilation, step = 2 if "dil" in name else 1, stride if k == 0 else 1
        x = conv(jax.nn.relu(x), depthwise["kernel"], step, dilation, x.shape[-1])
        x = bn(conv(x, pointwise["kernel"]), pointwise, s[half])
    return x


def preprocess(x, w, s):
    return bn(conv(jax.nn.relu(x), w["kernel"][:, :, : x.shape[-1]]), w, s)


def at(tree, k):
    return jax.tree.map(lambda leaf: leaf[k], tree)


def cell(edges, before, w, s, stride):
    nodes = [*before]
    for target in range(4):
        outputs = []
        for e in (2 * target, 2 * target + 1):
            operation, source = edges[e]
            step = stride if source < 2 else 1
            outputs.append(operate(operation, nodes[source], at(w, e), at(s, e), step))
        nodes.append(outputs[0] + outputs[1])
    return jnp.concatenate(nodes[2:], -1)


def network(params, stats, genotype, x):
    """Logits, cell by cell, as the public code computes them."""
    a = b = bn(conv(x, params["stem"]["kernel"]), params["stem"], stats["stem"])
    for stage, cells in enumerate(SHAPE.normal_cells):
        before = None
        if stage:
            w, s = params[f"reduction_{stage}"], stats[f"reduction_{stage}"]
            inputs = [preprocess(z, w[f"input_{k}"], s[f"input_{k}"]) for k, z in enumerate((a, b))]
            before, a, b = b, b, cell(genotype.reduce, inputs, w["edges"], s["edges"], 2)
        w, s = params[f"stage_{stage}"], stats[f"stage_{stage}"]
        for t in range(cells):
            if stage and t == 0:
                first = factorized(before, w["halving"], s["halving"])
            else:
                k = t - (stage > 0)
                first = preprocess(a, at(w["input_0"], k), at(s["input_0"], k))
            second = preprocess(b, at(w["input_1"], t), at(s["input_1"], t))
            edges = at(w["edges"], t), at(s["edges"], t)
            a, b = b, cell(genotype.normal, (first, second), *edges, 1)
    return jnp.mean(b, (1, 2)) @ params["head"]["kernel"] + params["head"]["bias"]


@pytest.fixture(scope="module")
def passes_of_any():
    """A compiled function of a genotype as data, and the weights that it has."""
    with jax.enable_x64(True):
        drawn = jax.jit(lambda key: draw(SHAPE, "torch", key))(jax.random.key(0))
        params, stats = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), drawn)

        @jax.jit
        def passes(code, x, y, cotangent):
            plain = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
            of_one = Passes(CellRules(shape=SHAPE, code=code, **plain), params, stats, x)
            logits, kept = of_one.forward(params, y)
            both = [of_one.forward(params, x)[1], kept]
            taps = zero_taps(KINDS, jnp.concatenate([x, y]), 1)
            g, parts = of_one.parts(params, both, jnp.concatenate([cotangent] * 2), taps)
            visit = lambda layer: jnp.sum(layer.gradients**2)  # noqa: E731
            norms = of_one.layers(params, both[0], cotangent, visit)
            return logits, g, parts, jnp.sum(norms), of_one.statistics

        yield passes, params


@pytest.mark.parametrize("name", ["DARTS", "AdvRush", "4031403140314031-7060117111717171", 0, 1])
def test_passes_are_those_of_the_plain_network(passes_of_any, name):
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        passes, params = passes_of_any
        x, y = jnp.asarray(rng.random((2, 2, 8, 8, 3)))
        cotangent = jnp.asarray(rng.standard_normal((2, 4)))
        drawn = isinstance(name, int)
        genotype = random_genotype(np.random.default_rng(name)) if drawn else Genotype.parse(name)
        code = {
            "normal": jnp.array(genotype.normal, jnp.int32),
            "reduce": jnp.array(genotype.reduce, jnp.int32),
        }
        logits, g, parts, norms, stats = passes(code, x, y, cotangent)
        close = lambda a, b: np.testing.assert_allclose(a, b, 1e-9, 1e-11)  # noqa: E731
        close(logits, network(params, stats, genotype, y))
        both, cotangents = jnp.concatenate([x, y]), jnp.concatenate([cotangent] * 2)

        def one(params, point, cotangent):
            return jnp.sum(cotangent * network(params, stats, genotype, point[None])[0])

        by_weight, by_point = jax.jit(jax.vmap(jax.grad(one, (0, 1)), (None, 0, 0)))(
            params, both, cotangents
        )
        close(g, by_point)
        kernels = dict.fromkeys(KINDS, 0.0)
        squares = 0.0
        for path, leaf in jax.tree_util.tree_leaves_with_path(by_weight):
            kind, rows = kind_of(path, leaf), leaf.reshape(len(leaf), -1)
            kernels[kind] += rows @ rows.T
            squares += jnp.sum(rows[:2] ** 2) if kind == "weight" else 0.0
        for kind in KINDS:
            close(parts[kind][0], kernels[kind])
        close(norms, squares)


def test_one_program_serves_all_genotypes(passes_of_any):
    passes, _ = passes_of_any
    assert passes._cache_size() <= 1
