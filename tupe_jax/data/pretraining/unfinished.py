"""The folder `unfinished` of `tupe prepare`: what is done so far, and with which settings.

    settings.json     a restart must have the same
    hashes-00003      the hashes of the documents of shard 3, see `copies.py`
    copies-00000      the documents to drop, for one range of hashes
    00003.npy         the validation sequences of shard 3, or documents for sentence pairs
    00003.json        shard 3 is done: its file is complete on disk

A job may outlive the command that started it, as on a Beam worker whose driver was killed. Then a
preparation with other settings may have begun in the same folder. So a job knows the hash of its
settings.json, and compares it before each file that it writes.
"""

import errno
import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tupe_jax.data.pretraining.packing import Ids
from tupe_jax.utils.errors import RetryError, UserError, is_full_disk, reason
from tupe_jax.utils.files import atomic_file, create_file, file_names, in_threads
from tupe_jax.utils.object_storage import storage_errors
from tupe_jax.utils.paths import Path, is_object

UNFINISHED = "unfinished"


@dataclass(frozen=True)
class ShardRecord:
    """The statistics of a shard that is complete on disk."""

    rows: int
    bytes: int
    tokens: int
    documents: int
    validation_documents: int
    core_seconds: float
    broken: int = 0
    damaged: int = 0
    first_broken: str = ""
    compared: int = 0
    copies: int = 0
    """Documents compared with the whole corpus, and those that were dropped."""
    alone: int = 0
    """Documents without sentence pairs, because each is the only training document of its shard."""


@dataclass(frozen=True)
class Preparation:
    """A preparation that has begun: its output folder, and the hash of its settings.json."""

    folder: Path
    settings_sha256: str

    def check(self) -> None:
        """Raise if the preparation has ended, or another one has begun in its folder."""
        try:
            content = _settings_path(self.folder).read_bytes()
        except FileNotFoundError:
            content = b""
        if hashlib.sha256(content).hexdigest() != self.settings_sha256:
            raise UserError(
                f"{_settings_path(self.folder)}: deleted or changed while a job was running, so "
                "the job writes nothing; wait until the jobs of an earlier command have ended"
            )


def begin(folder: Path, settings: dict[str, Any]) -> Preparation:
    """Store the settings, or raise if a preparation with others has begun in this folder.

    Several parts may begin at the same time.
    """
    file = _settings_path(folder)
    # Before settings.json is looked for: whatever another part has written, it wrote that first.
    is_foreign = folder.exists() and any(folder.iterdir()) and not (folder / UNFINISHED).exists()
    if not file.exists():
        if is_foreign:
            raise UserError(f"{folder}: not empty; give a new folder")
        file.parent.mkdir(parents=True, exist_ok=True)
        create_file(file, json.dumps(settings, indent=2).encode())
    # Also if it was just written: another part may have been first.
    content = file.read_bytes()
    of_older_versions = {"packing": "stream", "on_error": "stop", "deduplicate": "none"}
    begun = of_older_versions | json.loads(content)
    for name, value in settings.items():
        if begun.get(name) != value:
            raise UserError(
                f"{folder}: begun with {name} {begun.get(name)!r}, but now it is {value!r}; run "
                "the same command on the same corpus to resume, or delete the folder"
            )
    return Preparation(folder, hashlib.sha256(content).hexdigest())


@contextmanager
def writing_errors(folder: Path) -> Iterator[None]:
    """Raise errors of writing to the output folder as one line.

    Those of reading the corpus already are.
    """
    try:
        with storage_errors():
            yield
    except OSError as error:
        what = f"{error.filename or folder}: cannot write ({reason(error)})"
        if is_full_disk(error):
            raise RetryError(
                f"{what}; free disk space and run the same command again (finished shards are kept)"
            ) from None
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise UserError(f"{what}; make the folder writable or give another one") from None
        raise


def is_begun(folder: Path) -> bool:
    return _settings_path(folder).exists()


def delete_unfinished(folder: Path) -> None:
    """Delete all of it, the settings last: a command that is killed meanwhile is known by them."""
    if not (folder / UNFINISHED).exists():
        return
    settings = _settings_path(folder)
    names = file_names(folder / UNFINISHED)
    others = [name for name in names if name != settings.name]
    in_threads(lambda name: (folder / UNFINISHED / name).unlink(), others)
    if settings.name in names:
        settings.unlink()
    if not is_object(folder):
        (folder / UNFINISHED).rmdir()


def hashes_path(folder: Path, number: int) -> Path:
    return folder / UNFINISHED / f"hashes-{number:05d}"


def copies_path(folder: Path, number: int) -> Path:
    return folder / UNFINISHED / f"copies-{number:05d}"


def record_path(folder: Path, number: int) -> Path:
    return folder / UNFINISHED / f"{number:05d}.json"


def write_record(folder: Path, number: int, record: ShardRecord) -> None:
    """Mark a shard as done."""
    with atomic_file(record_path(folder, number)) as unfinished:
        unfinished.write_text(json.dumps(asdict(record), indent=2), encoding="utf-8")


def read_record(folder: Path, number: int) -> ShardRecord:
    return ShardRecord(**json.loads(record_path(folder, number).read_text(encoding="utf-8")))


def write_held_out(folder: Path, number: int, tokens: Ids) -> None:
    """Write the validation sequences of a shard, or its validation documents in one row."""
    with atomic_file(_held_out_path(folder, number)) as unfinished, unfinished.open("wb") as file:
        np.save(file, tokens)


def read_held_out(folder: Path, number: int) -> Ids:
    tokens: Ids = np.load(io.BytesIO(_held_out_path(folder, number).read_bytes()))
    return tokens


def _held_out_path(folder: Path, number: int) -> Path:
    return folder / UNFINISHED / f"{number:05d}.npy"


def _settings_path(folder: Path) -> Path:
    return folder / UNFINISHED / "settings.json"
