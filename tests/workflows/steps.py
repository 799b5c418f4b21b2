"""Steps of a workflow: documented commands with settings that make them small, run in a shell."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.documents import COMMENT, ROOT, one_line
from tests.users import NO_DOWNLOADS
from tupe_jax.utils.errors import STOPPED_EXIT_CODE
from tupe_jax.utils.paths import storage_path

SECONDS = 900
"""No step takes as long."""


@dataclass(frozen=True)
class Step:
    """A command that a reader of the documents types."""

    documented: str
    """A line of a shell block, a command in a sentence, or words that ask for `run`."""
    small: str = ""
    """What is added at its end to make it small."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Replacements for paths and corpora that are not here."""
    run: str = ""
    """The command, if `documented` is a sentence or cannot run here as it is."""
    leaves: str = ""
    """A file that must be there afterwards."""
    says: str = ""
    """What must be among the output."""
    stop_at: str = ""
    """A file: once it has content, the command gets SIGTERM, and must save and exit with 75."""

    @property
    def command(self):
        line = COMMENT.sub("", self.run or one_line(self.documented))
        for documented, here in self.instead.items():
            assert documented in line, f"{documented} is not in: {line}"
            line = line.replace(documented, here)
        return f"{line} {one_line(self.small)}".strip()

    def execute(self, folder):
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"exec {self.command}"],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            if self.stop_at:
                wait_for(_file(folder, self.stop_at), process)
                process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        assert process.returncode == (STOPPED_EXIT_CODE if self.stop_at else 0), output
        assert self.says in output, output
        assert not self.leaves or _file(folder, self.leaves).exists(), output


def _file(folder, name):
    return storage_path(name if name.startswith("gs://") else folder / name)


def wait_for(file, process):
    """Until the file has content, or the process has ended."""
    while process.poll() is None and not (file.exists() and file.stat().length):
        time.sleep(0.05)


def environment(folder):
    """A user's without a network, with this source tree as `tupe`, compiling fast."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **NO_DOWNLOADS, "PATH": path, "PYTHONPATH": str(ROOT)}


def make_folder(folder):
    """Where a user stands: beside `launch/`, with `tupe` and this Python as commands."""
    (folder / "bin").mkdir()
    for name, command in (("tupe", f"{sys.executable} -m tupe_jax"), ("python", sys.executable)):
        script = folder / "bin" / name
        script.write_text(f'#!/usr/bin/env bash\nexec {command} "$@"\n')
        script.chmod(0o755)
    (folder / "launch").symlink_to(ROOT / "launch")
    return folder


def in_order(steps):
    """One test for each step; a step whose input is missing fails."""
    names = [f"{number}: {step.command[:70]}" for number, step in enumerate(steps, 1)]
    return pytest.mark.parametrize("step", steps, ids=names)
