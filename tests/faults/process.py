"""A process of a run, forked from a server that has imported everything.

Importing JAX and TensorFlow takes longer than the whole of such a small run. The server starts no
threads, so a forked process is as good as a new one. It runs `tupe` as a user would.

However a campaign ends, its processes end with it: the server ends when its pipe to the campaign
closes, and the kernel kills the children of the server.
"""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path as LocalPath

# What `tupe pretrain` imports only when it needs it.
PRELOADED = (
    "tests.faults.process",
    "tests.faults.campaign",
    "tupe_jax.commands.pretrain",
    "tupe_jax.training.loop",
    "tupe_jax.training.summary",
    "tupe_jax.data.pretraining.streaming_reader",
    "tupe_jax.utils.gcs_client",
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(PRELOADED))
_PR_SET_PDEATHSIG = 1


@contextmanager
def server() -> Iterator[None]:
    """A server with the environment of this moment; at the end all its processes are killed."""
    forkserver._forkserver._stop()
    try:
        yield
    finally:
        forkserver._forkserver._stop()


def start(arguments: Sequence[str], log: LocalPath) -> ForkServerProcess:
    """Run `tupe` with these arguments."""
    process = _context.Process(target=_run, args=(list(arguments), log))
    process.start()
    return process


def _run(arguments: Sequence[str], log: LocalPath) -> None:
    # Its copy of the campaign's end of the pipe would keep the server alive.
    os.close(forkserver._forkserver._forkserver_alive_fd)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    from tupe_jax.cli import entry_point

    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["tupe", *arguments]
    try:
        entry_point()
    finally:
        atexit._run_exitfuncs()  # as at the end of any program, but not of a forked one
