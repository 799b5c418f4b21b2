"""Devices to compile for, from a name such as `v5e:16x16`. They need not be attached."""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import topologies

from tupe_jax.config.validation import one_of
from tupe_jax.distributed.hardware import CHIPS, Chip
from tupe_jax.utils.errors import UserError

# Without these, libtpu queries the network for its environment, allows one process per machine, and
# writes log files.
_LIBTPU_ENVIRONMENT: Mapping[str, str] = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "TPU_STDERR_LOG_LEVEL": "3",
}

# The share of a GPU's memory that JAX allocates.
_GPU_MEMORY_VARIABLE = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_GPU_MEMORY_DEFAULT = 0.75


@dataclass(frozen=True)
class Target:
    """A TPU slice (its torus), or hosts with GPUs."""

    name: str
    chip_name: str
    shape: tuple[int, ...]
    """TPU chips along each axis; hosts, GPUs per host."""

    @property
    def chip(self) -> Chip:
        """The data sheet of one device."""
        chip = CHIPS[self.chip_name]
        if chip.platform == "tpu":
            return chip
        share = float(os.environ.get(_GPU_MEMORY_VARIABLE, _GPU_MEMORY_DEFAULT))
        return dataclasses.replace(chip, memory=int(share * chip.memory))

    def devices(self, slices: int = 1) -> list[Any]:
        """The devices to compile for; with TPUs, those of all slices."""
        return self._gpus() if self.chip.platform == "gpu" else self._tpus(slices)

    def _tpus(self, slices: int) -> list[Any]:
        _require("libtpu", "tpu", self.name)
        for name, value in _LIBTPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # A host usually has 2 x 2 chips; a smaller slice has a host of its own.
        per_host = (*(math.gcd(2, size) for size in self.shape[:2]), 1)
        try:
            return topologies.get_topology_desc(
                platform="tpu",
                topology_name=f"{self.chip_name}:{'x'.join(map(str, self.shape))}",
                chips_per_host_bounds=per_host,
                num_slices=slices,
                # Both cores of a v4 chip are one device, as on real hardware.
                **({"chip_config_name": "megacore"} if self.chip_name == "v4" else {}),
            ).devices
        except jax.errors.JaxRuntimeError as error:
            raise UserError(f"--target={self.name}: {str(error).splitlines()[0]}") from error

    def _gpus(self) -> list[Any]:
        _require("jax_cuda12_plugin", "cuda", self.name)
        hosts, per_host = self.shape
        return topologies.get_topology_desc(
            platform="cuda",
            topology_name=self.chip_name,
            topology=f"{hosts}x1x{per_host}",
            target_config=gpu_target_config(self.chip_name),
        ).devices


def parse_target(name: str) -> Target:
    """`v5e:16x16`, `v5p:4x4x4`, `h100:8` or `h100:2x8` (hosts x GPUs)."""
    chip_name, _, size = name.partition(":")
    chip = CHIPS[one_of(chip_name, CHIPS, "target")]
    axes = {"v5e": (2,), "v6e": (2,)}.get(chip_name, (3,) if chip.platform == "tpu" else (1, 2))
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", size) or size.count("x") + 1 not in axes:
        example = {2: "16x16", 3: "4x4x4"}.get(axes[0], "8 (one host) or :2x8 (hosts x GPUs)")
        raise UserError(f"--target={name}: write {chip_name}:{example}")
    shape = tuple(map(int, size.split("x")))
    if chip.platform == "gpu" and len(shape) == 1:
        shape = (1, *shape)
    return Target(name, chip_name, shape)


def _require(package: str, extra: str, target: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(
            f"--target={target} needs the compiler in the extra {extra!r}: "
            f"pip install 'tupe_jax[{extra}]'"
        )


# ------------------------------------------------------------------------------------- GPUs for XLA


@dataclass(frozen=True)
class Gpu:
    """What XLA needs to know of a GPU besides `Chip`, as the CUDA driver reports it."""

    product: str
    capability: int
    """Major number of the CUDA compute capability."""
    extension: str
    processors: int
    float_units: int
    """Per processor."""
    clock_ghz: float
    l2_cache: int
    shared_memory: int
    """Per processor; a kernel can have 1 KiB less."""

    @property
    def architecture(self) -> str:
        """The name of its instruction set, as in PTX code: sm_80, sm_90a."""
        return f"sm_{self.capability}0{'' if self.extension == 'NONE' else 'a'}"


GPUS: Mapping[str, Gpu] = {
    "a100": Gpu("NVIDIA A100-SXM4-80GB", 8, "NONE", 108, 64, 1.41, 40 << 20, 164 << 10),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3", 9, "ACCELERATED_FEATURES", 132, 128, 1.98, 50 << 20, 228 << 10
    ),
    "h200": Gpu("NVIDIA H200", 9, "ACCELERATED_FEATURES", 132, 128, 1.98, 50 << 20, 228 << 10),
}

CUDNN_VERSION = (9, 8)
"""The oldest version that JAX's plugin supports."""


def gpu_target_config(name: str) -> str:
    """XLA's description of an absent GPU: a `stream_executor.GpuTargetConfigProto` in text form."""
    gpu, chip = GPUS[name], CHIPS[name]
    return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {gpu.capability} minor: 0 feature_extension: {gpu.extension} }}
  core_count: {gpu.processors}
  fpus_per_core: {gpu.float_units}
  clock_rate_ghz: {gpu.clock_ghz}
  device_memory_size: {chip.memory}
  memory_bandwidth: {chip.memory_bandwidth:.0f}
  l2_cache_size: {gpu.l2_cache}
  shared_memory_per_core: {gpu.shared_memory}
  shared_memory_per_block: {48 << 10}
  shared_memory_per_block_optin: {gpu.shared_memory - (1 << 10)}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  threads_per_warp: 32
  threads_per_core_limit: 2048
  threads_per_block_limit: 1024
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: {CUDNN_VERSION[0]} minor: {CUDNN_VERSION[1]} }}
device_description_str: "{gpu.product}"
"""
