"""Stages of a long computation: what was kept comes back, also from a folder of version 0.3."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refuses

from ntkscore.results.checkpoints import STATE, begin, latest, save
from ntkscore.training.steps import State

START = State({"w": jnp.zeros((2, 3))}, (), (jnp.zeros((), jnp.int32),)), np.full((4, 2), np.nan)
LATER = State({"w": jnp.ones((2, 3))}, (), (jnp.int32(7),)), np.linspace(0, 1, 8).reshape(4, 2)


def check(found: tuple[int, object], stage: int) -> None:
    assert found[0] == stage
    jax.tree.map(np.testing.assert_array_equal, found[1], LATER)


def test_the_last_stage_comes_back_bit_by_bit(tmp_path: Path) -> None:
    begin(tmp_path, {"seed": 1})
    assert latest(tmp_path, START) == (0, START)
    save(tmp_path, 1, START)
    save(tmp_path, 2, LATER)
    begin(tmp_path, {"seed": 1})
    check(latest(tmp_path, START), 2)
    with refuses("seed", expected=tmp_path):
        begin(tmp_path, {"seed": 2})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", STATE]


def test_a_folder_of_version_0_3_goes_on(tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("orbax.checkpoint", reason="flax brings it, we do not ask")
    options = checkpoint.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
    with checkpoint.CheckpointManager(tmp_path, options=options) as manager:
        manager.save(9, args=checkpoint.args.StandardSave(START))
        manager.save(10, args=checkpoint.args.StandardSave(LATER))
    stage, (state, history) = latest(tmp_path, START)
    assert stage == 10
    np.testing.assert_allclose(history, LATER[1], atol=1e-7)
    jax.tree.map(np.testing.assert_array_equal, state, LATER[0])
    save(tmp_path, 11, LATER)
    check(latest(tmp_path, START), 11)


@pytest.mark.parametrize(
    ("damage", "error"),
    [(lambda whole: whole[:-50], "BadZipFile"), (lambda _: b"", "EOFError"), (None, "BadZipFile")],
)
def test_a_damaged_state_is_refused(tmp_path: Path, damage, error: str) -> None:
    save(tmp_path, 1, LATER)
    content = (tmp_path / STATE).read_bytes()
    at = content.index(LATER[1].tobytes())
    flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    (tmp_path / STATE).write_bytes(damage(content) if damage else flipped)
    with refuses(error, expected=tmp_path):
        latest(tmp_path, START)


def test_a_state_of_other_shapes_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 1, (START[0], np.zeros(3)))
    with refuses("ValueError", expected=tmp_path):
        latest(tmp_path, START)
