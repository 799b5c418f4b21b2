"""A run that is killed and started again is, bit for bit, the run that was not: eight devices.

A module of its own, so that two test processes can share the work.
"""

import pytest

from tests.training import runs


@pytest.mark.parametrize("reader", ["prepared", "live"])
def test_killed_at_random_moments(reader, corpus, tmp_path):
    runs.assert_kills_change_nothing(reader, 8, corpus, tmp_path)
