"""How far the run is, for the person before it: a bar on a terminal, plain lines elsewhere.

All of it goes to standard error, so that standard output holds results only. Whether that is a
terminal decides: log files, notebooks and schedulers get one line per report.
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

import jax
from tqdm import tqdm


class Progress:
    """The steps of a run; on a pod the first process speaks for all."""

    def __init__(
        self,
        total_steps: int,
        *,
        start: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total_steps
        self._stream = stream or sys.stderr
        self._silent = jax.process_index() != 0
        self._clock = clock
        self._last = (start, clock())
        self._seconds_per_step: float | None = None
        self._text = ""  # of the last report
        self._bar = (
            tqdm(
                total=total_steps,
                initial=start,
                file=self._stream,
                dynamic_ncols=True,
                bar_format="{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} {desc}",
            )
            if self._stream.isatty() and not self._silent
            else None
        )

    def status(self, doing: str) -> None:
        """Say what the run is doing until the next step is made, such as compiling."""
        if self._bar is not None:
            self._bar.set_description_str(doing)
        else:
            self._print(doing)

    def advance(self, step: int) -> None:
        """Move the bar; cheap enough for every step."""
        if self._bar is not None:
            self._bar.set_description_str(self._text, refresh=False)
            self._bar.update(step - self._bar.n)

    def report(self, step: int, *, loss: float, tokens_per_second: float) -> None:
        """Tell the numbers of a log interval."""
        left = time_text(self._seconds_left(step))
        self._text = f"loss {loss:.3f} · {quantity_text(tokens_per_second)} tokens/s · {left} left"
        if self._bar is not None:
            self.advance(step)
            self._bar.refresh()
        else:
            self._print(f"step {step}/{self._total} · {self._text}")

    def say(self, message: str) -> None:
        """Print a line that stays, above the bar: warnings, validation results."""
        if self._bar is not None:
            self._bar.write(message, file=self._stream)
        else:
            self._print(message)

    def close(self) -> None:
        """Leave the terminal in order: what is printed next begins a line."""
        if self._bar is not None:
            self._bar.close()

    def _print(self, text: str) -> None:
        if not self._silent:
            print(text, file=self._stream, flush=True)

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
    """3:07, 2:15:00, or 3 d 04 h: as exact as it is useful."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02d} h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def quantity_text(number: float) -> str:
    """950, 31.2 k, 4.05 M: three figures."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= 0.9995 * unit:
            return f"{number / unit:#.3g}{name}".replace(". ", " ")
    return f"{number:.0f}"
