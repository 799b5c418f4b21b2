"""What one process does at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tupe_jax.utils.errors import UserError


@contextmanager
def exclusive_lock(path: Path, refusal: UserError | None = None) -> Iterator[None]:
    """Hold a file or a folder as no other process does; a killed one lets it go.

    One that is held is waited for or, if there is a refusal, that is raised. A file is made if it
    is missing. Where the file system has no locks (some clusters' have none, nor has a folder on
    NFS), nobody is kept out: a lock is a help against mistakes, and none is no reason to fail.
    """
    how = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    held = os.open(path, how, mode=0o666)
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
