"""Which devices compute, how many cells at once, and which process has which share."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import jax

from ntkscore.config import Config
from ntkscore.downloads import cache_home
from ntkscore.errors import InputError

GROUP = 16
"""Cells whose operations run side by side on an accelerator, where memory allows it."""
GROUPS_PER_CALL = 4
CELLS_PER_CORE = 4
"""In a call: with several, a core that has a cheap cell goes on to the next before it waits."""
FRACTION = 0.6
"""Of the free memory, what a group may take: the rest is for what the estimate leaves out."""
SAVED_PER_CELL = 24
"""Activations of a stage's size that one cell of the network keeps for its backward pass, every
operation of every edge being computed."""

HEARTBEAT_SECONDS = 30
"""Without a sign of life from a process before it counts as lost."""
SHUTDOWN_SECONDS = 30 * 24 * 3600

Item = TypeVar("Item")


@dataclass(frozen=True)
class Plan:
    """How cells are laid out.

    Attributes:
        devices: that share the cells of a call.
        group: cells that a device computes side by side. With one, an edge computes the operation
            that it has; with more, all five, of which one is kept: five times the arithmetic in
            large convolutions, against small exact ones.
        batch: cells per device and call, a multiple of the group.
    """

    devices: tuple[Any, ...]
    group: int
    batch: int

    @property
    def cells_per_call(self) -> int:
        """Cells that one call computes on all devices together."""
        return len(self.devices) * self.batch

    def halved(self) -> "Plan | None":
        """The next smaller plan, or None if this is the smallest."""
        if self.group > 1:
            return replace(self, group=self.group // 2, batch=max(self.batch // 2, 1))
        return replace(self, batch=self.batch // 2) if self.batch > 1 else None

    def __str__(self) -> str:
        cells = "1 cell" if self.batch == 1 else f"{self.batch} cells"
        together = "one after the other" if self.group == 1 else f"{self.group} side by side"
        return (
            f"{len(self.devices)} × {self.devices[0].device_kind}, {cells} per call and device, "
            f"{together}"
        )


def bytes_per_cell(config: Config, size: int) -> int:
    """A rough estimate of what one cell of a group holds at once.

    Args:
        config: how cells are scored.
        size: height and width of the images in pixels.
    """
    points = config.samples * (2 * len(config.rhos) + 1)
    width = 8 if config.x64 else 4
    # The stages hold 1, 1/2 and 1/4: twice the channels on a quarter of the pixels.
    stages = config.cells_per_stage * (1 + 1 / 2 + 1 / 4) + 1
    activations = points * size**2 * config.channels * stages * SAVED_PER_CELL
    gradients = points * (4 * config.channels) ** 2 * 9 * 3
    return int(width * (activations + gradients))


def keep_compiled() -> None:
    """Keep compiled programs between starts: only a shape's first run waits for the compiler."""
    if not jax.config.values["jax_compilation_cache_dir"]:
        jax.config.update("jax_compilation_cache_dir", str(cache_home() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def cores_as_devices() -> None:
    """Make every core that this process may use a device of its own, where CPUs are the devices.

    Several processes on one host would each take all cores, so this is for the only one there.
    Cells side by side keep cores busier than the threads inside one cell's small operations do.
    What the user or the environment says of the number of CPU devices stands, and so do devices
    that are in use already.
    """
    if jax.config.values["jax_num_cpu_devices"] != -1:
        return
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", usable_cores())


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and its container's quota on Linux."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota, *period = _container_limit("cpu.max").split()
    if quota.isdecimal() and period:
        return max(min(cores or 1, int(quota) // int(period[0])), 1)
    return cores or 1


def _container_limit(name: str) -> str:
    """What Linux's control group says of a resource, "max" where it sets no limit."""
    try:
        return Path("/sys/fs/cgroup", name).read_text(encoding="ascii").strip() or "max"
    except OSError:
        return "max"


def free_memory(device: Any) -> int | None:
    """Bytes that a device has left, for a CPU the machine's; None where it does not say."""
    if device.platform == "cpu":
        try:
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None
        limit = _container_limit("memory.max")
        return min(total, int(limit)) if limit.isdecimal() else total
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return None
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0)


def plan(
    config: Config, size: int, batch: int | None = None, devices: Sequence[Any] | None = None
) -> Plan:
    """The layout for these devices: one cell after the other on CPUs, groups on accelerators.

    CPUs share their memory, so that only as many of them take part as have room in it.

    Args:
        config: how cells are scored.
        size: height and width of the images in pixels.
        batch: cells per device and call; chosen from the free memory if left out.
        devices: this process's own if left out.

    Raises:
        InputError: if the batch is below 1.
    """
    if batch is not None and batch < 1:
        raise InputError(f"expected a batch of at least 1 cell, got {batch}; raise it")
    chosen = tuple(jax.local_devices() if devices is None else devices)
    free = free_memory(chosen[0])
    room = GROUP if free is None else int(FRACTION * free / bytes_per_cell(config, size))
    if chosen[0].platform == "cpu":
        chosen = chosen[: max(room, 1)]
        return Plan(chosen, 1, batch or (1 if len(chosen) == 1 else CELLS_PER_CORE))
    group = GROUP
    while group > max(room, 1):
        group //= 2
    if batch is None:
        return Plan(chosen, group, group * GROUPS_PER_CALL)
    group = min(group, batch)
    return Plan(chosen, group, -(-batch // group) * group)


def out_of_memory(error: Exception) -> bool:
    """Whether this is the runtime's way to say that a device's memory is exhausted."""
    text = str(error)
    return isinstance(error, jax.errors.JaxRuntimeError) and (
        "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower()
    )


def join(
    distributed: bool = False,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Take part in a run of several processes, through `jax.distributed`.

    Args:
        distributed: as JAX detects it (SLURM, Kubernetes, TPU pods, Open MPI).
        coordinator, processes, process: explicitly: the first process's host:port, how many there
            are, and which of them this is, from 0.

    Raises:
        InputError: if the explicit values are incomplete or contradict each other, or nothing is
            detected.
    """
    explicit = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    missing = [name for name, value in explicit.items() if value is None]
    if len(missing) == len(explicit) and not distributed:
        return
    if missing and len(missing) < len(explicit):
        raise InputError(
            f"expected --coordinator, --processes and --process together, got no {missing[0]}; "
            "add it, or give --distributed alone where JAX detects the cluster"
        )
    if processes is not None and process is not None and not 0 <= process < processes:
        raise InputError(
            f"expected --process from 0 to {processes - 1}, got {process}; count from 0"
        )
    # The processes share no arrays, so that one goes on when another is lost; and one that ends
    # early waits for the others, because the first of them keeps the others' address book.
    jax.config.update("jax_enable_recoverability", True)
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"expected to join the other processes, got: {' '.join(str(error).split())}; "
            "check the coordinator's address, or give all three of --coordinator, --processes "
            "and --process"
        ) from error


def share(items: Sequence[Item]) -> list[Item]:
    """This process's part of the work; the parts of all processes are disjoint and complete."""
    return list(items[jax.process_index() :: jax.process_count()])
