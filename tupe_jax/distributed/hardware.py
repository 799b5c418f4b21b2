"""The accelerators: one table, from the vendors' data sheets.

TPUs    docs.cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e,tpu7x}; links are half of the bidirectional
        ICI bandwidth. v4's data-centre network is not published: v5e's number stands in for it.
        Memory is what libtpu 0.0.42 allows a program.
GPUs    NVIDIA's data sheets of A100 80GB, H100 and H200 (SXM): dense FLOP/s, half of what they
        print "with sparsity"; half of NVLink's bidirectional bandwidth. Networks are those of the
        DGX systems: an adapter of 200 (A100) or 400 Gbit/s per GPU.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

GIB = 2**30
GBIT = 1e9 / 8


@dataclass(frozen=True)
class Chip:
    """A JAX device: a chip, or half of one. Units are bytes and bytes per second."""

    platform: Literal["tpu", "gpu"]
    peak_flops: float
    """Dense bfloat16."""
    memory: int
    """HBM for a program: on TPUs the compiler's limit, on GPUs the size that the driver reports."""
    memory_bandwidth: float
    link_bandwidth: float
    """One way, over all links to other chips of the slice (ICI) or host (NVLink)."""
    network_bandwidth: float
    """One way, to other slices or hosts."""


def _tpu(tflops: float, *, gib: float, hbm_gb: float, ici_gb: float, dcn_gbit: float) -> Chip:
    return Chip("tpu", tflops * 1e12, int(gib * GIB), hbm_gb * 1e9, ici_gb * 1e9, dcn_gbit * GBIT)


CHIPS: Mapping[str, Chip] = {
    "v4": _tpu(275, gib=30.75, hbm_gb=1228, ici_gb=300, dcn_gbit=25),
    "v5e": _tpu(197, gib=15.75, hbm_gb=819, ici_gb=200, dcn_gbit=25),
    "v5p": _tpu(459, gib=95.74, hbm_gb=2765, ici_gb=600, dcn_gbit=50),
    "v6e": _tpu(918, gib=31.25, hbm_gb=1638, ici_gb=400, dcn_gbit=100),
    # JAX reports each half of the chip as a device.
    "tpu7x": _tpu(2307 / 2, gib=94.75, hbm_gb=7380 / 2, ici_gb=600 / 2, dcn_gbit=100 / 2),
    "a100": Chip("gpu", 312e12, 85_100_068_864, 2.039e12, 300e9, 200 * GBIT),
    "h100": Chip("gpu", 989e12, 84_942_979_072, 3.352e12, 450e9, 400 * GBIT),
    "h200": Chip("gpu", 989e12, 151_397_597_184, 4.8e12, 450e9, 400 * GBIT),
}
"""By the names of `tupe compile --target`."""

# The first name found in a `jax.Device.device_kind` counts.
_PEAK_FLOPS_BY_KIND: Mapping[str, float] = {
    "TPU v4": CHIPS["v4"].peak_flops,
    "TPU v5 lite": CHIPS["v5e"].peak_flops,
    "TPU v5e": CHIPS["v5e"].peak_flops,
    "TPU v5p": CHIPS["v5p"].peak_flops,
    "TPU v5": CHIPS["v5p"].peak_flops,  # another name of v5p
    "TPU v6 lite": CHIPS["v6e"].peak_flops,
    "TPU v6e": CHIPS["v6e"].peak_flops,
    "TPU7x": CHIPS["tpu7x"].peak_flops,
    "A100": CHIPS["a100"].peak_flops,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": CHIPS["h100"].peak_flops,
    "H200 NVL": 835e12,
    "H200": CHIPS["h200"].peak_flops,
    "L4": 121e12,
}


def peak_flops(device_kind: str) -> float | None:
    """The peak bfloat16 FLOP/s of a `jax.Device.device_kind`; None if unknown, as for CPUs.

    A float32 run is measured against the same peak.
    """
    known = (
        peak
        for name, peak in _PEAK_FLOPS_BY_KIND.items()
        if re.search(rf"\b{name}\b", device_kind, re.I)
    )
    return next(known, None)
