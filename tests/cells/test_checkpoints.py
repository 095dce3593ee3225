"""State dicts of PyTorch: names, layout, and the logits that the reference computed from them."""

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refuses

from cells.nasbench201 import SIZE, Cell
from cells.nasbench201.checkpoints import (
    entries,
    load_state_dict,
    read_state_dict,
    write_state_dict,
)
from cells.nasbench201.network import abstract_variables
from cells.nasbench201.parity import sizes_of
from cells.nasbench201.space import NASBench201
from ntkscore import Task

FILES = ("cell_00173_c4_n1", "cell_01462_c4_n1")
ALL_FILES = (*FILES, "cell_00219_c8_n1", "cell_02581_c16_n5", "cell_13022_c8_n2")
CIFAR10 = Task(
    mean=tuple(value / 255 for value in (125.3, 123.0, 113.9)),
    std=tuple(value / 255 for value in (63.0, 62.1, 66.7)),
)
BN_MODES = ("calibrated", "init", "batch")
SMALL = NASBench201(task=Task(num_classes=3), channels=2, cells_per_stage=2)
State = dict[str, np.ndarray]
small_params = cache(lambda: abstract_variables(SMALL)["params"])


def random_state(cell: Cell) -> State:
    """A state dict of which every number is different."""
    rng = np.random.default_rng(cell.index)
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), small_params()
    )
    return write_state_dict({"params": params}, cell, SMALL)


def assert_equal_states(actual: State, expected: State) -> None:
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        np.testing.assert_array_equal(actual[name], array, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("index", random.Random(0).sample(range(SIZE), 3))
def test_writing_is_the_inverse_of_reading(index: int) -> None:
    cell = Cell(index)
    state = random_state(cell)
    assert_equal_states(write_state_dict(read_state_dict(state, cell, SMALL), cell, SMALL), state)


def test_only_the_cells_own_operations_are_read() -> None:
    cell = Cell.from_digits("321400")
    params = read_state_dict(random_state(cell), cell, SMALL)["params"]
    for stage in range(3):
        for edge, used in enumerate(("nor_conv_3x3", "nor_conv_1x1", None, None, None, None)):
            for name, weights in params[f"stage_{stage}"][f"edge_{edge}"].items():
                for leaf in weights.values():
                    assert bool(np.all(leaf != 0)) is bool(np.any(leaf != 0)) is (name == used)


def test_names_and_layout_are_those_of_the_benchmark() -> None:
    cell = Cell.from_digits("300002")
    state = random_state(cell)
    shapes = {name: array.shape for name, array in state.items()}
    assert shapes["stem.0.weight"] == (2, 3, 3, 3)
    # Positions count the reduction blocks: cells 0, 1, block 2, cells 3, 4, block 5, cells 6, 7.
    assert shapes["cells.3.layers.0.op.1.weight"] == (4, 4, 3, 3)
    assert shapes["cells.7.layers.5.op.1.weight"] == (8, 8, 1, 1)
    assert shapes["cells.7.layers.5.op.2.bias"] == (8,)
    assert shapes["cells.5.conv_a.op.1.weight"] == (8, 4, 3, 3)
    assert shapes["cells.5.downsample.1.weight"] == (8, 4, 1, 1)
    assert shapes["lastact.0.weight"] == (8,)
    assert shapes["classifier.weight"] == (3, 8)
    assert list(shapes) == [name for name, _, _ in entries(cell, 2)]
    params = read_state_dict(state, cell, SMALL)["params"]
    kernel = params["stage_1"]["edge_0"]["nor_conv_3x3"]["kernel"]
    for place, position in enumerate((3, 4)):
        weight = state[f"cells.{position}.layers.0.op.1.weight"]
        np.testing.assert_array_equal(kernel[place][0, 2, 3, 1], weight[1, 3, 0, 2])
    np.testing.assert_array_equal(params["head"]["kernel"][5], state["classifier.weight"][:, 5])


def test_weights_do_not_depend_on_the_cell_that_is_written() -> None:
    """Two cells share the weights of the operations that they share."""
    params = jax.tree.map(
        lambda leaf: np.arange(leaf.size, dtype=np.float32).reshape(leaf.shape), small_params()
    )
    one, other = (
        write_state_dict({"params": params}, Cell.from_digits(digits), SMALL)
        for digits in ("323133", "322130")
    )
    shared = one.keys() & other.keys()
    differing = {n for n in shared if one[n].shape != other[n].shape}
    assert {name.split(".")[3] for name in differing} == {"2"}
    for name in shared:
        if ".layers.2." not in name:
            np.testing.assert_array_equal(one[name], other[name])


def test_parallel_prefix_and_running_statistics_are_accepted() -> None:
    cell = Cell(2581)
    state = random_state(cell)
    trained = {f"module.{name}": array for name, array in state.items()}
    for name, array in state.items():
        if array.ndim == 1 and name.endswith("weight"):
            base = f"module.{name.removesuffix('weight')}"
            trained |= {f"{base}running_mean": array, f"{base}running_var": array}
            trained |= {f"{base}num_batches_tracked": np.array(7)}
    before = dict(trained)
    read = read_state_dict(trained, cell, SMALL)
    assert trained.keys() == before.keys()
    assert_equal_states(write_state_dict(read, cell, SMALL), state)


def test_a_missing_entry_is_refused() -> None:
    state = random_state(Cell.from_digits("300000"))
    del state["cells.3.layers.0.op.2.bias"]
    with refuses(expected=("cells.3.layers.0.op.2.bias", 300000)):
        read_state_dict(state, Cell.from_digits("300000"), SMALL)
    deeper = replace(SMALL, cells_per_stage=3)
    with refuses(expected="cells.2.layers.0.op.1.weight"):
        read_state_dict(
            random_state(Cell.from_digits("300000")), Cell.from_digits("300000"), deeper
        )


def test_a_leftover_entry_is_refused() -> None:
    state = random_state(Cell.from_digits("300002"))
    with refuses("cells.0.layers.5.op.1.weight", 18, expected=300000):
        read_state_dict(state, Cell.from_digits("300000"), SMALL)


def test_another_shape_is_refused() -> None:
    cell = Cell.from_digits("000000")
    state = random_state(cell)
    state["classifier.weight"] = np.zeros((5, 8), np.float32)
    with refuses((8, 5), expected=((8, 3), "classifier.weight")):
        read_state_dict(state, cell, SMALL)
    with refuses((3, 3, 3, 2), expected=((3, 3, 3, 4), "stem.0.weight")):
        read_state_dict(random_state(cell), cell, NASBench201(channels=4, cells_per_stage=2))
    other_kernel = random_state(Cell.from_digits("200000"))
    with refuses((1, 1, 2, 2), expected=((3, 3, 2, 2), "cells.0.layers.0.op.1.weight")):
        read_state_dict(other_kernel, Cell.from_digits("300000"), SMALL)


class Parity:
    """One file of the reference: the network's space, its weights, and what they compute."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.cell = Cell.parse(str(self.arrays["arch_str"]))
        self.space = NASBench201(**sizes_of(self.arrays))
        self.state = {
            name.removeprefix("state_dict/"): array
            for name, array in self.arrays.items()
            if name.startswith("state_dict/")
        }


@pytest.fixture(scope="module")
def parity(data_dir: Path) -> Callable[[str], Parity]:
    return lambda name: Parity(data_dir / "parity" / f"{name}.npz")


@pytest.mark.parametrize("name", ALL_FILES)
def test_counts_are_those_of_the_reference(name: str, parity: Callable[[str], Parity]) -> None:
    file = parity(name)
    assert file.cell.index == int(file.arrays["arch_index"])
    costs = file.space.costs(file.cell)
    assert costs["params"] == int(file.arrays["num_params"])
    assert costs["flops"] == int(file.arrays["macs_conv_linear"])
    assert sum(array.size for array in file.state.values()) == int(file.arrays["num_params"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_FILES)
def test_the_references_files_round_trip(name: str, parity: Callable[[str], Parity]) -> None:
    file = parity(name)
    read = read_state_dict(file.state, file.cell, file.space)
    assert_equal_states(write_state_dict(read, file.cell, file.space), file.state)


Logits = Callable[[dict[str, Any], jax.Array, jax.Array], jax.Array]


@pytest.fixture(scope="module")
def logits() -> dict[str, Logits]:
    """By mode; the files have one shape, so that each mode is compiled once."""
    chex.clear_trace_counter()

    def compiled(bn: str) -> Logits:
        space = NASBench201(task=CIFAR10, channels=4, cells_per_stage=1, bn=bn)

        def apply(variables: dict[str, Any], images: jax.Array, digits: jax.Array) -> jax.Array:
            return space.model((), variables, digits, images).logits(images)

        # The modes share a counter, since they share their source.
        return jax.jit(chex.assert_max_traces(apply, n=len(BN_MODES)))

    return {bn: compiled(bn) for bn in BN_MODES}


@pytest.mark.slow
@pytest.mark.parametrize("bn", BN_MODES)
@pytest.mark.parametrize("name", FILES)
def test_logits_are_those_of_the_reference(
    name: str, bn: str, parity: Callable[[str], Parity], logits: dict[str, Logits]
) -> None:
    file = parity(name)
    variables = read_state_dict(file.state, file.cell, file.space)
    images = jnp.asarray(file.arrays["images"].astype(np.float32) / np.float32(255))
    actual = logits[bn](variables, images, jnp.asarray(file.cell.operations, jnp.int32))
    expected = file.arrays[f"logits_bn_{bn}"]
    assert np.linalg.norm(actual - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("key", [None, "state_dict", "model"])
def test_a_pth_file_is_read(key: str | None, tmp_path: Path, torch: Any) -> None:
    cell = Cell(2581)
    state = random_state(cell)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in state.items()}
    torch.save(tensors if key is None else {key: tensors, "epoch": 3}, tmp_path / "cell.pth")
    read = read_state_dict(load_state_dict(tmp_path / "cell.pth"), cell, SMALL)
    assert_equal_states(write_state_dict(read, cell, SMALL), state)


@pytest.mark.parametrize("content", [{"lr": 0.1}, [1, 2], "weights", {"state_dict": 3}])
def test_a_pth_file_without_tensors_is_refused(content: Any, tmp_path: Path, torch: Any) -> None:
    path = tmp_path / "other.pth"
    torch.save(content, path)
    with refuses("AttributeError", expected=path, remedy="torch.save(network.state_dict(), path)"):
        load_state_dict(path)


def test_a_damaged_or_absent_pth_file_is_refused(tmp_path: Path, torch: Any) -> None:
    (tmp_path / "damaged.pth").write_bytes(b"not a state dict")
    for name in ("damaged.pth", "absent.pth"):
        with refuses(expected=tmp_path / name, remedy="torch.save(network.state_dict(), path)"):
            load_state_dict(tmp_path / name)


def test_a_pth_file_that_would_run_code_is_refused(tmp_path: Path, torch: Any) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"stem.0.weight": Trap()}, tmp_path / "trap.pth")
    with refuses(expected=tmp_path / "trap.pth", remedy="torch.save(network.state_dict(), path)"):
        load_state_dict(tmp_path / "trap.pth")
    assert not (tmp_path / "ran").exists()


def test_without_pytorch_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with refuses("torch", expected="cell.pth", remedy=".npz"):
        load_state_dict(Path("cell.pth"))
