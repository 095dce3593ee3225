"""Radii and β are data: another one is computed by the programs that are there."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import IMAGES, SPACE, compilations

import ntkscore
from attacks import APGD, SquareAttack
from ntkscore import Config, Model

RNG = np.random.default_rng(0)
WEIGHTS = [jnp.asarray(RNG.normal(size=s), jnp.float32) / 10 for s in ((3072, 4), (4, 10))]
MINE = Model(lambda w, x: jnp.tanh(x.reshape(len(x), -1) @ w[0]) @ w[1], WEIGHTS)


@pytest.mark.parametrize(
    ("networks", "how", "attacks"),
    [
        (["323133"], {"space": SPACE, "seeds": 1}, [{}]),
        (
            {"mine": MINE},
            {},
            [
                {},
                {"attack": "pgd", "random_start": True},
                {"attack": "apgd"},
            ],
        ),
    ],
    ids=["of a space", "one's own"],
)
def test_another_radius_or_beta_compiles_nothing(networks: Any, how: Any, attacks: Any) -> None:
    for attack in attacks:
        config = Config(**attack)
        first = ntkscore.score(networks, IMAGES, config, **how).rows
        other = replace(config, rhos=(4 / 255,), betas=(0.3, 0.7))
        with compilations() as anew:
            second = ntkscore.score(networks, IMAGES, other, **how).rows
        assert not anew
        assert len(second) > len(first) and {*second["rho"]} == {4 / 255}


@pytest.mark.parametrize("attack", ["fgsm", "pgd", "apgd", partial(SquareAttack, queries=50)])
def test_another_radius_of_a_stack_compiles_nothing(attack: Any) -> None:
    images = RNG.uniform(size=(4, 32, 32, 3)).astype(np.float32)
    labels = np.asarray(MINE.logits(jnp.asarray(images)).argmax(1))
    grams = [np.asarray(ntkscore.stack(MINE, images, labels, attack, [0.1, 0.05]).gram)]
    with compilations() as anew:
        grams.append(np.asarray(ntkscore.stack(MINE, images, labels, attack, [0.2, 0.05]).gram))
    assert not anew
    np.testing.assert_array_equal(grams[0][1], grams[1][1])
    assert not np.array_equal(grams[0][0], grams[1][0])


def test_a_function_that_changes_is_attacked_as_it_is() -> None:
    """Within a program nobody knows what a function computes but by tracing it again."""
    x, labels = jnp.asarray(RNG.uniform(size=(3, 5)), jnp.float32), jnp.array([0, 1, 2], jnp.int32)
    weights, mask = jnp.asarray(RNG.normal(size=(5, 3)), jnp.float32), np.ones(5, np.float32)

    def gram(apply: Any) -> Any:
        model = Model(apply, weights, coupled=True)
        of = partial(ntkscore.stack, attack=partial(APGD, steps=2), implementation="ntvp")
        return jax.jit(lambda x: of(model, x, labels, rhos=[0.2]).gram)(x)

    def masked(w: Any, x: Any) -> Any:
        return jnp.tanh((x * jnp.asarray(mask)) @ w)

    before = gram(masked)
    mask[:] = [-1, 0.1, -2, 3, 1]
    now = gram(masked)
    np.testing.assert_array_equal(now, gram(lambda *given: masked(*given)))
    assert not np.allclose(before, now)
