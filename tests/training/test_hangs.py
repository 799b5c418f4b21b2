"""Runs that would hang: each ends soon, names the process and the cause, and can be restarted."""

import resource
import signal
import time

import pytest

from tests.training import runs
from tupe_jax.run.preemption import SAME_REQUEST_SECONDS
from tupe_jax.utils.errors import RETRY_EXIT_CODE, STOPPED_EXIT_CODE

pytestmark = pytest.mark.slow

SECONDS = 150
"""More than any of these ends may take on a busy machine; without the limits they took minutes."""
TWO = runs.mesh(fsdp=2)  # each process writes a part of every checkpoint


def arguments(corpus, **overrides):
    return runs.settings(
        corpus,
        **{"train.steps": 100_000, "checkpoint.every": 50, "eval.every": 100_000, **overrides},
    )


def ends(processes):
    """The ends of all, which must come soon."""
    deadline = time.monotonic() + SECONDS
    try:
        for process in processes:
            # Not `wait`: a full pipe would keep it from ending.
            process.text = process.communicate(timeout=max(deadline - time.monotonic(), 1))
    finally:
        for process in processes:
            process.kill()
    return [runs.Ended(process.returncode, *process.text) for process in processes]


def last_error(process):
    """The last error of its log; a step may still be logged after it."""
    return [line for line in process.err.splitlines() if " ERROR process " in line][-1]


def test_a_full_disk_under_one_process_ends_all(corpus, tmp_path):
    two = runs.start_many([*arguments(corpus), *TWO], tmp_path, 2)
    runs.wait_for_lines(two[0], tmp_path, 3)
    # Files that may not grow are the nearest thing to a full disk that needs no privileges.
    resource.prlimit(two[1].pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    first, second = ends(two)
    assert (first.code, second.code) == (RETRY_EXIT_CODE,) * 2
    assert "process 1 (" in last_error(first)
    for process in (first, second):
        assert "cannot save checkpoints in" in last_error(process)
        assert "File too large" in last_error(process)


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_process_is_named_and_the_other_ends(stopped, corpus, tmp_path):
    limits = {"watchdog.silence_seconds": 10, "watchdog.jax_heartbeat_seconds": 100}
    two = runs.start_many([*arguments(corpus, **limits), *TWO], tmp_path, 2)
    runs.wait_for_lines(two[0], tmp_path, 3)
    two[stopped].send_signal(signal.SIGSTOP)
    (survivor,) = ends([two[1 - stopped]])
    assert survivor.code == RETRY_EXIT_CODE
    assert f"process {stopped} (" in last_error(survivor)
    assert "sent no heartbeat" in last_error(survivor)
    two[stopped].send_signal(signal.SIGCONT)
    # JAX may abort it (134) before it has read why the others ended.
    assert ends([two[stopped]])[0].code in (RETRY_EXIT_CODE, -signal.SIGABRT)


def test_a_reader_that_never_returns_in_one_process_ends_all(corpus, tmp_path):
    limits = {"watchdog.stalled_minutes": 0.3}
    hung = ("-c", runs.HUNG_READER, "1", "4")
    two = runs.start_many([*arguments(corpus, **limits), *TWO], tmp_path, 2, program=hung)
    first, second = ends(two)
    assert (first.code, second.code) == (RETRY_EXIT_CODE,) * 2
    for process in (first, second):
        assert "made no progress for" in process.err
        assert "behind: process 1 (" in process.err
        assert "at step 4, reading data" in process.err
    assert " in hang" in second.err  # the stack of the thread that hangs


def test_a_reader_that_never_returns_in_a_single_process(corpus, tmp_path):
    limits = {"watchdog.stalled_minutes": 0.3}
    hung = ("-c", runs.HUNG_READER, "-1", "4")
    process = runs.start_elsewhere(arguments(corpus, **limits), tmp_path, program=hung)
    (end,) = ends([process])
    assert end.code == RETRY_EXIT_CODE
    assert "at step 4 while reading data" in end.err
    assert " in hang" in end.err


def test_a_work_directory_that_does_not_answer(corpus, tmp_path):
    """As on a network file system whose server is gone, before training begins."""
    limits = {"watchdog.stalled_minutes": 0.25}
    program = ("-c", runs.HUNG_WORKDIR)
    two = runs.start_many(arguments(corpus, **limits), tmp_path, 2, program=program)
    for process in ends(two):
        assert process.code == RETRY_EXIT_CODE
        assert "while starting" in process.err
        assert " in hang" in process.err


@pytest.mark.parametrize("twice", [False, True])
def test_a_hung_run_ends_when_it_is_asked_to_stop(twice, corpus, tmp_path):
    """After a time of grace, or at once if asked twice."""
    limits = {"watchdog.stop_seconds": 1000 if twice else 5}
    hung = ("-c", runs.HUNG_READER, "-1", "4")
    process = runs.start_elsewhere(arguments(corpus, **limits), tmp_path, program=hung)
    runs.wait_for_lines(process, tmp_path, 3)
    time.sleep(2)  # the line of step 3 is written before the reader hangs
    process.send_signal(signal.SIGTERM)
    if twice:
        time.sleep(SAME_REQUEST_SECONDS + 1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
    (end,) = ends([process])
    assert end.code == STOPPED_EXIT_CODE
    assert ("a second stop request" if twice else "did not react to a stop request") in end.err


def test_two_processes_save_by_the_clock_at_the_same_steps_and_resume(corpus, tmp_path):
    by_time = {"checkpoint.every": 100_000, "checkpoint.every_minutes": 0.03}
    two = runs.start_many([*arguments(corpus, **by_time), *TWO], tmp_path, 2)
    deadline = time.monotonic() + SECONDS
    saved = set()
    while len(saved) < 3 and time.monotonic() < deadline:
        time.sleep(0.2)
        saved |= {int(path.name) for path in (tmp_path / "checkpoints").glob("[0-9]*[0-9]")}
    for process in two:
        process.kill()
        process.communicate()
    newest = max(int(path.name) for path in (tmp_path / "checkpoints").glob("[0-9]*[0-9]"))
    assert len(saved) >= 3
    stopped = runs.run_here(arguments(corpus, **by_time), tmp_path, runs.StopAfter(3))
    assert stopped.resumed_from == newest
