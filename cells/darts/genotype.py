"""Genotypes of the DARTS space: two cells of four nodes, each node the sum of two operations.

A cell reads the two cells before it (nodes 0 and 1), and its output is the concatenation of its
nodes 2 to 5. Source: Liu, Simonyan and Yang (2019), "DARTS: Differentiable architecture search".
"""

import ast
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NoReturn, TypeGuard

import numpy as np

from attacks.lazy import PyTree
from cells.darts.published import PUBLISHED
from ntkscore.errors import InputError

OPERATIONS = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
NONE, MAX_POOL, AVG_POOL, SKIP, SEP_3, SEP_5, DIL_3, DIL_5 = range(8)
CHOICES = range(1, len(OPERATIONS))
"""Operations that a random genotype and a neighbour may have: all but none."""

TARGETS = (2, 2, 3, 3, 4, 4, 5, 5)
"""The node in which each of a cell's edges ends; nodes 0 and 1 are the cell's inputs."""
NODES = range(2, 6)
Edge = tuple[int, int]
"""An operation, as its place in `OPERATIONS`, and the node that it reads."""
PAIRS: list[list[tuple[Edge, Edge]]] = [
    [
        ((first, a), (second, b))
        for first, second in itertools.product(CHOICES, repeat=2)
        for a, b in itertools.combinations(range(node), 2)
    ]
    for node in NODES
]
"""The pairs of edges of two sources and no `none` that may end in each node."""

SHORT = "Genotype(normal=[('sep_conv_3x3', 0), …], reduce=[…])"
QUOTES = str.maketrans("‘’“”`´", "''''''")


def _edge(edge: object, number: int, cell: str, at: str) -> Edge:
    """An edge as numbers, its operation given by name or by number."""
    target = TARGETS[number]

    def refuse(expected: str, got: object, remedy: str) -> NoReturn:
        raise InputError(f"edge {number + 1} of {cell} {expected}", f"{got!r}{at}", remedy)

    if not isinstance(edge, (tuple, list)) or len(edge) != 2:
        refuse("as an operation and its input, such as ('sep_conv_3x3', 0)", edge, "correct it")
    operation, source = edge
    if isinstance(operation, str) and operation in OPERATIONS:
        operation = OPERATIONS.index(operation)
    if not _is_in(operation, len(OPERATIONS)):
        names = ", ".join(OPERATIONS)
        refuse(f"with one of the operations {names}", operation, "check its spelling")
    if not _is_in(source, target):
        earlier = f"with an input from 0 to {target - 1}, since it ends in node {target}"
        refuse(earlier, source, "let it read an earlier node")
    return int(operation), int(source)


def _is_in(value: object, bound: int) -> TypeGuard[int]:
    """Whether a value is a whole number from 0 to the bound, which it does not reach."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return 0 <= int(value) < bound


def _edges(edges: object, cell: str, places: Sequence[int] = ()) -> tuple[Edge, ...]:
    """A cell's edges as numbers; `places` are those of the cell and of its edges in a text."""
    at = [f" at character {place}" for place in places] or [""] * (1 + len(TARGETS))
    if not isinstance(edges, (tuple, list)) or len(edges) != len(TARGETS):
        got = f"{len(edges)} edges" if isinstance(edges, (tuple, list)) else repr(edges)
        raise InputError(
            f"{len(TARGETS)} edges in {cell}, two for each of its nodes 2 to 5",
            f"{got}{at[0]}",
            "write every edge, in the order of the nodes",
        )
    return tuple(_edge(edge, i, cell, at[1 + i]) for i, edge in enumerate(edges))


@dataclass(frozen=True, order=True)
class Genotype:
    """A normal and a reduction cell, each of eight edges (operation, source).

    Edges are in the order of the nodes in which they end, `TARGETS`. They may be given as lists,
    and operations by name; kept are tuples of numbers.

    Raises:
        InputError: if a cell has other than eight edges, an operation is unknown, or an edge
            reads a node that is not before the one in which it ends.

    Example:
        >>> genotype = Genotype.parse("AdvRush")
        >>> genotype.digits
        '4140504141403041-4041306230213032'
        >>> genotype.normal[:3]
        ((4, 1), (4, 0), (5, 0))
        >>> Genotype.parse(genotype.string).name
        'AdvRush'
        >>> edges = [["sep_conv_3x3", 0], ["skip_connect", 1]] * 4
        >>> Genotype(edges, edges).digits
        '4031403140314031-4031403140314031'
    """

    normal: tuple[Edge, ...]
    reduce: tuple[Edge, ...]

    def __post_init__(self) -> None:
        for cell in ("normal", "reduce"):
            object.__setattr__(self, cell, _edges(getattr(self, cell), cell))

    @property
    def digits(self) -> str:
        """Operation and source of each edge: 16 digits, a hyphen, 16 digits."""
        return "-".join("".join(f"{o}{s}" for o, s in edges) for edges in self.cells)

    @property
    def string(self) -> str:
        """The genotype as the DARTS code prints it, `Genotype(normal=[('sep_conv_3x3', 0), …`."""
        normal, reduce = ([(OPERATIONS[o], s) for o, s in edges] for edges in self.cells)
        return (
            f"Genotype(normal={normal}, normal_concat=range(2, 6), "
            f"reduce={reduce}, reduce_concat=range(2, 6))"
        )

    @property
    def name(self) -> str:
        """The name under which these edges, in this order, are published; "" if they are not."""
        named = (name for name, digits in PUBLISHED.items() if digits == self.digits)
        return next(named, "")

    @property
    def cells(self) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
        """The edges of the normal and of the reduction cell."""
        return self.normal, self.reduce

    @classmethod
    def parse(cls, text: object) -> "Genotype":
        """A genotype from a paper's string, its digits or a published name.

        A string may begin with `NAME =`, break over lines, have quotes of any kind, and leave out
        what is concatenated.

        Raises:
            InputError: if it is none of the three.
        """
        if isinstance(text, cls):
            return text
        text = str(text)
        digits = _NAMED.get(_plain(text)) or text.strip()
        if not re.fullmatch(r"[0-9]{16}-[0-9]{16}", digits):
            return cls(*_read(text))
        start, cells = len(text) - len(text.lstrip()) + 1, []
        for cell, first in (("normal", 0), ("reduce", 17)):
            places = range(first, first + 16, 2)
            edges = [(int(digits[i]), int(digits[i + 1])) for i in places]
            cells.append(_edges(edges, cell, [start, *(start + i for i in places)]))
        return cls(*cells)

    def neighbours(self) -> tuple["Genotype", ...]:
        """The genotypes that differ in one operation or in one input, in a fixed order.

        Of a genotype with two sources at each node and no `none` there are 120.

        Example:
            >>> len(Genotype.parse("DARTS").neighbours())
            120
        """

        def changed(edges: tuple[Edge, ...]) -> Iterator[tuple[Edge, ...]]:
            for i, (operation, source) in enumerate(edges):
                # A node's edges are at 2k and 2k + 1.
                used = {source, edges[i ^ 1][1]}
                others = [(other, source) for other in CHOICES if other != operation]
                others += [(operation, other) for other in range(TARGETS[i]) if other not in used]
                yield from ((*edges[:i], other, *edges[i + 1 :]) for other in others)

        normal, reduce = self.cells
        return (
            *(Genotype(other, reduce) for other in changed(normal)),
            *(Genotype(normal, other) for other in changed(reduce)),
        )


def _plain(name: str) -> str:
    """A name without what differs between its spellings: capitals, hyphens, spaces."""
    return re.sub(r"[\W_]", "", name).lower()


_NAMED: dict[str, str] = {_plain(name): digits for name, digits in PUBLISHED.items()}


def _read(text: str) -> list[tuple[Edge, ...]]:
    """The two cells of a paper's string."""
    if "(" not in text:
        raise InputError(
            f"a genotype as papers print it ({SHORT}), its digits ({PUBLISHED['DARTS']}) or "
            f"a published name ({', '.join(PUBLISHED)})",
            repr(text[:80]),
            "write it in one of these forms",
        )
    # One character for each, so that places are those of the text; comments go.
    line = re.sub(r"#[^\n]*|\s", lambda found: " " * len(found[0]), text.translate(QUOTES))
    code = re.sub(r"^ *(\w+ *= *)?", "", line)
    start = len(line) - len(code) + 1

    def place(node: ast.expr) -> int:
        return start + len(code.encode()[: node.col_offset].decode())

    def value(node: ast.expr) -> object:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, RecursionError):
            return ast.get_source_segment(code, node)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        i = start - 1 + max(1, getattr(error, "offset", None) or 1)
        raise InputError(
            f"a genotype such as {SHORT}",
            f"one that cannot be read at character {i}, {text[i - 1 : i + 19]!r}",
            "check its brackets, commas and quotes",
        ) from error
    parts = {part.arg: part.value for part in getattr(call, "keywords", ())}
    cells = []
    for cell in ("normal", "reduce"):
        node = parts.pop(cell, None)
        if not isinstance(node, (ast.List, ast.Tuple)):
            raise InputError(
                f"a genotype such as {SHORT}",
                f"none with a list of edges as {cell} from character {start}, "
                f"{text[start - 1 : start + 19]!r}",
                "write one",
            )
        cells.append(_edges([*map(value, node.elts)], cell, [*map(place, (node, *node.elts))]))
    for name, node in parts.items():
        written = re.sub(r"\s", "", ast.get_source_segment(code, node) or "")
        if written != "range(2,6)" and sorted(re.findall(r"[^,()\[\]]+", written)) != [*"2345"]:
            raise InputError(
                f"{name}=range(2, 6), every node of a cell but its inputs",
                f"{written} at character {place(node)}",
                "this space has no cells that leave nodes out",
            )
    return cells


@dataclass(frozen=True)
class Genotypes(Sequence[Genotype]):
    """All genotypes of two sources at each node and no `none`, in a fixed order, none of them kept.

    Attributes:
        form: what is made of a genotype before it is returned.

    Example:
        >>> len(Genotypes()), Genotypes()[10**18].digits
        (1076746950455072400, '7041414250215344-6031307141432061')
    """

    form: Callable[[Genotype], Genotype] = lambda genotype: genotype

    def __len__(self) -> int:
        return prod(map(len, PAIRS)) ** 2

    def __getitem__(self, place: PyTree) -> PyTree:
        if isinstance(place, slice):
            return [self[k] for k in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        edges: list[Edge] = []
        place = int(place) % len(self)
        # The last node's edges change fastest.
        for pairs in reversed([*PAIRS, *PAIRS]):
            place, of_pair = divmod(place, len(pairs))
            edges[:0] = pairs[of_pair]
        half = len(TARGETS)
        return self.form(Genotype(tuple(edges[:half]), tuple(edges[half:])))
