"""The faults: what is done to a run, and with which exit codes its processes may end.

A fault is injected at a random moment of one start of a run; a checkpoint is damaged before one.
A negative exit code is the number of the signal that ended a process.
"""

import os
import random
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess

from tests.faults.runs import Cell, Start, checkpoints_in
from tupe_jax.run.preemption import SAME_REQUEST_SECONDS
from tupe_jax.utils.errors import RETRY_EXIT_CODE, STOPPED_EXIT_CODE
from tupe_jax.utils.paths import Path

FINISHED, STOPPED, RETRY = 0, STOPPED_EXIT_CODE, RETRY_EXIT_CODE
JAX_ABORT = -signal.SIGABRT
# Until Python has installed its handler, SIGTERM ends a process.
BEFORE_HANDLER = -signal.SIGTERM
STALL_SECONDS = 30.0
OUTAGE_SECONDS = (3.0, 45.0)
"""Clients retry for about half a minute."""


@dataclass(frozen=True)
class Fault:
    """One way to harm a run."""

    name: str
    inject: Callable[[Start, random.Random], None] | None
    """Called at the chosen moment; returns when the harm is done."""
    damage: Callable[[Path, random.Random], None] | None = None
    """Called before a start, with the newest checkpoint."""
    victim_codes: frozenset[int] = frozenset()
    """Exit codes of the process that was harmed."""
    other_codes: frozenset[int] = frozenset({RETRY, JAX_ABORT})
    """Exit codes of the other processes of the run."""
    storages: frozenset[str] = frozenset({"local", "gs"})
    least_processes: int = 1
    phases: Sequence[str] = ("start", "training")
    """`start`: before the first step."""
    survived: bool = False
    """Whether the run should train on, so that the same start can be harmed again."""

    def applies(self, cell: Cell, workdir: Path | None) -> bool:
        """Whether a run of this kind can be harmed so, at its next start."""
        if cell.storage not in self.storages or cell.processes < self.least_processes:
            return False
        # A run whose only checkpoint is damaged refuses to start again from the beginning.
        if self.damage is None:
            return True
        return workdir is not None and len(checkpoints_in(workdir)) > 1

    def codes(self, victim: bool) -> frozenset[int]:
        codes = self.victim_codes if victim else self.other_codes
        # Not every fault ends a run; and it may have done all its work when the fault comes.
        return codes | {FINISHED}


def _send(victim: ForkServerProcess, number: int) -> None:
    with suppress(ProcessLookupError):  # it has just finished
        os.kill(victim.pid, number)


def _kill(start: Start, randomly: random.Random) -> None:
    start.victim(randomly).kill()


def _terminate(start: Start, randomly: random.Random) -> None:
    start.victim(randomly).terminate()


def _terminate_twice(start: Start, randomly: random.Random) -> None:
    victim = start.victim(randomly)
    victim.terminate()
    time.sleep(SAME_REQUEST_SECONDS + randomly.random())
    victim.terminate()


def _freeze(start: Start, randomly: random.Random) -> None:
    """Stopped for good: a host that hangs. The campaign kills it when the others have ended."""
    _send(start.victim(randomly), signal.SIGSTOP)
    start.frozen = start.harmed


def _pause(start: Start, randomly: random.Random) -> None:
    """Stopped for some seconds, as by a debugger or a virtual machine that migrates."""
    victim = randomly.choice(start.processes)
    _send(victim, signal.SIGSTOP)
    time.sleep(1 + 2 * randomly.random())
    _send(victim, signal.SIGCONT)


def _fill_disk(start: Start, randomly: random.Random) -> None:
    """Every write of the victim to a file fails from now on."""
    victim = start.victim(randomly)
    with suppress(ProcessLookupError):
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (0, 0))


def _bother(start: Start, randomly: random.Random) -> None:
    """Connections of strangers to process 0's port."""
    lines: list[bytes] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b'{"process": 1, "processes": 2, "host": "stranger"}\n',
        b'{"process": "1"}\n',
        b'{"process": 1, "processes": 99, "host": "stranger", "token": "wrong"}\n',
        b"[" * 100_000 + b"\n",
        os.urandom(4096),
        b"",
    ]
    until = time.monotonic() + 5
    held = []
    while time.monotonic() < until:
        try:
            stranger = socket.create_connection(("localhost", start.port), timeout=1)
            stranger.sendall(randomly.choice(lines))
            held.append(stranger)  # stays open and silent
        except OSError:
            pass
        time.sleep(0.05)
    for stranger in held:
        stranger.close()


def _break_storage(start: Start, randomly: random.Random) -> None:
    """The object store answers 503 for a while."""
    start.storage.fail_for(randomly.uniform(*OUTAGE_SECONDS))


def _stall_storage(start: Start, randomly: random.Random) -> None:
    """The object store answers nothing for half a minute."""
    start.storage.stall_for(STALL_SECONDS)


def _some_file(checkpoint: Path, randomly: random.Random) -> Path:
    files = sorted(path for path in _files(checkpoint) if path.stat().length)
    return randomly.choice(files)


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _tear(checkpoint: Path, randomly: random.Random) -> None:
    """A file of the checkpoint ends early."""
    file = _some_file(checkpoint, randomly)
    content = file.read_bytes()
    file.write_bytes(content[: randomly.randrange(len(content))])


def _flip_bit(checkpoint: Path, randomly: random.Random) -> None:
    file = _some_file(checkpoint, randomly)
    content = bytearray(file.read_bytes())
    content[randomly.randrange(len(content))] ^= 1 << randomly.randrange(8)
    file.write_bytes(bytes(content))


def _codes(*codes: int) -> frozenset[int]:
    return frozenset(codes)


_ONLY_GS = frozenset({"gs"})
KINDS = {
    fault.name: fault
    for fault in (
        Fault("SIGKILL", _kill, victim_codes=_codes(-signal.SIGKILL)),
        Fault(
            "SIGTERM",
            _terminate,
            victim_codes=_codes(STOPPED, BEFORE_HANDLER),
            other_codes=_codes(STOPPED, RETRY),
        ),
        Fault(
            "second SIGTERM",
            _terminate_twice,
            victim_codes=_codes(STOPPED, BEFORE_HANDLER),
            other_codes=_codes(STOPPED, RETRY, JAX_ABORT),
        ),
        Fault(
            "SIGSTOP",
            _freeze,
            victim_codes=_codes(-signal.SIGKILL),
            least_processes=2,
        ),
        Fault("pause", _pause, other_codes=_codes(), survived=True),
        Fault(
            "full disk",
            _fill_disk,
            victim_codes=_codes(RETRY),
            storages=frozenset({"local"}),
        ),
        Fault(
            "strangers",
            _bother,
            other_codes=_codes(),
            least_processes=2,
            phases=("start",),
            survived=True,
        ),
        Fault(
            "storage errors",
            _break_storage,
            # The process that holds the lock ends without a message to the others.
            other_codes=_codes(RETRY, JAX_ABORT),
            storages=_ONLY_GS,
            survived=True,
        ),
        Fault(
            "storage stall",
            _stall_storage,
            # The process that holds the lock ends without a message to the others.
            other_codes=_codes(RETRY, JAX_ABORT),
            storages=_ONLY_GS,
            survived=True,
        ),
        Fault("torn checkpoint", None, _tear, other_codes=_codes(), survived=True),
        Fault("flipped bit", None, _flip_bit, other_codes=_codes(), survived=True),
    )
}
