"""What one process does at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tupe_jax.errors import UserError


@contextmanager
def alone(file: Path, refusal: str | None = None) -> Iterator[None]:
    """Hold the file as no other process does; a killed one lets it go.

    One that is held is waited for or, if there is a refusal, that is raised.
    """
    with file.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            raise UserError(refusal) from None
        yield
