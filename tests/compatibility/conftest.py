"""The pinned runs, made once for all tests of this folder."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.compatibility import runs
from tests.users import ROOT

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def replayed(tmp_path_factory):
    """The folder in which today's code repeated the runs; it began with the fixtures."""
    folder = tmp_path_factory.mktemp("compatibility")
    with tarfile.open(HERE / "fixtures.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    ended = subprocess.run(
        [sys.executable, str(HERE / "runs.py"), "replay"],
        cwd=folder,
        env={**runs.environment(folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="session")
def today(replayed):
    return json.loads((replayed / "results.json").read_text())


@pytest.fixture(scope="session")
def recorded():
    return json.loads((HERE / "results.json").read_text())
