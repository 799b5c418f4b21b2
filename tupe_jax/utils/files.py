"""Files that take their name only when they are complete on disk."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; the file gets its own name at the end, or never.

    Nobody else has the temporary name, on this machine or another that shares the folder, so that
    of two who write the same file one comes last, and a killed one leaves nothing in the way.
    """
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())  # else a power cut could keep the name and lose the content
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
