"""Tokens per second, MFU and goodput, by a clock that the test moves."""

import pytest

from tupe_jax.training.monitoring.throughput import Speedometer


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


def speedometer(clock, device_kind="cpu"):
    return Speedometer(
        tokens_per_step=1000,
        training_flops_per_token=1e9,
        device_kind=device_kind,
        devices=4,
        clock=clock,
    )


def spend(clock, seconds, speed=None, activity=None):
    if activity is None:
        clock.now += seconds
    else:
        with speed.pause(activity):
            clock.now += seconds


def test_speed_is_of_the_last_interval_and_without_pauses():
    clock = Clock()
    speed = speedometer(clock)
    spend(clock, 30, speed, "compile")
    speed.start_interval(step=7)
    spend(clock, 10)
    assert speed.measure(17)["tokens_per_second"] == pytest.approx(1000)
    spend(clock, 5)
    spend(clock, 100, speed, "evaluation")
    spend(clock, 50, speed, "saving")
    assert speed.measure(27)["tokens_per_second"] == pytest.approx(2000)


def test_waiting_for_data_slows_the_run_down():
    clock = Clock()
    speed = speedometer(clock)
    speed.start_interval(step=0)
    spend(clock, 5)
    spend(clock, 5, speed, "data")
    measured = speed.measure(10)
    assert measured["tokens_per_second"] == pytest.approx(1000)
    assert measured["goodput"] == pytest.approx(0.5)


def test_goodput_is_the_share_of_all_time_since_the_start():
    clock = Clock()
    speed = speedometer(clock)
    for seconds, activity in [(10, "compile"), (60, None), (20, "evaluation"), (10, "saving")]:
        spend(clock, seconds, speed, activity)
    assert speed.goodput() == pytest.approx(0.6)
    assert speed.pauses() == pytest.approx({"compile": 0.1, "evaluation": 0.2, "saving": 0.1})


def test_a_pause_that_fails_is_counted():
    clock = Clock()
    speed = speedometer(clock)

    def failing_evaluation():
        with speed.pause("evaluation"):
            clock.now += 3
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing_evaluation()
    clock.now += 1
    assert speed.goodput() == pytest.approx(0.25)


def test_mfu_is_of_all_devices_and_absent_where_the_peak_is_unknown():
    clock = Clock()
    speed = speedometer(clock, "TPU v5 lite")
    speed.start_interval(0)
    clock.now += 1
    # 394 k tokens/s of 1 GFLOP each, on four devices of 197 TFLOP/s
    assert speed.measure(394)["mfu"] == pytest.approx(0.5)
    assert "mfu" not in speedometer(clock).measure(1)
