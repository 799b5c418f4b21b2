"""Timing: warm-up, several repeats, and interleaved measurements of what is compared."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

REPEATS = 5
SECONDS_PER_REPEAT = 1.0

Work = Callable[[int], None]
"""Repeats the work `count` times and returns when all of it is done."""


@dataclass(frozen=True)
class Speed:
    """The speed of one workload of a shape, one number per repeat."""

    what: str
    shape: tuple[int, ...]
    tokens_per_second: tuple[float, ...]
    flops_per_token: float | None = None
    """Counted from the model; None if the workload computes nothing."""
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
        low, high = _short(min(self.tokens_per_second)), _short(max(self.tokens_per_second))
        line = (
            f"{self.what} {' x '.join(map(str, self.shape))}: {_short(self.median)}tokens/s "
            f"(median of {len(self.tokens_per_second)}, {low.strip()} to {high.strip()})"
        )
        if self.flops_per_second is not None and self.fraction_of_peak is not None:
            line += (
                f"; {_short(self.flops_per_second)}FLOP/s, "
                f"{self.fraction_of_peak:.0%} of the matmul peak"
            )
        return line


def seconds_in_turns(
    works: Mapping[str, Work], *, repeats: int = REPEATS
) -> dict[str, tuple[float, ...]]:
    """Seconds of each workload, per repeat.

    The workloads are interleaved, so that other load on the machine affects all of them equally.
    """
    counts = {name: _warm_up(work) for name, work in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            seconds[name].append(_timed(work, counts[name]) / counts[name])
    return {name: tuple(values) for name, values in seconds.items()}


def _warm_up(work: Work) -> int:
    """Compile and warm up; return how often the work fits into a repeat."""
    work(1)  # compiles
    return max(1, math.ceil(SECONDS_PER_REPEAT / max(_timed(work, 1), 1e-9)))


def _timed(work: Work, count: int) -> float:
    began = time.perf_counter()
    work(count)
    return time.perf_counter() - began


def _short(number: float) -> str:
    """1234567 as "1.23 M", to be followed by a unit."""
    steps = min(int(math.log10(max(number, 1)) // 3), len("kMGTP"))
    return f"{number / 1000**steps:.3g} {'kMGTP'[steps - 1] if steps else ''}"


MATMUL_SIZES = {"cpu": 2048}
"""Size of the square matrices by platform; 8192 otherwise, which saturates an accelerator."""


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
