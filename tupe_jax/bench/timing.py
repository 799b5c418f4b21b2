"""Timing: warm-up, several repeats, and interleaved measurements of what is compared."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tupe_jax.utils.text import quantity

REPEATS = 5
SECONDS_PER_REPEAT = 1.0
MATMUL_SIZES = {"cpu": 2048}
"""Edge of the square matrices; on other platforms 8192, which keeps an accelerator busy."""

Work = Callable[[int], None]
"""count -> None: does the work `count` times, and returns when all of it is done."""


@dataclass(frozen=True)
class Speed:
    """The speed of one component at one shape; one value per repeat."""

    what: str
    shape: tuple[int, ...]
    tokens_per_second: tuple[float, ...]
    flops_per_token: float | None = None
    """Counted from the model; None if nothing is computed."""
    matmul_peak: float | None = None
    """FLOP/s of large matrix products on the same devices."""

    @property
    def median(self) -> float:
        return statistics.median(self.tokens_per_second)

    @property
    def flops_per_second(self) -> float | None:
        return None if self.flops_per_token is None else self.median * self.flops_per_token

    @property
    def fraction_of_peak(self) -> float | None:
        if self.flops_per_second is None or self.matmul_peak is None:
            return None
        return self.flops_per_second / self.matmul_peak

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "shape": self.shape,
            "tokens_per_second": self.median,
            "lowest": min(self.tokens_per_second),
            "highest": max(self.tokens_per_second),
            "model_flops_per_second": self.flops_per_second,
            "fraction_of_matmul_peak": self.fraction_of_peak,
        }

    def __str__(self) -> str:
        low, high = quantity(min(self.tokens_per_second)), quantity(max(self.tokens_per_second))
        line = (
            f"{self.what} {' x '.join(map(str, self.shape))}: {quantity(self.median)} tokens/s "
            f"(median of {len(self.tokens_per_second)}, {low} to {high})"
        )
        if self.flops_per_second is not None and self.fraction_of_peak is not None:
            line += (
                f"; {self.flops_per_second / 1e9:,.3g} GFLOP/s, "
                f"{self.fraction_of_peak:.0%} of the matmul peak"
            )
        return line


def seconds_in_turns(
    works: Mapping[str, Work], *, repeats: int = REPEATS
) -> dict[str, tuple[float, ...]]:
    """The seconds of each work in each repeat.

    The works alternate, so that other load on the machine affects them equally.
    """
    counts = {name: _warm_up(work) for name, work in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            seconds[name].append(_timed(work, counts[name]) / counts[name])
    return {name: tuple(values) for name, values in seconds.items()}


def _warm_up(work: Work) -> int:
    """Run the work once; return how often it fits into a repeat."""
    work(1)  # compiles
    return max(1, math.ceil(SECONDS_PER_REPEAT / max(_timed(work, 1), 1e-9)))


def _timed(work: Work, count: int) -> float:
    began = time.perf_counter()
    work(count)
    return time.perf_counter() - began


def measured_matmul_peak(dtype: str) -> float:
    """FLOP/s of square matrix products of this type: the best repeat, summed over all devices."""
    device = jax.devices()[0]
    size = MATMUL_SIZES.get(device.platform, 8192)
    a, b = (
        jax.random.normal(jax.random.key(seed), (size, size), jnp.dtype(dtype)) for seed in (0, 1)
    )
    product = jax.jit(jnp.matmul)

    def work(count: int) -> None:
        for _ in range(count):
            result = product(a, b)
        jax.block_until_ready(result)

    best = min(seconds_in_turns({"matmul": work})["matmul"])
    # Devices of a CPU share its cores; those of other platforms are independent.
    devices = 1 if device.platform == "cpu" else jax.device_count()
    return 2 * size**3 / best * devices
