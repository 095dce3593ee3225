"""The programs that are compiled for every target."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cells.darts import Darts
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from cells.wideresnet import WideResNet
from experiments.recordings import FULL_FIDELITY, SMALL, Choices, Recording
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


def ranking(
    choices: Choices,
    group: int = 1,
    of: type[Space] = NASBench201,
    name: str = "323133",
    **where: Any,
) -> Program:
    """The program of `ntkscore rank`: groups of networks, one after the other."""
    recording, batch = Recording(choices, of=of), group * GROUPS_PER_CALL

    def trace(devices: Devices) -> Any:
        space, plan = recording.space, Plan(devices, group, batch)
        scorer = Scorer(space, recording.config, plan, layout_independent=True)
        return scorer.trace(space.parse(name))

    return Program(trace, batch, **where)


def network(name: str, samples: int, **where: Any) -> Program:
    """The program of `score_network`, of which only the function is known."""

    def trace(devices: Devices) -> Any:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            images = images_of(samples)
            model = of_linen(NETWORKS[name], images)
        return trace_network(model, images.shape, Config(samples=samples), devices[0])

    return Program(trace, **where)


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


GPUS, TPUS, A_FEW = ("a100", "h100", "h200"), ("v4", "v5e", "v6e"), ("h100", "v5e")
PGD, ALL = FULL_FIDELITY | {"attack": "pgd"}, FULL_FIDELITY | {"proxies": True}
PROGRAMS: dict[str, Program] = {
    "NAS-Bench-201, small, group of 1": ranking(SMALL),
    "NAS-Bench-201, small, group of 16": ranking(SMALL, 16, on=(*GPUS, "v5e")),
    "NAS-Bench-201, small, group of 64": ranking(SMALL, 64, on=GPUS),
    "NAS-Bench-201, full, group of 1": ranking(FULL_FIDELITY),
    "NAS-Bench-201, full, group of 2": ranking(FULL_FIDELITY, 2, on=("v5e",)),
    "NAS-Bench-201, full, group of 8": ranking(FULL_FIDELITY, 8, on=("v5e",)),
    "NAS-Bench-201, full, group of 16": ranking(FULL_FIDELITY, 16, on=(*GPUS, "v6e")),
    "NAS-Bench-201, full, group of 64": ranking(FULL_FIDELITY, 64, on=GPUS),
    "NAS-Bench-201, full, PGD, group of 1": ranking(PGD, on=TPUS),
    "NAS-Bench-201, full, PGD, group of 16": ranking(PGD, 16, on=GPUS),
    "NAS-Bench-201, full, all measures, group of 1": ranking(ALL, on=TPUS),
    "NAS-Bench-201, full, all measures, group of 16": ranking(ALL, 16, on=GPUS),
    "NAS-Bench-201, small, group of 1, eight devices": ranking(SMALL, on=TPUS, devices=8),
    "NAS-Bench-201, full, group of 1, eight devices": ranking(FULL_FIDELITY, on=TPUS, devices=8),
    "NAS-Bench-201, full, group of 16, eight devices": ranking(
        FULL_FIDELITY, 16, on=GPUS, devices=8
    ),
    "residual, depth 20, group of 1": ranking(
        {"samples": 50, "depth": 20}, of=Residual, name="1" * 18
    ),
    "DARTS, C = 8, 5 cells, group of 1": ranking(
        {"samples": 16, "channels": 8, "layers": 5}, of=Darts, name="AdvRush"
    ),
    "WRN-16-4, 16 images": ranking({"samples": 16}, of=WideResNet, name="WRN-16-4"),
    "own network, ResNet-18, 50 images": network("resnet18", 50),
    "own network, ResNet-18, 50 images, bfloat16 products": network(
        "resnet18", 50, on=A_FEW, products="bfloat16"
    ),
    "own network, ViT, 16 images": network("vit", 16),
    "own network, ViT, 16 images, bfloat16 products": network(
        "vit", 16, on=A_FEW, products="bfloat16"
    ),
    "training step, 256 images": Program(training),
    "training step, eight devices": Program(training, on=A_FEW, devices=8, communicates=True),
}
