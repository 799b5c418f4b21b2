"""Preemption: SIGTERM and Ctrl-C end a run after a step, at the same step in all processes.

Checkpoints by the clock are agreed upon in the same way: process 0 decides when one is due.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tupe_jax.distributed.mesh import block_on_cpu
from tupe_jax.distributed.process_group import SINGLE_PROCESS
from tupe_jax.utils.errors import STOPPED_EXIT_CODE

# Ctrl-C reaches a whole process group, and a launcher in it forwards SIGTERM: one request.
SAME_REQUEST_SECONDS = 3.0
_CHECK_SECONDS = 0.1


class StopBeforeTraining(BaseException):
    """A stop request before there is anything to save."""


class StopSignal:
    """Remembers that the run should stop.

    Python runs signal handlers in the main thread once native code returns, so a signal during a
    compilation or a save is noticed right after it. Loops read `requested` between steps. Until
    `has_state` there is nothing to save, and the signal ends the run at once.

    The main thread may hang. So a thread is woken by every signal. It ends all processes if
    `requested` was not read within `grace_seconds` (None: no limit) of the first signal, or at once
    after a second one. A save in progress may take longer: the grace begins when it ends.
    """

    def __init__(self, grace_seconds: float | None = None) -> None:
        self.has_state = False
        self.abandon: Callable[..., NoReturn] = SINGLE_PROCESS.abandon
        """Ends all processes of the run."""
        self.is_saving: Callable[[], bool] = lambda: False
        """Whether the main thread saves a checkpoint, which has its own time limit."""
        self._grace_seconds = grace_seconds
        self._requested = False
        self._seen = threading.Event()
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        if self._requested:
            self._seen.set()
        return self._requested

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._handle)
        received, self._woken_by = socket.socketpair()
        self._woken_by.setblocking(False)
        self._previous_fd = signal.set_wakeup_fd(self._woken_by.fileno(), warn_on_full_buffer=False)
        # A child process must not report its signals to this one.
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        threading.Thread(target=self._watch, args=(received,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._previous_fd)
        self._woken_by.close()  # ends the thread
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            return  # `_watch` decides what a second signal means
        self._requested = True
        if not self.has_state:
            self._seen.set()
            raise StopBeforeTraining

    def _watch(self, received: socket.socket) -> None:
        """Runs in its own thread."""
        with received:
            first = self._next_signal(received)
            began = grace_began = time.monotonic()
            received.settimeout(None if self._grace_seconds is None else _CHECK_SECONDS)
            while first is not None:
                try:
                    number = self._next_signal(received)
                except TimeoutError:
                    now = time.monotonic()
                    if self._seen.is_set():
                        received.settimeout(None)
                    elif self.is_saving():
                        grace_began = now
                    elif self._grace_seconds and now - grace_began > self._grace_seconds:
                        self._end(f"did not react to a stop request for {self._grace_seconds:g} s")
                    continue
                if number is None:
                    return
                apart = time.monotonic() - began > SAME_REQUEST_SECONDS
                if apart or number == first == signal.SIGINT:
                    self._end("received a second stop request")

    def _next_signal(self, received: socket.socket) -> int | None:
        """The number of the next signal to stop; None at the end."""
        while byte := received.recv(1):
            if byte[0] in self._previous:
                return byte[0]
        return None

    def _end(self, why: str) -> NoReturn:
        message = f"{why}: ended without saving; the same command resumes"
        self.abandon(why, STOPPED_EXIT_CODE, message=message)


class Stop(Protocol):
    """Whether the run should stop."""

    has_state: bool

    @property
    def requested(self) -> bool: ...


class SaveTimer:
    """Requests a checkpoint when so many minutes have passed since the last one; 0: never."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = 60 * minutes
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        self._began = self._clock()
        self._asked = False

    def due(self) -> bool:
        """Whether to request a checkpoint now; True once, until the timer is restarted."""
        due = 0 < self._seconds <= self._clock() - self._began and not self._asked
        self._asked |= due
        return due


class Requests:
    """Whether to stop or to save after a step: the same in all processes.

    With several processes, `agree_to_stop` is a collective maximum over the requests of all of
    them, so every process must call it equally often. It returns the result of the previous call,
    so that the host does not wait for the devices: a run of several processes stops one step later
    than a single process. The first call waits for its own result, because a signal may have
    arrived during compilation.
    """

    def __init__(self, stop: Stop, timer: SaveTimer, mesh: Mesh) -> None:
        self._stop = stop
        self._timer = timer
        self._alone = jax.process_count() == 1
        self._sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self._any = jax.jit(
            lambda asked: jnp.max(asked, axis=0),
            out_shardings=NamedSharding(mesh, PartitionSpec()),
        )
        self._before: jax.Array | None = None
        self._stop_agreed = self._save_due = False

    def agree_to_stop(self) -> bool:
        """Whether to stop. Also finds out whether a checkpoint is due."""
        if not self._stop_agreed:
            stop, save = self._agree(np.array([self._stop.requested, self._timer.due()]))
            self._stop_agreed = bool(stop)
            self._save_due |= bool(save)
        return self._stop_agreed

    @property
    def save_agreed(self) -> bool:
        """Whether the timer has requested a checkpoint, as of the last `agree_to_stop`."""
        return self._save_due

    def saved(self) -> None:
        """Call this after every checkpoint, whatever the reason for it."""
        self._save_due = False
        self._timer.restart()

    def _agree(self, asked: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
        if self._alone:
            return asked
        shape = (self._sharding.num_devices, *asked.shape)
        asked_all = jax.make_array_from_callback(shape, self._sharding, lambda _: asked[None])
        now = block_on_cpu(self._any(asked_all))
        answer = now if self._before is None else self._before
        self._before = now
        return np.asarray(answer)
