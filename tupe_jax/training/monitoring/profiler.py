"""A profiler trace of a few steps."""

from types import TracebackType

import jax

from tupe_jax.utils.paths import Path

PROFILED_STEPS = 5


class Profile:
    """Traces the steps from `at` on; 0 is off. A run that ends meanwhile ends the trace, too."""

    def __init__(self, at: int, folder: Path) -> None:
        self._at = at
        self._folder = folder
        self._tracing = False

    def before(self, step: int) -> None:
        """Called before each step with the number of steps made so far."""
        if self._at and step == self._at:
            jax.profiler.start_trace(str(self._folder))
            self._tracing = True
        elif self._tracing and step == self._at + PROFILED_STEPS:
            self._stop()

    def __enter__(self) -> "Profile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tracing:
            self._stop()

    def _stop(self) -> None:
        jax.profiler.stop_trace()
        self._tracing = False
