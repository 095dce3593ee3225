"""Wide residual networks against flax, against published sizes, and what their names refuse."""

import csv
import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import linen as nn
from networks import error
from tiny import invoke, refuses, same_rows

from cells.cell_space import STATISTICS
from cells.wideresnet import Stages, WideResNet
from ntkscore import Task, anatomy, ntk
from ntkscore.config import Config
from ntkscore.data.nares import DEPTHS, WIDTHS
from ntkscore.kernels.stack import stack
from ntkscore.model import Model
from ntkscore.run.calls import plan_for
from ntkscore.run.scorer import Scorer
from ntkscore.trace.compiled import Chain

TASK = Task((8, 8, 3), 5, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
SPACE = WideResNet(task=TASK, channels=2)
SMALL = SPACE.parse("2-1-1x1-2-1")
TABLE = "robust-tables/robust_residual_tables.csv"


def conv(features: int, stride: int = 1, size: int = 3, name: str | None = None) -> nn.Conv:
    """A convolution, padded as PyTorch does: flax's own padding differs at a stride of 2."""
    sides = (size, size), (stride, stride)
    return nn.Conv(features, *sides, padding=size // 2, use_bias=False, name=name)


class FlaxBlock(nn.Module):
    """BN-ReLU-conv twice, and a shortcut behind the first ReLU where the shape changes."""

    features: int
    stride: int
    norm: Any

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.relu(self.norm(name="norm1")(x))
        if self.stride > 1 or x.shape[-1] != self.features:
            x = conv(self.features, self.stride, 1, name="shortcut")(y)
        y = nn.relu(self.norm(name="norm2")(conv(self.features, self.stride, name="conv1")(y)))
        return x + conv(self.features, name="conv2")(y)


class Flax(nn.Module):
    """A wide residual network, of widths and strides block by block."""

    stages: list
    stem: int
    classes: int
    train: bool = False

    @nn.compact
    def __call__(self, x: Any) -> Any:
        norm = partial(
            nn.BatchNorm,
            use_running_average=not self.train,
            param_dtype=jnp.float64,
            force_float32_reductions=False,
        )
        x = conv(self.stem)(x)
        for stage, blocks in enumerate(self.stages):
            for place, block in enumerate(blocks):
                x = FlaxBlock(block.after, 2 if stage and not place else 1, norm)(x)
        x = nn.relu(norm()(x))
        return nn.Dense(self.classes)(jnp.mean(x, axis=(1, 2)))


def for_flax(variables: Any) -> Any:
    """Our weights and statistics under flax's names."""

    def norm(weights: Any) -> Any:
        return {"scale": weights["scale"], "bias": weights["shift"]}

    params, statistics = variables["params"], variables[STATISTICS]
    blocks = [block for blocks in params["stages"] for block in blocks]
    head = params["head"]
    named = {
        "Conv_0": params["stem"],
        "Dense_0": {"kernel": head["kernel"], "bias": head["bias"]},
        "BatchNorm_0": norm(head),
    }
    named |= {
        f"FlaxBlock_{k}": block | {n: norm(block[n]) for n in ("norm1", "norm2")}
        for k, block in enumerate(blocks)
    }
    stored = [block for blocks in statistics["stages"] for block in blocks]
    of_norms = {"BatchNorm_0": statistics["head"]}
    of_norms |= {f"FlaxBlock_{k}": block for k, block in enumerate(stored)}
    return {"params": named, "batch_stats": of_norms}


def shaken(variables: Any) -> Any:
    """Variables in which no scale is one, no shift or mean zero and no variance one."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda a: a + jnp.asarray(rng.uniform(0.1, 0.3, a.shape)), variables)


def images(count: int = 3) -> jax.Array:
    rng = np.random.default_rng(1)
    return jnp.asarray(rng.uniform(size=(count, *TASK.image_shape)))


@pytest.mark.parametrize("name", ["2-1-1x1-2-1", "1-2-1x2-1-3"])
def test_logits_are_those_of_flax(double: None, name: str) -> None:
    stages = SPACE.parse(name)
    variables = shaken(SPACE.draw(stages, 0, jnp.float64))
    space = replace(SPACE, bn="init")  # by the stored statistics
    model = space.model(stages, variables, jnp.asarray(0), images())
    flax = Flax(stages.blocks(2), 2, TASK.num_classes)
    x = (images() - jnp.array(TASK.mean)) / jnp.array(TASK.std)
    assert error(model.logits(images()), flax.apply(for_flax(variables), x)) < 1e-12


def test_modes_of_normalisation_are_those_of_flax(double: None) -> None:
    """`calibrated` and `batch` at the clean images are flax's training mode on them."""
    variables, x = shaken(SPACE.draw(SMALL, 0, jnp.float64)), images(4)
    flax = Flax(SMALL.blocks(2), 2, TASK.num_classes, train=True)
    normalised = (x - jnp.array(TASK.mean)) / jnp.array(TASK.std)

    def expected(x: jax.Array) -> Any:
        return flax.apply(for_flax(variables), x, mutable=["batch_stats"])[0]

    def made(bn: str) -> Any:
        return replace(SPACE, bn=bn).model(SMALL, variables, jnp.asarray(0), x)

    together = expected(normalised)
    assert error(made("calibrated").logits(x), together) < 1e-12
    assert error(made("calibrated").logits(x[:1]), together[:1]) < 1e-12
    batch, both = made("batch"), jnp.concatenate([x, x[::-1]])
    assert batch.coupled
    assert error(batch.logits(both), jnp.concatenate([together, together[::-1]])) < 1e-12
    alone = jnp.concatenate([expected(normalised[k : k + 1]) for k in range(4)])
    assert error(made("instance").logits(x), alone) < 1e-12


def test_training_moves_the_statistics_towards_the_batch(double: None) -> None:
    network = SPACE.trainable(SMALL, dtype=jnp.float64)
    logits, after = network.train(network.params, network.statistics, images())
    batch = replace(SPACE, bn="batch").network(SMALL, images(), dtype=jnp.float64)
    assert error(logits, batch.logits(images())) < 1e-12
    x = (images() - jnp.array(TASK.mean)) / jnp.array(TASK.std)
    stem: Any = conv(2).apply({"params": network.params["stem"]}, x)
    moved = after["stages"][0][0]["norm1"]
    assert error(moved["mean"], 0.1 * stem.mean((0, 1, 2))) < 1e-12
    assert error(moved["var"], 0.9 + 0.1 * stem.var((0, 1, 2), ddof=1)) < 1e-12
    model = SPACE.trained_model(SMALL, network.params, after)
    assert error(model.logits(images()), network.evaluate(network.params, after, images())) < 1e-12


@pytest.mark.parametrize("name", ["2-1-1x1-2-1", "1-2-3x2-1-3"])
def test_counts_are_those_of_the_trace(name: str) -> None:
    stages = SPACE.parse(name)
    counted = anatomy(SPACE.network(stages, images()), np.asarray(images(), np.float32)).counts
    ours = {**SPACE.costs(stages), **SPACE.structure(stages)}
    for count in ("params", "flops", "layers", "depth", "field"):
        assert ours[count] == counted[count], count
    assert ours["width"] == sum(stages.widths)


def rounded(number: float, printed: str) -> bool:
    """Tell whether a number in millions or billions rounds to what is printed, such as 24.0M."""
    unit = {"M": 1e6, "G": 1e9}[printed[-1]]
    digits = len(printed[:-1].partition(".")[2])
    return abs(number / unit - float(printed[:-1])) <= 0.51 * 10**-digits


def test_sizes_are_those_that_are_published(data_dir: Path) -> None:
    path = data_dir / TABLE
    if not path.is_file():
        pytest.skip(f"published sizes not found at {path}; put the file there")
    space, agreeing, differing = WideResNet(), 0, set()
    for row in csv.reader(path.read_text(encoding="utf-8").splitlines()):
        if row[0].startswith("Table 2") and row[3].isdecimal():
            name = f"{'-'.join(row[3:9:2])}x{'-'.join(row[4:9:2])}"
            params, flops = row[9:11]
        elif row[0].startswith("CIFAR-10 (TRADES)") and row[1][-1].isdecimal() and "W" in row[1]:
            name, params, flops = row[1], row[2], row[3]
            if "RRN" in name:
                continue
        else:
            continue
        costs = space.costs(space.parse(name))
        if rounded(costs["params"], params):
            assert costs["flops"] == pytest.approx(float(flops[:-1]) * 1e9, rel=0.01)
            agreeing += 1
        else:
            differing.add(name)
    # Printed sizes that are not those of the printed stages.
    assert differing == {
        "14-14-7x5-7-3",
        "17-17-8x7-9-4",
        "22-22-11x8-11-5",
        "14-13-11x16-16-16",
    }
    assert agreeing == 12
    # A third stage of 6 blocks gives the last one's printed size, and its 2 : 2 : 1.
    costs = space.costs(Stages.parse("14-13-6x16-16-16"))
    assert rounded(costs["params"], "185M") and rounded(costs["flops"], "38.8G")


def test_names() -> None:
    assert (
        SPACE.parse("WRN-28-10") == SPACE.parse("wideresnet-28-10") == Stages((4,) * 3, (10,) * 3)
    )
    assert SPACE.parse(" 4-4-4×10-10-10 ") == SPACE.parse("4-4-4x10-10-10")
    assert SPACE.identity(SMALL) == {"stages": "2-1-1x1-2-1"}
    assert SPACE.parse(SMALL) is SMALL


@pytest.mark.parametrize(
    ("name", "got", "expected"),
    [
        ("4-4-4", "4-4-4", ("4-4-4x10-10-10", "WRN-28-10")),
        ("WRN-30-10", 30, ("6n + 4", 28)),
        ("4-0-4x1-1-1", "4-0-4x1-1-1", 1),
        ("WRN-4-1", "WRN-4-1", 1),
    ],
)
def test_what_is_no_network(name: str, got: object, expected: Any) -> None:
    with refuses(got, expected=expected):
        SPACE.parse(name)


def test_images_of_another_kind_are_refused() -> None:
    with refuses("30×30", expected=4):
        WideResNet(task=Task((30, 30, 3)))


def test_the_listed_networks_and_their_neighbours() -> None:
    listed = SPACE.architectures("all")
    assert len(listed) == len(set(listed)) == 7**3 * 8**3
    assert SPACE.parse("4-4-4x10-10-10") in listed
    with refuses("best", expected="wideresnet"):
        SPACE.architectures("best")
    near = SPACE.neighbours(SMALL)
    assert len(near) == len(set(near)) == 8  # of four ones none can be less
    assert SPACE.parse("3-1-1x1-2-1") in near and SPACE.parse("2-1-1x1-1-1") in near


def test_the_trained_networks_are_the_papers() -> None:
    assert SPACE.trained() == WideResNet(task=TASK)


def of_chain_and_trace(bn: str = "calibrated") -> tuple[Model, Model]:
    """A network with passes of pieces, and as the trace of the whole has it."""
    model = replace(SPACE, bn=bn).network("2-1-1x1-2-1", images(4), dtype=np.float64)
    assert isinstance(model.passes, Chain)
    return model, model._replace(passes=None)


@pytest.mark.parametrize(
    ("bn", "attack", "radii", "noise"),
    [("calibrated", "fgsm", 0.03, True), ("instance", "pgd", (0.02, 0.05), False)],
)
def test_pieces_give_all_that_the_trace_of_the_whole_gives(
    double: None, bn: str, attack: str, radii: Any, noise: bool
) -> None:
    """The kernels of clean, attacked and twice attacked images, and all that measures need."""
    key, given = jax.random.key(0), (images(4), np.arange(4), attack, radii)
    keys: Any = {"key": key, "noise": key if noise else None}
    mine, whole = (stack(each, *given, **keys) for each in of_chain_and_trace(bn))
    assert error(mine.gram, whole.gram) < 1e-10
    for kernel in ("clean", "robust", "joint_clean"):
        assert error(mine.kernel(kernel), whole.kernel(kernel)) < 1e-10
    assert jax.tree.structure(mine.quantities) == jax.tree.structure(whole.quantities)
    for each, other in zip(*map(jax.tree.leaves, (mine, whole)), strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("choices", [{"parameters": "conv_linear"}, {"output": "trace"}], ids=str)
def test_any_kernel_of_pieces_is_that_of_the_whole(double: None, choices: dict[str, str]) -> None:
    mine, whole = of_chain_and_trace()
    expected = ntk(whole, x := images(4), **choices)
    assert error(ntk(mine, x, **choices), expected) < 1e-10
    # Nothing is held but the pieces' inputs; and inside of a program that is compiled.
    assert error(ntk(mine, x, memory=2**14, **choices), expected) < 1e-10
    compiled = jax.jit(lambda x: ntk(mine, x, **choices))
    assert error(compiled(x), expected) < 1e-10
    naive = ntk(mine, x, implementation="ntvp", **choices)
    assert error(naive, expected) < 1e-10


def test_networks_share_the_programs_of_equal_pieces(double: None) -> None:
    ones = [
        SPACE.network(name, images(), dtype=np.float64) for name in ("3-1-1x1-2-1", "1-2-1x1-2-1")
    ]
    compiled = [
        {id(passes) for passes, *_ in each.passes.forward(each.params, images())[1]}
        for each in ones
    ]
    # The first stages' blocks are all of one size.
    assert (len(compiled[0]), len(compiled[1])) == (5, 6) and compiled[0] < compiled[1]


@pytest.mark.thorough
def test_a_run_computes_by_pieces_what_one_program_does() -> None:
    points = np.random.default_rng(1).uniform(size=(4, *TASK.image_shape))
    scorer = Scorer(SPACE, Config(x64=True))
    batch = scorer.batch(points, np.arange(4), 0, SPACE.shape(SMALL))
    whole = Scorer(SPACE, Config(x64=True))
    whole._compute = whole._whole()
    pieces, together = (
        pd.DataFrame(*each.rows([SMALL], batch, each.start([SMALL], batch)))
        for each in (scorer, whole)
    )
    same_rows(pieces, together, tolerance=1e-6)


def test_a_run_takes_one_network_at_a_time() -> None:
    plan = plan_for(SPACE, [SMALL, SPACE.parse("WRN-10-1")], Config(), 4, batch=8)
    assert plan.per_call == 1


OWN = """stages,cifar10#clean,cifar10#pgd20
WRN-10-1,0.7,0.40
2-1-1x1-2-1,0.6,0.45
1-1-1x1-1-2,0.6,0.5
"""


@pytest.mark.thorough
def test_a_table_of_ones_own_from_rank_to_the_page(tmp_path: Path) -> None:
    table, out = tmp_path / "wide.csv", tmp_path / "run"
    table.write_text(OWN)
    space = ("--space", "wideresnet", "--table", table)
    options = ("--channels", "1", "--samples", "4", "--data", "synthetic")
    invoke("score", "table", *space, *options, "--out", out)
    ranked = invoke("rank", out, "--format", "json")
    names = {"1-1-1x1-1-1", "2-1-1x1-2-1", "1-1-1x1-1-2"}
    assert {row["stages"] for row in json.loads(ranked.stdout)} == names
    described = invoke("rank", out).stdout
    assert "networks that would be trained: channels 16" in " ".join(described.split())
    with_table = (out, "--table", table, "--metric", "pgd20")
    correlated = invoke("correlate", *with_table, "--format", "json").stdout
    rows = {row["score"]: row for row in json.loads(correlated)}
    assert rows["params"]["n"] == 3 and rows["params"]["spearman"] == 1
    of_data = ("--dataset", "cifar10", "--format", "json")
    (found,) = json.loads(invoke("lookup", "WRN-10-1", *space, *of_data).stdout)
    assert found["val_pgd_20_acc"] == 0.4
    page = tmp_path / "page.html"
    invoke("explore", out, "--table", table, "--out", page)
    assert "2-1-1x1-2-1" in page.read_text(encoding="utf-8")


def from_torch(module: Any) -> tuple[Any, Any]:
    """Our weights and statistics of such a network, block after block."""

    def array(tensor: Any) -> jax.Array:
        return jnp.asarray(tensor.detach().numpy())

    def kernel(layer: Any) -> dict[str, jax.Array]:
        return {"kernel": array(layer.weight).transpose(2, 3, 1, 0)}

    def norm(layer: Any) -> dict[str, jax.Array]:
        return {"scale": array(layer.weight), "shift": array(layer.bias)}

    def stored(layer: Any) -> dict[str, jax.Array]:
        return {"mean": array(layer.running_mean), "var": array(layer.running_var)}

    stem, *blocks, last, _, _, _, linear = module
    weights = [
        {"norm1": norm(b.norm1), "conv1": kernel(b.conv1)}
        | {"norm2": norm(b.norm2), "conv2": kernel(b.conv2)}
        | ({} if b.shortcut is None else {"shortcut": kernel(b.shortcut)})
        for b in blocks
    ]
    statistics = [{name: stored(getattr(b, name)) for name in ("norm1", "norm2")} for b in blocks]
    head = norm(last) | {"kernel": array(linear.weight).T, "bias": array(linear.bias)}
    return {"stem": kernel(stem), "blocks": weights, "head": head}, {
        "blocks": statistics,
        "head": stored(last),
    }


def by_stage(stages: Stages, blocks: list[Any]) -> list[list[Any]]:
    rest = iter(blocks)
    return [[next(rest) for _ in range(depth)] for depth in stages.depths]


@pytest.mark.parametrize("name", ["1-1-1x1-1-1", "2-1-3x2-1-1", "4-1-2x1-2-3"])
def test_it_is_the_network_that_nares_trained(double: None, torch: Any, name: str) -> None:
    """Logits at the same weights and statistics, its counts, and where its weights differ."""
    from zoo.in_torch import wide_resnet

    stages = Stages.parse(name)
    module = wide_resnet(stages).double()
    x = torch.rand(4, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():  # no scale is one, no shift or bias zero
            parameter += 0.1 * torch.rand_like(parameter)
        module(x)  # in training mode, which moves the running statistics
        expected = module.eval()(x).numpy()
    params, statistics = from_torch(module)
    for tree in (params, statistics):
        tree["stages"] = by_stage(stages, tree.pop("blocks"))
    task = Task((32, 32, 3), 10, mean=(0.0,) * 3, std=(1.0,) * 3)  # it takes pixels as they are
    space = WideResNet(task=task)
    given = jnp.asarray(x.numpy().transpose(0, 2, 3, 1))
    model = space.trained_model(stages, params, statistics)
    assert error(model.logits(given), expected) < 1e-10

    drawn = space.draw(stages, 0, jnp.float64)["params"]
    shapes = jax.tree.map(jnp.shape, params)
    assert jax.tree.map(jnp.shape, drawn) == shapes
    costs = space.costs(stages)
    assert costs["params"] == sum(parameter.numel() for parameter in module.parameters())
    products = []
    hooks = {torch.nn.Conv2d: lambda m, y: m.weight[0].numel() * y[0].numel()}
    hooks[torch.nn.Linear] = lambda m, y: m.weight.numel()
    for layer in module.modules():
        if count := hooks.get(type(layer)):
            layer.register_forward_hook(lambda m, _, y, c=count: products.append(c(m, y)))
    module(x[:1])
    assert costs["flops"] == sum(products)


def test_weights_are_drawn_as_nares_draws_them(torch: Any) -> None:
    """`he_conv`: convolutions by their outputs, linear weights PyTorch's, and no bias."""
    from zoo.in_torch import wide_resnet

    stages = Stages.parse("1-1-1x8-8-8")
    theirs, _ = from_torch(wide_resnet(stages))
    theirs["stages"] = by_stage(stages, theirs.pop("blocks"))
    ours = WideResNet(init="he_conv").draw(stages, 0, jnp.float32)["params"]
    leaves = [[np.asarray(leaf) for leaf in jax.tree.leaves(of)] for of in (ours, theirs)]
    for mine, other in zip(*leaves, strict=True):
        assert mine.shape == other.shape
        few = 4 / np.sqrt(mine.size)  # errors of the deviations of so many draws
        assert np.std(mine) == pytest.approx(np.std(other), rel=few, abs=1e-9), mine.shape
    assert not np.any(np.asarray(ours["head"]["bias"]))


def normalised(stages: Stages) -> int:
    """Numbers that the normalisations return for one image, and the mean over the pixels."""
    total = side = 0
    for stage, blocks in enumerate(stages.blocks()):
        for block in blocks:
            total += block.before * (32 >> max(stage - (block.stride > 1), 0)) ** 2
            total += block.after * (side := 32 >> stage) ** 2
        last = blocks[-1].after
    return total + last * side**2 + last


@pytest.mark.parametrize(
    ("place", "name", "params", "flops"),
    [
        (13_072, "7-11-11x8-16-10", 132.89, 20005.58),
        (13_161, "5-11-9x14-14-12", 136.78, 20168.19),
    ],
)
def test_costs_are_those_that_nares_prints(
    place: int, name: str, params: float, flops: float
) -> None:
    """Millions, in the configurations of two networks, whose numbers are their order by costs.

    What is printed counts a normalisation, and the mean over pixels, as one for each number.
    """
    space, stages = WideResNet(), Stages.parse(name)
    costs = space.costs(stages)
    assert round(costs["params"] / 1e6, 2) == params
    counted = costs["flops"] + normalised(stages)
    assert round(counted / 1e6, 2) == flops
    sizes = itertools.product(*[DEPTHS] * 3, *[WIDTHS] * 3)
    every = [Stages(each[:3], each[3:]) for each in sizes]
    fewer = sum(space.costs(each)["flops"] + normalised(each) < counted for each in every)
    assert (len(every), fewer + 1) == (15_625, place)
