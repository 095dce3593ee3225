"""Networks as people write them: what they capture, hold, reduce and name."""

import gc
import logging
import resource
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax
from tiny import refuses, scored

import ntkscore
from ntkscore import Model, gradient_features, ntk
from ntkscore.kernels import plain
from ntkscore.model import Passes
from ntkscore.trace.compiled import with_passes

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.uniform(size=(5, 4)), jnp.float32)
IMPLEMENTATIONS = ("layerwise", "contraction", "ntvp")


def draw(*shape: int) -> Any:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


A, B = draw(4, 6), draw(6, 3)


def jacobian_kernel(apply: Callable[[Any, Any], Any], params: Any, points: Any) -> np.ndarray:
    """By rows of the Jacobian, one point after the other."""
    gradient_at = jax.jit(jax.grad(lambda p, x: apply(p, x[None]).sum()))
    rows = []
    with jax.numpy_dtype_promotion("standard"):
        for point in points:
            gradient = gradient_at(params, point)
            leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(gradient)]
            rows.append(np.concatenate(leaves))
    return np.stack(rows) @ np.stack(rows).T


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


# What a function captures may change.


def test_an_attribute_an_array_and_an_equal_function_that_changed_are_seen() -> None:
    class Net:
        slope = 1.0

        def apply(self, w: Any, x: Any) -> Any:
            return jnp.tanh(self.slope * (x @ w[0])) @ w[1]

    @dataclass(frozen=True)
    class Equal:
        scale: Any = field(compare=False)

        def __call__(self, w: Any, x: Any) -> Any:
            return jnp.tanh(self.scale * (x @ w[0])) @ w[1]

    net, mask = Net(), np.ones(4, np.float32)
    masked = lambda w, x: jnp.tanh((x * mask) @ w[0]) @ w[1]  # noqa: E731
    for apply in (net.apply, Equal(1.0), masked):
        ntk(Model(apply, [A, B]), X)
    net.slope = 3.0
    mask[:] = [4, 3, 2, 1]
    for apply in (net.apply, Equal(3.0), masked):
        close(ntk(Model(apply, [A, B]), X), jacobian_kernel(apply, [A, B], X))
    Net.slope, net = 0.5, Net()
    close(ntk(Model(net.apply, [A, B]), X), jacobian_kernel(net.apply, [A, B], X))


def test_a_derivative_of_ones_own_that_changed_is_seen() -> None:
    limit = {"at": 1e-3}

    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return x

    def back(_: None, g: Any) -> tuple[Any]:
        return (jnp.clip(g, -limit["at"], limit["at"]),)

    clipped.defvjp(lambda x: (x, None), back)
    apply = lambda w, x: clipped(x @ w[0]) @ w[1]  # noqa: E731
    before = ntk(Model(apply, [A, B]), X)
    limit["at"] = 10.0
    after = ntk(Model(apply, [A, B]), X)
    close(after, jacobian_kernel(apply, [A, B], X))
    assert np.abs(after - before).max() > 1e-3


def test_equal_networks_share_a_program() -> None:
    calls = []

    def network() -> Model:
        def apply(w: Any, x: Any) -> Any:
            calls.append(x.shape)
            return jnp.tanh(x @ w[0]) @ w[1]

        return Model(apply, [A, B])

    ntk(network(), X)
    first = len(calls)
    ntk(network(), X)
    assert len(calls) - first == 1  # it is traced, to know it again


def test_a_jitted_network_is_known_without_a_trace() -> None:
    calls = []

    @jax.jit
    def apply(w: Any, x: Any) -> Any:
        calls.append(x.shape)
        return jnp.tanh(x @ w[0]) @ w[1]

    want = jacobian_kernel(apply, [A, B], X)
    close(ntk(Model(apply, [A, B]), X), want)
    first = len(calls)
    close(ntk(Model(apply, [A, B]), X), want)
    close(ntk(Model(apply, [2 * A, B]), X), jacobian_kernel(apply, [2 * A, B], X))
    assert len(calls) == first


def test_functions_without_a_hash_are_functions() -> None:
    @dataclass
    class Net:
        gain: float = 2.0

        def __call__(self, w: Any, x: Any) -> Any:
            return self.gain * jnp.tanh(x @ w[0]) @ w[1]

    want = jacobian_kernel(Net(), [A, B], X)
    for implementation in IMPLEMENTATIONS:
        close(ntk(Model(Net(), [A, B]), X, implementation=implementation), want)
    close(jax.jit(lambda w: ntk(Model(Net(), w), X))([A, B]), want)


@pytest.mark.parametrize("memory", [None, 2**8])  # as one program, and in blocks of one point
def test_a_dependence_on_the_batch_is_seen_at_any_weights(memory: int | None) -> None:
    def apply(w: Any, x: Any) -> Any:
        h = x @ w["a"]
        return jnp.tanh(h + w["gate"] * (h - h.mean(0))) @ w["b"]

    params = {"a": A, "b": B, "gate": jnp.zeros(())}
    ntk(Model(apply, params), X, memory=memory)
    for implementation in ("auto", "contraction"):
        with refuses(remedy="coupled=True"):
            model = Model(apply, {**params, "gate": jnp.ones(())})
            ntk(model, X, memory=memory, implementation=implementation)


def test_one_point_does_not_tell_that_points_are_alone() -> None:
    params = {"a": A, "b": B}
    model = Model(lambda w, x: jnp.tanh(x @ w["a"] - (x @ w["a"]).mean(0)) @ w["b"], params)
    passes: Any = with_passes(model, X).passes
    passes.forward(params, X[:1])
    with refuses(remedy="coupled=True"):
        passes.forward(params, X)


def test_networks_with_passes_of_their_own_are_not_all_kept() -> None:
    class Own(Passes):
        pass

    kept = []
    for _ in range(8):
        own: Any = Own()
        kept.append(weakref.ref(own))
        ntk(Model(lambda w, x: x @ w, A, passes=own), X, implementation="contraction")
        del own
    gc.collect()
    assert sum(each() is not None for each in kept) <= 4


# Leaves that are no parameters.


def test_a_leaf_is_a_statistic_by_its_name_alone() -> None:
    apply = lambda p, x: jnp.tanh((x @ p["a"]) * lax.rsqrt(p["v"] + 1e-5)) @ p["b"]  # noqa: E731
    params = {"a": A, "b": B, "v": jnp.abs(draw(6)) + 1}
    close(ntk(Model(apply, params), X), jacobian_kernel(apply, params, X))
    renamed = lambda p, x: apply({**p, "v": p["var"]}, x)  # noqa: E731
    held = {"a": A, "b": B}
    got = ntk(Model(renamed, {**held, "var": params["v"]}), X)
    close(got, jacobian_kernel(lambda p, x: apply({**p, "v": params["v"]}, x), held, X))


@pytest.mark.parametrize("name", ["var", "mean"])
def test_a_statistic_with_another_use_is_a_parameter(name: str) -> None:
    def apply(p: Any, x: Any) -> Any:
        h = (x @ p["a"] - p["mean"]) * lax.rsqrt(p["var"] + 1e-5)
        return jnp.tanh(h + p[name]) @ p["b"]

    params = {"a": A, "b": B, "var": jnp.abs(draw(6)) + 1, "mean": draw(6)}
    other = {"var": "mean", "mean": "var"}[name]
    trained = {key: leaf for key, leaf in params.items() if key != other}
    want = jacobian_kernel(lambda p, x: apply({**params, **p}, x), trained, X)
    close(ntk(Model(apply, params), X), want)


def test_running_statistics_are_held_by_their_names_in_any_form() -> None:
    def apply(p: Any, x: Any) -> Any:
        h = x @ p["a"] / jnp.maximum(p["running_var"], 0.1) - p["batch_stats"]["shift"]
        return jnp.tanh(h) @ p["b"]

    fixed = {"running_var": jnp.abs(draw(6)), "batch_stats": {"shift": draw(6)}}
    want = jacobian_kernel(lambda p, x: apply({**p, **fixed}, x), {"a": A, "b": B}, X)
    for implementation in IMPLEMENTATIONS:
        model = Model(apply, {"a": A, "b": B, **fixed})
        close(ntk(model, X, implementation=implementation), want)


def test_a_leaf_called_params_holds_nothing_else_constant(caplog: Any) -> None:
    flat = lambda p, x: jnp.tanh(x @ p["params"]) @ p["head"]  # noqa: E731
    deep = lambda p, x: jnp.tanh(x @ p["params"]["w"]) @ p["head"]  # noqa: E731
    close(
        ntk(Model(flat, {"params": A, "head": B}), X),
        jacobian_kernel(flat, {"params": A, "head": B}, X),
    )
    assert not caplog.records
    params = {"params": {"w": A}, "head": B}
    close(ntk(Model(deep, params), X), jacobian_kernel(deep, params, X))
    assert "'head' count as weights beside 'params'" in caplog.text


def test_random_state_is_held() -> None:
    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.a, self.b = nnx.Linear(4, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs, deterministic=True)

        def __call__(self, x: Any) -> Any:
            return self.b(self.drop(jnp.tanh(self.a(x))))

    graph, state = nnx.split(Net(nnx.Rngs(0)))
    _, weights, rest = nnx.split(nnx.merge(graph, state), nnx.Param, ...)
    of_weights = lambda w, x: nnx.merge(graph, w, rest, copy=True)(x)  # noqa: E731
    want = jacobian_kernel(of_weights, weights, X)
    model = Model(lambda s, x: nnx.merge(graph, s, copy=True)(x), state)
    for implementation in IMPLEMENTATIONS:
        close(ntk(model, X, implementation=implementation), want)
    keyed = Model(
        lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"], {"a": A, "b": B, "k": jax.random.key(0)}
    )
    close(ntk(keyed, X), ntk(keyed._replace(params={"a": A, "b": B}), X))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_scale_of_several_axes_is_a_scale(implementation: str) -> None:
    def apply(p: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["kernel"] * p["norm"]["weight"].ravel()) @ p["weight"]

    params = {"kernel": A, "norm": {"weight": draw(2, 3)}, "weight": B}
    layers = {"kernel": A, "weight": B}
    want = jacobian_kernel(lambda p, x: apply({**params, **p}, x), layers, X)
    got = ntk(Model(apply, params), X, parameters="conv_linear", implementation=implementation)
    close(got, want)


def test_a_product_that_is_written_as_a_sum_has_a_weight() -> None:
    apply = lambda p, x: (x[:, :, None] * p["weight"]).sum(1) * p["scale"]  # noqa: E731
    params = {"weight": draw(4, 3), "scale": draw(3)}
    want = jacobian_kernel(lambda w, x: apply({**params, "weight": w}, x), params["weight"], X)
    close(ntk(Model(apply, params), X, parameters="conv_linear"), want)


# Numbers of other kinds.


def test_complex_values_between_real_weights_and_logits() -> None:
    x = jnp.asarray(RNG.uniform(size=(5, 8)), jnp.float32)
    nets: list[tuple[Any, Any]] = [
        (lambda w, x: jnp.abs(jnp.fft.rfft(x) @ w[0]) @ w[1], [draw(5, 4), draw(4, 3)]),
        (lambda w, x: jnp.imag(jnp.fft.rfft(x) @ (1j * w[0])) @ w[1], [draw(5, 4), draw(4, 3)]),
        (lambda w, x: jnp.real(jnp.fft.ifft(jnp.fft.fft(x) * jnp.fft.fft(w[0]))) @ w[1],
         [draw(8), draw(8, 3)]),
    ]  # fmt: skip
    with jax.numpy_dtype_promotion("standard"):
        for apply, params in nets:
            close(ntk(Model(apply, params), x), jacobian_kernel(apply, params, x), 1e-4)


def test_weights_in_bfloat16_come_back_from_disk() -> None:
    x, params = X.astype(jnp.bfloat16), [A.astype(jnp.bfloat16), B.astype(jnp.bfloat16)]
    model = Model(lambda w, x: jnp.tanh(x @ w[0]) @ w[1], params)
    got, want = (np.asarray(ntk(model, x, memory=m), np.float32) for m in (1, None))
    close(got, want, 1e-2)


def test_factors_on_disk_need_few_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    x = jnp.asarray(RNG.uniform(size=(200, 4)), jnp.float32)
    model = Model(lambda w, x: jnp.tanh(x @ w[0]) @ w[1], [A, B])
    want = ntk(model, x)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        close(ntk(model, x, memory=2**10), want)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_is_any_number() -> None:
    model = Model(lambda w, x: jnp.tanh(x @ w[0]) @ w[1], [A, B])
    close(ntk(model, X, memory=1e2), ntk(model, X))


def test_features_of_tokens() -> None:
    tokens = jnp.asarray(RNG.integers(0, 4, (5, 7)))
    model = Model(lambda w, x: jnp.tanh(w[0][x].mean(1)) @ w[1], [A, B])
    exact = ntk(model, tokens)
    features = gradient_features(model, tokens, 2**14)
    close(features @ features.T, exact, 0.1)


@pytest.mark.parametrize("implementation", ["auto", "contraction", "ntvp"])
def test_a_number_that_is_an_array_is_a_number_under_every_trace(implementation: str) -> None:
    zero = jnp.zeros(())
    apply = lambda w, x: jnp.where(x @ w[0] > zero, x @ w[0], jnp.maximum(x @ w[0], zero)) @ w[1]  # noqa: E731
    want = jacobian_kernel(apply, [A, B], X)
    close(ntk(Model(apply, [A, B]), X, implementation=implementation), want)
    inside = jax.jit(lambda w: ntk(Model(apply, w), X, implementation=implementation))
    close(inside([A, B]), want)


# Batches, derivatives and windows.


def test_a_network_that_takes_no_batch_of_one_is_computed_as_a_batch(caplog: Any) -> None:
    def apply(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w[0]).reshape(len(x), 1, 1, 6).squeeze() @ w[1]

    plainly = lambda w, x: jnp.tanh(x @ w[0]) @ w[1]  # noqa: E731
    close(ntk(Model(apply, [A, B]), X), jacobian_kernel(plainly, [A, B], X))
    assert "a batch of one point" in caplog.text
    rows = scored(Model(apply, [A, B]), np.asarray(X), np.arange(5) % 3)
    assert rows.query("score == 'frobenius' and kernel == 'robust'")["status"].eq("ok").all()
    with refuses("(3,)", expected="(1, classes)", remedy="ntvp"):
        ntk(Model(apply, [A, B]), X, implementation="contraction")


def test_logits_of_one_point_have_the_form_of_those_of_several() -> None:
    # Numbers of their own, since networks that are equal at two points share their programs.
    several = lambda w, x, k: jnp.tanh(k * x @ w[0]) @ w[1]  # noqa: E731
    fewer = lambda w, x: several(w, x, 1.1)[:, : 2 if len(x) == 1 else 3]  # noqa: E731
    with refuses(3, 2, expected="the rest of its batch"):
        ntk(Model(fewer, [A, B]), X)
    turned = lambda w, x: several(w, x, 1.2).T if len(x) == 1 else several(w, x, 1.2)  # noqa: E731
    with refuses("(3, 1)", expected="(1, classes)"):
        ntk(Model(turned, [A, B]), X, implementation="layerwise")


def test_coupled_networks_with_a_derivative_of_their_own() -> None:
    @jax.custom_vjp
    def sign(x: Any) -> Any:
        return jnp.sign(x)

    sign.defvjp(lambda x: (jnp.sign(x), x), lambda x, g: (g * (jnp.abs(x) < 1).astype(g.dtype),))

    def apply(w: Any, x: Any) -> Any:
        h = x @ w[0]
        return sign((h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-5)) @ w[1]

    rows = [
        np.concatenate([np.ravel(g) for g in jax.grad(lambda w, i=i: apply(w, X)[i].sum())([A, B])])
        for i in range(len(X))
    ]
    close(ntk(Model(apply, [A, B], coupled=True), X), np.stack(rows) @ np.stack(rows).T, 1e-4)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_windows_over_padded_arrays(implementation: str) -> None:
    def apply(w: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w[0])
        at = jnp.cumsum(h, 1)[:, 3] + jnp.cumsum(w[0], 1)[0, 2]
        inner = lax.scan(lambda c, r: (c + jnp.cumsum(r)[1] * r, None), h[0], h)[0].sum() * 0
        pooled = lax.reduce_window(
            jnp.pad(h[:, 2:3], ((0, 0), (2, 2))), 0.0, lax.add, (1, 3), (1, 1), "VALID"
        )
        return at[:, None] * (h @ w[1]) + inner + pooled

    close(
        ntk(Model(apply, [A, B]), X, implementation=implementation),
        jacobian_kernel(apply, [A, B], X),
    )


# The trace is held against the Jacobian.


def test_a_trace_that_is_wrong_is_not_used(monkeypatch: Any, caplog: Any) -> None:
    from ntkscore.trace import weight_uses

    right = weight_uses.WeightUses.factors

    def wrong(self: Any, *arrays: Any) -> Any:
        factor = 2 if 0 in self.leaves else 1
        return [(value * factor, *rest) for value, *rest in right(self, *arrays)]

    monkeypatch.setattr(weight_uses.WeightUses, "factors", wrong)
    apply = lambda p, x: jnp.sin(x @ p["first"]) @ p["second"]  # noqa: E731
    params = {"first": A, "second": B}
    want = jacobian_kernel(apply, params, X)
    close(ntk(Model(apply, params), X, check=True), want)
    assert "another kernel than its Jacobian for params['first'];" in caplog.text
    assert np.abs(ntk(Model(apply, params), X, check=False) - want).max() > 0.1
    kernels = ntkscore.stack(Model(apply, params), X, np.arange(5) % 3, "fgsm", 0.1, check=True)
    close(kernels.kernel("clean"), want)


@pytest.mark.parametrize("output", ["trace", "loss"])
def test_the_plain_jacobian_agrees(output: str, caplog: Any) -> None:
    model = Model(lambda w, x: jax.nn.relu(x @ w[0]) @ w[1], [A, B])
    labels = jnp.arange(5) % 3
    gram = ntk(model, X, labels=labels, output=output, check=True)
    ntkscore.stack(model, X, labels, "fgsm", 0.1, output, check=True)
    assert not caplog.text
    assert plain.wrong_leaves(gram, model, X, labels, output, "all") is None
    wrong = plain.wrong_leaves(1.1 * gram, model, X, labels, output, "all")
    assert wrong == ["[0]", "[1]"]


def test_new_normalisations_are_named(caplog: Any) -> None:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(3)(nn.relu(nn.BatchNorm(use_running_average=True)(nn.Dense(6)(x))))

    variables = Net().init(jax.random.key(0), X)
    ntk(Model(Net().apply, variables), X)
    assert "mean 0 and variance 1" in caplog.text
    rows = scored(Model(Net().apply, variables), np.asarray(X), np.arange(5) % 3)
    assert set(rows["bn"]) == {"init"}
    caplog.clear()
    moved = jax.tree.map(lambda a: a + 0.5, variables["batch_stats"])
    ntk(Model(Net().apply, {**variables, "batch_stats": moved}), X)
    assert not caplog.records


@pytest.fixture(autouse=True)
def logged(caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "ntkscore")
