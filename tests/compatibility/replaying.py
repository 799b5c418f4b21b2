"""Today's code on the fixtures, in a process with the environment of the pinned runs."""

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.compatibility import runs
from tests.users import ROOT

FIXTURES = Path(__file__).with_name("fixtures.tar.xz")


def run(folder, *arguments):
    """Python with these arguments, in this folder."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**runs.environment(folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


def replay(folder):
    """Unpack the fixtures and repeat the pinned runs; `results.json` has what they gave."""
    with tarfile.open(FIXTURES) as archive:
        archive.extractall(folder, filter="data")
    run(folder, runs.__file__, "replay")
