"""GPUs as XLA's compiler wants to know them when none is there: a GpuTargetConfig in text form.

The numbers are what the CUDA driver shows of each GPU (`cudaDeviceProp`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tupe_jax.distributed.hardware import CHIPS


@dataclass(frozen=True)
class Gpu:
    """What differs between GPUs, beside the numbers of `chips`."""

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


GPUS: Mapping[str, Gpu] = {
    "a100": Gpu("NVIDIA A100-SXM4-80GB", 8, "NONE", 108, 64, 1.41, 40 << 20, 164 << 10),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3", 9, "ACCELERATED_FEATURES", 132, 128, 1.98, 50 << 20, 228 << 10
    ),
    "h200": Gpu("NVIDIA H200", 9, "ACCELERATED_FEATURES", 132, 128, 1.98, 50 << 20, 228 << 10),
}

CUDNN_VERSION = (9, 8)
"""The oldest one that JAX's plugin takes."""


def target_config(name: str) -> str:
    """The text of a `stream_executor.GpuTargetConfigProto`."""
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
