"""Atomic writes and exclusive locks."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tupe_jax.utils.errors import UserError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end, rename it to `path`.

    No other process uses the temporary name, on this machine or another that shares the folder. So
    of two writers of the same file one is last, and a killed writer does not block others.
    """
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())  # otherwise a power cut may keep the name and lose the content
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def exclusive_lock(path: Path, refusal: UserError | None = None) -> Iterator[None]:
    """Hold the lock of a file or folder; it ends with the process that holds it.

    If another process holds the lock: raises `refusal` if given, otherwise waits. Creates a missing
    file. Some cluster file systems have no locks, and NFS has none for folders. There nothing is
    locked: the lock only guards against mistakes, so its absence is not an error.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    held = os.open(path, flags, mode=0o666)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            assert refusal is not None
            raise refusal from None
        except OSError:
            pass
        yield
    finally:
        os.close(held)
