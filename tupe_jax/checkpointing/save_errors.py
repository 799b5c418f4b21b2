"""Reports a failed write of a checkpoint at once, from Orbax's background thread.

Orbax raises it at the next call. With several processes that is too late: by then the process that
failed and all others wait for each other at Orbax's barriers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orbax.checkpoint as ocp

Failed = Callable[[Exception], None]


def report_failures(handler: ocp.CheckpointHandler, failed: Failed) -> ocp.CheckpointHandler:
    """Call `failed` as soon as this handler cannot write."""
    start_writing: Any = handler.async_save
    finalize: Any = handler.finalize

    async def async_save(*arguments: Any, **named: Any) -> "list[_Reported]":
        with _reported(failed):
            futures = await start_writing(*arguments, **named)
        return [_Reported(future, failed) for future in futures or ()]

    # Of the object and not in a subclass: Orbax finds a handler's arguments by its exact class.
    vars(handler).update(async_save=async_save, finalize=_reported(failed)(finalize))
    return handler


@dataclass(frozen=True)
class _Reported:
    """An Orbax future; the background thread waits for its result."""

    future: Any
    failed: Failed

    def result(self, timeout: float | None = None) -> Any:
        with _reported(self.failed):
            return self.future.result(timeout)

    def cancel(self) -> Any:
        return self.future.cancel()


@contextmanager
def _reported(failed: Failed) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        failed(error)
        raise
