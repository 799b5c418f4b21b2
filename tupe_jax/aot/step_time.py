"""From counted operations and bytes to seconds: bounds by data sheet, and a guess below them."""

from collections.abc import Sequence
from dataclasses import dataclass

from tupe_jax.aot.hlo import Collective
from tupe_jax.distributed.hardware import Chip

PEAK_SHARE = 0.4
"""Of the peak FLOP/s, that a step reaches beside its collectives; not measured, `--peak-share`."""
LINK_SHARE = 0.8
"""Of the links' bandwidth, that collectives reach."""


@dataclass(frozen=True)
class Estimate:
    """How long a step takes; no device can be faster than the bounds."""

    compute_seconds: float
    """Bound: the model's operations at the peak."""
    collective_seconds: float
    """Bound: what is sent, at full speed."""
    step_seconds: float
    """A guess: both at the assumed shares, one after the other."""
    mfu: float


def estimate(
    chip: Chip,
    *,
    flops_per_device: float,
    recomputed_per_device: float,
    collectives: Sequence[Collective],
    peak_share: float = PEAK_SHARE,
) -> Estimate:
    """The times of a step that does these operations on each device."""
    compute = flops_per_device / chip.peak_flops
    sending = sum(collective.seconds(chip) for collective in collectives)
    again = recomputed_per_device / chip.peak_flops
    step = (compute + again) / peak_share + sending / LINK_SHARE
    return Estimate(compute, sending, step, mfu=compute / step)
