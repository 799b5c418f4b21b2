"""Runs the scripts of launch/, with commands of ours in place of those that do not exist here."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LAUNCH = ROOT / "launch"
SCRIPTS = sorted([*LAUNCH.rglob("*.sh"), *LAUNCH.rglob("*.sbatch")])

INSIDE = ("tpu_worker.sh", "gke/entrypoint.sh")
"""Scripts that run on a worker or in a pod, not for users."""


def clean_environment():
    """The environment of the tests, without what changes the commands of a scheduler or cloud."""
    changes = ("SLURM_", "SBATCH_", "CLOUDSDK_", "TUPE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(changes)}


def run(script, *arguments, path=None, **environment):
    """A script's result; `path` is a folder of commands that come before the machine's."""
    clean = clean_environment()
    if path is not None:
        clean["PATH"] = f"{path}:{clean['PATH']}"
    return subprocess.run(
        ["bash", (LAUNCH / script).relative_to(ROOT), *arguments],
        env=clean | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def printed(script, *arguments, **options):
    """The lines that a script prints; it must succeed."""
    done = run(script, *arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def add_command(folder, name, text):
    """An executable of this name and text in a folder for `path`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / name
    command.write_text(text)
    command.chmod(0o755)
    return command


def add_recorder(folder, name, then=""):
    """A command that notes its arguments, one call a line, in `name.calls`, and then does this."""
    add_command(folder, name, f'#!/usr/bin/env bash\necho "$*" >>"{folder}/{name}.calls"\n{then}\n')


def calls(folder, name):
    """What `add_recorder`'s command was called with."""
    file = folder / f"{name}.calls"
    return file.read_text().splitlines() if file.exists() else []
