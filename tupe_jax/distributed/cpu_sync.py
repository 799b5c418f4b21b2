"""Programs that must not be under way at the same time."""

from typing import TypeVar

import jax

T = TypeVar("T")


def in_turn(result: T) -> T:
    """The same result; on several CPU devices, when it is there.

    Accelerators run programs in the order of their launch. XLA's CPU client with several devices in
    a process does not: two programs whose devices talk to each other can hold the threads that the
    other one needs, and wait for ever.
    """
    if jax.device_count() > 1 and jax.default_backend() == "cpu":
        jax.block_until_ready(result)
    return result
