"""The programs that are compiled for every target."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cells.darts import Darts
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from cells.wideresnet import WideResNet
from experiments.recordings import FULL_FIDELITY, SMALL
from experiments.tools.networks import NETWORKS, images_of, of_linen
from ntkscore.config import Config
from ntkscore.run.devices import GROUPS_PER_CALL, Plan
from ntkscore.run.fits import trace_network
from ntkscore.run.scorer import Scorer
from ntkscore.space import Space
from ntkscore.training.fit import compiled_step, untrained
from ntkscore.training.recipe import Recipe

Devices = tuple[Any, ...]


class Program(NamedTuple):
    """A program to compile.

    Attributes:
        trace: the program for some devices, as JAX traces it.
        networks: how many a device computes in a call.
        on: targets that it is compiled for; all of them if empty.
        devices: how many it runs on.
        communicates: whether its devices have something to tell each other.
        products: precision of a network's own products, a value of JAX's
            `jax_default_matmul_precision`; full if left out.
    """

    trace: Callable[[Devices], Any]
    networks: int = 1
    on: tuple[str, ...] = ()
    devices: int = 1
    communicates: bool = False
    products: str | None = None


def ranking(space: Space, cell: str, samples: int, group: int = 1, **choices: Any) -> Program:
    """The program of `ntkscore rank`: groups of networks, one after the other."""
    config, batch = Config(samples=samples, **choices), group * GROUPS_PER_CALL

    def trace(devices: Devices) -> Any:
        scorer = Scorer(space, config, Plan(devices, group, batch), layout_independent=True)
        return scorer.trace(space.parse(cell))

    return Program(trace, batch)


def space_at(fidelity: Mapping[str, Any]) -> NASBench201:
    """The space with the sizes of a fidelity."""
    return NASBench201(**{name: size for name, size in fidelity.items() if name != "samples"})


def nasbench201(fidelity: Mapping[str, Any], group: int = 1, **choices: Any) -> Program:
    """Cells at a fidelity."""
    return ranking(space_at(fidelity), "323133", fidelity["samples"], group, **choices)


def network(name: str, samples: int) -> Program:
    """The program of `score_network`, of which only the function is known."""

    def trace(devices: Devices) -> Any:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            model, images = of_linen(NETWORKS[name](), images_of(samples))
        return trace_network(model, images.shape, Config(samples=samples), devices[0])

    return Program(trace)


def training(devices: Devices, space: NASBench201 | None = None) -> Any:
    """A step of `ntkscore train`: 256 images, split over the devices."""
    recipe, images, space = Recipe(), 2 * 256, space or NASBench201()
    network = space.trainable(space.parse("323133"))
    step = compiled_step(network, recipe, recipe.steps(images))
    state, _ = untrained([network], recipe)
    mesh = Mesh(np.array(devices), ("images",))

    def shaped(array: Any, *split: str | None) -> Any:
        where = NamedSharding(mesh, PartitionSpec(*split))
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)

    batch = jax.ShapeDtypeStruct((1, recipe.batch), jnp.int32)
    keys = jnp.stack([jax.random.key(0)])
    return step.trace(
        jax.tree.map(shaped, state),
        shaped(jax.ShapeDtypeStruct((images, 32, 32, 3), jnp.uint8)),
        shaped(batch, None, "images"),
        shaped(batch, None, "images"),
        shaped(keys),
        shaped(jnp.zeros(())),
    )


_FULL, _SMALL = partial(nasbench201, FULL_FIDELITY), partial(nasbench201, SMALL)
GPUS, TPUS, A_FEW = ("a100", "h100", "h200"), ("v4", "v5e", "v6e"), ("h100", "v5e")
RESNET18, VIT = network("resnet18", 50), network("vit", 16)
PROGRAMS: dict[str, Program] = {
    "NAS-Bench-201, small, group of 1": _SMALL(1),
    "NAS-Bench-201, small, group of 16": _SMALL(16)._replace(on=(*GPUS, "v5e")),
    "NAS-Bench-201, small, group of 64": _SMALL(64)._replace(on=GPUS),
    "NAS-Bench-201, full, group of 1": _FULL(1),
    "NAS-Bench-201, full, group of 2": _FULL(2)._replace(on=("v5e",)),
    "NAS-Bench-201, full, group of 8": _FULL(8)._replace(on=("v5e",)),
    "NAS-Bench-201, full, group of 16": _FULL(16)._replace(on=(*GPUS, "v6e")),
    "NAS-Bench-201, full, group of 64": _FULL(64)._replace(on=GPUS),
    "NAS-Bench-201, full, PGD, group of 1": _FULL(1, attack="pgd")._replace(on=TPUS),
    "NAS-Bench-201, full, PGD, group of 16": _FULL(16, attack="pgd")._replace(on=GPUS),
    "NAS-Bench-201, full, all measures, group of 1": _FULL(1, proxies=True)._replace(on=TPUS),
    "NAS-Bench-201, full, all measures, group of 16": _FULL(16, proxies=True)._replace(on=GPUS),
    "NAS-Bench-201, small, group of 1, eight devices": _SMALL(1)._replace(on=TPUS, devices=8),
    "NAS-Bench-201, full, group of 1, eight devices": _FULL(1)._replace(on=TPUS, devices=8),
    "NAS-Bench-201, full, group of 16, eight devices": _FULL(16)._replace(on=GPUS, devices=8),
    "residual, depth 20, group of 1": ranking(Residual(depth=20), "1" * 18, 50),
    "DARTS, C = 8, 5 cells, group of 1": ranking(Darts(channels=8, layers=5), "AdvRush", 16),
    "WRN-16-4, 16 images": ranking(WideResNet(), "WRN-16-4", 16),
    "own network, ResNet-18, 50 images": RESNET18,
    "own network, ResNet-18, 50 images, bfloat16 products": RESNET18._replace(
        on=A_FEW, products="bfloat16"
    ),
    "own network, ViT, 16 images": VIT,
    "own network, ViT, 16 images, bfloat16 products": VIT._replace(on=A_FEW, products="bfloat16"),
    "training step, 256 images": Program(training),
    "training step, eight devices": Program(training, on=A_FEW, devices=8, communicates=True),
}
