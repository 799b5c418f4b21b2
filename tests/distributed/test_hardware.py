"""Peaks by the names that JAX gives devices."""

import pytest

from tupe_jax.distributed.hardware import peak_flops


@pytest.mark.parametrize(
    ("device_kind", "peak"),
    [
        ("TPU v4", 275e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5p", 459e12),
        ("TPU v5", 459e12),
        ("TPU v6 lite", 918e12),
        ("TPU7x", 1153.5e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", None),
        ("NVIDIA GH200 480GB", None),
        ("cpu", None),
    ],
)
def test_peak_flops_by_device_kind(device_kind, peak):
    assert peak_flops(device_kind) == peak
