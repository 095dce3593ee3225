"""Wide residual networks against flax, against published sizes, and what their names refuse."""

import csv
import json
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import linen as nn
from networks import error
from tiny import invoke, same_rows

from cells.cell_space import STATISTICS
from cells.wideresnet import Stages, WideResNet
from ntkscore import Task, anatomy
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.run.calls import plan_for
from ntkscore.run.scorer import Scorer

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
    ("name", "message"),
    [
        (
            "4-4-4",
            "expected a network such as 4-4-4x10-10-10 or WRN-28-10, got '4-4-4'; write the blocks "
            "of each of the three stages, x, and their widening factors",
        ),
        (
            "WRN-30-10",
            "expected a depth of 6n + 4 layers such as 28, got 30 in 'WRN-30-10'; write the blocks "
            "of each stage, as in 4-4-4x10-10-10",
        ),
        (
            "4-0-4x1-1-1",
            "expected at least one block and a widening factor of at least 1 in each stage, got "
            "'4-0-4x1-1-1'; raise what is 0",
        ),
        ("WRN-4-1", "a widening factor of at least 1 in each stage, got 'WRN-4-1'; raise"),
    ],
)
def test_what_is_no_network(name: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        SPACE.parse(name)


def test_images_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match="sides that 4 divides, since a wide residual network"):
        WideResNet(task=Task((30, 30, 3)))


def test_the_listed_networks_and_their_neighbours() -> None:
    listed = SPACE.architectures("all")
    assert len(listed) == len(set(listed)) == 7**3 * 8**3
    assert SPACE.parse("4-4-4x10-10-10") in listed
    with pytest.raises(InputError, match="got 'best'"):
        SPACE.architectures("best")
    near = SPACE.neighbours(SMALL)
    assert len(near) == len(set(near)) == 8  # of four ones none can be less
    assert SPACE.parse("3-1-1x1-2-1") in near and SPACE.parse("2-1-1x1-1-1") in near


def test_the_trained_networks_are_the_papers() -> None:
    assert SPACE.trained() == WideResNet(task=TASK)


@dataclass(frozen=True, kw_only=True)
class Whole(WideResNet):
    """The same networks, each compiled as a whole."""

    piecewise: ClassVar[bool] = False


@pytest.mark.thorough
def test_a_run_computes_piecewise_what_a_whole_program_does() -> None:
    points = np.random.default_rng(1).uniform(size=(4, *TASK.image_shape))
    found = []
    for space in (SPACE, Whole(task=TASK, channels=2)):
        scorer = Scorer(space, Config(samples=4, x64=True))
        batch = scorer.batch(points, np.arange(4), 0, space.shape(SMALL))
        (rows,) = scorer([SMALL], batch)
        found.append(pd.DataFrame(rows))
    same_rows(*found, tolerance=1e-6)


def test_a_run_takes_one_network_at_a_time() -> None:
    plan = plan_for(SPACE, [SMALL, SPACE.parse("WRN-10-1")], Config(samples=4), batch=8)
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
