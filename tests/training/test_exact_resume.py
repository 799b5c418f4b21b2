"""A run that is killed and started again is, bit for bit, the run that was not: one device."""

import signal

import pytest

from tests.training import runs
from tests.training.runs import STEPS, finish, wait_for_lines
from tupe_jax.training.stop_signal import STOPPED_EXIT_CODE


@pytest.mark.parametrize("reader", ["prepared", "live"])
def test_killed_at_random_moments(reader, corpus, tmp_path):
    runs.assert_kills_change_nothing(reader, 1, corpus, tmp_path)


def test_sigterm_saves_and_exits_with_its_own_code(corpus, tmp_path):
    arguments = runs.settings(corpus, **{"train.steps": STEPS, "checkpoint.every": 1000})
    calm, stopped = tmp_path / "calm", tmp_path / "stopped"
    finish(runs.start_elsewhere(arguments, calm))
    process = runs.start_elsewhere(arguments, stopped)
    # The first compile: the signal arrives while it goes on.
    while "compiling" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == STOPPED_EXIT_CODE, err
    assert "the same command goes on" in err
    process = runs.start_elsewhere(arguments, stopped)
    wait_for_lines(process, stopped, 30)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == STOPPED_EXIT_CODE, err
    finish(runs.start_elsewhere(arguments, stopped))
    runs.assert_same_run(arguments, calm, stopped)
