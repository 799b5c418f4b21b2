"""A run that is killed and started again is, bit for bit, the run that was not."""

import random
import signal
import time

import pytest

from tests.training import runs
from tupe_jax.training.stop_signal import STOPPED_EXIT_CODE

STEPS = 90


def wait_for_lines(process, workdir, count):
    """Until the run has logged so many steps, or ended."""
    while process.poll() is None:
        metrics = workdir / "metrics.jsonl"
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.005)


def finish(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("reader", ["prepared", "live"])
def test_killed_at_random_moments(reader, devices, corpus, tmp_path):
    # A save every third step: many kills fall into one.
    arguments = runs.settings(
        corpus, reader=reader, **{"train.steps": STEPS, "checkpoint.every": 3, "eval.every": 20}
    )
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    finish(runs.start_elsewhere(arguments, calm, devices))
    moments = random.Random(f"{reader} {devices}")
    kills = 0
    for lines in (moments.randrange(5, 30), moments.randrange(40, 75)):
        process = runs.start_elsewhere(arguments, killed, devices)
        wait_for_lines(process, killed, lines)
        time.sleep(moments.random() * 0.05)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills == 2, "both runs were still going on"
    finish(runs.start_elsewhere(arguments, killed, devices))
    runs.assert_same_run(arguments, calm, killed)


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
