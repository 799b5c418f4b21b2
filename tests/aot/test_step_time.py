"""The estimate of a step's time: bounds at full speed, and a guess at the assumed shares."""

import pytest

from tupe_jax.aot.hlo import Collective
from tupe_jax.aot.step_time import LINK_SHARE, estimate
from tupe_jax.distributed.hardware import CHIPS

CHIP = CHIPS["v5e"]
SECOND = CHIP.peak_flops
"""The operations that a device does in a second at its peak."""


def test_a_step_computes_then_sends_at_the_assumed_shares():
    reduce = Collective("all-reduce", 1, 4, 4, 1 << 30)
    found = estimate(
        CHIP,
        flops_per_device=2 * SECOND,
        recomputed_per_device=SECOND,
        collectives=[reduce],
        peak_share=0.5,
    )
    assert found.compute_seconds == pytest.approx(2)
    assert found.collective_seconds == pytest.approx(reduce.seconds(CHIP))
    assert found.step_seconds == pytest.approx(3 / 0.5 + reduce.seconds(CHIP) / LINK_SHARE)


def test_recomputed_operations_lower_the_utilization():
    def utilization(recomputed):
        return estimate(
            CHIP, flops_per_device=SECOND, recomputed_per_device=recomputed, collectives=[]
        ).mfu

    assert utilization(SECOND) == pytest.approx(utilization(0.0) / 2)
