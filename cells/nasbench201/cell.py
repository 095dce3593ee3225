"""The cells of NAS-Bench-201, their names and their convolutions.

A cell has four nodes and six edges, in the order 0→1, 0→2, 1→2, 0→3, 1→3, 2→3, and each edge
carries one of five operations. Source: Dong and Yang (2020), "NAS-Bench-201".
"""

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any

import numpy as np

from cells.costs import IMAGE_CHANNELS, ConvGroup
from ntkscore.data.cell_index import digits_by_index, digits_of_operations, index_by_digits
from ntkscore.errors import InputError, check_choice

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
NONE, SKIP, CONV_1X1, CONV_3X3, AVG_POOL = range(5)
KERNEL_SIZES = {CONV_1X1: 1, CONV_3X3: 3}

EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""Source and target node of each edge, in the order of a cell's digits."""
SOURCES, TARGETS = np.array(EDGES, np.int32).T

SIZE = len(OPERATIONS) ** len(EDGES)

_EXPECTED = f"a cell index from 0 to {SIZE - 1}, or six digits such as 323133"


@dataclass(frozen=True, order=True)
class Cell:
    """A NAS-Bench-201 cell, stored as the benchmark's index 0…15624.

    Example:
        >>> Cell.parse("323133").index
        2581
        >>> Cell(1462).string
        '|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|'
    """

    index: int

    def __post_init__(self) -> None:
        is_whole = isinstance(self.index, Integral) and not isinstance(self.index, bool)
        if not is_whole or not 0 <= self.index < SIZE:
            raise InputError(_EXPECTED, repr(self.index), "Cell.parse('323133') reads digits")

    def __index__(self) -> int:
        return self.index

    @property
    def digits(self) -> str:
        """Six digits 0–4, one operation per edge in the order of `EDGES`."""
        return digits_by_index()[self.index]

    @property
    def operations(self) -> tuple[int, ...]:
        """The six digits as numbers, one operation per edge."""
        return tuple(map(int, self.digits))

    @property
    def string(self) -> str:
        """The benchmark's genotype string, `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`."""
        named = [
            f"{OPERATIONS[operation]}~{source}"
            for operation, (source, _) in zip(self.operations, EDGES, strict=True)
        ]
        return "+".join(f"|{'|'.join(node)}|" for node in (named[:1], named[1:3], named[3:]))

    @classmethod
    def from_digits(cls, digits: str) -> "Cell":
        """The cell whose six edges carry these operations (digits 0–4, in edge order)."""
        if not re.fullmatch(r"[0-4]{6}", digits):
            raise InputError(
                "six digits from 0 to 4",
                repr(digits),
                f"they stand for {', '.join(f'{i} {name}' for i, name in enumerate(OPERATIONS))}",
            )
        return cls(index_by_digits()[digits])

    @classmethod
    def from_string(cls, string: str) -> "Cell":
        """The cell of a genotype string; the inverse of `string`."""
        nodes = [re.findall(r"([^|~+]+)~(\d{1,9})", node) for node in string.strip().split("+")]
        edges = [
            (int(source), target) for target, node in enumerate(nodes, 1) for _, source in node
        ]
        if tuple(edges) != EDGES:
            raise InputError(
                "six edges as in '|op~0|+|op~0|op~1|+|op~0|op~1|op~2|'",
                f"{len(edges)} in {string!r}",
                "write every edge, with 'none' where there is none",
            )
        names = [name.strip() for node in nodes for name, _ in node]
        for name in names:
            check_choice(name, OPERATIONS, f"each operation in {string!r}")
        cell = cls.from_digits("".join(str(OPERATIONS.index(name)) for name in names))
        if re.sub(r"\s", "", string) != cell.string:
            raise InputError(
                f"a genotype string such as {cell.string!r}", repr(string), "check its separators"
            )
        return cell

    @classmethod
    def parse(cls, text: object) -> "Cell":
        """A cell from its index, its six digits or its genotype string.

        Raises:
            InputError: if it is none of the three.
        """
        text = getattr(text, "tolist", lambda: text)()
        if isinstance(text, Sequence) and not isinstance(text, str):
            refuse_operations(text)
        if hasattr(text, "__index__") and not isinstance(text, bool):
            return cls(operator.index(text))  # type: ignore[arg-type]
        text = str(text).strip()
        if "|" in text or "~" in text:
            return cls.from_string(text)
        if re.fullmatch(r"\d{6}", text):
            return cls.from_digits(text)
        if re.fullmatch(r"\d{1,5}", text) and int(text) < SIZE:
            return cls(int(text))
        if re.fullmatch(r"-?\d{1,20}", text):
            n = len(text.lstrip("-"))
            raise InputError(_EXPECTED, text, f"it has {n} digits and is no index")
        refuse_operations(re.findall(r"[^\s,()\[\]]+", text))
        raise InputError(
            "a cell as an index (2581), six digits (323133) or a genotype string "
            "(|op~0|+|op~0|op~1|+|op~0|op~1|op~2|)",
            repr(text),
            "write it in one of these forms",
        )

    def neighbours(self) -> tuple["Cell", ...]:
        """The 24 cells that differ in the operation of exactly one edge."""
        digits = self.digits
        return tuple(
            Cell.from_digits(digits[:edge] + other + digits[edge + 1 :])
            for edge in range(len(EDGES))
            for other in "01234"
            if other != digits[edge]
        )

    def convolutions(self, channels: int, cells_per_stage: int) -> Iterator[ConvGroup]:
        """All convolutions of a network of the space's sizes, and at last its linear layer."""
        yield ConvGroup(0, 9 * IMAGE_CHANNELS * channels, channels)
        for stage in range(3):
            width = channels << stage
            if stage:
                # Two 3×3 convolutions, and a 1×1 one without normalisation beside them.
                before = width // 2
                yield ConvGroup(stage, (9 * (before + width) + before) * width, 2 * width, 3)
            for operation, size in KERNEL_SIZES.items():
                count = cells_per_stage * self.operations.count(operation)
                yield ConvGroup(stage, count * (size * width) ** 2, count * width, count)
        yield ConvGroup(3, 4 * channels, 4 * channels)


def refuse_operations(names: Sequence[Any]) -> None:
    """Refuse six numbers from 0 to 4, which name six cells or are the operations of one.

    Six different cells have an index above 4.

    Raises:
        InputError: if they are six such numbers.
    """
    texts = [str(name) for name in names if isinstance(name, Number | str)]
    digits = [text.removesuffix(".0").strip() for text in texts]
    if len(names) != len(EDGES) or not re.fullmatch(r"([0-4] ){6}", " ".join([*digits, ""])):
        return
    naslib = digits_of_operations(digits)
    raise InputError(
        "names of cells",
        f"the six numbers {', '.join(digits)}, which may be six indices or the operations of "
        "one cell",
        f"write '{naslib}' for operations in NASLib's order (Identity, Zero, 3x3, 1x1, "
        f"pool), '{''.join(digits)}' for digits in this library's, and no index twice",
    )


def all_cells() -> Iterator[Cell]:
    """Every cell of the space, by index."""
    return map(Cell, range(SIZE))
