"""A run that is killed and started again is, bit for bit, the run that was not: one device."""

import signal

import pytest

from tests.training import runs
from tests.training.runs import finish, wait_for_lines
from tupe_jax.utils.errors import STOPPED_EXIT_CODE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def calm(corpus, tmp_path_factory):
    """Of prepared rows, which need no TensorFlow; how often it saves does not change a run."""
    arguments, folder = runs.steps_with_saves(corpus), tmp_path_factory.mktemp("calm")
    return runs.left_alone(arguments, folder, devices=1, program=("-c", runs.WITHOUT_TENSORFLOW))


def test_killed_at_random_moments(calm, corpus, tmp_path):
    arguments = runs.steps_with_saves(corpus)
    runs.assert_kills_change_nothing(arguments, 1, calm, tmp_path / "killed")


def test_killed_at_random_moments_with_the_live_reader(corpus, tmp_path):
    arguments = runs.steps_with_saves(corpus, reader="live")
    calm = runs.left_alone(arguments, tmp_path / "calm", devices=1)
    runs.assert_kills_change_nothing(arguments, 1, calm, tmp_path / "killed", [runs.LATE])


def test_sigterm_saves_and_exits_with_its_own_code(calm, corpus, tmp_path):
    arguments = runs.steps_with_saves(corpus, every=1000)
    stopped = tmp_path / "stopped"
    process = runs.start_elsewhere(arguments, stopped)
    # The signal arrives during the first compilation.
    while "compiling" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == STOPPED_EXIT_CODE, err
    assert "the same command resumes" in err
    process = runs.start_elsewhere(arguments, stopped)
    wait_for_lines(process, stopped, 10)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == STOPPED_EXIT_CODE, err
    finish(runs.start_elsewhere(arguments, stopped))
    runs.assert_same_run(arguments, calm, stopped)
