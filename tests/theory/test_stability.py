"""Perturbation stability of random networks: exact moments, and the same function trained."""

import jax
import numpy as np
import pytest

from experiments.theory.networks import INITIALISATIONS, fully_connected_network
from experiments.theory.stability import (
    gain,
    second_moment,
    stability_at_initialisation,
)
from ntkscore.errors import InputError
from ntkscore.measures.perturbations import displacements


@pytest.mark.thorough
@pytest.mark.parametrize("initialisation", INITIALISATIONS)
@pytest.mark.parametrize(("layers", "m"), [(2, 16), (4, 32)])
def test_second_moments_are_exact_and_means_close(initialisation: str, layers: int, m: int) -> None:
    d, o = 6, 3

    @jax.jit
    def moved(key: jax.Array) -> jax.Array:
        weights, points, ball = jax.random.split(key, 3)
        model = fully_connected_network(weights, d, m, o, layers, initialisation)
        x = jax.random.normal(points, (1, d))
        return displacements(model.logits, x, ball)[0]

    values = np.asarray(jax.vmap(moved)(jax.random.split(jax.random.key(0), 4000)))
    exact = second_moment(initialisation, d, m, o, layers)
    error = (values**2).std() / np.sqrt(len(values))
    assert abs((values**2).mean() - exact) < 4 * error
    mean = stability_at_initialisation(initialisation, d, m, o, layers)
    assert values.mean() == pytest.approx(mean, rel=0.05)


def test_depth_helps_lecun_alone() -> None:
    assert gain("lecun", 10, 64) == pytest.approx(2**-0.5)
    assert gain("he", 10, 64) == gain("ntk", 10, 64) == pytest.approx(1)
    for m in (64, 128):
        assert stability_at_initialisation("lecun", 10, m, 1, 6) < stability_at_initialisation(
            "lecun", 10, m, 1, 4
        )


def test_networks_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 layers, got 1"):
        fully_connected_network(jax.random.key(0), 4, 8, 1, 1)
    with pytest.raises(InputError, match="initialisation of lecun, he, ntk, got 'torch'"):
        fully_connected_network(jax.random.key(0), 4, 8, 1, 3, "torch")
