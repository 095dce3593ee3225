"""DARTS' passes, whose genotype is data, against a plain network of one genotype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_darts import network

from cells.darts import Darts, Genotype, Genotypes
from ntkscore import Task
from ntkscore.grams import zero_grams
from ntkscore.trace.parameters import kind_of

SPACE = Darts(task=Task((8, 8, 3), 4), channels=2, layers=6)
KINDS = ("weight", "scale", "shift")


@pytest.fixture(scope="module")
def passes_of_any():
    """A compiled function of a genotype as data, and the weights that it has."""
    with jax.enable_x64(True):
        variables = SPACE.draw((), 0, jnp.float64)
        params = variables["params"]

        @jax.jit
        def passes(code, x, y, cotangent):
            of_one, stats = SPACE.passes(code, variables, x)
            logits, residuals = of_one.forward(params, y)
            both = [of_one.forward(params, x)[1], residuals]
            start = zero_grams(KINDS, jnp.concatenate([x, y]), 1)
            g, by_kind = of_one.gram_by_kind(params, both, jnp.concatenate([cotangent] * 2), start)
            visit = lambda layer: jnp.sum(layer.gradients**2)  # noqa: E731
            norms = of_one.layers(params, both[0], cotangent, visit)
            return logits, g, by_kind, jnp.sum(norms), stats

        yield passes, params


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["DARTS", "AdvRush", "4031403140314031-7060117111717171", 10**15, 10**18]
)
def test_passes_are_those_of_the_plain_network(passes_of_any, name):
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        passes, params = passes_of_any
        x, y = jnp.asarray(rng.random((2, 2, 8, 8, 3)))
        cotangent = jnp.asarray(rng.standard_normal((2, 4)))
        genotype = Genotypes()[name] if isinstance(name, int) else Genotype.parse(name)
        code = {
            "normal": jnp.array(genotype.normal, jnp.int32),
            "reduce": jnp.array(genotype.reduce, jnp.int32),
        }
        logits, g, by_kind, norms, stats = passes(code, x, y, cotangent)
        close = lambda a, b: np.testing.assert_allclose(a, b, 1e-9, 1e-11)  # noqa: E731
        close(logits, network(params, stats, genotype, SPACE, y))
        both, cotangents = jnp.concatenate([x, y]), jnp.concatenate([cotangent] * 2)

        def one(params, point, cotangent):
            return jnp.sum(cotangent * network(params, stats, genotype, SPACE, point[None])[0])

        by_weight, by_point = jax.jit(jax.vmap(jax.grad(one, (0, 1)), (None, 0, 0)))(
            params, both, cotangents
        )
        close(g, by_point)
        kernels = dict.fromkeys(KINDS, 0.0)
        squares = 0.0
        for path, leaf in jax.tree_util.tree_leaves_with_path(by_weight):
            kind, rows = kind_of(path, leaf), leaf.reshape(len(leaf), -1)
            kernels[kind] += rows @ rows.T
            squares += jnp.sum(rows[:2] ** 2) if kind == "weight" else 0.0
        for kind in KINDS:
            close(by_kind[kind][0], kernels[kind])
        close(norms, squares)


@pytest.mark.thorough
def test_one_program_serves_all_genotypes(passes_of_any):
    passes, _ = passes_of_any
    assert passes._cache_size() <= 1
