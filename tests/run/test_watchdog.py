"""When the watchdog ends a run; a clock that the test moves stands in for time."""

import pytest

from tupe_jax.config.schema import WatchdogConfig
from tupe_jax.distributed.process_group import ProcessGroup
from tupe_jax.run.watchdog import RECENT_STEPS, Watchdog

MINUTE = 60.0


class Clock:
    """Moves by the second, and asks the watchdog each time, as its thread does."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def processes():
    return ProcessGroup(0, ("a host",), {})


@pytest.fixture
def watchdog(clock, processes):
    return Watchdog(WatchdogConfig(), processes, clock)


def pass_time(clock, watchdog, seconds):
    """The first reason to end within this time, if any."""
    for _ in range(int(seconds)):
        clock.now += 1.0
        if reason := watchdog.overdue():
            return reason
    return None


def test_ten_minutes_without_a_step_are_too_long(clock, watchdog):
    watchdog.step(7)
    assert pass_time(clock, watchdog, 10 * MINUTE - 1) is None
    reason = pass_time(clock, watchdog, 2)
    assert "no progress for 600 s at step 7 while training" in reason


def test_long_steps_get_twenty_times_their_median(clock, watchdog):
    for step in range(1, 6):
        watchdog.step(step)
        clock.now += 2 * MINUTE
    watchdog.step(6)
    assert pass_time(clock, watchdog, 39 * MINUTE) is None
    assert pass_time(clock, watchdog, 2 * MINUTE)


def test_one_long_step_does_not_change_the_limit(clock, watchdog):
    for step in range(1, RECENT_STEPS):
        watchdog.step(step)
        clock.now += 30 * MINUTE if step == 5 else 1.0
    assert pass_time(clock, watchdog, 11 * MINUTE)


@pytest.mark.parametrize(
    ("activity", "minutes"),
    [
        ("compiling", 60),
        ("restoring", 30),
        ("saving", 30),
        ("summarizing", 30),
        ("reading data", 10),
        ("evaluating", 10),
    ],
)
def test_every_activity_has_its_limit(activity, minutes, clock, watchdog):
    with watchdog.during(activity):
        assert pass_time(clock, watchdog, minutes * MINUTE - 1) is None
        assert activity in pass_time(clock, watchdog, 2)


def test_data_may_be_prepared_for_hours(clock, watchdog):
    with watchdog.during("preparing data"):
        assert pass_time(clock, watchdog, 10 * 60 * MINUTE) is None
    assert pass_time(clock, watchdog, 11 * MINUTE)


def test_batches_of_an_evaluation_are_progress(clock, watchdog):
    with watchdog.during("evaluating"):
        for _ in range(5):
            assert pass_time(clock, watchdog, 9 * MINUTE) is None
            watchdog.progress()


def test_a_process_that_was_stopped_and_continues_is_not_ended(clock, watchdog):
    watchdog.step(1)
    assert watchdog.overdue() is None
    clock.now += 60 * MINUTE
    assert watchdog.overdue() is None
    assert pass_time(clock, watchdog, 11 * MINUTE)


def test_the_heartbeat_reports_how_far_the_process_is(clock, watchdog, processes):
    marks = processes.heartbeat.marks
    for step in (1, 2, 3):
        with watchdog.during("reading data"):
            clock.now += 1.5
            assert processes.heartbeat.activity == "reading data"
        clock.now += 0.5
        watchdog.step(step)
    beat = processes.heartbeat
    assert (beat.step, beat.activity) == (3, "training")
    assert beat.marks > marks
    assert beat.step_seconds == 2.0
    assert beat.data_seconds == 1.5
