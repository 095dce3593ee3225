"""What ntkscore reads in a network, told to a person."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import refuses

from ntkscore import Model, anatomy
from ntkscore.trace.anatomy import Anatomy

Array = jax.Array
IMAGES = np.zeros((4, 8, 8, 3), np.float32)


def draw(*shape: int) -> Array:
    return jnp.zeros(shape)


PARAMS = {
    "bias": draw(4),
    "convs": [{"kernel": draw(3, 3, 4, 4)} for _ in range(2)],
    "factor": draw(4),
    "head": draw(4, 2),
    "kept": {"mean": draw(4), "var": jnp.ones(4)},
    "low": draw(4, 1),
    "lower": draw(1, 4),
    "stem": draw(1, 1, 3, 4),
    "twice": draw(4, 4),
    "unused": draw(7),
}


def convolve(x: Array, kernel: Array) -> Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)


def apply(params: Any, x: Array) -> Array:
    x = convolve(x, params["stem"]) + params["bias"]
    x = (x - params["kept"]["mean"]) * jax.lax.rsqrt(params["kept"]["var"] + 1e-5)
    for own in params["convs"]:
        x = jax.nn.relu(convolve(x, own["kernel"])) + x
    x = x @ (params["low"] @ params["lower"])
    x = x @ params["twice"]
    x = (x @ params["twice"].T) * params["factor"] + 0 * x @ params["twice"]
    return jnp.mean(x, (1, 2)) @ params["head"]


@pytest.fixture(scope="module")
def read() -> Anatomy:
    return anatomy(Model(apply, PARAMS), IMAGES)


def test_every_leaf_has_the_rule_that_its_kernel_comes_by(read: Anatomy) -> None:
    through = "through a function of its own, in dot_general"
    assert {part.path: (part.kind, part.rule, part.how) for part in read.parts} == {
        "bias": ("shift", "own equation", "add"),
        "convs/0/kernel": ("weight", "product", "by gradients"),
        "convs/1/kernel": ("weight", "product", "by gradients"),
        "factor": ("scale", "own equation", "mul"),
        "head": ("weight", "product", "by positions"),
        "kept/mean": ("constant", "constant", ""),
        "kept/var": ("constant", "constant", ""),
        "low": ("weight", "several uses", through),
        "lower": ("weight", "several uses", through),
        "stem": ("weight", "product", "by gradients"),
        "twice": ("weight", "several uses", "at 3 places, in dot_general"),
        "unused": ("weight", "unused", ""),
    }


def test_shares_are_of_the_parameters(read: Anatomy) -> None:
    total = 4 + 2 * 144 + 4 + 8 + 8 + 12 + 16 + 7
    assert read.share("product") == (2 * 144 + 8 + 12) / total
    assert read.share("several uses") == (8 + 16) / total
    assert read.share("unused") == 7 / total
    assert read.counts["params"] == total - 7
    assert sum(map(read.share, ("product", "own equation", "several uses", "unused"))) == 1


def test_leaves_are_rows(read: Anatomy) -> None:
    frame = read.leaves
    assert list(frame.columns) == ["path", "shape", "kind", "params", "rule", "how"]
    assert frame["params"].sum() == sum(leaf.size for leaf in jax.tree.leaves(PARAMS))
    assert frame.loc[1, "shape"] == (3, 3, 4, 4)


def test_repeated_layers_share_a_row(read: Anatomy) -> None:
    assert (read.rectifiers, read.blocks) == (2, 2 + 1)
    lines = str(read).splitlines()
    assert lines[1].startswith("2 rectifiers, 3 blocks; parameters by rule: product 88.")
    (row,) = [line.split("  ") for line in lines if line.startswith("convs")]
    assert [cell.strip() for cell in row if cell] == [
        *("convs/#/kernel", "×2", "3×3×4×4", "weight", "product: by gradients")
    ]


def test_a_table_is_short() -> None:
    params = [np.zeros((4, width), np.float32) for width in range(1, 60)]
    model = Model(lambda p, x: x @ p[0], params)
    lines = repr(anatomy(model, np.zeros((2, 4)))).splitlines()
    assert len(lines) == 40
    assert lines[-1] == "and 24 more: see .leaves"


def test_a_single_array_has_no_path() -> None:
    read = anatomy(Model(lambda w, x: x @ w, draw(3, 2)), np.zeros((5, 3)))
    assert read.parts[0].path == "all"


@pytest.mark.parametrize("rule", ["joint", "constant"])
def test_a_share_is_of_a_rule(read: Anatomy, rule: str) -> None:
    with refuses(rule, expected=("product", "unused")):
        read.share(rule)


def test_coupled_images_are_refused() -> None:
    model = Model(lambda w, x: (x - jnp.mean(x, 0)) @ w, draw(3, 2), coupled=True)
    with refuses("coupled=True"):
        anatomy(model, np.zeros((5, 3)))
