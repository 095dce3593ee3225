"""Training against the flax network and PyTorch; resuming; refusals; devices."""

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax_nasbench201 import Network
from tiny import printed_on_devices, refuses

from cells.layers import kernel_gradient, trained_convolve
from cells.nasbench201.cell import Cell
from cells.nasbench201.checkpoints import write_state_dict
from cells.nasbench201.network import STATISTICS
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore.convolutions import Window, convolve
from ntkscore.data.images import ImageSet, load_images
from ntkscore.kernels.plain import QUICKLY
from ntkscore.model import Model, Trainable
from ntkscore.task import Task
from ntkscore.training import fit as fitting
from ntkscore.training.fit import Diverged, fit, split
from ntkscore.training.optimizer import optimizer
from ntkscore.training.recipe import Recipe
from ntkscore.training.runs import open_trained, train
from ntkscore.training.steps import State, augmented, mean_loss, step

SPACE = NASBench201(channels=2, cells_per_stage=2).on(Task((8, 8, 3), 4))
CELLS = ("304412", "021300", "000003")


def variables_of(cell: str, seed: int, dtype: Any) -> dict[str, Any]:
    """Weights and statistics that nothing has at the start."""
    drawn = SPACE.draw(SPACE.shape(SPACE.parse(cell)), seed, dtype)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda w: w + jnp.asarray(0.1 * rng.uniform(size=w.shape), dtype), drawn)


def batch(count: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(count, 8, 8, 3)), rng.integers(4, size=count)


@lru_cache
def flax(mode: str) -> Any:
    """The flax network with this normalisation, one program for all cells."""
    return jax.jit(Network(replace(SPACE, bn=mode)).apply)


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS)
def test_training_is_the_flax_network_by_batch_and_by_stored_statistics(cell: str) -> None:
    x, _ = batch()
    with jax.enable_x64(True):
        variables, pixels = variables_of(cell, 0, jnp.float64), jnp.asarray(x)
        parsed = SPACE.parse(cell)
        network, code = SPACE.trainable(cell, dtype=jnp.float64), jnp.asarray(parsed.operations)
        params, statistics = variables["params"], variables[STATISTICS]
        logits, new = jax.jit(network.train)(params, statistics, pixels)
        for mode, found in (
            ("batch", logits),
            ("init", jax.jit(network.evaluate)(params, statistics, pixels)),
        ):
            np.testing.assert_allclose(found, flax(mode)(variables, pixels, code), atol=1e-9)
        # Statistics of what the cell does not use stay.
        unused = [e for e, o in enumerate(parsed.operations) if o not in (2, 3)]
        for e in unused:
            old, now = (s["stage_0"][f"edge_{e}"]["mean"] for s in (statistics, new))
            np.testing.assert_array_equal(old, now)


@pytest.mark.parametrize(("size", "stride", "width"), [(3, 1, 4), (1, 1, 4), (3, 2, 4), (3, 1, 40)])
def test_gradients_of_a_convolution_are_jaxs_own(size: int, stride: int, width: int) -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    x, kernel = (
        jax.random.normal(keys[0], (3, 8, 8, 5)),
        jax.random.normal(keys[1], (size, size, 5, width)),
    )
    g = jax.random.normal(keys[2], (3, 8 // stride, 8 // stride, width))
    window = Window.square(size, stride)
    ours = jax.vjp(lambda x, k: trained_convolve(x, k, window), x, kernel)[1](g)
    theirs = jax.vjp(lambda x, k: convolve(x, k, window), x, kernel)[1](g)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)
    np.testing.assert_allclose(kernel_gradient(x, g, size, window), theirs[1], atol=2e-4)


def test_augmented_images_are_moved_and_flipped() -> None:
    x = jnp.arange(4 * 8 * 8 * 1.0).reshape(4, 8, 8, 1) + 1
    seen = set()
    for seed in range(40):
        moved = np.asarray(augmented(jax.random.key(seed), x, 1))[0, :, :, 0]
        padded = np.pad(np.asarray(x)[0, :, :, 0], 1)
        found = [
            (i, j, flip)
            for i in range(3)
            for j in range(3)
            for flip in (False, True)
            if np.array_equal(moved[:, ::-1] if flip else moved, padded[i : i + 8, j : j + 8])
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) > 12


def torch_network(state: dict[str, np.ndarray], cell: str, torch: ModuleType) -> Any:
    """The same network in PyTorch, in float64."""
    from experiments.tools.torch_reference import TorchNetwork

    network = TorchNetwork(Cell.from_digits(cell), 2, 2, 4).double()
    tensors = {name: torch.tensor(np.asarray(value, float)) for name, value in state.items()}
    missing, unexpected = network.load_state_dict(tensors, strict=False)
    assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing)
    return network


@pytest.mark.parametrize("cell", ["323133", "304412"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_five_steps_are_pytorchs(cell: str, beta: float, torch: ModuleType) -> None:
    recipe = Recipe(epochs=5, batch=6, beta=beta, augment=False)
    x, y = batch()
    with jax.enable_x64(True):
        network = SPACE.trainable(cell, 3, jnp.float64)
        ours = optimizer(recipe, 5)
        state = State(network.params, network.statistics, ours.init(network.params))

        def dict_of(state: State) -> dict[str, np.ndarray]:
            variables = {"params": state.params, STATISTICS: state.statistics}
            return write_state_dict(variables, SPACE.parse(cell), SPACE, running=True)

        theirs = torch_network(dict_of(state), cell, torch)
        sgd = torch.optim.SGD(theirs.parameters(), 0.05, 0.9, weight_decay=recipe.decay)
        cycle = torch.optim.lr_scheduler.OneCycleLR(sgd, 0.1, total_steps=5)
        clean, labels = torch.tensor(x.transpose(0, 3, 1, 2)), torch.tensor(y)
        loss = torch.nn.functional.cross_entropy
        for i in range(5):
            key = jax.random.key(i)
            state, _ = jax.jit(step, static_argnums=(0, 1, 2), compiler_options=QUICKLY)(
                network._replace(params=None, statistics=None),
                recipe,
                ours,
                state,
                jnp.asarray(x),
                jnp.asarray(y),
                key,
                jnp.asarray(beta, jnp.float64),
            )
            noise = jax.random.uniform(
                jax.random.split(key)[1], x.shape, jnp.float64, -recipe.rho, recipe.rho
            )
            theirs.eval()
            start = torch.tensor(np.asarray(noise).transpose(0, 3, 1, 2).copy())
            z = (clean + start).clamp(0, 1)
            for _ in range(recipe.attack_steps):
                z = z.detach().requires_grad_(True)
                (slope,) = torch.autograd.grad(loss(theirs(z), labels), z)
                z = z + recipe.attack_step * slope.sign()
                z = torch.max(torch.min(z, clean + recipe.rho), clean - recipe.rho).clamp(0, 1)
            theirs.train()
            sgd.zero_grad()
            total = 0.0
            if beta < 1:
                total = total + (1 - beta) * loss(theirs(clean), labels)
            if beta > 0:
                total = total + beta * loss(theirs(z.detach()), labels)
            total.backward()
            sgd.step()
            cycle.step() if i < 4 else None
        found = dict_of(state)
        for name, value in theirs.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                np.testing.assert_allclose(found[name], value.numpy(), atol=1e-8, err_msg=name)
        # What is exported gives the same logits there.
        theirs.eval()
        own = network.evaluate(state.params, state.statistics, jnp.asarray(x))
        again = torch_network(found, cell, torch).eval()
        np.testing.assert_allclose(own, again(clean).detach().numpy(), atol=1e-8)


def some_images(count: int = 40) -> ImageSet:
    images = load_images("synthetic")
    return replace(
        images, images=images.images[:count, ::4, ::4].copy(), labels=images.labels[:count]
    )


SMALL = Recipe(epochs=3, batch=16, attack_steps=2, beta=0.5)


class Killed(Exception):
    """Stands for whatever ends a process."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("space", "kills"),
    [(NASBench201(channels=2, cells_per_stage=1), (4, 2)), (Residual(width=8), (2, 4, 1, 5, 3))],
)
def test_a_run_that_was_killed_goes_on_to_the_same_weights(
    space: Any, kills: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, name = some_images(), "323133" if isinstance(space, NASBench201) else "1"
    whole = train(name, images, SMALL, space=space, seeds=(0, 1))
    monkeypatch.setattr(fitting, "SECONDS", 0.0)

    def until(limit: int) -> Any:
        calls = []

        def report(moment: Any) -> None:
            calls.append(moment)
            if len(calls) == limit:
                raise Killed

        return report

    for limit in kills:
        try:
            train(name, images, SMALL, space=space, seeds=(0, 1), out=tmp_path, report=until(limit))
        except Killed:
            continue
    resumed = train(name, images, SMALL, space=space, seeds=(0, 1), out=tmp_path)
    opened = open_trained(tmp_path)
    for other in (resumed, opened):
        jax.tree.map(
            np.testing.assert_array_equal, other.fitted.state.params, whole.fitted.state.params
        )
        np.testing.assert_array_equal(other.fitted.history, whole.fitted.history)
    assert opened.history.equals(whole.history)
    assert opened.epochs == 3 and len(opened.history) == 6
    first = train(name, images, SMALL, space=space, seeds=(0,))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
        first.state().params,
        whole.state(0).params,
    )


def test_learning_lowers_the_loss_and_beta_leaves_out_what_it_does_not_weigh() -> None:
    images, space = some_images(), Residual(width=32, output_scale="sqrt_width")
    for beta in (0.0, 1.0):
        recipe = replace(SMALL, epochs=8, beta=beta, augment=False)
        history = train("1", images, recipe, space=space).history
        assert history["loss"].iloc[-1] < history["loss"].iloc[0]
        assert history["clean_accuracy"].isna().all() == (beta == 1)
        assert history["robust_accuracy"].isna().all() == (beta == 0)


@pytest.mark.thorough
def test_a_joint_pass_shares_its_statistics() -> None:
    x, y = batch()
    network = SPACE.trainable("323133")
    recipe = Recipe(augment=False, bn_train="joint", attack_steps=1)
    stepping = optimizer(recipe, 1)
    state = State(network.params, network.statistics, stepping.init(network.params))
    given = (jnp.asarray(x, jnp.float32), jnp.asarray(y), jax.random.key(0), jnp.float32(0.5))
    run = jax.jit(step, static_argnums=(0, 1, 2))
    functions = network._replace(params=None, statistics=None)
    joint, _ = run(functions, recipe, stepping, state, *given)
    apart, _ = run(functions, replace(recipe, bn_train="separate"), stepping, state, *given)
    means = [s.statistics["stem"]["mean"] for s in (joint, apart)]
    # One tenth of the way once, and twice.
    assert float(jnp.abs(means[0]).sum()) < 0.7 * float(jnp.abs(means[1]).sum())


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_epoch_before(tmp_path: Path) -> None:
    images = some_images()
    trainable = Residual(width=8).on(images.task).trainable("1")

    def explosive(params: Any, statistics: Any, x: Any) -> Any:
        logits, _ = trainable.train(params, (), x)
        return jnp.where(statistics[0] > 4, jnp.nan, logits), (statistics[0] + 1,)

    network = Trainable(explosive, trainable.evaluate, trainable.params, (jnp.zeros(()),))
    recipe = replace(SMALL, beta=0.0)
    given = ([network], images.images, images.labels, recipe, (0,), tmp_path)
    for _ in range(2):
        with pytest.raises(Diverged, match="epoch 1") as caught:
            fit(*given)
        assert (caught.value.step, caught.value.epoch) == (6, 2)


def test_folders_of_other_runs_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    images, space = some_images(), Residual(width=8)
    train("1", images, SMALL, space=space, out=tmp_path / "a")
    for name, change in (
        ("recipe", {"recipe": replace(SMALL, beta=1.0)}),
        ("width", {"space": Residual(width=9)}),
        ("seeds", {"seeds": (1,)}),
        ("checksum", {"images": replace(images, checksum="other")}),
    ):
        given = {"images": images, "recipe": SMALL, "space": space} | change
        with refuses(name, expected=tmp_path / "a"):
            train("1", out=tmp_path / "a", **given)
    networks = [space.on(images.task).trainable("1")]
    data = images.images[:8], images.labels[:8]
    fit(networks, *data, SMALL, out=tmp_path / "b")
    for name, other in (
        ("recipe", (*data, replace(SMALL, beta=1.0))),
        ("checksum", (*data[:1], 1 - data[1] % 2, SMALL)),
    ):
        with refuses(name, expected=tmp_path / "b"):
            fit(networks, *other, out=tmp_path / "b")
    (tmp_path / "a" / "state.npz").write_bytes(b"no")
    with refuses("ValueError", expected=tmp_path / "a"):
        open_trained(tmp_path / "a")
    with refuses(tmp_path / "run.json", expected="`ntkscore train`"):
        open_trained(tmp_path)
    with refuses(40, expected=40):
        train("1", images, replace(SMALL, held_out=40), space=space)
    with refuses([1, 1]):
        train("1", images, SMALL, space=space, seeds=(1, 1))


def test_held_out_rows_are_never_trained_on() -> None:
    rows, kept = split(100, 30)
    assert len(kept) == 30 and not set(rows) & set(kept)


def test_a_coupled_model_is_no_trainable() -> None:
    with refuses("coupled=True", remedy="Trainable"):
        Trainable.of(Model(lambda w, x: x - x.mean(0), jnp.ones(1), coupled=True))


@pytest.mark.thorough
def test_trained_weights_are_scored_by_their_running_statistics(tmp_path: Path) -> None:
    images = some_images()
    space = NASBench201(channels=2, cells_per_stage=1)
    trained = train("323133", images, replace(SMALL, epochs=1), space=space)
    model, state = trained.model(), trained.state()
    x = jnp.asarray(images.pixels[:4])
    plain = trained.space.trainable("323133").evaluate(state.params, state.statistics, x)
    np.testing.assert_allclose(model.logits(x), plain, atol=1e-4)
    assert model.passes is not None
    kept, cell = tmp_path / "w.npz", trained.architecture
    trained.space.write_weights(kept, cell, state.params, state.statistics)
    _, statistics = trained.space.read_weights(kept, cell)
    np.testing.assert_array_equal(statistics["head"]["var"], state.statistics["head"]["var"])
    assert float(mean_loss(plain, jnp.asarray(images.labels[:4]))) > 0


SHARDED = """
import numpy as np, jax
from test_training import SMALL, some_images, train
from cells.residual import Residual
trained = train("1", some_images(), SMALL, space=Residual(width=8))
print(len(jax.devices()), *np.asarray(trained.state().params[0])[:2, :2].ravel())
"""


@pytest.mark.thorough
def test_several_devices_share_a_batch() -> None:
    found = {}
    for count in (1, 2):
        here = Path(__file__).parent
        path = os.pathsep.join(map(str, (here, here.parent)))
        devices, *weights = printed_on_devices(count, SHARDED, PYTHONPATH=path).split()
        assert int(devices) == count
        found[count] = np.array(weights, float)
    np.testing.assert_allclose(found[1], found[2], atol=1e-5)
