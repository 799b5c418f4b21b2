"""A profiler trace of a few steps."""

import pathlib
import shutil
import tempfile
from types import TracebackType

import jax

from tupe_jax.utils.object_storage import upload
from tupe_jax.utils.paths import Path, is_object

PROFILED_STEPS = 5


class Profile:
    """Traces the steps from `at` on; 0 is off. A run that ends meanwhile ends the trace, too."""

    def __init__(self, at: int, folder: Path) -> None:
        self._at = at
        self._folder = folder
        self._local = pathlib.Path(folder)
        self._tracing = False

    def before(self, step: int) -> None:
        """Called before each step with the number of steps made so far."""
        if self._at and step == self._at:
            if is_object(self._folder):  # the profiler writes local files only
                self._local = pathlib.Path(tempfile.mkdtemp())
            jax.profiler.start_trace(str(self._local))
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
        if is_object(self._folder):
            for file in self._local.rglob("*"):
                if file.is_file():
                    upload(file, self._folder / file.relative_to(self._local))
            shutil.rmtree(self._local)
        self._tracing = False
