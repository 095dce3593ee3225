"""The network of one DARTS genotype, written as the public code is: an oracle for `cells.darts`."""

import jax
import jax.numpy as jnp
from jax import lax

from cells.darts.genotype import MAX_POOL, NONE, OPERATIONS, SKIP


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
    return tree[k] if isinstance(tree, list) else jax.tree.map(lambda leaf: leaf[k], tree)


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


def network(params, stats, genotype, space, x):
    """Logits of normalised images, cell by cell, as the public code computes them."""
    a = b = bn(conv(x, params["stem"]["kernel"]), params["stem"], stats["stem"])
    for stage, cells in enumerate(space.normal_cells):
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


def listed(tree):
    """The layers of a stack, one by one."""
    return [at(tree, k) for k in range(len(jax.tree.leaves(tree)[0]))]


def unstacked(tree, genotype=None):
    """Weights or statistics with lists in place of stacks, and without the stem's zero rows.

    Args:
        tree: of variables as `cells.darts.network.draw` returns them.
        genotype: if given, weights of operations that it lacks are left out.
    """

    def chosen(edges, operations, reduces):
        edges = listed(edges)
        if genotype is None:
            return edges
        names = [OPERATIONS[o] if o != SKIP or (reduces and s < 2) else "" for o, s in operations]
        return [
            {name: edge[name] for name in [name] if name in edge}
            for edge, name in zip(edges, names, strict=True)
        ]

    normal, reduce = (None, None) if genotype is None else genotype.cells
    out = dict(tree)
    for name, part in tree.items():
        if name.startswith("reduction"):
            out[name] = part | {"edges": chosen(part["edges"], reduce, True)}
        if name.startswith("stage"):
            layers = {k: v if k == "halving" else listed(v) for k, v in part.items()}
            layers["edges"] = [chosen(cell, normal, False) for cell in layers["edges"]]
            for k in range(2 if name == "stage_0" else 0):
                for layer in layers[f"input_{k}"][: 2 - k]:
                    if "kernel" in layer:
                        layer["kernel"] = layer["kernel"][:, :, : len(tree["stem"]["scale"])]
            out[name] = layers
    return out
