"""Intervals: textbook values and coverage."""

import numpy as np
import pytest

from tupe_jax.lab.intervals import bootstrap, paired_difference, wilson
from tupe_jax.utils.errors import UserError


def test_wilson_has_its_textbook_values():
    ten_of_ten = wilson(np.ones(10))
    assert (ten_of_ten.low, ten_of_ten.high) == pytest.approx((0.7225, 1.0), abs=1e-4)
    interval = wilson([1] * 15 + [0] * 5)
    assert interval.estimate == 0.75
    assert (interval.low, interval.high) == pytest.approx((0.5313, 0.8881), abs=1e-4)
    assert wilson([0.5, 0.5]).estimate == 0.5


def test_the_bootstrap_of_a_mean_is_near_the_normal_interval():
    values = np.random.default_rng(0).normal(3, 2, 400)
    interval = bootstrap(values)
    half = 1.96 * values.std() / 20
    assert interval.estimate == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.05)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.05)


def test_paired_values_are_resampled_together():
    rng = np.random.default_rng(0)
    hard = rng.random(300) < 0.5
    before, after = np.where(hard, 0.0, 1.0), np.where(hard, 0.0, rng.random(300) < 0.9)
    paired = bootstrap(np.stack([before, after], 1), lambda means: means[..., 1] - means[..., 0])
    assert paired.low == pytest.approx(bootstrap(after - before).low, abs=0.01)
    assert paired.high < 0
    # Apart, the difference would not be told from none so surely.
    assert paired.high - paired.low < 0.6 * (wilson(before).high - wilson(before).low)


@pytest.mark.parametrize("of", [wilson, bootstrap])
def test_the_truth_is_inside_19_times_of_20(of):
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(300):
        interval = of((rng.random(80) < 0.7).astype(float))
        inside += interval.low <= 0.7 <= interval.high
    assert 0.91 < inside / 300 < 0.985


def test_the_paired_difference_has_its_textbook_values():
    before, after = [1] * 6 + [0] * 4, [1] * 3 + [0] * 3 + [1] + [0] * 3
    interval = paired_difference(before, after)  # three lost, one gained, of ten
    assert interval.estimate == pytest.approx(-0.2)
    half = 1.96 * np.sqrt((6 / 12 - (2 / 12) ** 2) / 12)
    assert (interval.low, interval.high) == pytest.approx(
        (-2 / 12 - half, -2 / 12 + half), abs=1e-4
    )


@pytest.mark.parametrize(
    ("lost", "gained", "at_most"), [(0.3, 0.1, 0.98), (0.9, 0.0, 0.98), (0.02, 0.005, 1)]
)
def test_the_true_difference_is_inside_19_times_of_20(lost, gained, at_most):
    """Of rare changes more often, where the bootstrap would be too sure: 85 times of 100."""
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(1000):
        change = rng.choice([-1, 1, 0], 100, p=[lost, gained, 1 - lost - gained])
        interval = paired_difference(np.zeros(100), change)
        inside += interval.low <= gained - lost <= interval.high
    assert 0.93 < inside / 1000 <= at_most


def test_no_change_is_not_known_for_sure():
    interval = paired_difference([1, 1, 0, 1], [1, 1, 0, 1])
    assert interval.low < interval.estimate == 0 < interval.high
    all_lost = paired_difference(np.ones(50), np.zeros(50))
    assert (all_lost.estimate, all_lost.low) == (-1, -1)
    assert -1 < all_lost.high < -0.85


def test_nothing_has_no_interval():
    for of in (wilson, bootstrap):
        with pytest.raises(UserError, match="no examples"):
            of([])
