"""Compiled programs in the work directory, so that a run that resumes does not compile again.

JAX has a cache of compiled programs, but it is not safe in a work directory. It writes files that a
kill leaves truncated and that are never replaced. It has no checksums: of 14 entries with one
flipped bit, 4 were executed. So JAX gets a temporary folder on each host. Programs are copied into
it from the work directory when the run begins, and back when they were compiled, as whole files
with checksums. Damaged files are ignored and replaced.

Programs of other versions of the packages are not found again. They are deleted when the first
program of these versions is kept. By then all processes of the run have their copies. Of these
versions the newest thousand programs are kept: a study has a few for each variant.
"""

import fcntl
import hashlib
import json
import logging
import os
import pathlib
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import jax
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from tupe_jax.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from tupe_jax.run.versions import package_versions
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file, file_names, in_threads
from tupe_jax.utils.object_storage import storage_errors
from tupe_jax.utils.paths import Path

FOLDER = "compiled"
_SUFFIX = "-cache"  # of the entries of JAX
_PREFIX, _LOCK = "tupe-compiled-", "in-use"
_MOST_PROGRAMS = 1_000
_DIGEST_BYTES = hashlib.sha256().digest_size
_CPU_FIELDS = (
    *("vendor_id", "cpu family", "model", "model name", "flags"),  # x86
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),  # ARM
)

logger = logging.getLogger(__name__)

Keep = Callable[[], None]
"""Copies the programs that were compiled since into the work directory."""


@contextmanager
def compilation_cache(
    workdir: Path, processes: ProcessGroup = SINGLE_PROCESS, *, enabled: bool = True
) -> Iterator[Keep]:
    """Take compiled programs from the work directory, and keep new ones there.

    Without effect if JAX has a cache already, in any process: the user's, or that of the study a
    run belongs to.
    The work directory is trusted: who can write to it can choose which code a run executes.
    """
    configured = jax.config.values
    if configured["jax_compilation_cache_dir"] or not configured["jax_enable_compilation_cache"]:
        enabled = False
    # A variable of the environment may be set on some hosts only.
    if not all(processes.gather("whether programs are kept", enabled)):
        yield lambda: None
        return
    kept = workdir / FOLDER / versions_name() / cpu_name()
    with _local_folder() as local:
        known = _copy_from(kept, local, processes)

        def keep() -> None:
            if processes.index == 0:  # in other processes JAX writes nothing
                _copy_new(local, kept, known)

        with _used_by_jax(local):
            yield keep
            keep()


@contextmanager
def _local_folder() -> Iterator[pathlib.Path]:
    """A temporary folder. Those of processes that were killed are deleted.

    The processes hold locks, because an index of a process may be used again or in another
    container.
    """
    for left in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = pathlib.Path(name)
        with (folder / f"{_LOCK}.tmp").open("wb") as lock:
            with suppress(OSError):  # the file system may have no locks
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / f"{_LOCK}.tmp").rename(folder / _LOCK)  # from here on, others see it locked
            (folder / "programs").mkdir()
            yield folder / "programs"


@contextmanager
def _used_by_jax(folder: pathlib.Path) -> Iterator[None]:
    settings = {
        "jax_compilation_cache_dir": str(folder),
        # A run has few programs that compile fast, but a second of them.
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        # JAX would keep XLA's caches for GPUs in the folder, and its name in the key of each entry.
        "jax_persistent_cache_enable_xla_caches": "none",
    }
    before = {name: jax.config.values[name] for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        jax_cache.reset_cache()  # JAX reads the name of the folder once


def _copy_from(kept: Path, local: pathlib.Path, processes: ProcessGroup) -> set[str]:
    """Copy all intact programs to a local folder, and return their names.

    If the processes did not get the same ones, all compile: in some programs for GPUs, a process
    that compiles waits for the others.
    """
    known: dict[str, bytes] = {}
    with _not_fatal(f"{kept}: compiled programs cannot be read"):
        found = sorted(file_names(kept)) if kept.exists() else []
        # Others are files that a killed process had not finished.
        names = [name for name in found if name.endswith(_SUFFIX)]
        checksums = in_threads(partial(_copy_intact, kept, local), names)
        known = {n: checksum for n, checksum in zip(names, checksums, strict=True) if checksum}
    digest = hashlib.sha256(b"".join(known.values())).hexdigest()
    everywhere = processes.gather("compiled programs", digest)
    if any(other != everywhere[0] for other in everywhere):
        logger.info("%s: hosts differ, so all programs are compiled", kept)
        known = {}
    for file in local.iterdir():
        if file.name not in known:
            file.unlink()
    return set(known)


def _copy_intact(kept: Path, local: pathlib.Path, name: str) -> bytes:
    """Copy a program to a local folder, and return its checksum; empty if it is damaged."""
    content = (kept / name).read_bytes()
    checksum, program = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if checksum != _checksum(name, program):
        logger.warning("%s is damaged; the program is compiled again", kept / name)
        return b""
    (local / name).write_bytes(program)
    return checksum


def _copy_new(local: pathlib.Path, kept: Path, known: set[str]) -> None:
    """Copy the programs that are not among `known` to the work directory, and add them there."""
    with _not_fatal(f"{kept}: compiled programs cannot be written"):
        new = [file for file in sorted(local.glob(f"*{_SUFFIX}")) if file.name not in known]
        known.update(file.name for file in new)  # if one cannot be written: no second attempt
        if not new:
            return
        kept.mkdir(parents=True, exist_ok=True)
        in_threads(partial(_keep_one, kept), new)
        _delete_other_versions(kept.parent)
        _delete_oldest(kept)


def _keep_one(kept: Path, file: pathlib.Path) -> None:
    program = file.read_bytes()
    with atomic_file(kept / file.name) as unfinished:
        unfinished.write_bytes(_checksum(file.name, program) + program)


def _delete_other_versions(own: Path) -> None:
    for other in own.parent.iterdir():
        if other.name != own.name:
            with suppress(FileNotFoundError):  # another machine of a study deletes it, too
                other.rmtree()


def _delete_oldest(kept: Path) -> None:
    """Delete the oldest files above the limit, unfinished ones of killed processes included."""
    names = file_names(kept)
    if len(names) <= _MOST_PROGRAMS:
        return
    written = {name: (kept / name).stat().mtime for name in names}
    for name in sorted(names, key=lambda name: written[name])[:-_MOST_PROGRAMS]:
        with suppress(FileNotFoundError):
            (kept / name).unlink()


def _checksum(name: str, program: bytes) -> bytes:
    return hashlib.sha256(name.encode() + program).digest()


@contextmanager
def _not_fatal(problem: str) -> Iterator[None]:
    """Log errors of the storage: a run without compiled programs is only slower."""
    try:
        with storage_errors():
            yield
    except (OSError, UserError) as error:
        logger.warning("%s: %s", problem, error)


def versions_name() -> str:
    """A name for the versions of the packages; the processes of a run have the same."""
    versions = json.dumps(package_versions(), sort_keys=True)
    return "versions-" + hashlib.sha256(versions.encode()).hexdigest()[:12]


def cpu_name() -> str:
    """A name for the type of this CPU and the number of its usable cores.

    Code for one CPU may end a process on another.
    """
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if not cpuinfo.exists():  # only Linux has it
        return f"cpu-{platform.node()}-{os.cpu_count()}"
    described = [f"{os.cpu_count()} {len(os.sched_getaffinity(0))}"]
    with cpuinfo.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.strip():
                break  # the first core is described
            name, _, value = line.partition(":")
            if name.strip() in _CPU_FIELDS:
                described.append(value.strip())
    return "cpu-" + hashlib.sha256("\n".join(described).encode()).hexdigest()[:12]
