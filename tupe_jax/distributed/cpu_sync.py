"""Keeps programs on several CPU devices from running at the same time."""

from typing import TypeVar

import jax

T = TypeVar("T")


def block_on_cpu(result: T) -> T:
    """Return `result`; on several CPU devices, block until it is computed.

    Accelerators run programs in the order in which they were launched. XLA's CPU client with
    several devices does not: two programs with collectives can each hold threads that the other
    needs, and deadlock.
    """
    if jax.device_count() > 1 and jax.default_backend() == "cpu":
        jax.block_until_ready(result)
    return result
