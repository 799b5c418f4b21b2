"""The console: how log records reach standard error.

One process prints plain messages; only warnings and errors carry their level. In a run of several
processes each line has a timestamp, a level and the index of its process, and processes other than
0 print warnings and errors only.

Modules log to `logging.getLogger(__name__)`. Results of a command are printed to standard output.
"""

import logging
import os
import sys
import threading
from contextlib import suppress

PACKAGE = "tupe_jax"
# These set no level of their own, or a more talkative one. Their warnings are printed.
LIBRARIES = ("absl", "apache_beam", "grain", "jax", "orbax", "tensorflow", "tensorflow_datasets")


def configure_logging(process_index: int = 0, process_count: int = 1) -> None:
    """Print the log records of this process; a second call replaces the first.

    The handler belongs to the root logger: otherwise a library that finds the root without one
    adds its own, and every line appears twice.
    """
    handler = _ConsoleHandler()
    handler.setFormatter(
        _PlainFormatter() if process_count == 1 else _ProcessFormatter(process_index)
    )
    root = logging.getLogger()
    for other in root.handlers:
        if isinstance(other, _ConsoleHandler):
            root.removeHandler(other)
    root.addHandler(handler)
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.getLogger(PACKAGE).setLevel(logging.WARNING if process_index else logging.INFO)


def exit_at_the_latest(exit_code: int, seconds: float) -> None:
    """End this process after so long, whatever its threads do.

    Call it before the last messages of a process that must end: writing to a pipe that nobody
    reads, or to a log on storage that hangs, takes forever.
    """
    timer = threading.Timer(seconds, os._exit, (exit_code,))
    timer.daemon = True
    timer.start()


class _ConsoleHandler(logging.Handler):
    """Writes to the current `sys.stderr`, above the progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        tqdm = sys.modules.get("tqdm")
        with suppress(OSError):  # a reader that has gone must not keep a process from ending
            if tqdm is None:
                print(line, file=sys.stderr, flush=True)
            else:
                tqdm.tqdm.write(line, file=sys.stderr)
                sys.stderr.flush()


class _PlainFormatter(logging.Formatter):
    """`message`, `warning: message`, or `warning: library: message`."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{level}{_library(record)}{record.message}"


class _ProcessFormatter(logging.Formatter):
    """`2026-01-31 12:00:00 INFO process 3: message`."""

    def __init__(self, process_index: int) -> None:
        super().__init__(datefmt="%Y-%m-%d %H:%M:%S")
        self._process_index = process_index

    def usesTime(self) -> bool:
        return True

    def formatMessage(self, record: logging.LogRecord) -> str:
        return (
            f"{record.asctime} {record.levelname} process {self._process_index}: "
            f"{_library(record)}{record.message}"
        )


def _library(record: logging.LogRecord) -> str:
    """The name of another library, as a prefix."""
    library = record.name.partition(".")[0]
    return "" if library == PACKAGE else f"{library}: "
