"""The speed of a run: tokens per second, MFU and goodput."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from tupe_jax.distributed.hardware import peak_flops

Pause = Literal["compile", "evaluation", "saving", "data"]
"""What a run spends time on instead of training steps; `data` is waiting for the next batch."""


class Speedometer:
    """Measures training time as wall-clock time minus pauses.

    JAX dispatches work asynchronously, so a step cannot be timed around its call. Pauses can,
    because they block: compilation, evaluation, waiting for a save or for a batch. While the host
    waits for data, the device may still be busy with the last step, so goodput may be
    underestimated.
    """

    def __init__(
        self,
        *,
        tokens_per_step: int,
        training_flops_per_token: float,
        device_kind: str,
        devices: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        peak = peak_flops(device_kind)
        self._peak_tokens_per_second = (
            None if peak is None else peak * devices / training_flops_per_token
        )
        self._tokens_per_step = tokens_per_step
        self._clock = clock
        self._start = clock()
        self._paused: dict[Pause, float] = defaultdict(float)
        self._interval = (0, self._start, 0.0)  # step, time, and seconds paused when it began

    @contextmanager
    def pause(self, activity: Pause) -> Iterator[None]:
        """Count the time inside as a pause."""
        began = self._clock()
        try:
            yield
        finally:
            self._paused[activity] += self._clock() - began

    def start_interval(self, step: int) -> None:
        """Begin to measure at this step."""
        self._interval = (step, self._clock(), self._stopped())

    def measure(self, step: int) -> dict[str, float]:
        """The metrics of the steps since the last call; the next interval starts here.

        tokens_per_second   in training time: includes waiting for data, but no other pause
        mfu                 model FLOP/s over the peak of the devices, where the peak is known
        goodput             fraction of the time since training began in this process that was spent
                            in steps; excludes start-up and steps lost by killed processes
        """
        began_step, began, stopped_before = self._interval
        self.start_interval(step)
        seconds = self._interval[1] - began - (self._interval[2] - stopped_before)
        tokens_per_second = (step - began_step) * self._tokens_per_step / max(seconds, 1e-9)
        measured = {"tokens_per_second": tokens_per_second, "goodput": self.goodput()}
        if self._peak_tokens_per_second is not None:
            measured["mfu"] = tokens_per_second / self._peak_tokens_per_second
        return measured

    def goodput(self) -> float:
        return max(0.0, 1 - sum(self.pauses().values()))

    def pauses(self) -> dict[Pause, float]:
        """The fraction of the time since the start that each kind of pause took."""
        elapsed = max(self._clock() - self._start, 1e-9)
        return {activity: seconds / elapsed for activity, seconds in self._paused.items()}

    def _stopped(self) -> float:
        return sum(seconds for activity, seconds in self._paused.items() if activity != "data")
