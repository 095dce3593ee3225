"""PyTorch modules as models: the same logits and kernels as in PyTorch, and refusals."""

import importlib.util
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from tiny import refuses

import ntkscore
from cells.nasbench201 import NASBench201
from cells.nasbench201.parity import load_parity, reference_of, sizes_of
from ntkscore import bridges
from ntkscore.trace.passes import TracedPasses

POINTS = np.random.default_rng(0).uniform(size=(3, 32, 32, 3))
"""Images, pixels in [0, 1]."""


@pytest.fixture
def nn(torch: ModuleType) -> ModuleType:
    """PyTorch's layers; skips where torchax is missing."""
    if importlib.util.find_spec("torchax") is None:  # whose import would change PyTorch
        pytest.skip("torchax is not installed: see make oracles")
    torch.manual_seed(0)
    return torch.nn


def in_torch(torch: Any, points: np.ndarray) -> Any:
    """Points as PyTorch takes them."""
    tensor = torch.tensor(np.asarray(points))
    return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor


def jacobian(torch: Any, module: Any, points: np.ndarray) -> np.ndarray:
    """The gradients of the summed logits, a row for each point, by PyTorch."""
    params = {
        name: value.detach() for name, value in module.named_parameters() if value.requires_grad
    }

    def reading(params: Any, point: Any) -> Any:
        return torch.func.functional_call(module, params, (point[None],)).sum()

    # One after the other: vmap warns at what it has no rule for, as attention.
    gradients = [torch.func.grad(reading)(params, point) for point in in_torch(torch, points)]
    rows = [torch.cat([leaf.reshape(-1) for leaf in each.values()]) for each in gradients]
    # A long sum in single precision loses what it adds.
    return torch.stack(rows).double().numpy()


def error_of_kernel(torch: Any, module: Any, points: np.ndarray, **options: Any) -> float:
    """The relative difference of the two kernels."""
    model = ntkscore.from_torch(module, points, **options)
    rows = jacobian(torch, module.eval(), points)
    kernel = rows @ rows.T
    return float(np.linalg.norm(ntkscore.ntk(model, points) - kernel) / np.linalg.norm(kernel))


def randomize(torch: Any, module: Any) -> None:
    """Weights, shifts and statistics away from the zeros and ones they start at."""
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point() and bool((tensor == tensor.flatten()[0]).all()):
                tensor += 0.1 * torch.rand_like(tensor)


NETWORKS = {
    "resnet18": lambda zoo: zoo.resnet18(num_classes=10),
    "mobilenet_v3_small": lambda zoo: zoo.mobilenet_v3_small(num_classes=10),
    "densenet": lambda zoo: zoo.DenseNet(8, (2, 3), 16, num_classes=10),
    "vit": lambda zoo: zoo.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10),
    "swin": lambda zoo: zoo.SwinTransformer([2, 2], 16, [1, 1], [2, 2], [4, 4], num_classes=10),
    "convnext": lambda zoo: zoo.ConvNeXt(
        [zoo.convnext.CNBlockConfig(8, 16, 1), zoo.convnext.CNBlockConfig(16, None, 1)],
        num_classes=10,
    ),
}
LONG = ("mobilenet_v3_small", "convnext", "swin")


@pytest.mark.slow
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in LONG)) for name in NETWORKS]
)
def test_torchvisions_kernels_are_those_of_pytorch(
    torch: ModuleType, nn: ModuleType, zoo: Any, name: str
) -> None:
    module = NETWORKS[name](zoo).double()
    randomize(torch, module)
    # The comparison that `from_torch` makes takes long for the large ones, whose kernel says more.
    check = name not in ("resnet18", "mobilenet_v3_small")
    assert error_of_kernel(torch, module, POINTS, check=check) < 1e-9


@pytest.mark.slow
def test_single_precision_is_as_exact(torch: ModuleType, nn: ModuleType, zoo: Any) -> None:
    module = NETWORKS["vit"](zoo)  # without kinks, at which rounding decides
    randomize(torch, module)
    assert error_of_kernel(torch, module, POINTS.astype(np.float32)) < 1e-5


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_a_cell_of_the_benchmark_is_the_same_from_either_library(
    data_dir: Path, torch: ModuleType, nn: ModuleType
) -> None:
    from experiments.tools import torch_reference

    arrays = load_parity(data_dir / "parity" / "cell_01462_c4_n1.npz")
    reference = reference_of(NASBench201, arrays, np.float64)
    space = NASBench201(**sizes_of(arrays))
    cell = space.parse(str(arrays["arch_str"]))

    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.std = torch.tensor(
                [space.task.mean, space.task.std], dtype=torch.float64
            )[:, :, None, None]
            self.network = torch_reference.TorchNetwork(
                cell, space.channels, space.cells_per_stage, space.task.num_classes
            )

        def normalized(self, x: Any) -> Any:
            return (x - self.mean) / self.std

        def forward(self, x: Any) -> Any:
            return self.network(self.normalized(x))

    module = Normalized().double()
    state = {k: v for k, v in arrays.items() if k.startswith("state_dict/")}
    state = {k.removeprefix("state_dict/"): np.asarray(v, float) for k, v in state.items()}
    torch_reference.load(module.network, state)
    images = in_torch(torch, np.asarray(reference.images))
    torch_reference.calibrate(module.network, module.normalized(images))
    ours = ntkscore.ntk(reference.model(), reference.images)
    bridged = ntkscore.ntk(ntkscore.from_torch(module, reference.images), reference.images)
    np.testing.assert_allclose(bridged, ours, rtol=1e-9)


@pytest.fixture
def small(nn: ModuleType) -> Any:
    """A small network with a normalisation, dropout and two heads, in training mode."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 4),
        nn.GELU(),
        nn.Linear(4, 2),
    )


IMAGES = POINTS[:, :6, :6].astype(np.float32)


def test_the_module_stays_as_it_is(torch: ModuleType, small: Any) -> None:
    before = {name: value.clone() for name, value in small.state_dict().items()}
    model = ntkscore.from_torch(small, IMAGES)
    logits = model.logits(jnp.asarray(IMAGES))
    assert all(part.training for part in small.modules())
    assert all(torch.equal(before[name], value) for name, value in small.state_dict().items())
    expected = small.eval()(in_torch(torch, IMAGES)).detach().numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    with torch.no_grad():
        for tensor in small.parameters():
            tensor.zero_()
    np.testing.assert_array_equal(model.logits(jnp.asarray(IMAGES)), logits)


def test_leaves_keep_their_names_and_kinds(small: Any) -> None:
    model = ntkscore.from_torch(small, IMAGES)
    shapes = jax.tree.map(jnp.shape, model.params)
    assert shapes == {
        "0": {"weight": (4, 3, 3, 3)},
        "1": {"weight": (4,), "bias": (4,)},
        "6": {"weight": (4, 4), "bias": (4,)},
        "8": {"weight": (2, 4), "bias": (2,)},
    }
    passes = TracedPasses(model, jax.ShapeDtypeStruct(IMAGES.shape[1:], jnp.float32))
    assert Counter(passes.kinds) == {"weight": 3, "scale": 1, "shift": 3}
    assert len(passes.rectifiers) == 2  # ReLU and GELU


@pytest.mark.parametrize("channels_last", [True, False])
def test_images_have_their_channels_last_unless_told(
    torch: ModuleType, small: Any, channels_last: bool
) -> None:
    given = IMAGES if channels_last else IMAGES.transpose(0, 3, 1, 2)
    model = ntkscore.from_torch(small, torch.tensor(given), channels_last=channels_last)
    expected = small.eval()(in_torch(torch, IMAGES)).detach().numpy()
    np.testing.assert_allclose(model.logits(jnp.asarray(given)), expected, atol=1e-6)


def test_statistics_of_the_batch(torch: ModuleType, nn: ModuleType, small: Any) -> None:
    small[1].momentum = None
    model = ntkscore.from_torch(small, IMAGES, statistics="batch")
    assert model.coupled
    small.eval()[1].train()
    expected = small(in_torch(torch, IMAGES)).detach().numpy()
    for _ in range(2):  # no statistics are kept between the calls
        np.testing.assert_allclose(model.logits(jnp.asarray(IMAGES)), expected, atol=1e-6)
    assert not ntkscore.from_torch(small, IMAGES).coupled
    assert ntkscore.ntk(model, IMAGES).shape == (3, 3)


def test_statistics_of_the_example(torch: ModuleType, nn: ModuleType, small: Any) -> None:
    """Those of a pass in training mode over the example, with the biased variance."""
    small.add_module("9", nn.BatchNorm1d(2))
    model = ntkscore.from_torch(small, IMAGES, statistics="example")
    assert not model.coupled and bool((small[1].running_mean == 0).all())
    small.eval()
    for norm in (small[1], small[9]):
        norm.train()
    expected = small(in_torch(torch, IMAGES)).detach().numpy()
    np.testing.assert_allclose(model.logits(jnp.asarray(IMAGES)), expected, rtol=1e-4, atol=1e-5)
    one = model.logits(jnp.asarray(IMAGES[:1]))
    np.testing.assert_allclose(one, expected[:1], rtol=1e-4, atol=1e-5)
    for example, came, remedy in (
        (np.zeros_like(IMAGES), [], "images[:16]"),
        (IMAGES[:1], [(1, 2)], "points"),
    ):
        with refuses(*came, remedy=remedy):
            ntkscore.from_torch(small, example, statistics="example")
    alone = ntkscore.from_torch(nn.Linear(4, 2), FEATURES, statistics="example")
    assert not alone.coupled  # nothing to measure
    with refuses("training", expected=("statistics", "own", "example", "batch")):
        bridges._model(small, IMAGES, True, "training", False)


def test_a_normalisation_without_statistics_couples_the_points(nn: ModuleType) -> None:
    norm = nn.BatchNorm1d(3, track_running_stats=False)
    assert ntkscore.from_torch(norm, np.zeros((2, 3), np.float32)).coupled


FEATURES = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)


def test_shared_weights_are_one_leaf(torch: ModuleType, nn: ModuleType) -> None:
    layer = nn.Linear(4, 4)
    module = nn.Sequential(layer, nn.Tanh(), layer)
    model = ntkscore.from_torch(module, FEATURES)
    assert set(model.params) == {"0"}
    assert error_of_kernel(torch, module, FEATURES) < 1e-5
    other = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4, bias=False))
    other[2].weight = other[0].weight
    assert error_of_kernel(torch, other, FEATURES) < 1e-5


def test_frozen_weights_are_constants(torch: ModuleType, nn: ModuleType) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    assert set(ntkscore.from_torch(module, FEATURES).params) == {"2"}
    assert error_of_kernel(torch, module, FEATURES) < 1e-5
    module.requires_grad_(False)
    with refuses("none", remedy="module.requires_grad_(True)"):
        ntkscore.from_torch(module, FEATURES)


def test_what_modules_hold_beside_parameters(torch: ModuleType, nn: ModuleType) -> None:
    """Buffers, plain tensors, and weights that are computed from others."""

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
            self.register_buffer("kept", torch.arange(3.0))
            self.plain = torch.arange(3.0) + 1

        def forward(self, x: Any) -> Any:
            return self.layer(x) * self.plain + self.kept + torch.ones(3)

    module = Holder()
    assert error_of_kernel(torch, module, FEATURES) < 1e-5
    leaves = jax.tree.leaves(ntkscore.from_torch(module, FEATURES).params)
    assert sorted(leaf.shape for leaf in leaves) == [(3,), (3, 1), (3, 4)]


def test_other_dtypes_are_kept(torch: ModuleType, nn: ModuleType) -> None:
    for dtype in ("float16", "bfloat16"):
        module = nn.Linear(4, 2).to(getattr(torch, dtype))
        model = ntkscore.from_torch(module, jnp.zeros((1, 4), dtype))
        assert {leaf.dtype.name for leaf in jax.tree.leaves(model.params)} == {dtype}
        assert model.logits(jnp.zeros((1, 4), dtype)).dtype == dtype
    with refuses(expected=("float64", "weight"), remedy="module.float()"):
        ntkscore.from_torch(nn.Linear(4, 2).double(), FEATURES)


# PyTorch's compiler meets PyTorch's own deprecated names when it is imported.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_what_torch_compile_returns(torch: ModuleType, nn: ModuleType) -> None:
    module = torch.compile(nn.Linear(4, 2))
    assert set(ntkscore.from_torch(module, FEATURES).params) == {"weight", "bias"}


def test_refusals(torch: ModuleType, nn: ModuleType, small: Any) -> None:
    with refuses(3, "int", expected="torch.nn.Module"):
        ntkscore.from_torch(3, FEATURES)
    with refuses("torch.nn.modules.linear.Linear", "type", expected="torch.nn.Module"):
        ntkscore.from_torch(nn.Linear, FEATURES)
    with refuses((3, 3, 6, 6), "float32", (3, 6, 3, 6), remedy="channels_last=False"):
        ntkscore.from_torch(small, IMAGES.transpose(0, 3, 1, 2))
    with refuses("lazy", expected="parameters"):
        ntkscore.from_torch(nn.LazyLinear(2), FEATURES)

    class Square(nn.Linear):
        def forward(self, x: Any) -> Any:
            torch._assert(x.shape[2] == 6, "Wrong image height!")
            return super().forward(x.flatten(1))

    with refuses((3, 6, 3, 6), "Wrong image height!", remedy="channels_last=False"):
        ntkscore.from_torch(Square(108, 2), IMAGES.transpose(0, 3, 1, 2))
    for wrong in (nn.Sequential(nn.Flatten(), nn.Linear(784, 2)), nn.Conv2d(1, 2, 3)):
        with refuses((3, 3, 6, 6), remedy="6 × 6 × 3") as caught:
            ntkscore.from_torch(wrong, IMAGES)
        assert "channels" not in caught.value.remedy

    class Returns(nn.Module):
        def __init__(self, what: Any) -> None:
            super().__init__()
            self.layer, self.what = nn.Linear(4, 2), what

        def forward(self, x: Any) -> Any:
            return self.what(self.layer(x))

    outside = torch.ones(2)  # a constant
    ntkscore.from_torch(Returns(lambda out: out + outside), FEATURES)
    for what, got in (
        (lambda out: {"logits": out}, "dict"),
        (lambda out: (out, out), "tuple"),
        (lambda out: out.sum(1), "(3,)"),
    ):
        with refuses(got, expected="(3, classes)", remedy="self.module(x).logits"):
            ntkscore.from_torch(Returns(what), FEATURES)
    with refuses("aten.special_airy_ai", expected="torchax"):
        ntkscore.from_torch(Returns(lambda out: torch.special.airy_ai(out)), FEATURES)


def scheme(nn: Any, function: Any, width: int = 5) -> Any:
    """A module of two layers and one more parameter, with a function between them."""

    class Scheme(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 5), nn.Linear(width, 3)
            self.t = nn.Parameter(self.a.weight.detach().T * 2)
            self.kept = [*self.a.parameters(), {"t": self.t}]

        def forward(self, x: Any) -> Any:
            return self.b(function(self, self.a(x)))

    return Scheme()


def error_of_gradients(torch: Any, module: Any, points: np.ndarray) -> float:
    """Of logits, and of their sum with weights in all parameters and in the points."""
    model = ntkscore.from_torch(module, points, check=False)
    tensor, weights = torch.tensor(points, requires_grad=True), np.arange(1.0, len(points) * 3 + 1)
    weights = weights.reshape(-1, 3)
    logits = module.eval()(tensor)
    named = dict(module.named_parameters())
    read = (logits * torch.tensor(weights)).sum()
    want = torch.autograd.grad(read, [*named.values(), tensor], materialize_grads=True)
    out, pull = jax.vjp(model.apply, model.params, jnp.asarray(points))
    got, of_points = pull(jnp.asarray(weights))
    flat = flatten_dict(got, sep=".")
    pairs = [(out, logits.detach()), (of_points, want[-1])]
    pairs += [(flat[name], gradient) for name, gradient in zip(named, want, strict=False)]
    return max(float(np.abs(ours - theirs.numpy()).max()) for ours, theirs in pairs)


def told_autograd(torch: Any) -> dict[str, Any]:
    """Functions that tell autograd something apart from what they compute."""

    def constant(module: Any, h: Any) -> Any:
        with torch.no_grad():
            return torch.tanh(module.a.weight).flatten(0)[:5] * h

    def shift(module: Any, h: Any) -> Any:
        with torch.no_grad():
            most, first = h.amax(1, keepdim=True), h[:, :1]
        return torch.sin(h - most + first)

    def clipped(module: Any, h: Any) -> Any:
        h = h + 1
        with torch.no_grad():
            h.clamp_(max=0.2)
        return torch.tanh(h) * module.t[0]

    return {
        "no_grad": constant,
        "a shift": shift,
        "in place": clipped,
        "data": lambda module, h: h * h.data * h[:, :1].data * module.t.data[0],
        "detach": lambda module, h: h * h.detach(),
        "a list": lambda module, h: h * module.kept[0].square().sum() + module.kept[1],
        "a dict": lambda module, h: torch.tanh(h) * module.kept[2]["t"].exp()[1],
    }


def keep_a_ramp(module: Any, h: Any) -> Any:
    import torch  # type: ignore[import-not-found]

    if not hasattr(module, "ramp"):
        module.ramp = torch.arange(5.0)
    return h.tanh() * module.ramp[module.ramp >= 0]


def mended(torch: Any) -> dict[str, Any]:
    """Functions that torchax computes wrongly, or not at all."""
    solve = torch.linalg.solve
    return {
        "solve": lambda m, h: h * solve(m.t @ m.t.T + torch.eye(4), m.t[:, :4]).sum(),
        "solve, right": lambda m, h: h * solve(m.t @ m.t.T + 1e-3, m.t.T, left=False)[:, 0],
        "householder": lambda m, h: (
            h * torch.linalg.householder_product(m.t.T, m.t[:, 0] / 9)[:, 1]
        ),
        "an index of an index": lambda m, h: h * m.t[0][torch.tensor([0, 1, 1, 2, 4])],
        "type_as": lambda m, h: h * (h > 0).type_as(h),
        "an array of Python's": lambda m, h: h * h.new_tensor([1.0, 2, 3, 4, 5]),
        "cdist": lambda m, h: h * torch.cdist(h, m.t).sum(1, keepdim=True),
        "a cache": keep_a_ramp,
        "norms of zeros": lambda m, h: torch.nn.functional.normalize(h * (h > 9)) + h,
        "a cubic norm of zeros": lambda m, h: torch.norm(h * 0.0, 3, dim=1, keepdim=True) + h,
        "a deviation of equals": lambda m, h: (h[:, :1] * torch.ones(5)).std(1, keepdim=True) + h,
        "the power 0": lambda m, h: (h * (h > 9)).pow(0) * h,
    }


def in_place(torch: Any) -> dict[str, Any]:
    """Operations that change features, all of them or a slice."""
    changes = {
        "zero_": lambda t: t.zero_(),
        "fill_": lambda t: t.fill_(0.5),
        "neg_": lambda t: t.neg_(),
        "add_": lambda t: t.add_(t.detach()),
        "lerp_": lambda t: t.lerp_(torch.ones_like(t), 0.3),
        "tril_": lambda t: t.tril_(),
        "cumsum_": lambda t: t.cumsum_(1),
        "masked_fill_": lambda t: t.masked_fill_(t > 0, 0.2),
        "index_fill_": lambda t: t.index_fill_(1, torch.tensor([0]), 0.0),
        "silu": lambda t: torch.nn.functional.silu(t, inplace=True),
        "elu": lambda t: torch.nn.functional.elu(t, inplace=True),
    }

    def of_slice(change: Any, h: Any) -> Any:
        h = 1.0 * h
        change(h[:, 1:4])
        return h

    whole = {name: lambda m, h, f=change: f(1.0 * h) for name, change in changes.items()}
    slices = {
        f"{name} of a slice": lambda m, h, f=change: of_slice(f, h)
        for name, change in changes.items()
    }
    turned = {"transpose_": lambda m, h: (1.0 * h).transpose_(0, 1).neg_().transpose_(0, 1)}
    return whole | slices | turned


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", [told_autograd, mended, in_place])
def test_gradients_are_those_of_autograd(torch: ModuleType, nn: ModuleType, kind: Any) -> None:
    points = FEATURES.astype(float)
    errors = {
        name: error_of_gradients(torch, scheme(nn, function).double(), points)
        for name, function in kind(torch).items()
    }
    assert {name: error for name, error in errors.items() if not error < 1e-9} == {}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("options", [{}, {"stride": 2, "output_padding": 1}, {"dilation": 2}])
def test_transposed_convolutions_in_groups(
    torch: ModuleType, nn: ModuleType, options: dict[str, int]
) -> None:
    layers = nn.ConvTranspose2d(4, 6, 3, groups=2, **options), nn.Tanh(), nn.AvgPool2d(2)
    module = nn.Sequential(nn.Unflatten(1, (4, 5, 5)), *layers, nn.Flatten(), nn.LazyLinear(3))
    points = np.random.default_rng(2).normal(size=(2, 100))
    module = module.double()
    module(torch.tensor(points))
    assert error_of_gradients(torch, module, points) < 1e-9


def test_windows_of_unequal_sizes_ask_for_no_64_bit_indices(torch: ModuleType, nn: Any) -> None:
    pooled = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    points = np.random.default_rng(0).uniform(size=(2, 8, 8, 3)).astype(np.float32)
    model = ntkscore.from_torch(pooled, points)
    model.apply(model.params, jnp.asarray(points))  # a warning would be an error


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_all_steps_of_recurrent_layers(torch: ModuleType, nn: ModuleType, kind: str) -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = getattr(nn, kind)(2, 3, batch_first=True), nn.Linear(15, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0].flatten(1))

    points = np.random.default_rng(2).normal(size=(2, 5, 2))
    assert error_of_gradients(torch, Steps().double(), points) < 1e-9


def test_what_differs_from_pytorch_is_refused(
    torch: ModuleType, nn: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ntkscore.bridges import environment

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.sign()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0]

    with refuses("torch.autograd.Function", expected="gradient"):
        ntkscore.from_torch(scheme(nn, lambda m, h: Own.apply(h)), FEATURES)

    def turned(module: Any, h: Any) -> Any:
        h = h + 1
        h.t().mul_(2)
        return h

    with refuses(".data", expected="logits"):
        ntkscore.from_torch(scheme(nn, turned), FEATURES)
    module = scheme(nn, lambda m, h: m.b(m.c(h)) if hasattr(m, "c") else m.tanh(h))
    module.tanh = nn.Tanh()
    for wrong, name in (
        (lambda x: jnp.tanh(x) * 1.001, "logits"),
        (lambda x: jax.lax.stop_gradient(jnp.tanh(x)), "gradient"),
    ):
        monkeypatch.setitem(environment._OF_ARRAYS, torch.ops.aten.tanh, wrong)
        with refuses("aten.tanh.default", "Tanh 'tanh'", expected=name):
            ntkscore.from_torch(module, FEATURES)
        ntkscore.from_torch(module, FEATURES, check=False)


def test_refusals_name_the_cause(torch: ModuleType, nn: ModuleType) -> None:
    """Of what PyTorch computes and JAX does not; the points are not to blame."""
    functional = nn.functional

    def masked(module: Any, h: Any) -> Any:
        y = h.clone()
        y[h < 0] *= 0.1
        return y

    def image(function: Any) -> Any:
        return lambda m, h: function(h[:, :4].reshape(-1, 1, 2, 2)).flatten(1).sum(1)[:, None] * h

    pool = functional.max_pool2d
    turn = {"size": (3, 3), "mode": "bilinear", "antialias": True}
    branch, chance = "torch.where(condition, x, y)", "F.dropout(x, p, self.training)"
    for function, remedy, *got in (
        (masked, "torch.where(mask, x, y)", "torch.Tensor.__getitem__"),
        (lambda m, h: h if h.sum().item() > 0 else -h, branch),
        (lambda m, h: h if m.t.sum() > 0 else -h, branch),
        (lambda m, h: functional.dropout(h), chance, "Scheme"),
        (lambda m, h: h + torch.randn_like(h), chance, "aten.randn_like"),
        (lambda m, h: h + torch.rand(5, device="cpu"), chance),
        (lambda m, h: h * torch.special.airy_ai(h), "JAX", "aten.special_airy_ai"),
        (image(lambda h: functional.interpolate(h, **turn)), "JAX", "aten._upsample_bilinear2d_aa"),
        (image(lambda h: functional.adaptive_max_pool2d(h, 1)), "JAX", "aten.adaptive_max_pool2d"),
        (image(lambda h: pool(h, 2, padding=1, dilation=2)), "JAX", "dilation"),
        (
            image(lambda h: functional.max_unpool2d(*pool(h, 2, return_indices=True), 2)),
            branch,
            "aten.max_unpool2d",
        ),
    ):
        with refuses(*got, remedy=remedy) as caught:
            ntkscore.from_torch(scheme(nn, function), FEATURES)
        assert "points" not in str(caught.value).partition("got")[2]


@pytest.mark.filterwarnings("ignore:`torch.*(weight_norm|jit|torch.jit).*:")
def test_modules_around_modules(torch: ModuleType, nn: ModuleType) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    nested = nn.Sequential(nn.DataParallel(module[0]), nn.Tanh())
    assert set(ntkscore.from_torch(nn.DataParallel(module), FEATURES).params) == {"0", "2"}
    assert set(ntkscore.from_torch(nested, FEATURES, check=False).params["0"]) == {"module"}
    for jitted in (torch.jit.script(module), torch.jit.trace(module, torch.tensor(FEATURES))):
        with refuses("torch.jit", remedy="torch.jit.script"):
            ntkscore.from_torch(jitted, FEATURES)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_modules_that_keep_what_they_computed(torch: ModuleType, nn: ModuleType) -> None:
    def keeping(module: Any, h: Any) -> Any:
        module.features = [*getattr(module, "features", []), h]
        return h.tanh()

    pruned, old, keeps = nn.Linear(4, 3), nn.Linear(4, 3), scheme(nn, keeping)
    importlib.import_module("torch.nn.utils.prune").l1_unstructured(pruned, "weight", 0.5)
    nn.utils.weight_norm(old)
    keeps(torch.tensor(FEATURES))
    for module in (pruned, old, keeps):
        points = FEATURES.astype(float)
        with jax.enable_x64(True):
            assert error_of_gradients(torch, module.double(), points) < 1e-9
    keeps.lock = sys.modules  # cannot be copied
    with refuses("module", remedy="torch.no_grad()"):
        ntkscore.from_torch(keeps, FEATURES)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
def test_pytorch_stays_as_it_was(torch: ModuleType, nn: ModuleType) -> None:
    state, fast = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad(), torch.inference_mode():
        model = ntkscore.from_torch(nn.Linear(4, 2), FEATURES)
        assert float(ntkscore.ntk(model, FEATURES)[0, 0]) > 2  # a gradient, for all that
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"
    nn.Linear(4, 2)
    torch.set_rng_state(state)
    before = torch.rand(3)
    torch.set_rng_state(state)
    ntkscore.from_torch(scheme(nn, lambda m, h: h), FEATURES, check=False)
    torch.set_rng_state(state)
    assert torch.equal(before, torch.rand(3))
    data = torch.utils.data.TensorDataset(torch.rand(4, 2))
    assert len(next(iter(torch.utils.data.DataLoader(data, pin_memory=True)))) == 1
    thread = threading.Thread(target=lambda: found.append(torch.arange(3, device=None)[1:] * 2))
    found: list[Any] = []
    thread.start()
    thread.join()
    assert found[0].device.type == "cpu" and found[0].tolist() == [2, 4]


@pytest.mark.parametrize("page", ["README.md", "docs/networks.md"])
def test_the_documentations_example_runs(nn: ModuleType, page: str) -> None:
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8")
    (code,) = re.findall(r"```python needs=torchax\n(.*?)```", text, re.DOTALL)
    images = np.random.default_rng(0).uniform(size=(3, 32, 32, 3)).astype(np.float32)
    names: dict[str, Any] = {"ntkscore": ntkscore, "images": images, "labels": np.arange(3)}
    exec(code, names)
    if "networks" in names:  # of a file for the command line
        networks = names["networks"](images)
        assert all(not model.coupled for model in networks.values())
        names["rows"] = ntkscore.score(networks, (images, names["labels"])).rows
    assert {"clean", "robust"} <= set(names["rows"]["kernel"])


@pytest.mark.parametrize("name", ["torch", "torchax"])
def test_without_the_packages_one_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)  # a stand-in where it is missing
    monkeypatch.setitem(sys.modules, name, None)
    with refuses(name, remedy="'ntkscore[torch]'"):
        ntkscore.from_torch(None, FEATURES)
