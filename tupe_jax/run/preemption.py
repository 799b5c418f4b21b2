"""SIGTERM and Ctrl-C: finish the step, save, and exit with a code of its own."""

import signal
from types import FrameType, TracebackType
from typing import Any

STOPPED_EXIT_CODE = 75
"""The run was asked to stop and can be resumed by the same command (sysexits' EX_TEMPFAIL)."""


class StopBeforeTraining(BaseException):
    """Asked to stop when there is nothing to save yet."""


class StopSignal:
    """Remembers that the run should stop.

    Python runs signal handlers in the main thread as soon as it is back from native code: a signal
    during a compile or a save is seen right after it. Loops ask `requested` between steps. Until
    `has_state` there is nothing to save, and the signal ends the run at once.
    """

    def __init__(self) -> None:
        self.requested = False
        self.has_state = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if number == signal.SIGINT:
                raise KeyboardInterrupt  # pressed twice: the user means it
            return  # a second SIGTERM must not disturb what the first one began
        self.requested = True
        if not self.has_state:
            raise StopBeforeTraining
