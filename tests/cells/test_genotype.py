import csv
import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import refuses

from cells.darts.canonical import RENAMINGS, canonical
from cells.darts.counts import structure
from cells.darts.genotype import (
    CHOICES,
    NODES,
    OPERATIONS,
    SHORT,
    TARGETS,
    Genotype,
    Genotypes,
)
from cells.darts.published import PUBLISHED
from cells.darts.space import Darts
from ntkscore.errors import InputError
from ntkscore.task import Task

DARTS = Genotype.parse("DARTS")
PRINTED = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), "
    "('sep_conv_3x3', 1), ('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), "
    "('dil_conv_3x3', 2)], normal_concat=range(2, 6), reduce=[('max_pool_3x3', 0), "
    "('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0), "
    "('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=range(2, 6))"
)
BARE = PRINTED.replace(", normal_concat=range(2, 6)", "").replace(", reduce_concat=range(2, 6)", "")


def count_cells(operations: int = len(CHOICES)) -> tuple[int, int]:
    """The number of cells with two sources at each node, and of those among them that differ.

    A cell of wiring W has e(W) / |Aut| forms, where e(W) counts the renamings that W allows and
    Aut are those that leave the cell as it is; so the distinct cells are the sum of |Aut| / e over
    all cells. By Burnside's argument that is, over the 180 wirings alone, the sum of n^c(σ) / e(W)
    over the automorphisms σ of W, with c(σ) cycles on its eight edges and n operations.

    Args:
        operations: n, the number of operations of an edge.
    """
    total, distinct = 0, Fraction(0)
    sources = [itertools.combinations(range(node), 2) for node in NODES]
    for pairs in itertools.product(*sources):
        wiring = {(s, node) for node, pair in zip(NODES, pairs, strict=True) for s in pair}
        moved = [{(s, t): (names[s], names[t]) for s, t in wiring} for names in RENAMINGS]
        allowed = [edges for edges in moved if all(s < t for s, t in edges.values())]
        fixed = [edges for edges in allowed if set(edges.values()) == wiring]
        total += operations ** len(TARGETS)
        distinct += Fraction(sum(operations ** _cycles(edges) for edges in fixed), len(allowed))
    return total, int(distinct)


def _cycles(permutation: dict) -> int:
    """The number of cycles of a permutation."""
    left, count = set(permutation), 0
    while left:
        element, count = next(iter(left)), count + 1
        while element in left:
            left.remove(element)
            element = permutation[element]
    return count


def draws(number: int) -> list[Genotype]:
    rng, everything = np.random.default_rng(0), Genotypes()
    return [everything[int(rng.integers(len(everything)))] for _ in range(number)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_genotypes_round_trip(name: str) -> None:
    genotype = Genotype.parse(name.upper().replace("-", "_"))
    assert PUBLISHED[genotype.name] == PUBLISHED[name] == genotype.digits
    assert Genotype.parse(genotype.digits) == Genotype.parse(genotype.string) == genotype


@pytest.mark.parametrize(
    "text",
    [
        DARTS,
        PRINTED,
        BARE,
        f"  DARTS_V2 = {PRINTED}\n",
        PRINTED.replace("range(2, 6)", "[2, 3, 4, 5]"),
        PRINTED.replace("range(2, 6)", "range(2,6)", 1).replace("range(2, 6)", "(2, 3, 4, 5)"),
        PRINTED.replace("'", '"'),
        PRINTED.replace("('", "(‘").replace("',", "’,"),
        BARE.replace(", ", ",\n      ").replace("reduce", "# then\r\n reduce"),
        BARE.replace("('", "['").replace("),", "],").replace(")]", "]]"),
        BARE.replace("Genotype", "genotypes.Genotype"),
        " 4041404141303062-1011321110323211\n",
        " darts\n",
        "DARTS v2",
    ],
)
def test_parse_accepts_every_form(text: Any) -> None:
    assert Genotype.parse(text) == DARTS
    assert (DARTS.name, DARTS.string) == ("DARTS", PRINTED)


def test_a_genotype_is_a_value_whose_operations_may_be_named() -> None:
    named = [[OPERATIONS[operation], source] for operation, source in DARTS.normal]
    same = Genotype(named, [(np.int64(o), np.int8(s)) for o, s in DARTS.reduce])
    assert same == DARTS and hash(same) == hash(DARTS) and min(draws(9)) < max(draws(9))
    assert {type(number) for edge in same.reduce for number in edge} == {int}


PLACE = PRINTED.index("('dil_conv_3x3', 2)") + 1
REDUCE = PRINTED.index("[('max") + 1


@pytest.mark.parametrize(
    ("text", "expected", "got"),
    [
        (
            PRINTED.replace("dil_conv_3x3", "sep_conv_7x7"),
            (8, "normal", "dil_conv_5x5"),
            ("sep_conv_7x7", PLACE),
        ),
        (
            "NET =\n" + PRINTED.replace("'dil_conv_3x3', 2", "'dil_conv_3x3', 5"),
            (8, "normal", 0, 4, 5),
            (5, PLACE + 6),
        ),
        (PRINTED.replace("', 2)", "', '2')", 1), (8, "normal", 4), ("'2'", PLACE)),
        (PRINTED.replace("', 2)", "', 2.0)", 1), (8, "normal", 4), (2.0, PLACE)),
        (PRINTED.replace("', 2)", "', True)", 1), (8, "normal", 4), (True, PLACE)),
        (PRINTED.replace("', 2)", "', -1)", 1), (8, "normal", 4), (-1, PLACE)),
        (
            PRINTED.replace("'dil_conv_3x3', 2", "'é', dil"),
            (8, "normal", ("sep_conv_3x3", 0)),
            ("('é', dil)", PLACE),
        ),
        (
            PRINTED.replace("('max_pool_3x3', 0), ", "", 1),
            (8, "reduce", 2, 5),
            (7, REDUCE),
        ),
        (
            PRINTED.replace("range(2, 6)", "[4, 5]", 1),
            "normal_concat=range(2, 6)",
            ("[4,5]", 201),
        ),
        (PRINTED.replace("6))", "5))"), "reduce_concat=range(2, 6)", ("range(2,5)",)),
        (
            PRINTED.replace("reduce=", "other="),
            SHORT,
            ("none", "reduce"),
        ),
        (
            "Genotype(normal=3, reduce=4)",
            SHORT,
            ("none", "normal", 1),
        ),
        (
            PRINTED.replace("'dil_conv_3x3', 2", "'dil_conv_3x3 2"),
            SHORT,
            ("one",),
        ),
        ("(" * 5000, SHORT, ("one",)),
        ("(" + "-" * 50_000, SHORT, ("one", 1)),
        ("(\x00)", SHORT, ("one", 1)),
        ("4041404141303065-1011321110323211", (8, "normal", 4), (5, 15)),
        ("4041404141303062-1011321110323219", (8, "reduce"), (9, 32)),
        ("8041404141303062-1011321110323211", (1, "normal"), (8, 1)),
        *(
            (text, (SHORT, "DARTS"), (text,))
            for text in ("", "best", "404140414130306-21011321110323211", "2581", "٤" * 33)
        ),
    ],
)
def test_bad_input_is_refused_with_its_place(text: str, expected: Any, got: tuple) -> None:
    with refuses(*got, expected=expected):
        Genotype.parse(text)


@pytest.mark.parametrize(
    ("edges", "got"),
    [(3, 3), (DARTS.normal[:7], 7), ([3] * 8, 3), ([("best", 0)] * 8, "best"), ([(4, 2)] * 8, 2)],
)
def test_edges_that_are_none_are_refused(edges: Any, got: object) -> None:
    with refuses(got, expected="reduce"):
        Genotype(DARTS.normal, edges)


@given(st.integers(0, len(PRINTED)), st.integers(0, 20), st.text("()[]',=0 \n-#éx", max_size=6))
def test_any_text_is_a_genotype_or_a_genotype_error(at: int, cut: int, put: str) -> None:
    try:
        genotype = Genotype.parse(PRINTED[:at] + put + PRINTED[at + cut :])
    except InputError:
        return
    assert Genotype.parse(genotype.digits) == genotype


def test_genotypes_are_listed_without_being_kept() -> None:
    everything = Genotypes()
    assert len(everything) == count_cells()[0] ** 2
    first, last = everything[0], everything[-1]
    assert (
        first.digits == "1011101110111011-1011101110111011"
        and last == everything[len(everything) - 1]
    )
    assert everything[1:3] == [everything[1], everything[2]] and len({*everything[:1000]}) == 1000
    with pytest.raises(IndexError):
        everything[len(everything)]
    assert [canonical(each) for each in draws(5)] == [
        Genotypes(canonical)[int(k)]
        for k in np.random.default_rng(0).integers(len(everything), size=5)
    ]


def test_random_genotypes_have_two_sources_at_each_node_and_no_none() -> None:
    genotypes = draws(2000)
    edges = np.array([genotype.cells for genotype in genotypes])
    assert set(edges[..., 0].ravel()) == set(range(1, 8))
    assert (edges[..., ::2, 1] < edges[..., 1::2, 1]).all()
    # Ten pairs of sources for the last node, each in a tenth of the draws (standard error .005).
    pairs = np.unique(edges[:, :, 6:, 1].reshape(-1, 2), axis=0, return_counts=True)[1] / 4000
    assert len(pairs) == 10 and np.abs(pairs - 0.1).max() < 0.025


def test_neighbours_differ_in_one_place_and_are_mutual() -> None:
    for genotype in draws(2):
        found = genotype.neighbours()
        assert len(found) == len(set(found)) == 120 and genotype not in found
        for other in found:
            assert sum(a != b for a, b in zip(genotype.digits, other.digits, strict=True)) == 1
            if other in found[::10]:
                assert genotype in other.neighbours()
            edges = np.array(other.cells)
            assert (edges[..., ::2, 1] != edges[..., 1::2, 1]).all() and edges[..., 0].all()
    assert len(Genotype.parse("LRNAS").neighbours()) > 120  # An edge with `none` has seven others.


def renamed(edges: tuple) -> set[tuple]:
    """A cell's edges under every name of its nodes, those of a node in order."""
    found = set()
    for order in itertools.permutations(range(4)):
        names = {0: 0, 1: 1} | {2 + node: place for place, node in enumerate(order, 2)}
        pairs = [sorted((o, names[s]) for o, s in edges[2 * node : 2 * node + 2]) for node in order]
        if all(s < place for place, pair in enumerate(pairs, 2) for _, s in pair):
            found.add(tuple(itertools.chain(*pairs)))
    return found


def swapped(edges: tuple) -> list[tuple]:
    """A cell with the edges of its nodes in every order."""
    pairs = [itertools.permutations(edges[i : i + 2]) for i in range(0, 8, 2)]
    return [tuple(itertools.chain(*chosen)) for chosen in itertools.product(*pairs)]


def test_a_canonical_genotype_is_the_smallest_of_its_forms() -> None:
    for genotype in [DARTS, *draws(10)]:
        normal, reduce = map(renamed, genotype.cells)
        smallest = canonical(genotype)
        assert smallest == Genotype(min(normal), min(reduce))
        for form in itertools.chain(*map(swapped, normal)):
            assert smallest.normal <= form
        for form in itertools.chain(normal, swapped(min(normal))):
            assert canonical(Genotype(form, genotype.reduce)) == smallest


@pytest.mark.parametrize("operations", [1, 2])
def test_cells_are_counted_as_by_listing_them(operations: int) -> None:
    choices = [
        list(itertools.combinations([(o, s) for o in range(operations) for s in range(node)], 2))
        for node in NODES
    ]
    choices = [[pair for pair in pairs if pair[0][1] != pair[1][1]] for pairs in choices]
    cells = [tuple(itertools.chain(*pairs)) for pairs in itertools.product(*choices)]
    seen, distinct = set(), 0
    for cell in cells:
        if cell not in seen:
            seen |= renamed(cell)
            distinct += 1
    assert count_cells(operations) == (len(cells), distinct)


def test_cells_of_the_space_are_counted() -> None:
    assert count_cells() == (180 * 7**8, 382_128_166)


def test_costs_are_those_of_the_published_code() -> None:
    """DARTS prints "param size = 3.349342MB"; the others are counted on its PyTorch modules."""
    published = Darts(channels=36, layers=20).costs(DARTS)
    assert published == {"params": 3_349_342, "flops": 528_359_040}
    tasks = (Task(), Task(num_classes=100), Task((8, 32, 3)))
    usual, classes, narrow = (Darts().on(task).costs(DARTS) for task in tasks)
    assert classes["params"] - usual["params"] == 90 * (4 * 64 + 1)
    head = 4 * 64 * 10
    assert usual["flops"] - head == 4 * (narrow["flops"] - head)


def test_a_row_of_counts() -> None:
    counts = structure(Genotype.parse("E2RNAS"))
    assert counts["n_sep"] + counts["n_dil"] + counts["n_pool"] + counts["n_skip"] == 16
    assert (counts["n_sep"], counts["n_pool"], counts["depth"], counts["field"]) == (3, 10, 3, 13)
    assert structure(Genotype.parse("LRNAS"))["n_skip"] == 3 and {*Darts.fewer} <= set(counts)


def test_parameters_are_those_of_a_published_table(data_dir: Path) -> None:
    path = data_dir / "robust-tables" / "tiny_robustbench_darts.csv"
    if not path.exists():
        pytest.skip(f"no table of adversarially trained cells at {path}")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 223
    for row in rows:
        genotype = Genotype(json.loads(row["normal"]), json.loads(row["reduce"]))
        counts = Darts().counted(genotype)
        for name in ("params", "n_sep", "n_dil", "n_pool", "n_skip"):
            assert counts[name] == int(row[name])


@pytest.mark.usefixtures("unchecked")
def test_a_genotype_keeps_numbers_whatever_it_is_made_of() -> None:
    edges = [["sep_conv_3x3", 0], ["skip_connect", 1]] * 4
    made = Genotype(edges, tuple(map(tuple, edges)))  # type: ignore[arg-type]
    assert made.digits == "4031403140314031-4031403140314031"
    assert made == Genotype(edges, edges) == Genotype.parse(made.string)
    assert len({made, Genotype(edges, edges)}) == 1
    numbers = [(np.int64(4), np.int64(0)), (3, 1)] * 4
    assert Genotype(numbers, numbers) == made  # type: ignore[arg-type]
    with refuses("conv", expected=("normal", "none")):
        Genotype([["conv", 0]] * 8, edges)  # type: ignore[arg-type]
