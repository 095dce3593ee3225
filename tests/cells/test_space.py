"""What spaces have in common: choices, tasks, names; and NAS-Bench-201's own part of it."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.backend import get_backend
from tiny import refuses

from cells.nasbench201 import Cell, distinct_cells
from cells.nasbench201.space import NASBench201
from ntkscore import Task, ntk
from ntkscore.model import Model
from ntkscore.options import option
from ntkscore.space import Space


@dataclass(frozen=True, kw_only=True)
class Scaled(Space):
    """Linear networks whose only choice is a factor: as little as a space can be."""

    name: ClassVar[str] = "scaled"
    factor: float = option(2.0, "Factor on the logits.")

    def parse(self, text: Any) -> str:
        return str(text)

    def identity(self, architecture: str) -> dict[str, str | int]:
        return {"scaled": architecture, "length": len(architecture)}

    def costs(self, architecture: str) -> dict[str, float]:
        return {"params": 1.0}

    def draw(self, shape: Hashable, seed: int, dtype: Any) -> Any:
        return jax.random.normal(jax.random.key(seed), (48, self.task.num_classes), dtype)

    def model(self, shape: Hashable, variables: Any, code: Any, images: jax.Array) -> Model:
        return Model(lambda w, x: self.factor * (x.reshape(len(x), -1) @ w), variables)


def test_what_a_space_of_ones_own_need_not_write() -> None:
    space = Scaled(factor=3.0)
    assert space.key("a") == "a"
    assert space.names("a") == {"scaled": "a"}
    assert space.shape("a") == space.shape("b")
    assert space.encode("a").shape == ()
    assert space.trained() is space
    assert space.memory((), 10, 4) is None
    assert space.choices() == {"factor": 3.0}
    assert space.columns == {"space": "scaled", "factor": 3.0}
    on = space.on(Task((4, 4, 3), 7))
    assert (on.task.num_classes, on.factor, space.task.num_classes) == (7, 3.0, 10)
    with refuses("all", expected="scaled", remedy="architectures"):
        space.architectures("all")


@pytest.mark.parametrize(
    ("choices", "got", "expected"),
    [
        ({"init": "lecun"}, "lecun", ("init", "torch", "he")),
        ({"bn": "eval"}, "eval", ("bn", "calibrated", "batch")),
        ({"channels": 0}, 0, ("channels", 1)),
        ({"cells_per_stage": -1}, -1, ("cells_per_stage", 1)),
        ({"task": Task((30, 32, 3))}, "30×32", (4, "NAS-Bench-201")),
        ({"task": Task((32, 32, 1))}, (32, 32, 1), "(height, width, 3)"),
    ],
)
def test_nas_bench_201_refuses_what_its_networks_cannot_take(
    choices: dict[str, Any], got: object, expected: Any
) -> None:
    with refuses(got, expected=expected):
        NASBench201(**choices)


def test_nas_bench_201_lists_its_cells() -> None:
    space = NASBench201()
    assert len(space.architectures("all")) == 15_625
    with refuses("best", expected=("nasbench201", "distinct", "all")):
        space.architectures("best")
    cell = space.parse("323133")
    assert cell == Cell(2581)
    assert space.identity(cell) == {"cell": 2581, "string": cell.string}
    assert space.names(cell) == {"cell": 2581, "digits": "323133"}
    np.testing.assert_array_equal(space.encode(cell), [3, 2, 3, 1, 3, 3])


def test_the_trained_networks_are_the_benchmarks() -> None:
    small = NASBench201(task=Task(num_classes=100), channels=4, cells_per_stage=1, bn="init")
    trained = small.trained()
    assert (trained.channels, trained.cells_per_stage, trained.task.num_classes) == (16, 5, 100)
    cell = Cell.from_digits("323133")
    assert small.on(Task()).trained().costs(cell)["params"] == 1_073_466
    assert small.costs(cell)["params"] == 17_606 + 90 * 17


def test_more_of_anything_is_estimated_to_need_more_memory() -> None:
    space = NASBench201(channels=4, cells_per_stage=1)
    least = space.memory((), 10, 4)
    assert least > 10 * 32 * 32 * 3 * 4
    assert space.memory((), 20, 4) == pytest.approx(2 * least, rel=1e-6)
    assert space.memory((), 10, 8) == pytest.approx(2 * least, rel=1e-6)
    for larger in (
        NASBench201(channels=8, cells_per_stage=1),
        NASBench201(channels=4, cells_per_stage=2),
        space.on(Task((64, 64, 3))),
    ):
        assert larger.memory((), 10, 4) > least


@pytest.mark.slow
def test_distinct_cells_are_one_for_each_function() -> None:
    assert NASBench201().architectures("distinct") == distinct_cells()


@pytest.mark.slow
def test_drawn_weights_depend_on_the_seed_and_not_on_the_precision(double) -> None:
    space = NASBench201(task=Task((8, 8, 3)), channels=4, cells_per_stage=1)
    single, exact, other = (
        space.draw((), seed, dtype)
        for seed, dtype in ((0, jnp.float32), (0, jnp.float64), (1, jnp.float64))
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(exact)} == {np.dtype("float64")}
    jax.tree.map(np.testing.assert_array_equal, single, exact)
    kernel = lambda drawn: drawn["params"]["stem"]["conv"]["kernel"]  # noqa: E731
    assert np.all(kernel(other) != kernel(exact))


def test_networks_of_a_shape_are_counted_without_drawing_or_keeping_their_weights() -> None:
    drawn: list[Any] = []

    class Counted(Scaled):
        name = "counted"
        costs = Space.costs

        def shape(self, architecture: str) -> Hashable:
            return len(architecture)

        def draw(self, shape: Hashable, seed: int, dtype: Any) -> Any:
            weights = super().draw(shape, seed, dtype)
            drawn.append(weakref.ref(jax.tree.leaves(weights)[0]))
            return weights

    space = Counted().on(Task((4, 4, 3), 7))
    expected = space.costs("aa")
    assert [space.costs(f"a{letter}") for letter in "bcdef"] == [expected] * 5
    assert expected["params"] > 0
    gc.collect()
    assert len(drawn) == 1 and drawn[0]() is None


@pytest.mark.slow
@pytest.mark.parametrize("bn", ["calibrated", "init"])
def test_networks_of_a_space_are_data_of_one_program(bn: str) -> None:
    space = NASBench201(task=Task((8, 8, 3), 3), channels=2, cells_per_stage=1, bn=bn)
    x = np.random.default_rng(1).uniform(size=(3, 8, 8, 3)).astype(np.float32)
    cells, kernels, programs = ("323133", "421211", "341234"), [], []
    for seed, cell in enumerate(cells):
        kernels.append(ntk(space.network(cell, x, seed), x))
        gc.collect()
        programs.append(len(get_backend().live_executables()))
    assert len({*programs}) == 1
    for seed, (cell, kernel) in enumerate(zip(cells, kernels, strict=True)):
        apply, params, *_ = space.network(cell, x, seed)
        of_weights = lambda p, apply=apply: apply(p, jnp.asarray(x)).sum(1)  # noqa: E731
        leaves = jax.tree.leaves(jax.jit(jax.jacrev(of_weights))(params))
        want = sum(np.asarray(leaf).reshape(3, -1) @ leaf.reshape(3, -1).T for leaf in leaves)
        np.testing.assert_allclose(kernel, want, rtol=0, atol=1e-4 * np.abs(want).max())


@pytest.mark.slow
def test_a_network_of_a_space_follows_its_points_to_another_device() -> None:
    program = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from cells import NASBench201
from ntkscore import Task, ntk
first, second = jax.local_devices()
space = NASBench201(task=Task((8, 8, 3), 3), channels=1, cells_per_stage=1)
x = np.random.default_rng(1).uniform(size=(4, 8, 8, 3)).astype(np.float32)
model = space.network("012301", jax.device_put(x, first))
here = ntk(model, x)
mesh = NamedSharding(Mesh([first, second], "i"), PartitionSpec("i"))
for where in second, mesh:
    there = ntk(model, jax.device_put(x, where))
    assert there.sharding.device_set == getattr(where, "device_set", {where})
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-4 * np.abs(here).max())
"""
    subprocess.run([sys.executable, "-c", program], check=True)
