"""A sample of the campaign of faults; the whole is `python -m tests.faults`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.__main__ import read_results, table
from tests.faults.campaign import COMPARISON, Result, campaign
from tests.faults.kinds import KINDS
from tests.faults.runs import Cell, campground


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


# A shell that starts this in the background has it ignore SIGINT.
A_CAMPAIGN = """
import signal, sys, time
from pathlib import Path
from tests.faults import process
signal.signal(signal.SIGINT, signal.default_int_handler)
process._context.set_forkserver_preload(["tests.faults.process"])
with process.server():
    child = process.start([], Path(sys.argv[1]))
    print(child.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_processes_of_a_campaign_end_with_it(number, tmp_path):
    log = tmp_path / "log"
    os.mkfifo(log)  # a process waits here for a reader
    command = [sys.executable, "-c", A_CAMPAIGN, str(log)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as campaign:
        child = Path("/proc", campaign.stdout.readline().strip())
        assert child.exists()
        time.sleep(0.5)
        assert child.exists()  # it waits
        campaign.send_signal(number)
        assert campaign.wait(timeout=30) != 0
    until = time.monotonic() + 30
    while child.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not child.exists()


# Those that take seconds and need no patience.
QUICK = ("SIGKILL", "SIGTERM", "strangers", "torn checkpoint", "flipped bit")


@pytest.mark.slow
def test_runs_with_faults_give_the_numbers_of_runs_without(gcs, tmp_path):
    results = []
    environment = dict(os.environ)
    with campground(tmp_path, gcs) as ground:
        kinds = [KINDS[name] for name in QUICK]
        cells = [Cell("prepared", 2, "gs")]
        for run in campaign(ground, faults=len(QUICK), seed=1, cells=cells, kinds=kinds):
            results += run
    assert dict(os.environ) == environment
    assert [result for result in results if result.problems] == []
    # A fault of a checkpoint is left out if the run has none at that moment.
    assert {COMPARISON, "SIGKILL"} <= {result.fault for result in results} <= {*QUICK, COMPARISON}
