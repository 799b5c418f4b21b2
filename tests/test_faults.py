"""A sample of the campaign of faults; the whole is `python -m tests.faults`."""

import pytest

from tests.faults.__main__ import read_results, table
from tests.faults.campaign import COMPARISON, Result, campaign
from tests.faults.runs import Cell, make_campground


def test_a_table_has_a_line_for_each_kind_of_fault():
    runs = [
        Result("a", 0, COMPARISON, "", (), 0.0, ()),
        Result("a", 0, "SIGKILL", "start", (-9, 76), 2.0, ()),
        Result("a", 1, "SIGKILL", "training", (-9, 0), 5.0, ("another end",)),
    ]
    assert [line.strip("|").split() for line in table(runs)[2:]] == [
        ["SIGKILL", "|", "2", "|", "-9,", "0,", "76", "|", "5", "|", "1"],
        [COMPARISON, "|", "1", "|", "|", "0", "|", "0"],
    ]


def test_records_of_an_interrupted_campaign_are_read_back(tmp_path):
    file = tmp_path / "faults.jsonl"
    assert read_results(file) == []
    file.write_text(
        '{"cell": "a", "run": 3, "fault": "SIGKILL", "phase": "start", "codes": [-9, null], '
        '"seconds": 1.5, "problems": []}\n'
    )
    assert read_results(file) == [Result("a", 3, "SIGKILL", "start", (-9, None), 1.5, ())]


@pytest.mark.slow
def test_runs_with_faults_give_the_numbers_of_runs_without(gcs, tmp_path):
    cells = [Cell("prepared", 2, "local"), Cell("prepared", 1, "gs")]
    results = []
    for run in campaign(make_campground(tmp_path, gcs), faults=5, seed=1, cells=cells):
        results += run
    assert [result for result in results if result.problems] == []
    assert sum(result.fault == COMPARISON for result in results) >= 2
