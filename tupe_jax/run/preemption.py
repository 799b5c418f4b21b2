"""Preemption: SIGTERM and Ctrl-C end a run after a step, at the same step in all processes."""

import signal
from types import FrameType, TracebackType
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tupe_jax.distributed.mesh import block_on_cpu

STOPPED_EXIT_CODE = 75
"""The run stopped on request; the same command resumes it (sysexits' EX_TEMPFAIL)."""


class StopBeforeTraining(BaseException):
    """A stop request before there is anything to save."""


class StopSignal:
    """Remembers that the run should stop.

    Python runs signal handlers in the main thread once native code returns, so a signal during a
    compilation or a save is noticed right after it. Loops read `requested` between steps. Until
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
                raise KeyboardInterrupt  # the second Ctrl-C ends the run at once
            return  # a second SIGTERM must not interrupt the save
        self.requested = True
        if not self.has_state:
            raise StopBeforeTraining


class Stop(Protocol):
    """Whether the run should stop."""

    has_state: bool

    @property
    def requested(self) -> bool: ...


def agreed_stop(stop: Stop, mesh: Mesh) -> Stop:
    """Return a stop that all processes see at the same step, whichever of them got the signal."""
    return stop if jax.process_count() == 1 else _AgreedStop(stop, mesh)


class _AgreedStop:
    """A collective maximum over the stop requests of all processes, once per step.

    `requested` returns the result of the previous step, so that the host does not wait for the
    devices: a run of several processes stops one step later than a single process. The first call
    waits for its own result, because a signal may have arrived during compilation.
    """

    has_state = True

    def __init__(self, stop: Stop, mesh: Mesh) -> None:
        self._stop = stop
        self._sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self._any = jax.jit(jnp.max, out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._before: jax.Array | None = None
        self._agreed = False

    @property
    def requested(self) -> bool:
        if not self._agreed:
            asked = np.array([self._stop.requested])
            asked_all = jax.make_array_from_callback(
                (self._sharding.num_devices,), self._sharding, lambda _: asked
            )
            now = block_on_cpu(self._any(asked_all))
            self._agreed = bool(now if self._before is None else self._before)
            self._before = now
        return self._agreed
