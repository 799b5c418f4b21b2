"""The fastest matrix products this machine can do: what a share of the peak is a share of."""

import jax
import jax.numpy as jnp

from tupe_jax.bench.timing import seconds_in_turns

SIZES = {"cpu": 2048}
"""Edge of the square matrices; elsewhere 8192, which keeps an accelerator busy."""


def measured_matmul_peak(dtype: str) -> float:
    """FLOP/s of square matrix products of this type, the best repeat, on all devices together."""
    device = jax.devices()[0]
    size = SIZES.get(device.platform, 8192)
    a, b = (
        jax.random.normal(jax.random.key(seed), (size, size), jnp.dtype(dtype)) for seed in (0, 1)
    )
    product = jax.jit(jnp.matmul)

    def work(count: int) -> None:
        for _ in range(count):
            result = product(a, b)
        jax.block_until_ready(result)

    best = min(seconds_in_turns({"matmul": work})["matmul"])
    # The devices of a CPU share its cores; those of other platforms are alike and independent.
    devices = 1 if device.platform == "cpu" else jax.device_count()
    return 2 * size**3 / best * devices
