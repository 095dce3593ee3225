"""The passes apart from each other, against the network that they are the passes of."""

from collections import Counter
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax_nasbench201 import Network
from networks import CLASSES, EXACT, SIZE, digits, error, points

from cells.nasbench201.network import STATISTICS, abstract_variables
from cells.nasbench201.space import NASBench201
from ntkscore import Task
from ntkscore.grams import zero_grams
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.kernels.stack import stack
from ntkscore.trace.parameters import PARAMETER_SETS, total

Array = jax.Array
DEPTH = 2
CELLS = ("012340", "123401", "234012", "340123", "401234", "000000", "333333")
TASK = Task((SIZE, SIZE, 3), CLASSES, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
KINDS = PARAMETER_SETS["all"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("double")]


def space(bn: str = "calibrated", depth: int = DEPTH) -> NASBench201:
    return NASBench201(task=TASK, channels=3, cells_per_stage=depth, bn=bn)


def variables(depth: int = DEPTH) -> Any:
    """Weights and statistics that are neither one nor zero, but for one scale that is zero."""
    rng = np.random.default_rng(8)
    centre = {"scale": 1.0, "var": 1.0}

    def draw(path: tuple, leaf: Any) -> Array:
        name = path[-1].key
        spread = rng.uniform(-0.6, 0.6, leaf.shape)
        return jnp.asarray(centre.get(name, 0.0) + spread)

    drawn = jax.tree_util.tree_map_with_path(draw, abstract_variables(space(depth=depth)))
    scale = drawn["params"]["reduction_1"]["conv_b"]["conv"]["scale"]
    drawn["params"]["reduction_1"]["conv_b"]["conv"]["scale"] = scale.at[1].set(0)
    return drawn


@lru_cache
def programs(bn: str) -> Any:
    """Compiled: what the passes say, and what differentiating the network says."""
    space_of, network = space(bn), Network(space(bn))

    @jax.jit
    def ours(variables: Any, clean: Array, moved: Array, digits: Array, cotangent: Array) -> Any:
        params = variables["params"]
        passes: Any = space_of.model((), variables, digits, clean).passes
        forwards = [passes.forward(params, x) for x in (clean, moved)]
        logits, residuals = zip(*forwards, strict=True)
        start = zero_grams(KINDS, jnp.concatenate([clean, moved]), 1)
        whole, by_kind = passes.gram_by_kind(
            params, residuals, jnp.concatenate([cotangent, cotangent]), start
        )
        slopes = [passes.gradient(params, one, cotangent) for one in residuals]
        return passes.statistics, logits, slopes, whole, total(by_kind, "all")[0]

    @jax.jit
    def theirs(variables: Any, clean: Array, moved: Array, digits: Array, cotangent: Array) -> Any:
        statistics = variables[STATISTICS]
        if bn == "calibrated":
            _, changed = network.apply(
                variables, clean, digits, calibrate=True, mutable=[STATISTICS]
            )
            statistics = changed[STATISTICS]
        given = {**variables, STATISTICS: statistics}

        def reading(params: Any, x: Array) -> Array:
            return network.apply({**given, "params": params}, x[None], digits)[0]

        def of(x: Array, cotangent: Array) -> Any:
            logits, pull = jax.vjp(reading, variables["params"], x)
            return logits, *pull(cotangent)

        both = jnp.concatenate([clean, moved]), jnp.concatenate([cotangent, cotangent])
        logits, rows, slopes = jax.vmap(of)(*both)
        rows = [row.reshape(len(row), -1) for row in jax.tree.leaves(rows)]
        gram = sum(row @ row.T for row in rows)
        return statistics, jnp.split(logits, 2), jnp.split(slopes, 2), slopes, gram

    return ours, theirs


@pytest.mark.parametrize(
    ("bn", "cell"),
    [
        *(("calibrated", cell) for cell in CELLS[1:]),
        *(
            pytest.param(bn, cell, marks=pytest.mark.thorough)
            for bn in ("calibrated", "init", "instance")
            for cell in CELLS[: 1 if bn == "calibrated" else 2]
        ),
    ],
)
def test_passes_are_those_of_the_network(bn: str, cell: str) -> None:
    clean, _ = points()
    rng = np.random.default_rng(1)
    moved = jnp.clip(clean + rng.uniform(-0.1, 0.1, clean.shape), 0, 1)
    cotangent = jnp.asarray(rng.normal(size=(len(clean), CLASSES)))
    ours, theirs = (f(variables(), clean, moved, digits(cell), cotangent) for f in programs(bn))
    for got, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert got.shape == expected.shape
        assert error(got, expected) < EXACT
    assert jax.tree.structure(ours[0]) == jax.tree.structure(theirs[0])


@pytest.mark.thorough
@pytest.mark.parametrize(("attack", "radii"), [("fgsm", [0.01, 0.05]), ("pgd", [0.05])])
def test_a_stack_by_a_cells_passes_is_that_by_its_traced_passes(
    attack: str, radii: list[float]
) -> None:
    """With two radii a forward pass is shared by each radius and with the kernel.

    One cell per stage, since that the passes are those of deeper networks is another test.
    """
    (images, labels), rhos = points(), jnp.asarray(radii)

    def run(apart: bool) -> Any:
        @jax.jit
        def compute(variables: Any, digits: Array) -> Any:
            model = space(depth=1).model((), variables, digits, images)
            if not apart:
                model = model._replace(passes=None)
            return stack(model, images, labels, ATTACKS[attack], rhos, "loss")

        return compute(variables(1), digits("323133"))

    ours, plain = run(True), run(False)
    assert ours.gram.shape == (len(radii), 12, 12)
    assert error(ours.gram, plain.gram) < EXACT
    assert error(ours.quantities["twice"]["loss"], plain.quantities["twice"]["loss"]) < EXACT
    assert error(ours.slopes, plain.slopes) < EXACT


@pytest.mark.parametrize(("attack", "gradients"), [("fgsm", 2), ("pgd", 4)])
def test_a_stack_runs_no_pass_twice(attack: str, gradients: int) -> None:
    """Traced alone; a loop's body is traced once."""
    (images, labels), calls = points(), Counter()

    class Counting:
        """The passes, each call counted."""

        def __init__(self, passes: Any) -> None:
            self.passes = passes

        def __getattr__(self, name: str) -> Any:
            method = getattr(self.passes, name)

            def counted(*given: Any) -> Any:
                calls[name] += 1
                return method(*given)

            return counted

    def compute(variables: Any, digits: Array) -> Any:
        model = space().model((), variables, digits, images)
        model = model._replace(passes=Counting(model.passes))
        return stack(model, images, labels, ATTACKS[attack], jnp.asarray([0.05])).gram

    jax.eval_shape(compute, variables(), digits("323133"))
    # X (which calibration has run), X_ρ, X_2ρ; for PGD its loop over the steps from the second on.
    expected = {"forward": 3 + gradients - 2, "gradient": gradients, "gram_by_kind": 1}
    # Of images without normalisations once for its shape, and once for its value.
    assert calls == expected | {"activations": 3, "unnormalized": 2, "kinds_of": 1}


def test_a_forward_pass_at_the_calibrating_images_is_not_run_again() -> None:
    images, _ = points()
    drawn = variables()

    @jax.jit
    def others(drawn: Any, images: Array) -> tuple[Array, Array, Array]:
        passes: Any = space().model((), drawn, digits("323133"), images).passes
        first = passes.forward(drawn["params"], images)
        assert passes.forward(drawn["params"], images)[1] is first[1]
        # Other weights or images are never taken for these.
        twice = jax.tree.map(lambda leaf: 2 * leaf, drawn["params"])
        given = (twice, images), (drawn["params"], images / 2)
        return first[0], *(passes.forward(*each)[0] for each in given)

    first, twice, halved = others(drawn, images)
    assert error(twice, first) > 0.1
    assert error(halved, first) > 0.01
