"""How many trials a program holds: the memory of a device by what the compiler says of one trial.

On CPUs one: two cores are busy with a single trial, and vmapped products are no faster than one
after the other.
"""

from collections.abc import Callable
from typing import Any

import jax

SHARE = 0.9
"""Of a device's memory; the rest is for evaluation, and for what does not fit without gaps."""


def trials_per_device(device: Any, compile_one: Callable[[], jax.stages.Compiled]) -> int:
    """At least one: if not even that fits, the compiler will say so."""
    # CPUs, and a few others, have no limit of their own.
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return 1 if limit is None else max(1, int(SHARE * limit) // bytes_of(compile_one()))


def bytes_of(compiled: jax.stages.Compiled) -> int:
    """What a program needs on each device."""
    analysis: Any = compiled.memory_analysis()
    results = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return int(analysis.argument_size_in_bytes + results + analysis.temp_size_in_bytes)
