"""Steps to another variant's final loss: by hand, on straight lines, and their interval."""

import math

import numpy as np
import pytest

from tupe_jax.ablation.convergence import first_crossing, mean_curve, speed_up


def falling(slope, *, start=10.0, steps=1000, every=100):
    """A straight line down from `start` nats at step 0."""
    return [(step, start - slope * step) for step in range(0, steps + 1, every)]


def test_a_crossing_lies_on_the_line_between_two_evaluations():
    assert first_crossing([(100, 6.0), (200, 4.0), (300, 3.0)], 4.5) == 175
    assert first_crossing([(100, 6.0), (200, 4.0), (300, 3.0)], 4.0) == 200


def test_the_first_crossing_counts_even_if_the_loss_rises_again():
    assert first_crossing([(100, 6.0), (200, 4.0), (300, 5.5), (400, 3.0)], 5.0) == 150


def test_a_goal_below_the_curve_is_never_reached():
    assert first_crossing(falling(0.001), 8.9) is None


def test_a_curve_that_begins_below_the_goal_counts_with_its_first_evaluation():
    assert first_crossing([(50, 3.0), (100, 2.0)], 4.0) == 50
    assert first_crossing([(0, 3.0), (100, 2.0)], 4.0) == 1


def test_losses_that_are_not_finite_are_no_way_down():
    assert first_crossing([(100, math.inf), (200, 4.0)], 5.0) == 200
    assert first_crossing([(100, 6.0), (200, math.inf), (300, 4.0)], 5.0) == 300
    assert first_crossing([(100, 6.0), (200, math.nan)], 5.0) is None
    assert first_crossing([(100, 6.0), (200, 5.0)], math.inf) is None


def test_mean_curves_are_of_the_steps_that_all_have():
    mean = mean_curve([[(0, 8), (100, 4), (200, 2)], [(0, 6), (200, 4)]])
    np.testing.assert_array_equal(mean, [[0, 7], [200, 3]])


def test_twice_as_steep_is_twice_as_fast():
    result = speed_up([falling(0.004)] * 3, [falling(0.002)] * 3)
    assert result.goal == pytest.approx(8.0)
    assert result.goal_steps == pytest.approx(1000)
    assert result.steps == pytest.approx([500] * 3)
    assert result.ratio == pytest.approx(2.0)
    assert result.interval == pytest.approx((2.0, 2.0))


def test_being_there_at_the_first_evaluation_is_a_bound_without_interval():
    early = [(100, 7.0), (1000, 3.0)]
    result = speed_up([early] * 2, [falling(0.002)] * 2)
    assert result.is_bound
    assert result.ratio == pytest.approx(10)
    assert result.interval is None
    assert not speed_up([falling(0.004)] * 2, [falling(0.002)] * 2).is_bound


def test_a_slower_variant_has_no_ratio_below_1():
    assert speed_up([falling(0.0019)] * 2, [falling(0.002)] * 2).ratio is None


def test_an_other_that_was_as_good_before_its_end_can_be_the_faster_one():
    overfitted = [(0, 10.0), (500, 5.0), (1000, 6.0)]
    result = speed_up([[(0, 10.0), (800, 6.0), (1000, 2.0)]] * 2, [overfitted] * 2)
    assert result.ratio == pytest.approx(0.5)


@pytest.mark.parametrize("mine", [[(100, 5.7), (200, 5.0)], [(100, 6.0), (200, 5.0)]])
def test_an_other_that_never_moved_from_its_goal_gives_no_ratio(mine):
    plateau = [(100, 5.8), (200, 5.8), (300, 5.8)]
    result = speed_up([mine] * 2, [plateau] * 2)
    assert result.has_goal
    assert len(result.reached) == 2
    assert (result.goal_steps, result.ratio, result.interval) == (None, None, None)


def test_an_other_that_diverged_before_it_was_evaluated_sets_no_goal():
    result = speed_up([falling(0.004)] * 2, [falling(0.002), [(1, math.inf)]])
    assert (result.goal, result.steps, result.ratio) == (math.inf, (None, None), None)
    assert not result.has_goal


def test_a_variant_whose_seeds_are_equal_is_as_fast_as_itself():
    curves = [falling(0.004), falling(0.004), falling(0.004)]
    assert speed_up(curves, curves).ratio == pytest.approx(1.0)


def test_the_other_is_not_charged_for_steps_after_it_was_as_good():
    overfitted = [(0, 10.0), (500, 5.0), (1000, 6.0)]
    result = speed_up([[(0, 10.0), (200, 6.0), (1000, 2.0)]], [overfitted])
    assert (result.goal, result.goal_steps) == (6.0, 400)
    assert result.ratio == pytest.approx(2.0)


def test_the_ratio_is_of_the_geometric_mean_of_steps():
    result = speed_up([falling(0.008), falling(0.002)], [falling(0.002)])
    assert result.steps == pytest.approx([250, 1000])
    assert result.ratio == pytest.approx(2.0)


def test_one_seed_that_never_gets_there_leaves_no_ratio():
    result = speed_up([falling(0.004), falling(0.001)], [falling(0.002)] * 2)
    assert result.steps == (pytest.approx(500), None)
    assert result.reached == pytest.approx((500,))
    assert result.ratio is None
    assert result.interval is None


def test_a_diverged_other_sets_no_goal():
    diverged = [*falling(0.002, steps=900), (1000, math.inf)]
    result = speed_up([falling(0.004)] * 2, [falling(0.002), diverged])
    assert result.steps == (None, None)
    assert result.goal_steps is None
    assert result.ratio is None


def test_seeds_of_either_side_widen_the_interval():
    def width(mine, theirs):
        result = speed_up([falling(s) for s in mine], [falling(s) for s in theirs])
        low, high = result.interval
        assert low < result.ratio < high
        return math.log(high / low)

    same, apart = (0.004, 0.004001, 0.003999), (0.004, 0.0044, 0.0036)
    other, other_apart = (0.002, 0.002001, 0.001999), (0.002, 0.0022, 0.0018)
    assert width(apart, other) > 10 * width(same, other)
    assert width(same, other_apart) > 10 * width(same, other)


def test_one_seed_has_no_interval():
    assert speed_up([falling(0.004)], [falling(0.002)] * 3).interval is None
    assert speed_up([falling(0.004)] * 3, [falling(0.002)]).interval is None


def test_the_interval_is_open_if_a_seed_does_not_reach_every_final_loss():
    result = speed_up([falling(0.0021)] * 2, [falling(0.0018), falling(0.0022)])
    assert result.ratio == pytest.approx(1.05)
    assert result.interval is None


def test_the_true_ratio_is_inside_19_times_of_20():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(100):
        mine, theirs = (
            [falling(slope * math.exp(0.05 * rng.standard_normal())) for _ in range(3)]
            for slope in (0.004, 0.002)
        )
        low, high = speed_up(mine, theirs).interval
        inside += low <= 2.0 <= high
    assert 90 <= inside <= 99
