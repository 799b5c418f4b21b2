"""Which accelerators this machine has, found without starting JAX."""

import importlib.metadata
import os
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

TPU_DEVICES = ("accel[0-9]*", "vfio/[0-9]*")
NVIDIA_DEVICES = ("nvidia[0-9]*", "nvidiactl", "dxg")
TPU_VARIABLES = ("JAX_FORCE_TPU_INIT", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_HOSTNAMES")
GOOGLE_PCI_VENDOR = "0x1ae0"
CUDA_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")

_DEVICES = Path("/dev")
_PCI_DEVICES = Path("/sys/bus/pci/devices")


def has_tpu() -> bool:
    """Whether the machine or its environment shows a TPU."""
    if any(name in os.environ for name in TPU_VARIABLES) or _has_device(TPU_DEVICES):
        return True
    vendors = _PCI_DEVICES.glob("*/vendor")
    return any(vendor.read_text().strip() == GOOGLE_PCI_VENDOR for vendor in vendors)


def has_nvidia_gpu() -> bool:
    """Whether the machine shows an NVIDIA GPU."""
    return _has_device(NVIDIA_DEVICES)


def skip_absent_tpu() -> None:
    """Keep JAX from trying libtpu on a machine without a TPU, where libtpu prints five lines.

    Without JAX_PLATFORMS, JAX tries every installed backend. This sets JAX_PLATFORMS to the
    backends that can work, as the user may do. It has no effect once JAX has started its backends.
    """
    if "JAX_PLATFORMS" in os.environ or has_tpu() or (platforms := _platforms()) is None:
        return
    os.environ["JAX_PLATFORMS"] = platforms
    if "jax" in sys.modules:  # it read the variable when it was imported
        import jax

        if jax.config.read("jax_platforms") is None:
            jax.config.update("jax_platforms", platforms)


def _platforms() -> str | None:
    """The platforms of a machine without a TPU; None if JAX should find out."""
    if has_nvidia_gpu():
        # Without a plugin, JAX warns that it cannot use the GPU.
        return "cuda,cpu" if any(map(find_spec, CUDA_PLUGINS)) else None
    others = importlib.metadata.entry_points(group="jax_plugins").names - {
        "xla_cuda12",
        "xla_cuda13",
    }
    return None if others else "cpu"


def _has_device(patterns: Iterable[str]) -> bool:
    return any(True for pattern in patterns for _ in _DEVICES.glob(pattern))
