"""GPUs and TPUs that programs can be compiled for where they are not at hand."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from ntkscore.errors import InputError
from ntkscore.platforms import traced_for
from ntkscore.run.devices import Device

GIB = 2**30
BRIEF = {"exec_time_optimization_effort": -1.0, "memory_fitting_effort": -1.0}
"""The TPU compiler's least effort: a third of the time, and memory a tenth larger."""


@dataclass(frozen=True)
class Target:
    """A device to compile for.

    Attributes:
        platform: `cuda` or `tpu`.
        memory: bytes.
        share: the part of the memory that JAX takes by default.
        rate: floating-point operations a second in float32, at full precision.
        bandwidth: bytes a second from and to the memory.
        description: of a GPU, in the compiler's text form; of a TPU, the name of its generation.
    """

    name: str
    platform: str
    memory: int
    share: float
    rate: float
    bandwidth: float
    description: str
    source: str

    @property
    def backend(self) -> str:
        """The name of the platform in `jax.default_backend()`."""
        return "gpu" if self.platform == "cuda" else self.platform

    @property
    def room(self) -> int:
        """Bytes that programs have."""
        return int(self.share * self.memory)

    def traced(self) -> AbstractContextManager[None]:
        """The context in which programs are traced for it."""
        return traced_for(self.backend)


_BLOCKS = (
    "threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 "
    f"threads_per_core_limit: 2048 block_dim_limit_x: {2**31 - 1} block_dim_limit_y: 65535 "
    "block_dim_limit_z: 65535 registers_per_core_limit: 65536 registers_per_block_limit: 65536"
)
_HOPPER = (
    "core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98 l2_cache_size: 52428800 "
    "shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448 "
    "cuda_compute_capability { major: 9 }"
)
_AMPERE = (
    "core_count: 108 fpus_per_core: 64 clock_rate_ghz: 1.41 l2_cache_size: 41943040 "
    "shared_memory_per_core: 167936 shared_memory_per_block_optin: 166912 "
    "cuda_compute_capability { major: 8 }"
)
"""Fields of the compiler's device description, of all GPUs and of a generation."""


def _gpu(
    name: str, kind: str, memory: int, rate: float, bandwidth: float, source: str, chip: str
) -> Target:
    description = (
        f"gpu_device_info {{ {_BLOCKS} memory_bandwidth: {int(bandwidth)} "
        f"device_memory_size: {memory} {chip} }}\n"
        'platform_name: "CUDA"\ndnn_version_info { major: 9 minor: 7 }\n'
        f'runtime_version {{ major: 12 minor: 8 }}\ndevice_description_str: "{kind}"\n'
    )
    return Target(name, "cuda", memory, 0.75, rate, bandwidth, description, source)


def _tpu(name: str, memory: int, bfloat16: float, bandwidth: float) -> Target:
    # A product of float32 numbers at full precision takes six of bfloat16 ones.
    source = "Google Cloud's page of the generation; a sixth of the rate in bfloat16"
    return Target(name, "tpu", memory, 0.95, bfloat16 / 6, bandwidth, name, source)


_A100 = "NVIDIA A100 data sheet, SXM 80 GB, FP32 outside the tensor cores"
_H100 = "NVIDIA H100 data sheet, SXM, FP32 outside the tensor cores"
_H200 = "NVIDIA H200 data sheet, SXM, FP32 outside the tensor cores"
TARGETS = {
    target.name: target
    for target in (
        _gpu("a100", "NVIDIA A100-SXM4-80GB", 85_098_233_856, 19.5e12, 2.039e12, _A100, _AMPERE),
        _gpu("h100", "NVIDIA H100 80GB HBM3", 84_929_347_584, 67e12, 3.35e12, _H100, _HOPPER),
        _gpu("h200", "NVIDIA H200", 150_754_820_096, 67e12, 4.8e12, _H200, _HOPPER),
        _tpu("v4", 32 * GIB, 275e12, 1.228e12),
        _tpu("v5e", 16 * GIB, 197e12, 0.819e12),
        _tpu("v6e", 32 * GIB, 918e12, 1.64e12),
    )
}
TOPOLOGIES = {
    "v4": {1: "2x2x1", 8: "2x2x2"},
    "v5e": {1: "2x2", 8: "2x4"},
    "v6e": {1: "2x2", 8: "2x4"},
}
"""Shapes of the smallest slices with so many devices."""


def target_named(name: str) -> Target:
    """The target of a name."""
    if name not in TARGETS:
        raise InputError(f"a target of {', '.join(TARGETS)}", repr(name), "choose one of them")
    return TARGETS[name]


@contextmanager
def _silent() -> Iterator[None]:
    """Leave out what compiled libraries print on stderr: that there is no driver."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@lru_cache
def devices_of(target: Target, count: int = 1) -> tuple[Device, ...]:
    """Descriptions of 1 or 8 devices of a target, for a mesh."""
    from jax.experimental import topologies

    if target.platform == "cuda":
        how = {"target_config": target.description, "topology": f"1x1x{count}"}
    else:
        # The metadata server of Google's machines knows nothing of a described slice.
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        # Without a TPU several processes may compile at a time.
        os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
        how = {"topology_name": f"{target.description}:{TOPOLOGIES[target.name][count]}"}
    try:
        with _silent():
            jax.devices()
            topology = topologies.get_topology_desc(platform=target.platform, **how)
    except Exception as error:  # whatever a missing plugin makes JAX say
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"the compiler for {target.name}",
            f"but it does not start ({said})",
            "install it beside JAX with pip install 'ntkscore[targets]'",
        ) from error
    return tuple(topology.devices)[:count]


def placed(shapes: PyTree, device: Device) -> PyTree:
    """The shapes of arrays, placed whole on one device."""
    where = NamedSharding(Mesh(np.array([device]), ("device",)), PartitionSpec())
    return jax.tree.map(
        lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=where), shapes
    )


def options_for(target: Target) -> dict[str, Any]:
    """The compiler's options where no device is at hand to try algorithms on."""
    if target.platform == "tpu":
        return dict(BRIEF)
    found = find_spec("nvidia.cuda_nvcc") if find_spec("nvidia") else None
    folders = list(found.submodule_search_locations or ()) if found else []
    where = {"xla_gpu_cuda_data_dir": str(Path(folders[0]))} if folders else {}
    return {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False, **where}
