"""The latency and bandwidth of storage, measured with small temporary files."""

import secrets
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from tupe_jax.utils.errors import reason, writing_failed
from tupe_jax.utils.object_storage import check_reachable
from tupe_jax.utils.paths import Path, is_object

SMALL_READS = 10
SMALL_BYTES = 1024
"""About one prepared sequence of 512 tokens."""
STREAMS = 8
"""Checkpoints are written and read by several threads."""
STREAM_BYTES = 4 * 2**20


@dataclass(frozen=True)
class StorageSpeed:
    """What this machine measured."""

    read_seconds: float
    """The median time to read a small file."""
    read_bandwidth: float
    """Bytes per second of `STREAMS` concurrent readers together."""
    write_bandwidth: float


def measure_storage(folder: Path) -> StorageSpeed:
    """Write, read and delete temporary files in `folder`, which is created if it is missing.

    Nothing is left behind: a folder that was missing is removed again.
    """
    check_reachable(folder)
    # Object storage has no folders.
    parents = () if is_object(folder) else (folder, *folder.parents)
    created = [path for path in parents if not path.exists()]
    probe = f".rehearsal-{secrets.token_hex(4)}"
    files = [folder / f"{probe}-{number}" for number in range(STREAMS)]
    content = secrets.token_bytes(STREAM_BYTES)  # random: storage may compress

    def write(file: Path) -> None:
        file.write_bytes(content)

    def read(file: Path) -> None:
        file.read_bytes()

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(STREAMS) as pool:
            writing = _seconds(lambda: list(pool.map(write, files)))
            reading = _seconds(lambda: list(pool.map(read, files)))
        files[0].write_bytes(content[:SMALL_BYTES])
        small = [_seconds(files[0].read_bytes) for _ in range(SMALL_READS)]
    except OSError as error:
        raise writing_failed(
            f"cannot write to {folder}: {reason(error)}; check the path and your permissions",
            error,
        ) from error
    finally:
        with suppress(OSError):  # what could not be written need not be removed
            for file in files:
                file.unlink(missing_ok=True)
            for path in created:
                path.rmdir()
    size = STREAMS * STREAM_BYTES
    return StorageSpeed(statistics.median(small), size / reading, size / writing)


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
