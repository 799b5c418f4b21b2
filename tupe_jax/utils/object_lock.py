"""An exclusive lock on object storage: an object that its holder renews while it runs.

Writes have a generation precondition, so of several processes that write the object at the same
time one succeeds. A lock that is not renewed for `STALE_SECONDS`, by the clock of the storage, is
taken over. The lock of a dead process on this machine is taken over at once. A holder that cannot
renew its lock ends before it becomes stale, so no two processes hold it.
"""

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import NoReturn

from tupe_jax.utils.errors import RETRY_EXIT_CODE, UserError
from tupe_jax.utils.logging import exit_at_the_latest
from tupe_jax.utils.object_storage import (
    NO_OBJECT,
    filesystem,
    split,
    storage_errors,
    write_if,
)
from tupe_jax.utils.paths import Path

RENEW_SECONDS = 10.0
STALE_SECONDS = 60.0
LAST_MESSAGE_SECONDS = 3.0
_POLL_SECONDS = 1.0
_FENCE_CHECKS = 50

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    host: str
    machine: str
    """The boot and the PID namespace: where it is the same, a process id is the same process."""
    pid: int
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} of {self.host}"


@dataclass(frozen=True)
class Held:
    """A lock as found."""

    owner: Owner
    generation: str
    age_seconds: float

    def is_dead(self) -> bool:
        """Whether its owner has certainly ended, or is to be taken for dead."""
        if self.age_seconds > STALE_SECONDS:
            return True
        return self.owner.machine == _machine() != "" and not _exists(self.owner.pid)

    def is_alive(self) -> bool:
        """Whether its owner certainly runs."""
        return self.owner.machine == _machine() != "" and _exists(self.owner.pid)


@contextmanager
def object_lock(path: Path, refusal: UserError | None) -> Iterator[None]:
    """Hold the lock. If another process holds it, raise the refusal, or wait if there is none.

    Whether a holder on another machine still runs is known within `STALE_SECONDS`. If the lock is
    lost, or is not renewed for almost as long, this process ends with `RETRY_EXIT_CODE`, because
    another process may take its place.
    """
    owner = Owner(socket.gethostname(), _machine(), os.getpid(), secrets.token_hex(8))
    with storage_errors():
        generation, written = _acquire(path, owner, refusal)
    renewal = _Renewal(path, owner, generation, written)
    renewal.start()
    try:
        yield
    finally:
        renewal.stop()


def _acquire(path: Path, owner: Owner, refusal: UserError | None) -> tuple[str, float]:
    """The generation of the lock, and a time just before it was written."""
    expected = NO_OBJECT
    seen: Held | None = None
    while True:
        began = time.monotonic()
        generation = _write(path, owner, expected)
        if generation is not None:
            return generation, began
        held = _read(path)
        if held is None:
            expected = NO_OBJECT
        elif held.owner == owner:  # the answer to our own write was lost
            return held.generation, began
        elif held.is_dead():
            logger.warning("%s: taking over the lock of %s, which has ended", path, held.owner)
            expected = held.generation
        else:
            renewed = seen is not None and seen.generation != held.generation
            if refusal is not None and (renewed or held.is_alive()):
                raise refusal
            if seen is None:
                logger.info("%s: held by %s; checking whether it runs", path, held.owner)
            seen = held
            time.sleep(_POLL_SECONDS)


class _Renewal(threading.Thread):
    """Renews a lock until it is stopped or lost.

    A second thread ends this process before the lock is stale: the request that renews it may hang.
    """

    def __init__(self, path: Path, owner: Owner, generation: str, written: float) -> None:
        super().__init__(name="lock renewal", daemon=True)
        self._path = path
        self._owner = owner
        self._generation = generation
        self._written = written
        """When the last successful write began: the lock is not older than that."""
        self._stopped = threading.Event()

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._fence, name="lock fence", daemon=True).start()

    def stop(self) -> None:
        """Release the lock."""
        self._stopped.set()
        self.join(RENEW_SECONDS)  # a request to stalled storage may take forever
        # If it cannot be deleted, it becomes stale.
        with suppress(Exception):
            if not self.is_alive():
                _delete(self._path, self._generation)

    def run(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            try:
                self._renew()
            except Exception as error:
                logger.warning("%s: cannot renew the lock (%s); trying again", self._path, error)

    def _fence(self) -> None:
        """Runs in its own thread."""
        limit = STALE_SECONDS - RENEW_SECONDS
        while not self._stopped.wait(limit / _FENCE_CHECKS):
            age = time.monotonic() - self._written
            if age > limit:
                self._end(f"was not renewed for {age:.0f} s, and others may take it over")

    def _end(self, why: str) -> NoReturn:
        exit_at_the_latest(RETRY_EXIT_CODE, LAST_MESSAGE_SECONDS)
        logger.error("%s: the lock %s; this run ends, without saving", self._path, why)
        logging.shutdown()
        # Not an exception: its handlers could still write files.
        os._exit(RETRY_EXIT_CODE)

    def _renew(self) -> None:
        began = time.monotonic()
        generation = _write(self._path, self._owner, self._generation)
        if generation is None:
            held = _read(self._path)
            if held is None or held.owner != self._owner:
                self._end("was deleted" if held is None else f"was taken over by {held.owner}")
            # Our write succeeded, but its answer was lost: the storage reports the age.
            generation, began = held.generation, began - held.age_seconds
        self._generation, self._written = generation, began


# --------------------------------------------------------------------------------------- the object


def _write(path: Path, owner: Owner, generation: str) -> str | None:
    """Write the object if its generation is this one; return the new one, or None if it is not."""
    return write_if(path, json.dumps(asdict(owner)).encode(), generation)


def _read(path: Path) -> Held | None:
    bucket, name = split(path)
    client = filesystem()
    while True:
        try:
            headers, content = client.call("GET", "b/{}/o/{}", bucket, name)
            found = json.loads(content)
            _, owner = client.call(
                "GET", "b/{}/o/{}", bucket, name, alt="media", generation=found["generation"]
            )
        except FileNotFoundError:
            if not client.exists(os.fspath(path)):
                return None
            continue  # renewed between the two requests
        now = parsedate_to_datetime(headers["Date"])
        age = now - datetime.fromisoformat(found["updated"])
        return Held(_parse(owner), str(found["generation"]), age.total_seconds())


def _parse(content: bytes) -> Owner:
    try:
        return Owner(**json.loads(content))
    except (ValueError, TypeError):  # such as the empty lock file of a run that was copied here
        return Owner("an unknown host", "", 0, "")


def _delete(path: Path, generation: str) -> None:
    bucket, name = split(path)
    filesystem().call("DELETE", "b/{}/o/{}", bucket, name, ifGenerationMatch=generation)


# ------------------------------------------------------------------------------------- this machine


def _machine() -> str:
    """The boot and the PID namespace of this process; empty where Linux does not report them."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
