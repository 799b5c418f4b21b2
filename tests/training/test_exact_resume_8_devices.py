"""A run that is killed and started again is, bit for bit, the run that was not: eight devices.

A module of its own, so that two test processes can share the work.
"""

import pytest

from tests.training import runs

pytestmark = pytest.mark.slow


def test_killed_at_random_moments(corpus, tmp_path):
    arguments = runs.steps_with_saves(corpus)
    calm = runs.left_alone(arguments, tmp_path / "calm", devices=8)
    runs.assert_kills_change_nothing(arguments, 8, calm, tmp_path / "killed")
