"""Cells are equal when their networks are: weights are tied edge by edge and outputs compared."""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cell_functions import compare_all, function_key

from cells.nasbench201 import EDGES, OPERATIONS, SIZE, Cell, all_cells, distinct_cells
from cells.nasbench201.canonical import canonical, representatives
from cells.nasbench201.cell import AVG_POOL, KERNEL_SIZES, NONE, SKIP
from cells.nasbench201.network import abstract_variables, fresh_variables
from cells.nasbench201.space import NASBench201
from cells.rules import Weights
from ntkscore import Task
from ntkscore.data.tables import load_table
from ntkscore.kernels import implementations

SPACE = NASBench201(task=Task(num_classes=3), channels=4, cells_per_stage=1, bn="init")
CONSTANT = 0

Evaluate = Callable[[Weights, Cell], tuple[np.ndarray, np.ndarray]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def evaluate() -> Evaluate:
    """Logits and kernel of three images; one program for all cells and weights."""
    images = jax.random.uniform(jax.random.key(0), (3, 16, 16, 3))

    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(params: Weights, digits: jax.Array) -> tuple[jax.Array, jax.Array]:
        model = SPACE.model((), fresh_variables(params), digits, images)
        kernel, logits, _ = implementations.evaluate(model, images, jnp.zeros(3, jnp.int32))
        return logits, kernel[0]

    def evaluate(params: Weights, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
        logits, kernel = run(params, jnp.asarray(cell.operations, jnp.int32))
        return np.asarray(logits), np.asarray(kernel)

    return evaluate


@pytest.fixture(scope="module")
def params() -> Weights:
    """He normal kernels, random scales and shifts; nothing is zero or one by chance."""
    rng = np.random.default_rng(0)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        name = path[-1].key
        if name == "kernel":
            # In stages, the first axis counts the cells.
            fan_in = np.prod(leaf.shape[-4:-1] if len(leaf.shape) > 3 else leaf.shape[:-1])
            values = rng.normal(0, np.sqrt(2 / fan_in), leaf.shape)
        elif name == "scale":
            values = rng.uniform(0.5, 1.5, leaf.shape)
        else:
            values = rng.normal(0, 0.5, leaf.shape)
        return values.astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, abstract_variables(SPACE)["params"])


def live_convolutions(cell: Cell) -> dict[int, int]:
    """The kernel size of each convolution that reaches the output; 0 where it reads nothing."""
    fed, live = [True, False, False, False], [False, False, False, True]
    edges = list(enumerate(zip(cell.operations, EDGES, strict=True)))
    for _, (operation, (source, target)) in edges:
        fed[target] |= operation in KERNEL_SIZES or (operation != NONE and fed[source])
    for _, (operation, (source, target)) in reversed(edges):
        live[source] |= operation != NONE and live[target]
    return {
        edge: KERNEL_SIZES[operation] if fed[source] else CONSTANT
        for edge, (operation, (source, target)) in edges
        if operation in KERNEL_SIZES and live[target]
    }


def bijections(a: Cell, b: Cell) -> Iterator[dict[int, int]]:
    """Every one-to-one map of a's live convolutions onto b's of the same kind."""
    theirs, ours = live_convolutions(a), live_convolutions(b)
    if sorted(theirs.values()) != sorted(ours.values()):
        return
    kinds = sorted(set(theirs.values()))
    sources = [[e for e, k in theirs.items() if k == kind] for kind in kinds]
    targets = [[e for e, k in ours.items() if k == kind] for kind in kinds]
    for orders in itertools.product(*map(itertools.permutations, targets)):
        yield dict(zip(itertools.chain(*sources), itertools.chain(*orders), strict=True))


def tie(params: Weights, a: Cell, b: Cell, edges: dict[int, int]) -> Weights:
    """Weights with which cell b is to compute what a does with `params`."""
    tied = jax.tree.map(np.copy, params)
    for stage in (f"stage_{s}" for s in range(3)):
        for source, target in edges.items():
            theirs = params[stage][f"edge_{source}"][OPERATIONS[a.operations[source]]]
            ours = tied[stage][f"edge_{target}"][OPERATIONS[b.operations[target]]]
            for name, value in theirs.items():
                if ours[name].shape == value.shape:
                    ours[name][...] = value
                else:
                    assert name == "kernel"
                    assert live_convolutions(a)[source] == CONSTANT
    return tied


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a - b)) / np.max(np.abs(a)))


def assert_same_function(evaluate: Evaluate, params: Weights, a: Cell, b: Cell) -> None:
    logits, kernel = evaluate(params, a)
    for edges in bijections(a, b):
        others = evaluate(tie(params, a, b, edges), b)
        if distance(logits, others[0]) < 1e-4:
            assert distance(kernel, others[1]) < 1e-4
            return
    pytest.fail(f"no assignment of weights makes {b.digits} compute what {a.digits} does")


def assert_other_function(evaluate: Evaluate, params: Weights, a: Cell, b: Cell) -> None:
    logits, _ = evaluate(params, a)
    for edges in bijections(a, b):
        assert distance(logits, evaluate(tie(params, a, b, edges), b)[0]) > 1e-3, (a, b, edges)


def test_number_of_functions() -> None:
    cells = distinct_cells()
    assert len(cells) == len({function_key(cell) for cell in cells}) == 5_234
    assert list(cells) == sorted(cells)


def test_the_file_has_what_comparing_gives() -> None:
    assert representatives() == compare_all()


@pytest.mark.thorough
def test_canonical_is_idempotent_and_the_lowest_of_its_class() -> None:
    classes = defaultdict(list)
    for cell in all_cells():
        classes[function_key(cell)].append(cell)
    for members in classes.values():
        assert {canonical(cell) for cell in members} == {members[0]}
    assert set(distinct_cells()) == {canonical(cell) for cell in all_cells()}
    assert all(canonical(cell) == cell for cell in distinct_cells())
    assert representatives()[members[-1].index] == members[0].index


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("000000", "123000", True),  # nothing reaches the output
        ("000300", "040300", True),  # a dead pool
        ("030003", "300030", True),  # the other node in between
        ("300301", "330010", True),  # of the two convolutions one is dead
        ("030003", "031003", True),  # a copy of nothing
        ("003001", "002001", True),  # a convolution of nothing, whatever its size
        ("003004", "000020", True),  # and pooled
        ("003003", "003002", False),  # a convolution of that, for which size counts
        ("020001", "030001", False),
        ("101114", "101141", True),  # a sum pooled term by term
    ],
)
def test_cells_equal_by_hand(a: str, b: str, equal: bool) -> None:
    assert (canonical(Cell.from_digits(a)) == canonical(Cell.from_digits(b))) is equal


@pytest.mark.thorough
def test_a_shared_convolution_is_not_two(evaluate: Evaluate, params: Weights) -> None:
    """3599 uses one convolution twice; index 0, tied to it, has its logits but not its kernel."""
    shared, two = Cell(3599), Cell(0)
    assert (shared.digits, two.digits) == ("241411", "421211")
    assert canonical(shared) != canonical(two)
    logits, kernel = evaluate(params, shared)
    tied = tie(tie(params, shared, two, {0: 1}), shared, two, {0: 3})
    for stage in ("stage_0", "stage_1", "stage_2"):
        for edge in ("edge_1", "edge_3"):
            tied[stage][edge] = params[stage]["edge_0"]
    others = evaluate(tied, two)
    assert distance(logits, others[0]) < 1e-4
    assert distance(kernel, others[1]) > 1e-2


@pytest.mark.thorough
def test_merged_cells_compute_the_same(evaluate: Evaluate, params: Weights) -> None:
    classes = defaultdict(list)
    for cell in all_cells():
        classes[function_key(cell)].append(cell)
    rng = random.Random(0)
    merged = [cells for cells in classes.values() if live_convolutions(cells[0]) and cells[1:]]
    for members in rng.sample(merged, 12):
        assert_same_function(evaluate, params, *rng.sample(members, 2))


def test_cells_kept_apart_compute_something_else(evaluate: Evaluate, params: Weights) -> None:
    """Neighbours whose convolutions could be matched, and no matching makes them equal."""
    rng = random.Random(1)
    pairs = 0
    while pairs < 12:
        a = Cell(rng.randrange(SIZE))
        b = rng.choice(a.neighbours())
        if function_key(a) == function_key(b) or not any(bijections(a, b)):
            continue
        pairs += 1
        assert_other_function(evaluate, params, a, b)


@pytest.fixture(scope="module")
def published(data_dir: Path) -> list[int]:
    table = load_table(data_dir / "nas-robbench-201")
    return [table.representative(index) for index in range(SIZE)]


def test_cells_that_only_we_merge_compute_the_same(
    evaluate: Evaluate, params: Weights, published: list[int]
) -> None:
    pairs = [
        (first, cell)
        for cell in all_cells()
        if (first := canonical(cell)) != cell and published[first] != published[cell]
    ]
    rng = random.Random(2)
    constant = [pair for pair in pairs if CONSTANT in live_convolutions(pair[0]).values()]
    without = [pair for pair in pairs if pair not in constant]
    for a, b in rng.sample(constant, 4) + rng.sample(without, 8):
        assert_same_function(evaluate, params, a, b)


def test_cells_that_only_the_published_map_merges_compute_something_else(
    evaluate: Evaluate, params: Weights, published: list[int]
) -> None:
    pairs = [
        (Cell(published[cell]), cell)
        for cell in all_cells()
        if canonical(cell) != canonical(Cell(published[cell]))
    ]
    # Where the convolutions do not match in number and kind, there is nothing to tie.
    alike = [pair for pair in pairs if any(bijections(*pair))]
    assert (len(pairs), len(alike)) == (2776, 66)
    for a, b in random.Random(3).sample(alike, 12):
        assert_other_function(evaluate, params, a, b)


def test_how_the_published_map_differs(published: list[int]) -> None:
    def merges(a: str, b: str) -> tuple[bool, bool]:
        one, other = Cell.from_digits(a), Cell.from_digits(b)
        return canonical(one) == canonical(other), published[one] == published[other]

    assert len(set(published)) == 6_466
    assert merges("421211", "241411") == (False, True)  # one convolution twice, or two
    assert merges("000034", "000004") == (False, True)  # a convolution of nothing, or nothing
    assert merges("101114", "101141") == (True, False)  # a sum pooled term by term
    assert merges("000000", "123000") == (True, True)


def test_pooling_and_skipping_make_no_convolutions() -> None:
    for cell in all_cells():
        if set(cell.operations) <= {NONE, SKIP, AVG_POOL}:
            assert not live_convolutions(cell)
