"""Functions of JAX's programs in several threads at once."""

import threading
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest

from ntkscore.compiler import _for_any_layout, for_any_layout
from ntkscore.threads import in_threads


def test_results_are_in_the_items_order_and_items_are_taken_as_results_are() -> None:
    taken, release = [], threading.Event()

    def items() -> Iterator[int]:
        for each in range(5):
            taken.append(each)
            yield each

    def square(item: int) -> int:
        if item == 0:  # the last of the first three to end
            assert release.wait(10), "the others run meanwhile"
        if item == 2:
            release.set()
        return item**2

    results = in_threads(square, items(), 3)
    assert next(results) == 0
    assert len(taken) == 4
    assert [*results] == [1, 4, 9, 16]


def test_threads_have_the_settings_of_the_thread_that_starts_them() -> None:
    def read(item: int = 0) -> tuple[str, bool, object, object]:
        config = jax.config
        chosen = config.jax_default_device, config.jax_default_matmul_precision
        return str(jnp.zeros(1).dtype), _for_any_layout.get(), *chosen

    before, device = read(), jax.local_devices()[-1]
    precise = jax.default_matmul_precision("highest")
    with jax.enable_x64(True), for_any_layout(), jax.default_device(device), precise:
        here = read()
        assert here == ("float64", True, device, "highest") != before
        assert set(in_threads(read, range(3), 2)) == {here}
    assert set(in_threads(read, range(3), 2)) == {before}


def test_an_error_of_one_item_ends_all() -> None:
    taken = []

    def fail(item: int) -> int:
        taken.append(item)
        if item == 1:
            raise ValueError("one")
        return item

    results = in_threads(fail, range(9), 2)
    assert next(results) == 0
    with pytest.raises(ValueError, match="one"):
        next(results)
    assert len(taken) <= 3
