"""Memory, mappings of it and cores that a device or this machine can give a process."""

import os
from pathlib import Path
from typing import Any


def container_limit(name: str) -> str:
    """Limit that Linux's control group sets on a resource, or "max" where there is none."""
    try:
        return Path("/sys/fs/cgroup", name).read_text(encoding="ascii").strip() or "max"
    except OSError:
        return "max"


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and its container's quota on Linux."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota, *period = container_limit("cpu.max").split()
    if quota.isdecimal() and period:
        return max(min(cores or 1, int(quota) // int(period[0])), 1)
    return cores or 1


def usable_memory(device: Any) -> int | None:
    """Bytes that a run may use of a device; None where it does not say.

    They are those that are free; for a CPU all of the machine, or of its container, in use or not:
    what others use changes from moment to moment, and each run would be laid out in another way.
    """
    if device.platform == "cpu":
        try:
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None
        limit = container_limit("memory.max")
        return min(total, int(limit)) if limit.isdecimal() else total
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return None
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0)


def has_many_mappings() -> bool:
    """Tell whether this process has half of the memory mappings that Linux gives one, 65,530.

    Each compiled program takes some. True on systems that do not count them.
    """
    maps = Path("/proc/self/maps")
    return not maps.exists() or maps.read_bytes().count(b"\n") > 30_000
