"""APGD, FAB and Square against the code of AutoAttack's authors, as it is packaged for an index."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks import APGD, FAB, PGD, SquareAttack, Stepwise, Victim, attack_all, autoattack
from attacks.steps import point_keys
from ntkscore.data.images import load_images
from ntkscore.model import Model
from ntkscore.trace.compiled import logits_of

RADII = {"linf": 8 / 255, "l2": 0.5, "l1": 12.0}
THEIRS = {"linf": "Linf", "l2": "L2", "l1": "L1"}
COUNT, SHAPE, CLASSES = 12, (6, 6, 3), 6


@pytest.fixture
def authors(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The authors' package in float64."""
    found = pytest.importorskip("pyautoattack", reason="pyautoattack is not installed")
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield found
    torch.set_default_dtype(before)


class Net:
    """A network with one hidden layer, in both libraries."""

    def __init__(self, torch: ModuleType) -> None:
        rng = np.random.default_rng(0)
        d = int(np.prod(SHAPE))
        self.params = [rng.normal(size=(d, 32)) / 3, rng.normal(size=(32, CLASSES)) / 4]
        self.x = rng.uniform(size=(COUNT, *SHAPE)).clip(0.02, 0.97)
        self.torch = torch
        self.labels = np.array(self.apply(self.params, self.x).argmax(1))

    @staticmethod
    def apply(params: Any, x: Any) -> jax.Array:
        return jnp.tanh(x.reshape(len(x), -1) @ params[0]) @ params[1]

    def __call__(self, x: Any) -> Any:
        one, two = map(self.torch.from_numpy, self.params)
        # Theirs have channels first.
        rows = x.permute(0, 2, 3, 1).reshape(len(x), -1)
        return self.torch.tanh(rows @ one) @ two

    def victim(self) -> Victim:
        params = [jnp.asarray(w) for w in self.params]
        return Victim(lambda x: self.apply(params, x), jnp.asarray(self.labels, jnp.int32))

    def theirs(self, x: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))


def ours(tensor: Any) -> np.ndarray:
    return tensor.numpy().transpose(0, 2, 3, 1)


def run(attack: Stepwise, net: Net, begin: np.ndarray | None, steps: int) -> Any:
    """The state of the attack's first run after some steps."""
    victim, x = net.victim(), jnp.asarray(net.x)
    first = attack.runs[0]._replace(first=begin is None, scale=1.0, steps=steps)
    keys = point_keys(jax.random.key(0), np.arange(COUNT))
    given = None if begin is None else jnp.asarray(begin)
    state = attack.start(victim, x, keys, first, first.target, given)

    def step(i: Any, state: Any) -> Any:
        return attack.advance(victim, x, keys, first, i, state)

    return jax.jit(lambda state: jax.lax.fori_loop(0, steps, step, state))(state)


@pytest.mark.parametrize("norm", RADII)
@pytest.mark.parametrize("loss", ["ce", "dlr", "targeted"])
@pytest.mark.parametrize("steps", [3, 100])
def test_apgd_takes_their_steps(
    double: None,
    torch: ModuleType,
    authors: ModuleType,
    norm: str,
    loss: str,
    steps: int,
) -> None:
    from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted

    net, rho = Net(torch), RADII[norm] / (8 if norm == "l1" else 2)
    rng = np.random.default_rng(1)
    noise = rng.uniform(-1, 1, net.x.shape)
    size = {"linf": 1.0, "l2": 8.0, "l1": 70.0}[norm]
    start = np.clip(net.x + noise * rho / size, 0, 1)
    attack: Any = APGDAttack_targeted if loss == "targeted" else APGDAttack
    more = {} if loss == "targeted" else {"loss": loss}
    theirs = attack(net, n_iter=steps, norm=THEIRS[norm], eps=rho, device="cpu", **more)
    x, y = net.theirs(net.x), torch.from_numpy(net.labels)
    theirs.init_hyperparam(x)
    if loss == "targeted":
        theirs.y_target = net(x).sort(dim=1)[1][:, -2]
    best, right, highest, adversarial = theirs.attack_single_run(x, y, x_init=net.theirs(start))
    own = APGD(rho, norm, steps, "dlr" if loss == "targeted" else loss, int(loss == "targeted"))  # type: ignore[arg-type]
    state = run(own, net, start, steps)
    np.testing.assert_array_equal(~np.asarray(state.found), right.numpy())
    pairs = [
        (np.logaddexp(0, state.best_loss) if loss == "ce" else state.best_loss, highest.numpy()),
        (state.best, ours(best.detach())),
        (state.adversarial, ours(adversarial.detach())),
    ]
    equal = [abs(np.asarray(own) - of).reshape(COUNT, -1).max(1) < 1e-6 for own, of in pairs]
    # In ℓ1 the number of coordinates that a step changes is cut off to a whole one. Where it is
    # whole, rounding decides: of one image in a run of three.
    assert np.all(equal, 0).sum() >= COUNT - (norm == "l1")


@pytest.mark.parametrize("norm", RADII)
@pytest.mark.parametrize("targets", [0, 1])
@pytest.mark.parametrize("steps", [3, 40])
def test_fab_takes_their_steps(
    double: None, torch: ModuleType, authors: ModuleType, norm: str, targets: int, steps: int
) -> None:
    from pyautoattack.fab_pt import FABAttack_PT

    net, rho = Net(torch), RADII[norm]
    theirs = FABAttack_PT(net, THEIRS[norm], n_iter=steps, eps=rho, device="cpu")
    theirs.target_class = 2
    x, y = net.theirs(net.x), torch.from_numpy(net.labels)
    found = theirs.attack_single_run(x, y, is_targeted=bool(targets))
    state = run(FAB(rho, norm, steps, targets), net, None, steps)  # type: ignore[arg-type]
    np.testing.assert_allclose(state.adversarial, ours(found.detach()), atol=1e-6)
    assert np.isfinite(state.distance).any()


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("side", [1, 2, 3, 5, 6, 9])
def test_squares_have_their_patterns(torch: ModuleType, norm: str, side: int) -> None:
    pytest.importorskip("pyautoattack", reason="pyautoattack is not installed")
    from pyautoattack.square import SquareAttack as Theirs

    from attacks.square import _patterns

    if side == 1 and norm == "l1":
        return
    theirs = Theirs(None, THEIRS[norm], eps=1.0, device="cpu")
    torch.manual_seed(0)
    found = theirs.eta(side).numpy()
    pair = _patterns(side, side, side, norm)
    assert min(abs(found - each).max() for each in pair) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "norm", ["linf", *(pytest.param(norm, marks=pytest.mark.thorough) for norm in ("l2", "l1"))]
)
def test_a_trained_network_loses_as_many_images(
    torch: ModuleType, data_dir: Any, norm: str
) -> None:
    """Robust accuracies within two images of 200, the ensemble's not above theirs by two."""
    pytest.importorskip("pyautoattack", reason="pyautoattack is not installed")
    from pyautoattack.autoattack import AutoAttack

    network, x, y = trained(torch, data_dir)
    # A quarter of the pixels.
    rho, count = RADII[norm] / {"linf": 1, "l2": 2, "l1": 4}[norm], len(y)
    theirs = AutoAttack(network, eps=rho, norm=THEIRS[norm], seed=0)
    theirs.verbose = False
    theirs.square.n_queries = 300
    weights = {name: p.detach().numpy() for name, p in network.named_parameters()}
    images = np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1))
    apply = logits_of(Model(applied, weights), jax.ShapeDtypeStruct(images.shape[1:], np.float32))
    each, left = autoattack(rho, norm), np.ones(count, bool)  # type: ignore[arg-type]
    each["square"] = SquareAttack(rho, norm, queries=300, rescale=False)  # type: ignore[arg-type]
    for name, attack in each.items():
        theirs.attacks_to_run = [name]
        attacked, _ = theirs.run_standard_evaluation(x, y, batch_size=count)
        with torch.no_grad():
            right = (network(attacked).argmax(1) == y).numpy()
        found = attack_all(apply, weights, images, y.numpy(), {name: attack}, batch=100)
        assert abs(found.right[name].sum() - right.sum()) <= 2, name
        most = 0.95 if (name, norm) == ("square", "l2") else 0.9
        assert 0 < right.mean() < most * found.right["clean"].mean()
        left &= right
    together = attack_all(apply, weights, images, y.numpy(), each, batch=100)
    assert together.right["square"].sum() <= left.sum() + 1


@pytest.mark.slow
def test_it_loses_as_many_to_the_attacks_of_torchattacks(torch: ModuleType, data_dir: Any) -> None:
    theirs: Any = pytest.importorskip("torchattacks", reason="torchattacks is not installed")
    network, x, y = trained(torch, data_dir)
    rho, weights = 8 / 255, {name: p.detach().numpy() for name, p in network.named_parameters()}
    images, classes = np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1)), {"n_classes": 10}
    pairs: dict[str, tuple[Any, Stepwise]] = {
        "pgd": (theirs.PGD(network, rho, rho / 4, 50), PGD(rho)),
        "apgd-ce": (theirs.APGD(network, eps=rho, steps=50, loss="ce"), APGD(rho, steps=50)),
        "apgd-dlr": (
            theirs.APGD(network, eps=rho, steps=50, loss="dlr"),
            APGD(rho, steps=50, loss="dlr"),
        ),
        "apgd-t": (
            theirs.APGDT(network, eps=rho, steps=50, **classes),
            APGD(rho, steps=50, loss="dlr", targets=9),
        ),
        "fab-t": (
            theirs.FAB(network, eps=rho, steps=20, multi_targeted=True, **classes),
            FAB(rho, steps=20, targets=9),
        ),
        "square": (
            theirs.Square(network, eps=rho, n_queries=300),
            SquareAttack(rho, queries=300, rescale=False),
        ),
    }
    for name, (their, own) in pairs.items():
        right = (network(their(x, y)).argmax(1) == y).numpy()
        found = attack_all(applied, weights, images, y.numpy(), {name: own}, batch=100)
        assert abs(found.right[name].sum() - right.sum()) <= 2, (name, found.right[name].sum())


def applied(weights: Any, x: jax.Array) -> jax.Array:
    """The trained network, in JAX."""
    for layer in (0, 2):
        kernel = jnp.asarray(weights[f"{layer}.weight"])
        x = jax.lax.conv_general_dilated(
            x, kernel, (2, 2), [(1, 1)] * 2, dimension_numbers=("NHWC", "OIHW", "NHWC")
        )
        x = jax.nn.relu(x + weights[f"{layer}.bias"])
    # Theirs have channels first.
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return x @ weights["5.weight"].T + weights["5.bias"]


def trained(torch: ModuleType, data_dir: Any) -> tuple[Any, Any, Any]:
    """A small network trained against FGSM on 4,000 images of CIFAR-10, and 200 others."""
    from torch import nn
    from zoo.in_torch import train

    images = load_images("cifar10", data_dir)
    x = (
        torch.from_numpy(images.images[:4200].transpose(0, 3, 1, 2)[:, :, ::2, ::2].copy()).float()
        / 255
    )
    y = torch.from_numpy(np.asarray(images.labels[:4200])).long()
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(24 * 16, 10))
    train(network, x[:4000], y[:4000], 8 / 255)
    return network.requires_grad_(False), x[4000:], y[4000:]
