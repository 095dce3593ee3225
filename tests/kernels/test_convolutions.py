"""Convolutions in the form that CPUs compute fast, beside JAX's own."""

import re
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import attacks
from cells import NASBench201
from ntkscore import Model, Task, ntk, stack
from ntkscore.convolutions import (
    Window,
    convolve,
    product_of_patches,
    pull,
    sum_of_products,
)
from ntkscore.platforms import traced_for
from ntkscore.trace.compiled import logits_of
from tests.networks import EXACT, error

FAST = re.compile(r"b(\d*)f_\1io->b\1f")
WINDOWS = {
    "plain": (2, 3, Window.square(3)),
    "stride": (2, 3, Window.square(3, 2)),
    "dilated": (2, 3, Window.square(3, 1, 2)),
    "uneven": (2, 2, Window((2, 1), ((0, 2), (1, 0)), (1, 1), (1, 2))),
    "spread": (2, 3, Window((1, 2), ((2, 1), (1, 1)), (2, 3), (1, 1))),
    "patches": (2, 3, Window((3, 3), ((0, 0),) * 2, (1, 1), (1, 1))),
    "cut": (2, 3, Window((1, 1), ((-1, 1), (2, -2)), (1, 1), (1, 1))),
    "groups": (2, 3, Window.square(3, 2, 1, 2)),
    "each channel": (2, 3, Window.square(3, 1, 1, 4)),
    "each channel, dilated stride": (2, 5, Window.square(5, 2, 2, 4)),
    "two of each channel": (2, 3, Window.square(3, 1, 1, 4)),
    "one side": (1, 3, Window((2,), ((1, 1),), (1,), (1,))),
    "three sides": (3, 2, Window((1, 2, 1), ((1, 0),) * 3, (1, 1, 2), (1, 2, 1), 4)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_convolution_and_its_gradient_are_those_of_jax(double: None, name: str) -> None:
    rank, size, window = WINDOWS[name]
    rng, outputs = np.random.default_rng(0), 8 if name.startswith("two") else 4
    x = jnp.asarray(rng.normal(size=(2, *(7, 6, 5)[:rank], 4)))
    kernel = jnp.asarray(rng.normal(size=(*(size,) * rank, 4 // window.groups, outputs)))
    sides = "".join(map(str, range(rank)))

    def expected(x: Array) -> Array:
        order = f"N{sides}C", f"{sides}IO", f"N{sides}C"
        return lax.conv_general_dilated(
            x, kernel, *window[:4], dimension_numbers=order, feature_group_count=window.groups
        )

    y, back = jax.vjp(expected, x)
    g = jnp.asarray(rng.normal(size=y.shape))
    assert error(convolve(x, kernel, window), y) < EXACT
    assert error(pull(g, kernel, window, x.shape[1:-1]), back(g)[0]) < EXACT
    if max(window.groups, *window.lhs_dilation) == 1:
        assert error(sum_of_products(g, kernel, window, x.shape[1:-1]), back(g)[0]) < EXACT
        assert error(product_of_patches(x, kernel, window), y) < EXACT


def test_a_product_of_patches_may_have_no_output() -> None:
    for window in (Window.square(1), Window.square(1, 2)):
        y = product_of_patches(jnp.ones((1, 1, 2, 3)), jnp.ones((3, 3, 3, 16)), window)
        assert y.shape == (1, 0, 0, 16)


def test_a_network_that_takes_no_single_point_keeps_its_function() -> None:
    apply = lambda w, x: jnp.squeeze(convolve(x, w, Window.square(3)).mean((1, 2)))  # noqa: E731
    model = Model(apply, jnp.ones((3, 3, 3, 2)))
    assert logits_of(model, jnp.ones((4, 4, 3))) is apply


def channels_first(weights: dict[str, Array], x: Array) -> Array:
    """A network as PyTorch has it: the channels before the sides."""
    x = x.transpose(0, 3, 1, 2)
    order = "NCHW", "OIHW", "NCHW"
    for name, groups in (("first", 1), ("grouped", 2), ("each", 4), ("last", 1)):
        x = lax.conv_general_dilated(
            x,
            weights[name],
            (2, 2) if name == "last" else (1, 1),
            "SAME",
            dimension_numbers=order,
            feature_group_count=groups,
        )
        x = jax.nn.relu(x)
    return x.mean((2, 3)) @ weights["head"]


def network() -> tuple[Model, Array, Array]:
    """A model, images and labels."""
    rng = np.random.default_rng(0)
    shapes = {"first": (4, 3, 3, 3), "grouped": (4, 2, 3, 3), "each": (4, 1, 3, 3)}
    shapes |= {"last": (6, 4, 3, 3), "head": (6, 3)}
    weights = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
    images = jnp.asarray(rng.uniform(size=(3, 6, 6, 3)))
    return Model(channels_first, weights), images, jnp.arange(3)


def loss_gradient(logits: Callable[[Array], Array], labels: Array) -> Callable[[Array], Array]:
    """The gradient of the cross-entropy in the images."""
    chosen = jnp.arange(len(labels)), labels
    return jax.grad(lambda x: -jnp.sum(jax.nn.log_softmax(logits(x))[chosen]))


def test_attacks_of_a_network_of_a_space_follow_fast_gradients(double: None) -> None:
    images, labels = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 8, 8, 3))), jnp.arange(3)
    space = NASBench201(channels=2, cells_per_stage=1, task=Task((8, 8, 3)))
    model = space.network("323133", images, dtype=np.float64)
    logits = logits_of(model, images[0])
    fast = jax.jit(loss_gradient(lambda x: logits(model.params, x), labels))
    slow = jax.jit(loss_gradient(model.logits, labels))
    assert error(fast(images), slow(images)) < EXACT
    assert logits is not model.apply


@pytest.mark.thorough
def test_attacks_and_kernels_of_a_network_with_channels_first(double: None) -> None:
    model, images, labels = network()
    attack = attacks.pgd(0.1, 3)
    plain = jax.jit(lambda x: attack(loss_gradient(model.logits, labels), x))(images)
    fast = jax.jit(lambda x: logits_of(model, x[0])(model.params, x))
    assert error(fast(images), model.logits(images)) < EXACT
    again = attack(jax.jit(loss_gradient(fast, labels)), images)
    assert error(again, plain) < EXACT

    kernels = stack(model, images, labels, lambda rho: attacks.pgd(rho, 3), [0.1])
    for name, points in (("clean", images), ("robust", plain)):
        rows = jax.jit(
            jax.vmap(lambda x: jax.grad(lambda w: channels_first(w, x[None]).sum())(model.params))
        )
        jacobian = jnp.concatenate(
            [leaf.reshape(3, -1) for leaf in jax.tree.leaves(rows(points))], axis=1
        )
        assert error(kernels.kernel(name), jacobian @ jacobian.T) < EXACT


def forms(logits: Callable[[Array], Array], images: Array, labels: Array) -> list[str]:
    """The forms of all convolutions in a compiled program that attacks in a loop."""
    attack = attacks.pgd(0.1, 3)
    run = jax.jit(lambda x: attack(loss_gradient(logits, labels), x))
    return re.findall(r"dim_labels=([\w>-]+)", run.lower(images).compile().as_text())


def test_a_loop_has_the_fast_form_alone() -> None:
    model, images, labels = network()
    fast = forms(lambda x: logits_of(model, x[0])(model.params, x), images, labels)
    assert fast
    assert all(FAST.fullmatch(form) for form in fast)
    plain = forms(model.logits, images, labels)
    assert not all(FAST.fullmatch(form) for form in plain)


def test_accelerators_are_given_the_convolutions_as_they_stand() -> None:
    model, images, _ = network()
    logits = logits_of(model, images[0])
    # A function of its own for each, since JAX keeps what it has traced.
    here = jax.make_jaxpr(lambda x: logits(model.params, x))(images)
    with traced_for("gpu"):
        there = jax.make_jaxpr(lambda x: logits(model.params, x))(images)
    assert "custom_vjp" in str(here)
    assert "custom_vjp" not in str(there)


def test_kernels_and_logits_are_differentiable_in_the_weights(double: None) -> None:
    model, images, _ = network()

    def of_jacobian(weights: dict[str, Array], points: Array) -> Array:
        total = lambda w, x: channels_first(w, x[None]).sum()  # noqa: E731
        rows = jax.vmap(jax.grad(total), (None, 0))(weights, points)
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(rows))

    def of_kernel(weights: dict[str, Array], points: Array) -> Array:
        return jnp.trace(ntk(Model(channels_first, weights), points))

    given = model.params, images
    for expected, got in zip(
        jax.tree.leaves(jax.jit(jax.grad(of_jacobian, (0, 1)))(*given)),
        jax.tree.leaves(jax.jit(jax.grad(of_kernel, (0, 1)))(*given)),
        strict=True,
    ):
        assert error(got, expected) < EXACT
    moved = [jax.jvp(jax.jit(each), given, given)[1] for each in (of_kernel, of_jacobian)]
    assert float(moved[0]) == pytest.approx(float(moved[1]))

    fast = logits_of(model, images[0])
    square = lambda apply, w: jnp.sum(apply(w, images) ** 2)  # noqa: E731
    ours, theirs = (
        jax.jit(jax.grad(partial(square, apply)))(model.params) for apply in (fast, channels_first)
    )
    assert all(error(ours[name], theirs[name]) < EXACT for name in theirs)


def test_large_kernels_of_each_channel_are_left_to_xla() -> None:
    x, kernel = jnp.ones((1, 8, 8, 2)), jnp.ones((31, 31, 1, 2))
    run = lambda x: convolve(x, kernel, Window.square(31, groups=2))  # noqa: E731
    assert str(jax.make_jaxpr(run)(x)).count("conv_general_dilated[") == 1


def test_a_kernel_may_be_wider_than_the_image(double: None) -> None:
    window = Window((1, 1), ((0, 0), (3, 3)), (1, 1), (1, 1), 2)
    x, kernel = jnp.ones((1, 4, 4, 2)), jnp.ones((7, 7, 1, 2))
    assert convolve(x, kernel, window).shape == (1, 0, 4, 2)


def test_an_attack_is_the_same_in_a_compiled_function() -> None:
    model, images, labels = network()
    gradient = loss_gradient(model.logits, labels)
    for attack in (attacks.pgd(0.1, 4), attacks.pgd(0.1, 2, random_start=True)):
        run = lambda x, attack=attack: attack(gradient, x, jax.random.key(0))  # noqa: E731
        assert error(jax.jit(run)(images), run(images)) < 1e-6
