"""The time of a step: bounds from counted FLOPs, bytes and data sheets, and an estimate."""

from collections.abc import Sequence
from dataclasses import dataclass

from tupe_jax.aot.hlo import Collective
from tupe_jax.distributed.hardware import Chip

PEAK_SHARE = 0.4
"""Assumed share of the peak FLOP/s outside collectives; not measured. Flag: `--peak-share`."""
LINK_SHARE = 0.8
"""Assumed share of the links' bandwidth during collectives."""


@dataclass(frozen=True)
class Estimate:
    """The time of a step. The bounds are lower bounds."""

    compute_seconds: float
    """Bound: the model's FLOPs at the peak."""
    collective_seconds: float
    """Bound: the bytes sent, at full bandwidth."""
    step_seconds: float
    """Estimate: both at the assumed shares, without overlap."""
    mfu: float


def estimate(
    chip: Chip,
    *,
    flops_per_device: float,
    recomputed_per_device: float,
    collectives: Sequence[Collective],
    peak_share: float = PEAK_SHARE,
) -> Estimate:
    """The time of a step with these FLOPs and collectives on each device."""
    compute = flops_per_device / chip.peak_flops
    sending = sum(collective.seconds(chip) for collective in collectives)
    again = recomputed_per_device / chip.peak_flops
    step = (compute + again) / peak_share + sending / LINK_SHARE
    return Estimate(compute, sending, step, mfu=compute / step)
