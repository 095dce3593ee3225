"""The order of NAS-Bench-201's cells, by which tables name them."""

import itertools
import random
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from ntkscore.errors import altered

# In NASLib's order the digit of each operation, and the places of the edges.
_OPERATIONS = "10324"
_EDGES = (0, 1, 3, 2, 4, 5)


@lru_cache(1)
def digits_by_index() -> tuple[str, ...]:
    """The digits of every cell in NAS-Bench-201's order: Python's shuffle of all, seed 88."""
    order = ["".join(digits) for digits in itertools.product("01234", repeat=6)]
    random.Random(88).shuffle(order)
    return tuple(order)


@lru_cache(1)
def index_by_digits() -> dict[str, int]:
    """The place of every cell in that order."""
    return {digits: index for index, digits in enumerate(digits_by_index())}


def digits_of_operations(numbers: Iterable[str]) -> str:
    """The digits of a cell from its operations in NASLib's order, such as 4, 3, 3, 0, 0, 0."""
    operations = [_OPERATIONS[int(number)] for number in numbers]
    return "".join(operations[edge] for edge in _EDGES)


def cell_of_operations(net: str, path: Path) -> int:
    """The index of a cell from its operations in NASLib's order, such as (4, 3, 3, 0, 0, 0)."""
    try:
        return index_by_digits()[digits_of_operations(re.findall(r"\d", net))]
    except (IndexError, KeyError) as error:
        found = f"{net!r} ({type(error).__name__}: {error})"
        raise altered(path, "six operations 0-4", found) from error
