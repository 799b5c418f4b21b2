"""The watchdog: a run that makes no progress ends, prints where it hangs, and can be restarted.

Nothing else notices a reader that never returns, a file system that stalls, or a chip that hangs:
the main thread waits in native code, and so do all other processes in their next collective. A
thread checks how long ago the run last made progress. Each activity has its own limit. When it is
exceeded, every process prints the stacks of its threads and ends with `RETRY_EXIT_CODE`.

The watchdog also keeps this process's heartbeat up to date, from which process 0 derives which
process is behind.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from types import TracebackType
from typing import Literal

from tupe_jax.config.schema import WatchdogConfig
from tupe_jax.distributed.heartbeat import Heartbeat
from tupe_jax.distributed.process_group import ProcessGroup
from tupe_jax.utils.errors import RETRY_EXIT_CODE

Activity = Literal[
    "starting",
    "preparing data",
    "restoring",
    "compiling",
    "training",
    "reading data",
    "evaluating",
    "saving",
    "summarizing",
]
CHECK_SECONDS = 1.0
STEPS = 20
"""The limit is at least the time of so many steps."""
RECENT_STEPS = 64


class Watchdog:
    """Ends all processes if this one makes no progress."""

    def __init__(
        self,
        settings: WatchdogConfig,
        processes: ProcessGroup,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._processes = processes
        self._clock = clock
        self._closed = threading.Event()
        self._activity: Activity = "starting"
        self._step = self._marks = 0
        self._progressed = self._stepped = self._checked = clock()
        self._step_seconds: deque[float] = deque(maxlen=RECENT_STEPS)
        self._data_seconds: deque[float] = deque([0.0], maxlen=RECENT_STEPS)
        self._report()

    def __enter__(self) -> "Watchdog":
        if self._settings.stalled_minutes:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()

    @property
    def activity(self) -> Activity:
        """The current activity of the main thread."""
        return self._activity

    # ------------------------------------------------------------------ called by the training loop

    def progress(self) -> None:
        """Something was completed."""
        self._progressed = self._clock()
        self._marks += 1
        self._report()

    def step(self, step: int) -> None:
        """A training step was completed, or handed to the device."""
        if self._activity == "training":
            self._step_seconds.append(self._clock() - self._stepped)
        self._activity = "training"
        self._step, self._stepped = step, self._clock()
        self.progress()

    @contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        """Wrap an activity with its own time limit."""
        before, self._activity = self._activity, activity
        began = self._clock()
        self.progress()
        try:
            yield
        finally:
            now = self._clock()
            if activity == "reading data":
                self._data_seconds.append(now - began)
            else:
                self._stepped += now - began  # not a part of the step's time
            self.progress()  # before the limit of the outer activity applies
            self._activity = before

    def _report(self) -> None:
        self._processes.heartbeat = Heartbeat(
            marks=self._marks,
            step=self._step,
            activity=self._activity,
            step_seconds=self._median_step(),
            data_seconds=median(self._data_seconds),
        )

    def _median_step(self) -> float:
        return median(self._step_seconds) if self._step_seconds else 0.0

    # -------------------------------------------------------------------------------- watching

    def overdue(self) -> str | None:
        """Why the run should end, if it should."""
        now = self._clock()
        if now - self._checked > 30 * CHECK_SECONDS:
            self._progressed = now  # this process itself was stopped, and continues
        self._checked = now
        limit = self._limit()
        if now - self._progressed < limit:
            return None
        return (
            f"made no progress for {now - self._progressed:.0f} s at step {self._step} while "
            f"{self._activity} (limit {limit:.0f} s)"
        )

    def _limit(self) -> float:
        settings = self._settings
        match self._activity:
            case "preparing data":  # as long as it takes
                return math.inf
            case "compiling":
                minutes = settings.compile_minutes
            case "restoring" | "saving" | "summarizing":
                minutes = settings.checkpoint_minutes
            case _:
                minutes = settings.stalled_minutes
        return max(60 * minutes, STEPS * self._median_step())

    def _watch(self) -> None:
        while not self._closed.wait(CHECK_SECONDS):
            if reason := self.overdue():
                if behind := self._processes.behind():
                    reason += f"; behind: {behind}"
                message = f"{reason}. The stacks of all threads follow"
                self._processes.abandon(reason, RETRY_EXIT_CODE, message=message, stacks=True)
