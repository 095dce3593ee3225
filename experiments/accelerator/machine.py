"""The machine in words: devices, memory, versions. `python -m experiments.accelerator.machine`."""

import json
from typing import Any

import jax

from ntkscore.memory import free_memory
from ntkscore.results.result_set import provenance


def describe() -> dict[str, Any]:
    """Devices that JAX finds, and the versions that they are driven with."""
    first, *_ = found = jax.devices()
    return {
        "device": first.device_kind,
        "count": len(found),
        "backend": first.platform,
        "runtime": first.client.platform_version.splitlines()[0],
        "free_bytes": free_memory(first),
        **provenance(),
    }


if __name__ == "__main__":
    print(json.dumps(describe(), indent=1))
