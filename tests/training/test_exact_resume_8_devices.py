"""A run that is killed and started again is, bit for bit, the run that was not: eight devices.

A module of its own, so that two test processes can share the work.
"""

from tests.training import runs


def test_killed_at_random_moments(corpus, tmp_path):
    runs.assert_kills_change_nothing("prepared", 8, corpus, tmp_path)
