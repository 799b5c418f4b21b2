"""The work directory: one folder that all processes of a run can write to and see."""

import secrets
import time
from contextlib import AbstractContextManager, nullcontext

from tupe_jax.distributed.process_group import ProcessGroup
from tupe_jax.utils.errors import RetryError, UserError, reason, writing_failed
from tupe_jax.utils.files import exclusive_lock
from tupe_jax.utils.object_storage import check_reachable
from tupe_jax.utils.paths import Path, absolute

# Network file systems remember for seconds that a file was not there.
VISIBLE_SECONDS = 10.0
LOCK_FILE = "run.lock"


def open_workdir(workdir: Path, processes: ProcessGroup) -> None:
    """Create it. Raise early if some process cannot write to it or does not share it."""
    check_reachable(workdir)
    # Shards of a study may start in one folder at the same time.
    probe = workdir / f".writable-{secrets.token_hex(8)}"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise writing_failed(
            f"cannot write to {workdir}: {reason(error)}; choose another --workdir", error
        ) from error
    if processes.count > 1:
        _check_shared(workdir, processes)


def hold(workdir: Path, processes: ProcessGroup) -> AbstractContextManager[None]:
    """Lock the work directory against a second run, which would write the same files.

    Process 0 holds the lock. A second run exits with `RETRY_EXIT_CODE`, because the lock of a run
    that just ended may persist for a while (a minute on NFS or on another host).
    """
    if processes.index:
        return nullcontext()
    refusal = (
        f"{workdir}: another run is using this work directory; wait until it ends, or choose "
        "another --workdir"
    )
    return exclusive_lock(workdir / LOCK_FILE, RetryError(refusal))


def _check_shared(workdir: Path, processes: ProcessGroup) -> None:
    """Process 0 creates a file with a new name, and all others must find it."""

    def leave() -> str:
        sign = workdir / f".shared-{secrets.token_hex(8)}"
        sign.touch()
        return sign.name

    sign = workdir / processes.first("a test file in the work directory", leave)
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not (seen := sign.exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
    blind = [i for i, saw in enumerate(processes.gather("who sees that file", seen)) if not saw]
    if processes.index == 0:
        sign.unlink()
    if blind:
        names = ", ".join(processes.name(i) for i in blind[:8])
        raise UserError(
            f"{absolute(workdir)} is not the same folder at {processes.name(0)} and at {names}: "
            "give a --workdir on a file system that all processes share"
        )
