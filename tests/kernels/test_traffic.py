"""Bytes that attention moves, in the numbers of docs/speed.md."""

import pytest

from tests.kernels import traffic

BASE = {"length": 512, "num_heads": 12, "head_size": 64, "itemsize": 2, "bias_itemsize": 4}


def test_base_with_16_rows():
    assert traffic.kernel_bytes(16, **BASE) / 1e9 == pytest.approx(0.1766, rel=1e-3)
    assert traffic.einsum_bytes(16, **BASE) / 1e9 == pytest.approx(1.686, rel=1e-3)
