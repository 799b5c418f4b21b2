"""Programs that must not be under way at the same time."""

from typing import TypeVar

import jax

T = TypeVar("T")


def in_turn(result: T) -> T:
    """The same result; on CPUs of several processes, when it is there.

    Accelerators run programs in the order of their launch. XLA's CPU client with several devices in
    a process does not: two programs that both talk to other processes can wait for each other's
    threads for ever.
    """
    if jax.process_count() > 1 and jax.default_backend() == "cpu":
        jax.block_until_ready(result)
    return result
