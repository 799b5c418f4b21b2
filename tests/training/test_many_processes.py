"""One run of several processes: killed, stopped, and resumed by other numbers on other meshes."""

import shutil
import signal

import numpy as np
import pytest

from tests.training import runs
from tupe_jax.utils.errors import RETRY_EXIT_CODE, STOPPED_EXIT_CODE

pytestmark = pytest.mark.slow

STEPS = 60
FOUR = runs.mesh(data=2, tensor=2)  # two processes hold the same rows
TWO = runs.mesh(data=2, fsdp=2)


@pytest.fixture(scope="module")
def arguments(corpus):
    return runs.settings(corpus, **{"train.steps": STEPS, "checkpoint.every": 5, "eval.every": 10})


@pytest.fixture(scope="module")
def story(arguments, tmp_path_factory):
    """A run that four processes started, two resumed, and one finished."""
    workdir = tmp_path_factory.mktemp("many") / "run"
    told = {"workdir": workdir}

    four = runs.start_many([*arguments, *FOUR], workdir, 4)
    runs.wait_for_lines(four[0], workdir, 6)
    told["killed"] = runs.end_all(four, signal.SIGKILL)

    two = runs.start_many([*arguments, *TWO], workdir, 2, devices=2)
    runs.wait_for_lines(two[0], workdir, 13)
    two[1].kill()
    told["lost"] = runs.end_all(two)
    told["before"] = runs.numbers(workdir)

    two = runs.start_many([*arguments, *TWO], workdir, 2, devices=2)
    runs.wait_for_lines(two[0], workdir, 16)
    two[1].send_signal(signal.SIGTERM)
    told["stopped"] = runs.end_all(two)
    told["after"] = runs.numbers(workdir)

    shutil.copytree(workdir, told.setdefault("copy", workdir.with_name("copy")))
    runs.run_here(arguments, workdir)
    return told


@pytest.fixture(scope="module")
def calm(arguments, tmp_path_factory):
    """The same run by one process on one device, without interruption."""
    workdir = tmp_path_factory.mktemp("calm")
    runs.run_here(arguments, workdir)
    return workdir


def test_killed_in_the_middle(story):
    assert {process.code for process in story["killed"]} == {-signal.SIGKILL}


def test_the_same_processes_repeat_what_was_lost_bit_for_bit(story):
    def lines(when):
        return {(line["step"], "loss" in line): line for line in story[when]}

    assert lines("before").items() <= lines("after").items()


def test_sigterm_to_one_stops_all_at_the_same_step(story):
    assert [process.code for process in story["stopped"]] == [STOPPED_EXIT_CODE] * 2
    first, second = story["stopped"]
    assert f"stopped at step {story['after'][-1]['step']}, saved" in first.err
    assert "loss" in first.err
    assert "loss" not in second.err  # only process 0 logs progress


def test_when_one_dies_the_others_say_which_and_end(story):
    survivor, killed = story["lost"]
    assert killed.code == -signal.SIGKILL
    assert survivor.code == RETRY_EXIT_CODE
    assert "process 1 (" in survivor.err.splitlines()[-1]
    assert "has died" in survivor.err.splitlines()[-1]


def test_losses_continue_as_if_never_interrupted(story, calm):
    ours, theirs = runs.numbers(story["workdir"]), runs.numbers(calm)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=2e-5)


def test_an_error_of_one_process_ends_the_others(story, arguments):
    """The settings are not those that the run began with, which only process 0 looks at."""
    changed = [*arguments, *TWO, "--config.optimizer.weight_decay=0.3"]
    for process in runs.end_all(runs.start_many(changed, story["copy"], 2, devices=2)):
        assert process.code == 2
        assert "optimizer.weight_decay was" in process.err.splitlines()[-1]
        assert "Traceback" not in process.err


def test_a_process_that_does_not_come_is_named(arguments, tmp_path):
    three = runs.start_many([*arguments, "--wait=15"], tmp_path, 3)
    three.pop(1).kill()
    for process in runs.end_all(three):
        assert process.code == RETRY_EXIT_CODE
        words = process.err.splitlines()[-1]
        assert "process 1 of 3 did not connect within 15 s" in words
        assert "not started on every host" in words
