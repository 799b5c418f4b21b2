"""A small campaign of faults; `python -m tests.faults` runs a large one."""

import pytest

from tests.faults.campaign import campaign
from tests.faults.kinds import KINDS
from tests.faults.runs import Cell, make_campground

pytestmark = pytest.mark.slow

SAMPLE = (Cell("prepared", 2, "local"), Cell("live", 1, "gs"))


def test_no_fault_changes_a_run(tmp_path, gcs):
    ground = make_campground(tmp_path, gcs)
    results = list(campaign(ground, faults=6, seed=1, cells=SAMPLE))
    assert not [problem for result in results for problem in result.problems]
    assert len([result for result in results if result.fault in KINDS]) >= 6
    assert [result for result in results if result.fault == "comparison"]
