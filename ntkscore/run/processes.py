"""Joining the processes that share a run."""

from ntkscore.errors import InputError
from ntkscore.lazy import jax

HEARTBEAT_SECONDS = 30
"""Seconds without a heartbeat after which a process counts as lost."""
SHUTDOWN_SECONDS = 30 * 24 * 3600


def join(
    distributed: bool = False,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> bool:
    """Take part in a run of several processes, through `jax.distributed`.

    Args:
        distributed: as JAX detects it (SLURM, Kubernetes, TPU pods, Open MPI).
        coordinator, processes, process: explicitly: the first process's host:port, how many there
            are, and which of them this is, from 0.

    Returns:
        Whether this process is the first, which prints for all.

    Raises:
        InputError: if the explicit values are incomplete or contradict each other, or nothing is
            detected.
    """
    explicit = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    missing = [name for name, value in explicit.items() if value is None]
    if len(missing) == len(explicit) and not distributed:
        return True
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
    return jax.process_index() == 0
