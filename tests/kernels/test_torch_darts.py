"""DARTS networks in PyTorch as an oracle: same weights, modules named as in the public code.

With the folder `cnn` of that code in NTKSCORE_DARTS_CODE, its own network takes the place of ours.
"""

import importlib.util
import os
import sys
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_darts import unstacked
from tiny import scored

import ntkscore
from cells.darts import Darts, Genotype, Genotypes
from cells.darts.genotype import AVG_POOL, MAX_POOL, NONE, OPERATIONS, SKIP
from cells.darts.network import SEPARABLE, SIZES
from ntkscore import Task
from ntkscore.grams import zero_grams
from ntkscore.kernels.plain import QUICKLY

CODE = os.environ.get("NTKSCORE_DARTS_CODE")
N, TASK = 3, Task((8, 8, 3), 4)
SPACE = Darts(task=TASK, channels=4, layers=8)
KINDS = ("weight", "scale", "shift")
EVERY = Genotypes()
GENOTYPES = ["DARTS", "AdvRush", "RACL", *(EVERY[k * 10**17 + 3].digits for k in range(7))]


def network(torch: Any, genotype: Genotype) -> Any:
    """The network of a genotype, as a function-like module."""
    from torch import nn

    class Wrapped(nn.Module):
        def __init__(self, **parts: Any) -> None:
            super().__init__()
            for name, part in parts.items():
                self.add_module(name, part)

        def forward(self, x: Any) -> Any:
            return self.op(x)

    def conv(before: int, after: int, size: int, stride: int = 1, **more: Any) -> Any:
        pad = more.get("dilation", 1) * (size // 2)
        return nn.Conv2d(before, after, size, stride, pad, bias=False, **more)

    def preprocess(before: int, c: int) -> Any:
        return Wrapped(op=nn.Sequential(nn.ReLU(), conv(before, c, 1), nn.BatchNorm2d(c)))

    class Halving(nn.Module):
        def __init__(self, before: int, c: int) -> None:
            super().__init__()
            self.conv_1, self.conv_2 = (conv(before, c // 2, 1, 2) for _ in range(2))
            self.bn = nn.BatchNorm2d(c)

        def forward(self, x: Any) -> Any:
            x = torch.relu(x)
            return self.bn(torch.cat([self.conv_1(x), self.conv_2(x[:, :, 1:, 1:])], 1))

    class Zero(nn.Module):
        def __init__(self, stride: int) -> None:
            super().__init__()
            self.stride = stride

        def forward(self, x: Any) -> Any:
            return 0 * x[:, :, :: self.stride, :: self.stride]

    def operation(index: int, c: int, stride: int) -> Any:
        if index in SIZES:
            more = {} if index in SEPARABLE else {"dilation": 2}
            rounds = [stride, 1] if index in SEPARABLE else [stride]
            parts = [
                part
                for step in rounds
                for part in (
                    nn.ReLU(),
                    conv(c, c, SIZES[index], step, groups=c, **more),
                    conv(c, c, 1),
                    nn.BatchNorm2d(c),
                )
            ]
            return Wrapped(op=nn.Sequential(*parts))
        if index == SKIP:
            return nn.Identity() if stride == 1 else Halving(c, c)
        if index == NONE:
            return Zero(stride)
        assert index in (MAX_POOL, AVG_POOL)
        if index == MAX_POOL:
            return nn.MaxPool2d(3, stride, 1)
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)

    class Cell(nn.Module):
        def __init__(self, edges: Any, first: Any, second: Any, c: int, reduces: bool) -> None:
            super().__init__()
            self.preprocess0, self.preprocess1 = first, second
            self._ops = nn.ModuleList(
                operation(index, c, 2 if reduces and source < 2 else 1) for index, source in edges
            )
            self.sources = [source for _, source in edges]

        def forward(self, a: Any, b: Any) -> Any:
            states = [self.preprocess0(a), self.preprocess1(b)]
            for k in range(0, 8, 2):
                states.append(sum(self._ops[e](states[self.sources[e]]) for e in (k, k + 1)))
            return torch.cat(states[2:], 1)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            c, layers = SPACE.channels, SPACE.layers
            self.stem = nn.Sequential(conv(3, 3 * c, 3), nn.BatchNorm2d(3 * c))
            before, last, halved = 3 * c, 3 * c, False
            self.cells = nn.ModuleList()
            for layer in range(layers):
                reduces = layer in (layers // 3, 2 * layers // 3)
                c *= 1 + reduces
                first = Halving(before, c) if halved else preprocess(before, c)
                edges = genotype.reduce if reduces else genotype.normal
                self.cells.append(Cell(edges, first, preprocess(last, c), c, reduces))
                before, last, halved = last, 4 * c, reduces
            self.classifier = nn.Linear(last, TASK.num_classes)

        def forward(self, x: Any) -> Any:
            a = b = self.stem(x)
            for cell in self.cells:
                a, b = b, cell(a, b)
            return self.classifier(b.mean((2, 3)))

    return Network()


def public_network(torch: Any, genotype: Genotype) -> Any:
    """The network of the public code."""
    from collections import namedtuple

    sys.path.insert(0, str(CODE))
    from model import NetworkCIFAR  # type: ignore[import-not-found]

    cells = [[(OPERATIONS[o], s) for o, s in edges] for edges in genotype.cells]
    given = namedtuple("Genotype", "normal normal_concat reduce reduce_concat")
    printed = given(cells[0], range(2, 6), cells[1], range(2, 6))

    class Network(NetworkCIFAR):
        drop_path_prob = 0.0

        def forward(self, images: Any) -> Any:
            return super().forward(images)[0]

    return Network(SPACE.channels, TASK.num_classes, SPACE.layers, False, printed)


def entries(params: Any, stats: Any, genotype: Genotype) -> dict[str, np.ndarray]:
    """Our weights and statistics by the public code's names."""
    found: dict[str, Any] = {}

    def kernel(name: str, weights: Any) -> None:
        found[f"{name}.weight"] = np.transpose(weights["kernel"], (3, 2, 0, 1))

    def norm(name: str, weights: Any, stored: Any) -> None:
        values = weights["scale"], weights["shift"], stored["mean"], stored["var"]
        names = ("weight", "bias", "running_mean", "running_var")
        found.update({f"{name}.{key}": value for key, value in zip(names, values, strict=True)})

    def preprocess(name: str, weights: Any, stored: Any) -> None:
        if "first" in weights:
            for k, half in enumerate(("first", "second"), 1):
                kernel(f"{name}.conv_{k}", weights[half])
            norm(f"{name}.bn", weights, stored)
        else:
            kernel(f"{name}.op.1", weights)
            norm(f"{name}.op.2", weights, stored)

    def operations(name: str, edges: Any, weights: Any, stored: Any) -> None:
        for e, (index, _) in enumerate(edges):
            of_edge = weights[e].get(OPERATIONS[index], {})
            if index == SKIP and of_edge:
                preprocess(f"{name}._ops.{e}", of_edge, stored[e]["first"])
            elif of_edge:
                for k, half in enumerate(of_edge):
                    kernel(f"{name}._ops.{e}.op.{4 * k + 1}", of_edge[half]["depthwise"])
                    kernel(f"{name}._ops.{e}.op.{4 * k + 2}", of_edge[half]["pointwise"])
                    place = f"{name}._ops.{e}.op.{4 * k + 3}"
                    norm(place, of_edge[half]["pointwise"], stored[e][half])

    kernel("stem.0", params["stem"])
    norm("stem.1", params["stem"], stats["stem"])
    cell = 0
    for stage, count in enumerate(SPACE.normal_cells):
        if stage:
            w, s, name = params[f"reduction_{stage}"], stats[f"reduction_{stage}"], f"cells.{cell}"
            for k in range(2):
                preprocess(f"{name}.preprocess{k}", w[f"input_{k}"], s[f"input_{k}"])
            operations(name, genotype.reduce, w["edges"], s["edges"])
            cell += 1
        w, s = params[f"stage_{stage}"], stats[f"stage_{stage}"]
        for t in range(count):
            first = ("halving",) if stage and t == 0 else ("input_0", t - (stage > 0))
            for k, (key, *place) in enumerate((first, ("input_1", t))):
                layer = (tree[key][place[0]] if place else tree[key] for tree in (w, s))
                preprocess(f"cells.{cell}.preprocess{k}", *layer)
            operations(f"cells.{cell}", genotype.normal, w["edges"][t], s["edges"][t])
            cell += 1
    found["classifier.weight"] = np.asarray(params["head"]["kernel"]).T
    found["classifier.bias"] = params["head"]["bias"]
    return found


def loaded(torch: Any, params: Any, stats: Any, genotype: Genotype) -> Any:
    """The module of a genotype at our weights and statistics, in float64 and evaluation mode."""
    module = (public_network if CODE else network)(torch, genotype).double().eval()
    state = entries(unstacked(params, genotype), unstacked(stats), genotype)
    state = {name: torch.tensor(np.array(value)) for name, value in state.items()}
    missing, unknown = module.load_state_dict(state, strict=False)
    assert not unknown and all(name.endswith("num_batches_tracked") for name in missing)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("given", GENOTYPES)
def test_a_darts_network_is_that_of_pytorch(torch: ModuleType, double: None, given: str) -> None:
    genotype, rng = Genotype.parse(given), np.random.default_rng(0)
    images = rng.random((N, *TASK.image_shape))
    variables = jax.tree.map(
        lambda leaf: leaf + rng.uniform(-0.2, 0.2, leaf.shape), SPACE.draw((), 0, np.float64)
    )
    code, x = jax.tree.map(jnp.asarray, SPACE.encode(genotype)), jnp.asarray(images)
    logits, slopes, kernel, params, stats = computed(variables, code, x)
    module = loaded(torch, params, stats, genotype)
    points = torch.tensor(images.transpose(0, 3, 1, 2)).requires_grad_()
    outputs = module(points)
    np.testing.assert_allclose(logits, outputs.detach(), rtol=1e-9, atol=1e-11)
    (gradient,) = torch.autograd.grad(outputs.sum(), points)
    theirs = gradient.permute(0, 2, 3, 1)
    np.testing.assert_allclose(slopes, theirs, rtol=1e-8, atol=1e-10 * float(theirs.abs().max()))
    weights = {name: value.detach() for name, value in module.named_parameters()}

    def total(weights: Any, point: Any) -> Any:
        return torch.func.functional_call(module, weights, (point[None],)).sum()

    each = torch.func.vmap(torch.func.grad(total), (None, 0))(weights, points.detach())
    rows = torch.cat([leaf.reshape(N, -1) for leaf in each.values()], 1)
    np.testing.assert_allclose(kernel, rows @ rows.T, rtol=1e-9)


@pytest.mark.thorough
def test_the_module_scores_as_our_network_of_the_same_weights(
    torch: ModuleType, double: None
) -> None:
    if importlib.util.find_spec("torchax") is None:  # whose import would change PyTorch
        pytest.skip("torchax is not installed: see make oracles")
    genotype, images = Genotype.parse("AdvRush"), np.random.default_rng(0).random((N, 8, 8, 3))
    ours = SPACE.network(genotype, images, dtype=np.float64)
    assert ours.passes is not None
    module = loaded(torch, ours.params, ours.passes.statistics, genotype)
    theirs = ntkscore.from_torch(module, images, check=False)
    kernels = [ntkscore.ntk(model, images) for model in (theirs, ours)]
    np.testing.assert_allclose(*kernels, rtol=1e-9)
    config, labels = ntkscore.Config(x64=True), np.arange(N)
    rows = [scored(model, images, labels, config) for model in (theirs, ours)]
    values = [each.set_index(["kernel", "score"])["value"] for each in rows]
    # A trace counts a rectifier once however many edges read it, and ends blocks at nodes.
    inside = values[0].index.isin(["naswot", "flips", "expressivity", "progressivity"], level=1)
    assert len(inside) - sum(inside) == 62 and set(rows[0]["status"]) == {"ok"}
    np.testing.assert_allclose(*(each[~inside] for each in values), rtol=1e-7)


@partial(jax.jit, compiler_options=QUICKLY)
def computed(variables: Any, code: Any, x: Any) -> Any:
    """Logits, input gradients, the kernel of the summed logits, weights and statistics."""
    model = SPACE.model((), variables, code, x)
    assert model.passes is not None
    logits, residuals = model.passes.forward(model.params, x)
    ones = jnp.ones_like(logits)
    start = zero_grams(KINDS, x, 1)
    slopes, by_kind = model.passes.gram_by_kind(model.params, [residuals], ones, start)
    kernel = sum(by_kind.values())[0]
    return logits, slopes, kernel, model.params, model.passes.statistics
