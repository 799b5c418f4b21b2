"""Atomic writes, local copies and exclusive locks, of local files and of objects."""

import fcntl
import os
import pathlib
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path, is_object

Item = TypeVar("Item")
Content = TypeVar("Content")

_READS_IN_FLIGHT = 32


@contextmanager
def atomic_file(path: Path) -> Iterator[pathlib.Path]:
    """Yield a local path to write to; at the end, rename it to `path` or upload it.

    Readers see the old file or the new one. No other process uses the temporary name, on this
    machine or another that shares the folder. So of two writers of the same file one is last, and a
    killed writer does not block others.
    """
    if is_object(path):
        from tupe_jax.utils.object_storage import upload

        with tempfile.TemporaryDirectory() as folder:
            unfinished = pathlib.Path(folder, path.name)
            yield unfinished
            upload(unfinished, path)
        return
    unfinished = pathlib.Path(path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp"))
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())  # otherwise a power cut may keep the name and lose the content
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def create_file(path: Path, content: bytes) -> None:
    """Write a file unless there is one. Of several processes that do this at once, one does it.

    The file has all of its content at once. A file system without hard links cannot compare and
    create in one step; there, of processes that do this at the same time, the last one writes.
    """
    if is_object(path):
        from tupe_jax.utils.object_storage import NO_OBJECT, write_if

        write_if(path, content, NO_OBJECT)
        return
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        unfinished.write_bytes(content)
        try:
            os.link(unfinished, path)
        except FileExistsError:
            pass
        except OSError:
            if not path.exists():
                unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def local_file(path: Path) -> Iterator[pathlib.Path]:
    """Yield a local file with the content of `path`, for libraries that read nothing else."""
    if not is_object(path):
        yield pathlib.Path(path)
        return
    from tupe_jax.utils.object_storage import download

    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, path.name)
        download(path, copy)
        yield copy


class AppendedFile:
    """A file that bytes are appended to, and that is complete in storage after each flush.

    Objects cannot be appended to. What belongs to one is in a temporary file, and each flush
    uploads all of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        local: str | os.PathLike[str] = path
        if is_object(path):
            from tupe_jax.utils.object_storage import download

            self._folder = tempfile.TemporaryDirectory()
            local = os.path.join(self._folder.name, path.name)
            if path.exists():
                download(path, local)
        self._local = local
        self._file = open(local, "ab", buffering=0)  # noqa: SIM115

    def write(self, content: bytes) -> None:
        self._file.write(content)

    def flush(self) -> None:
        if is_object(self._path):
            from tupe_jax.utils.object_storage import upload

            upload(self._local, self._path)
        else:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if is_object(self._path):
            self.flush()
            self._folder.cleanup()
        self._file.close()


def file_size(path: Path) -> int:
    """The size in bytes. epath's own `stat` fails for a local file of an unknown user."""
    if not is_object(path):
        return os.stat(path).st_size
    from tupe_jax.utils.object_storage import metadata

    return int(metadata(path)["size"])


def file_sizes(folder: Path) -> dict[str, int]:
    """The size of each file in a folder, by name; one request for a thousand objects."""
    if not is_object(folder):
        sizes = {}
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError):  # another process has renamed it meanwhile
                sizes[entry.name] = entry.stat().st_size
        return sizes
    from tupe_jax.utils.object_storage import filesystem

    found = filesystem().ls(os.fspath(folder), detail=True)
    return {os.path.basename(each["name"]): int(each["size"]) for each in found}


def file_names(folder: Path) -> list[str]:
    """The names of the files in a folder, from one listing without a request per file."""
    return list(file_sizes(folder)) if is_object(folder) else os.listdir(folder)


def file_range(path: Path, start: int, size: int) -> bytes:
    """A part of a file, read by one request."""
    if not is_object(path):
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(size)
    from tupe_jax.utils.object_storage import filesystem

    # The storage refuses an empty range.
    part: bytes = filesystem().cat_file(os.fspath(path), start, start + size) if size else b""
    return part


def in_threads(read: Callable[[Item], Content], items: Sequence[Item]) -> list[Content]:
    """The results of a function that waits for the storage, for all items in order."""
    with ThreadPoolExecutor(_READS_IN_FLIGHT) as threads:
        return list(threads.map(read, items))


def file_version(path: Path) -> tuple[int, ...]:
    """Numbers that change when the file does."""
    if not is_object(path):
        status = os.stat(path)
        return status.st_mtime_ns, status.st_ino, status.st_size
    from tupe_jax.utils.object_storage import metadata

    found = metadata(path)
    return int(found["generation"]), int(found["size"])


@contextmanager
def exclusive_lock(path: Path, refusal: UserError | None = None) -> Iterator[None]:
    """Hold the lock of a file or folder; it ends with the process that holds it.

    If another process holds the lock: raises `refusal` if given, otherwise waits. Creates a missing
    file. Some cluster file systems have no locks, and NFS has none for folders. There nothing is
    locked: the lock only guards against mistakes, so its absence is not an error.
    """
    if is_object(path):
        from tupe_jax.utils.object_lock import object_lock

        with object_lock(path, refusal):
            yield
        return
    with _file_lock(path, fcntl.LOCK_EX, refusal):
        yield


@contextmanager
def shared_lock(path: Path, refusal: UserError) -> Iterator[None]:
    """Hold a lock that others may share, but that excludes an exclusive lock. Objects have none."""
    if is_object(path):
        yield
        return
    with _file_lock(path, fcntl.LOCK_SH, refusal):
        yield


@contextmanager
def _file_lock(path: Path, kind: int, refusal: UserError | None) -> Iterator[None]:
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    held = os.open(path, flags, mode=0o666)
    try:
        try:
            fcntl.flock(held, kind | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            assert refusal is not None
            raise refusal from None
        except OSError:
            pass
        yield
    finally:
        os.close(held)
