"""Layout of networks over devices: how many each computes in a call and side by side."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attacks.lazy import jax
from ntkscore.errors import InputError
from ntkscore.memory import usable_cores, usable_memory
from ntkscore.paths import cache_home
from ntkscore.program_cache import keep_traced

Device = Any
"""A device as JAX has it, or the description of one that is not at hand."""

GROUP = 16
"""Networks whose operations run side by side on a GPU, where memory allows it."""
GROUPS_PER_CALL = 4
NETWORKS_PER_CORE = 4
"""Networks per core in one call; several, so that the cores' work evens out."""
FRACTION = 0.6
"""Fraction of all memory of this machine, or of its container, that networks on a CPU may use; it
leaves room for what the estimate omits and for other programs."""
DEVICE_FRACTION = 0.9
"""Fraction of an accelerator's free memory that a program may use, by its compiler's figure."""


@dataclass(frozen=True)
class Plan:
    """The layout of networks over devices.

    Attributes:
        devices: those that share the networks of a call.
        group: networks that a device computes side by side. With one, an edge of a cell computes
            its own operation; with more, every operation that one of the networks has there, of
            which each network selects its own: more arithmetic, in larger convolutions. (A network
            that is differentiated as a whole computes all operations there are.)
        batch: networks per device and call, a multiple of the group.
    """

    devices: tuple[Device, ...]
    group: int
    batch: int

    @property
    def per_call(self) -> int:
        """Networks that one call computes on all devices together."""
        return len(self.devices) * self.batch

    @property
    def kinds(self) -> list[str]:
        """The kind of each device."""
        return [device.device_kind for device in self.devices]

    def halved(self) -> "Plan | None":
        """The next smaller plan, or None if this is the smallest."""
        if self.group > 1:
            return replace(self, group=self.group // 2, batch=max(self.batch // 2, 1))
        return replace(self, batch=self.batch // 2) if self.batch > 1 else None

    def within(self, room: int, needed: int) -> "Plan | None":
        """The plan to try next, given what this one's program needs; None if there is none.

        None as well where the program has room, in bytes of a device. Smaller groups are taken to
        need in proportion.

        Example:
            >>> Plan(("a device",), 16, 64).within(30, 100)
            Plan(devices=('a device',), group=4, batch=16)
        """
        if needed <= room or self.group == 1:
            return None
        smaller = self.halved()
        while smaller and smaller.group > 1 and needed * smaller.group > room * self.group:
            smaller = smaller.halved()
        return smaller

    def __str__(self) -> str:
        networks = "1 network" if self.batch == 1 else f"{self.batch} networks"
        together = "one after the other" if self.group == 1 else f"{self.group} side by side"
        return (
            f"{len(self.devices)} × {self.devices[0].device_kind}, {networks} per call and device, "
            f"{together}"
        )


def prepare() -> None:
    """Make cores devices and keep compiled programs, before a run."""
    if not jax.distributed.is_initialized():
        cores_as_devices()
    keep_compiled()


_alone = False


def run_alone() -> None:
    """Say that this process runs only our code, as the command line does."""
    global _alone
    _alone = True


def keep_compiled() -> None:
    """Keep compiled programs between starts: only a shape's first run waits for the compiler.

    A cache directory that the user has set for JAX stays. A process that runs only our code
    (`run_alone`) keeps small programs as well, and traced ones (`ntkscore.program_cache`).
    """
    if not jax.config.values["jax_compilation_cache_dir"]:
        jax.config.update("jax_compilation_cache_dir", str(cache_home() / "compiled"))
        if _alone:
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    folder = jax.config.values["jax_compilation_cache_dir"]
    if _alone and "://" not in folder:
        keep_traced(Path(folder) / "traced")


def cores_as_devices() -> None:
    """Make every core that this process may use a device of its own, where CPUs are the devices.

    Only for the one process on a host, since several would each take all cores. Networks side by
    side keep cores busier than threads inside one network's small operations do. A number of CPU
    devices that the user or the environment has set stays, and so do devices already in use.
    """
    if jax.config.values["jax_num_cpu_devices"] != -1:
        return
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", usable_cores())


def one_device() -> Plan:
    """The layout for a few networks: one after the other on the first device."""
    return Plan(tuple(jax.local_devices()[:1]), 1, 1)


def check_batch(batch: int | None) -> None:
    """Refuse a number of networks per device and call below 1."""
    if batch is not None and batch < 1:
        raise InputError("a batch of at least 1", batch, "raise it")


def plan(
    bytes_each: int | None = None,
    batch: int | None = None,
    devices: Sequence[Device] | None = None,
    networks: int | None = None,
) -> Plan:
    """The layout for these devices: groups on GPUs, one network after the other on others.

    CPUs share their memory, so that only as many of them take part as have room in it. Whether a
    group has room on a GPU, its compiler says (`ntkscore.run.calls.fitting`).

    Args:
        bytes_each: memory of one network on a CPU; None where it is unknown.
        batch: networks per device and call; chosen from the free memory if left out.
        devices: this process's own if left out.
        networks: as many as share a program. A call is always full, the last network repeated; so
            where one group on each device is enough for them, it is the batch that is chosen.
    """
    check_batch(batch)
    chosen = tuple(jax.local_devices() if devices is None else devices)
    if chosen[0].platform == "cpu":
        free = usable_memory(chosen[0])
        if free is not None and bytes_each is not None:
            chosen = chosen[: max(int(FRACTION * free / bytes_each), 1)]
        group, usual = 1, 1 if len(chosen) == 1 else NETWORKS_PER_CORE
    else:
        # On a TPU networks side by side read and write two to four times as many bytes.
        group = 1 if chosen[0].platform == "tpu" else GROUP
        usual = GROUP * GROUPS_PER_CALL
    if networks is not None and networks <= len(chosen) * group:
        usual = group
    batch = batch or usual
    group = min(group, batch)
    return Plan(chosen, group, -(-batch // group) * group)


def bytes_needed(program: Any) -> int:
    """Bytes of a device that a compiled program needs at its peak, by its compiler."""
    size = program.memory_analysis()
    every = size.temp_size_in_bytes + size.argument_size_in_bytes + size.output_size_in_bytes
    return getattr(size, "peak_memory_in_bytes", 0) or every


def largest_with_room(layout: Plan, room: int, needed: Callable[[Plan], int]) -> Plan:
    """The layout with the largest group whose program has room, or the smallest group there is.

    Args:
        room: bytes of a device.
        needed: the bytes that a layout's program needs, by its compiler. Compilers of TPUs refuse
            a program that has no room, with an error.
    """
    while True:
        try:
            bytes_of = needed(layout)
        except jax.errors.JaxRuntimeError as error:
            if not out_of_memory(error):
                raise
            bytes_of = 2 * room
        smaller = layout.within(room, bytes_of)
        if smaller is None:
            return layout
        layout = smaller


def out_of_memory(error: Exception) -> bool:
    """Tell whether an error reports that a device's memory is exhausted."""
    text = str(error)
    return isinstance(error, jax.errors.JaxRuntimeError) and (
        "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower()
    )
