"""How fast the run is: tokens per second, and the shares of hardware and time put to use."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from tupe_jax.distributed.hardware import peak_flops

Pause = Literal["compile", "evaluation", "saving", "data"]
"""What a run spends time on instead of training steps; `data` is waiting for the next batch."""


class Speedometer:
    """Measures steps by the wall clock: what is not a pause is training.

    JAX hands out work and goes on, so the time of a step cannot be taken around its call. The time
    spent elsewhere can, because all of that blocks: compiling, evaluation, waiting for a save or
    for a batch. The device may still be busy with the last step while the host waits for data, so
    the goodput is, if anything, too low.
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
        """Wrap what is not a training step."""
        began = self._clock()
        try:
            yield
        finally:
            self._paused[activity] += self._clock() - began

    def start_interval(self, step: int) -> None:
        """Begin to measure at this step."""
        self._interval = (step, self._clock(), self._stopped())

    def measure(self, step: int) -> dict[str, float]:
        """The metrics of the steps since the interval began; the next one begins here.

        tokens_per_second   while the run was training: waiting for data counts, other pauses do not
        mfu                 model FLOP/s of that over the devices' peak, where the peak is known
        goodput             share of the time since training began, in this process, that was spent
                            in steps; neither its start nor what a killed one had lost is in it
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
        """The share of the time since the start that each kind of pause took."""
        elapsed = max(self._clock() - self._start, 1e-9)
        return {activity: seconds / elapsed for activity, seconds in self._paused.items()}

    def _stopped(self) -> float:
        return sum(seconds for activity, seconds in self._paused.items() if activity != "data")
