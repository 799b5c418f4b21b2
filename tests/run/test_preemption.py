"""Requests to stop, and to save by the clock."""

import os
import signal
import threading
import time

import jax
import pytest

from tests.training.runs import NeverStop
from tupe_jax.run import preemption
from tupe_jax.run.preemption import (
    Requests,
    SaveTimer,
    StopBeforeTraining,
    StopSignal,
)
from tupe_jax.utils.errors import STOPPED_EXIT_CODE


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    return Clock()


def test_a_timer_asks_once_until_a_checkpoint_was_saved(clock):
    timer = SaveTimer(2.0, clock)
    clock.now = 119.0
    assert not timer.due()
    clock.now = 120.0
    assert timer.due()
    assert not timer.due()
    timer.restart()
    clock.now = 239.0
    assert not timer.due()
    clock.now = 240.0
    assert timer.due()


def test_a_timer_of_zero_minutes_never_asks(clock):
    timer = SaveTimer(0.0, clock)
    clock.now = 1e9
    assert not timer.due()


def test_a_request_to_save_stays_until_it_is_done(clock):
    """A batch of an evaluation may be the first to see it."""
    requests = Requests(NeverStop(), SaveTimer(1.0, clock), jax.make_mesh((1,), ("data",)))
    assert not requests.agree_to_stop()
    assert not requests.save_agreed
    clock.now = 61.0
    assert not requests.agree_to_stop()
    assert not requests.agree_to_stop()
    assert requests.save_agreed
    requests.saved()
    assert not requests.agree_to_stop()
    assert not requests.save_agreed


@pytest.fixture
def ended():
    """The reasons and codes with which a `StopSignal` would have ended this process."""
    found = []

    def abandon(reason, code, message):
        found.append((reason, code))
        threading.Event().wait()  # it does not return

    def make(grace_seconds):
        stop = StopSignal(grace_seconds)
        stop.abandon = abandon
        stop.has_state = True
        return stop

    make.found = found
    return make


def ask(number):
    os.kill(os.getpid(), number)
    time.sleep(0.2)


def test_before_training_a_signal_ends_the_run_at_once(ended):
    with ended(0.5) as stop:
        stop.has_state = False
        with pytest.raises(StopBeforeTraining):
            ask(signal.SIGTERM)
        time.sleep(0.6)
    assert ended.found == []


def test_a_run_that_looks_may_take_its_time_to_stop(ended):
    with ended(0.5) as stop:
        ask(signal.SIGTERM)
        assert stop.requested
        time.sleep(0.6)
    assert ended.found == []


def test_a_run_that_does_not_look_is_ended_after_the_grace(ended):
    with ended(0.3):
        ask(signal.SIGTERM)
        assert ended.found == []
        time.sleep(0.5)
    ((reason, code),) = ended.found
    assert "did not react to a stop request" in reason
    assert code == STOPPED_EXIT_CODE


def test_a_save_may_take_longer_than_the_grace(ended):
    with ended(0.3) as stop:
        saving = True
        stop.is_saving = lambda: saving
        ask(signal.SIGTERM)
        time.sleep(0.6)
        assert ended.found == []
        saving = False  # and now it hangs
        time.sleep(0.8)
    assert len(ended.found) == 1


def test_ctrl_c_and_its_copy_from_a_launcher_are_one_request(ended):
    with ended(60.0) as stop:
        ask(signal.SIGINT)
        ask(signal.SIGTERM)
        assert stop.requested
    assert ended.found == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_request_ends_at_once(number, ended, monkeypatch):
    monkeypatch.setattr(preemption, "SAME_REQUEST_SECONDS", 0.1)
    with ended(60.0) as stop:
        ask(number)
        assert stop.requested
        ask(number)
    ((reason, code),) = ended.found
    assert "second stop request" in reason
    assert code == STOPPED_EXIT_CODE


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_child_process_does_not_report_its_signals(ended):
    with ended(0.3) as stop:
        ready, in_child = os.pipe()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            os.write(in_child, b"!")
            time.sleep(30)
            os._exit(1)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == 0
        time.sleep(0.5)
        assert not stop.requested
    assert ended.found == []
