"""One compiled program for all architectures of a shape: encodings in, scores out."""

import json
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from jax.stages import Traced
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree

from ntkscore import program_cache
from ntkscore.candidates import Candidates
from ntkscore.compiler import compiler_options, for_any_layout
from ntkscore.config import Config
from ntkscore.errors import InputError
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.kernels.implementations import implementation_for
from ntkscore.kernels.network import as_it_is_now
from ntkscore.kernels.readouts import READOUTS
from ntkscore.kernels.stack import Stack, stack
from ntkscore.measures.registry import quantities
from ntkscore.memory import has_many_mappings
from ntkscore.model import Model
from ntkscore.results.rows import OF_IMAGES, VARYING, Rows, rows_of
from ntkscore.run.devices import Plan, one_device
from ntkscore.run.fingerprints import functions_of
from ntkscore.space import SIDE_BY_SIDE, WEIGHTS, Architecture, Space
from ntkscore.threads import one_thread
from ntkscore.trace.compiled import Chain, forget_passes, with_passes
from ntkscore.trace.passes import passes_of

ALIKE = 1e-3
"""Relative spread of a kernel over the images, up to which they hardly differ."""
log = logging.getLogger("ntkscore")
AXIS = "networks"
Program = Any
"""What `jax.jit` gives: a function of a shape, encodings, weights and the other arrays."""
EVERYWHERE, SPLIT = PartitionSpec(), PartitionSpec(AXIS)


def precision(config: Config) -> AbstractContextManager[object]:
    """The context in which arrays have the config's precision."""
    return jax.enable_x64(True) if config.x64 else nullcontext()


def dtype_of(config: Config) -> DTypeLike:
    """Dtype of images and weights."""
    return jnp.float64 if config.x64 else jnp.float32


def kernels(
    model: Model,
    config: Config,
    images: Array | np.ndarray,
    labels: Array | np.ndarray,
    rhos: Array | Sequence[float],
    key: Array,
) -> Stack:
    """The kernels of one network, and the inputs of its other measures, as a config asks for them.

    Args:
        config: how it is scored, less its radii.
        images: (N, …), pixels in [0, 1].
        labels: (N,) classes.
        rhos: radii on the pixel scale [0, 1].
        key: for the attack's random start, and for what measures draw.
    """
    return stack(
        model,
        images,
        labels,
        config.attack_at,
        rhos,
        config.output,
        config.parameters,
        config.implementation,
        key,
        jax.random.fold_in(key, 2) if config.proxies else None,
    )


@lru_cache(maxsize=64)
def _program(
    space: Space, config: Config, plan: Plan, layout_independent: bool, *registered: Any
) -> Program:
    """The compiled function that computes the stacks of several networks of one shape.

    Args:
        config: how they are scored, without what is data (`Config.program`).
        layout_independent: forbid options of the compiler whose rounding depends on the layout.
        registered: the functions that the config names and those of the measures, and their
            fingerprints, so that another function under the same name, one that refers to what has
            changed, or a new measure, gets another program.
    """

    def on_a_device(
        shape: Hashable, codes: PyTree, variables: PyTree, images: Array, *others: Array
    ) -> tuple[PyTree, ...]:
        def network(code: PyTree) -> Stack:
            return kernels(space.model(shape, variables, code, images), config, images, *others)

        if plan.group == 1:
            # In a plain loop, a choice between operations computes only the one that it takes.
            return tuple(lax.map(network, codes))
        group = jax.vmap(network, axis_name=SIDE_BY_SIDE)
        split = jax.tree.map(lambda c: c.reshape(-1, plan.group, *c.shape[1:]), codes)
        stacks = lax.map(group, split)
        return tuple(jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), stacks))

    mesh = Mesh(np.array(plan.devices), (AXIS,))

    def compute(shape: Hashable, codes: PyTree, *shared: PyTree) -> tuple[PyTree, ...]:
        return jax.shard_map(
            partial(on_a_device, shape),
            mesh=mesh,
            in_specs=(SPLIT, *[EVERYWHERE] * len(shared)),
            out_specs=SPLIT,
            # Devices compute different networks from the same weights.
            check_vma=False,
        )(codes, *shared)

    layout = (len(plan.devices), plan.devices[0].device_kind, plan.group, plan.batch)
    options = {} if layout_independent else compiler_options()
    return program_cache.compiled(compute, (space, config, layout, registered), options)


def _piecewise(space: Space, config: Config) -> Callable[..., tuple[PyTree, ...]]:
    """`_program` for one network, of which each pass is compiled by itself."""
    latest: list[Any] = []  # a shape, and whether its programs may serve others

    def compute(
        shape: Hashable, codes: PyTree, variables: PyTree, images: Array, *others: Array
    ) -> tuple[PyTree, ...]:
        if latest and latest[0] != shape and (not latest[1] or has_many_mappings()):
            # The programs of some twenty networks exhaust a process's memory maps on Linux.
            forget_passes()
            jax.clear_caches()
        model = space.model(shape, variables, jax.tree.map(lambda c: c[0], codes), images)
        latest[:] = shape, isinstance(model.passes, Chain)
        named = space.named(shape) if isinstance(space, Candidates) else nullcontext()
        with for_any_layout(), named:
            found = kernels(model, config, images, *others)
        return tuple(jax.tree.map(lambda a: a[None], found))

    return compute


def _check_hash(what: str, value: object) -> None:
    """Refuse what cannot be hashed, since its program would not be found again."""
    try:
        hash(value)
    except TypeError as error:
        raise InputError(
            f"{what} that can be hashed, so that its program is found again",
            f"{type(value).__name__} ({error})",
            "give a function, or a frozen dataclass of such values",
        ) from error


def _named_by(config: Config) -> tuple[Any, Any]:
    """The attack and the reading of the logits that a config names."""
    attack, readout = ATTACKS[config.attack], READOUTS[config.output]
    _check_hash("an attack", attack)
    _check_hash("a reading of the logits", readout)
    return attack, readout


def check_network(
    space: Space, config: Config, architecture: Architecture, images: np.ndarray
) -> None:
    """Refuse what does not fit, before anything is computed.

    Raises:
        InputError: if a column's name is taken, a radius or the implementation does not fit, what
            makes a program cannot be hashed, or the network's images depend on each other and the
            space does not say so.
    """
    _named_by(config)
    if not space.piecewise:
        _check_hash("a space", space)
        for quantity in quantities():
            _check_hash("a measure", quantity)
    config.check_radii(images.shape[1:])
    names, options = space.identity(architecture).keys(), space.columns.keys()
    others = {*VARYING, *OF_IMAGES, *config.to_dict()}
    if common := sorted(((names | options) & others) | (names & options)):
        raise InputError(
            f"columns of the space {space.name} whose names no other column of a run has",
            ", ".join(common),
            "rename them",
        )
    shape, code = space.shape(architecture), space.encode(architecture)
    made: list[Model] = []

    def model(variables: PyTree, code: PyTree, images: Array) -> Array:
        made.append(space.model(shape, variables, code, images))
        return images

    dtype = dtype_of(config)
    with precision(config):
        variables = space.draw(shape, 0, dtype)
        jax.eval_shape(model, variables, code, jax.ShapeDtypeStruct(images.shape, dtype))
        (traced,) = made
        implementation_for(traced, config.implementation)
        if space.piecewise or traced.coupled or traced.passes is not None:
            return
        # Passes are derived from a trace of one point, in which no batch is seen.
        points, code = jnp.asarray(images[:2], dtype), jax.tree.map(jnp.asarray, code)
        network, _ = as_it_is_now(space.model(shape, variables, code, points), points)
        network = with_passes(network, points)
        passes_of(network, points).forward(network.params, points)


@dataclass(frozen=True)
class Batch:
    """The images of one seed and the weights of one shape, on the devices."""

    seed: int
    shape: Hashable
    variables: PyTree
    images: Array
    labels: Array
    key: Array


def _tell_alike(network: Mapping[str, str | int], kernel: np.ndarray) -> None:
    """Warn where a network's clean kernel hardly differs between the images.

    Scores of such a kernel are `constant`, or say more about rounding than about the network.
    """
    spread = np.ptp(kernel, axis=0).max() / max(np.abs(kernel).max(), np.finfo(float).tiny)
    if spread <= ALIKE:
        log.warning(
            "the kernel of %s hardly differs between the images (relative spread %.0e): "
            "normalisations with fresh statistics (mean 0, variance 1) do this in a deep network, "
            "so give them those of images; and weights do that act alike on all images",
            *(next(iter(network.values())), spread),
        )


class Scorer:
    """Scores architectures of a space; compiles on first use, once for each shape.

    Args:
        space: for the images and classes that are scored on.
        plan: the layout; one network at a time on the first device if left out, and that is what
            a space needs whose networks are computed piecewise.
        layout_independent: forbid options of the compiler whose rounding depends on the layout.

    Raises:
        InputError: if a function that the config names cannot be hashed.
    """

    def __init__(
        self,
        space: Space,
        config: Config,
        plan: Plan | None = None,
        *,
        layout_independent: bool = False,
    ) -> None:
        self.space, self.config = space, config
        self.plan = plan or one_device()
        # A program does not depend on what the host reads off.
        measured = tuple(replace(quantity, on_host=None) for quantity in quantities())
        # A function may refer to what has changed since.
        now = json.dumps(functions_of(space, config))
        registered = *_named_by(config), measured, now
        self._whole = partial(
            _program, space, config.program, self.plan, layout_independent, *registered
        )
        self._compute = _piecewise(space, config.program) if space.piecewise else self._whole()
        mesh = Mesh(np.array(self.plan.devices), (AXIS,))
        self._everywhere, self._split = (NamedSharding(mesh, s) for s in (EVERYWHERE, SPLIT))
        if space.piecewise:
            # JAX maps no gradient of a grouped convolution over cotangents of arrays on a mesh.
            self._everywhere = self._split = SingleDeviceSharding(self.plan.devices[0])

    def batch(
        self, images: np.ndarray, labels: np.ndarray, seed: int, shape: Hashable = ()
    ) -> Batch:
        """Draw weights, and put them and the images on the devices.

        Args:
            images: (N, …), pixels in [0, 1].
            labels: (N,) classes.
            seed: of the weights and of the attack's random start.
            shape: of the architectures that will be scored.
        """
        with precision(self.config):
            dtype = dtype_of(self.config)
            arrays = (
                self.space.draw(shape, seed, dtype),
                jnp.asarray(images, dtype),
                jnp.asarray(labels, jnp.int32),
                # The weights are drawn from the seed's own key.
                jax.random.fold_in(jax.random.key(seed), 1),
            )
            return Batch(seed, shape, *jax.device_put(arrays, self._everywhere))

    def start(self, architectures: Sequence[Architecture], batch: Batch) -> Stack:
        """The stacks of some networks of a shape, at most a call's, which need not be there yet."""
        # A call always has the same shape; the last network is repeated to fill it.
        missing = self.plan.per_call - len(architectures)
        padded = [*architectures, *[architectures[-1]] * missing]
        codes = jax.tree.map(lambda *c: np.stack(c), *map(self.space.encode, padded))
        with precision(self.config):
            computed = self._compute(
                batch.shape,
                jax.device_put(codes, self._split),
                batch.variables,
                batch.images,
                batch.labels,
                jnp.asarray(self.config.rhos, dtype_of(self.config)),
                batch.key,
            )
        return Stack(*computed)

    def rows(
        self, architectures: Sequence[Architecture], batch: Batch, stacks: Stack
    ) -> list[Rows]:
        """Wait for the stacks that `start` gave and measure every score; the rows of each network.

        The stacks may be longer, since a call always has its full number of networks.
        """
        config, labels = self.config, np.asarray(batch.labels)
        stacks = jax.tree.map(np.asarray, stacks)
        attacks = [config.attack_at(rho) for rho in config.rhos]
        rows_by_network = []
        for k, architecture in enumerate(architectures):
            network = {**self.space.identity(architecture), "seed": batch.seed}
            if WEIGHTS in network:
                own = jax.tree.map(lambda a, k=k: a[k], stacks)
                _tell_alike(network, own.kernel("clean"))
            rows: Rows = []
            for i, (rho, attack) in enumerate(zip(config.rhos, attacks, strict=True)):
                columns = {
                    **network,
                    "rho": rho,
                    # A function of one's own need not have them.
                    "steps": getattr(attack, "steps", 0),
                    "step_size": float(getattr(attack, "step_size", np.nan)),
                }
                one = jax.tree.map(lambda a, k=k, i=i: a[k, i], stacks)
                with one_thread():
                    rows += rows_of(columns, one, labels, config.betas, config.proxies)
            rows_by_network.append(rows)
        return rows_by_network

    def trace(self, architecture: Architecture, samples: int) -> Traced:
        """The program of a call on so many images as JAX traces it; nothing is computed.

        Of a space whose networks are computed piecewise, it is the program of all pieces.
        """
        shape, dtype, config = self.space.shape(architecture), dtype_of(self.config), self.config
        on = lambda array, sharding: jax.ShapeDtypeStruct(  # noqa: E731
            array.shape, array.dtype, sharding=sharding
        )
        with precision(config):
            codes = jax.tree.map(
                lambda c: np.broadcast_to(c, (self.plan.per_call, *np.shape(c))),
                self.space.encode(architecture),
            )
            images = jax.ShapeDtypeStruct((samples, *self.space.task.image_shape), dtype)
            labels = jax.ShapeDtypeStruct((samples,), jnp.int32)
            shared = (self.space.draw(shape, 0, dtype), images, labels, jax.random.key(0))
            *arrays, key = jax.tree.map(lambda each: on(each, self._everywhere), shared)
            # As in `start`, so that a call finds the program that was compiled from this trace.
            rhos = jax.ShapeDtypeStruct((len(config.rhos),), dtype)
            codes = jax.tree.map(lambda each: on(each, self._split), codes)
            return self._whole().trace(shape, codes, *arrays, rhos, key)
