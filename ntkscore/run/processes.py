"""The processes that share a run, and which networks each of them computes."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from ntkscore.errors import InputError
from ntkscore.lazy import jax

HEARTBEAT_SECONDS = 30
"""Seconds without a heartbeat after which a process counts as lost."""
SHUTDOWN_SECONDS = 30 * 24 * 3600
T = TypeVar("T")


class Share(NamedTuple):
    """The networks of one process: every `count`-th, from number `index` on.

    Example:
        >>> Share(1, 3).of(range(8))
        range(1, 8, 3)
    """

    index: int = 0
    count: int = 1

    def of(self, networks: Sequence[T]) -> Sequence[T]:
        """Those of the networks that belong to this share."""
        return networks[self.index :: self.count]


def jax_share() -> Share:
    """The share of this process among those that JAX has joined."""
    return Share(jax.process_index(), jax.process_count())


def join(
    distributed: bool = False,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> Share:
    """Take part in a run of several processes.

    They need each other only to learn their numbers. Where these are given, no process waits for
    another; else `jax.distributed` finds them, and on a TPU pod it also starts the devices.

    Args:
        distributed: the processes are those that JAX detects (SLURM, TPU pods, Open MPI).
        coordinator: host:port of the first process, to join them through JAX nevertheless.
        processes, process: how many there are, and which of them this is, from 0.

    Returns:
        The networks of this process; the first process prints for all.

    Raises:
        InputError: if the values are incomplete or contradict each other, or nothing is detected.
    """
    if (processes is None) != (process is None) or (processes is None and coordinator is not None):
        missing = "--processes" if processes is None else "--process"
        raise InputError(
            f"expected --processes and --process together, got no {missing}; add it, or give "
            "--distributed alone where JAX detects the cluster"
        )
    if processes is not None and process is not None:
        if not 0 <= process < processes:
            raise InputError(
                f"expected --process from 0 to {processes - 1}, got {process}; count from 0"
            )
        if coordinator is None and not distributed:
            return Share(process, processes)
    elif not distributed:
        return Share()
    # The processes share no arrays, so that one goes on when another is lost.
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
            "check the coordinator's address, or give --processes and --process alone"
        ) from error
    return jax_share()


def wait_for_others() -> None:
    """Wait until every process that JAX has joined is here or lost; the first leaves last.

    It keeps the others' address book: JAX ends a process that can no longer reach the first one.
    """
    if not jax.distributed.is_initialized():
        return
    from jax.experimental.multihost_utils import ProcessFailureError, live_devices

    for _ in range(1 if jax.process_index() else 2):
        # The second time the first process waits until the others have left.
        with suppress(ProcessFailureError), live_devices(jax.devices()):
            pass
    jax.distributed.shutdown()
