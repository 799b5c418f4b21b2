"""The progress of a run: a bar if standard error is a terminal, log lines otherwise."""

import logging
import sys
import time
from collections.abc import Callable

import jax
from tqdm import tqdm

from tupe_jax.utils.text import quantity

logger = logging.getLogger(__name__)


class Progress:
    """The steps of a run. Only process 0 draws a bar."""

    def __init__(
        self,
        total_steps: int,
        *,
        start: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total_steps
        self._clock = clock
        self._last = (start, clock())
        self._seconds_per_step: float | None = None
        self._text = ""  # of the last report
        self._bar = (
            tqdm(
                total=total_steps,
                initial=start,
                file=sys.stderr,
                dynamic_ncols=True,
                bar_format="{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} {desc}",
            )
            if sys.stderr.isatty() and jax.process_index() == 0
            else None
        )

    def status(self, doing: str) -> None:
        """Show what the run does until its next step, such as compiling."""
        if self._bar is not None:
            self._bar.set_description_str(doing)
        else:
            logger.info(doing)

    def advance(self, step: int) -> None:
        """Move the bar; cheap enough for every step."""
        if self._bar is not None:
            self._bar.set_description_str(self._text, refresh=False)
            self._bar.update(step - self._bar.n)

    def report(self, step: int, *, loss: float, tokens_per_second: float) -> None:
        """Show the metrics of a log interval."""
        left = time_text(self._seconds_left(step))
        self._text = f"loss {loss:.3f} · {quantity(tokens_per_second)} tokens/s · {left} left"
        if self._bar is not None:
            self.advance(step)
            self._bar.refresh()
        else:
            logger.info(f"step {step}/{self._total} · {self._text}")

    def close(self) -> None:
        """End the bar, so that the next output begins a new line."""
        if self._bar is not None:
            self._bar.close()

    def _seconds_left(self, step: int) -> float:
        """From the time of recent steps; those before the first report hold the compilation."""
        now = self._clock()
        steps, seconds = step - self._last[0], now - self._last[1]
        self._last = (step, now)
        if steps > 0:
            recent, before = seconds / steps, self._seconds_per_step
            self._seconds_per_step = recent if before is None else 0.5 * (recent + before)
        return (self._total - step) * (self._seconds_per_step or 0.0)


def time_text(seconds: float) -> str:
    """A duration such as 3:07, 2:15:00 or 3 d 04 h."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02d} h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
