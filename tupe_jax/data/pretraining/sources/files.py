"""Files of a corpus: which match a glob, their versions, and what is done with broken ones."""

import abc
import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.sources.base import Broken, DocumentSource
from tupe_jax.data.tf_utils import call, strings, tf
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.object_storage import check_reachable, filesystem
from tupe_jax.utils.paths import SCHEME, is_object, storage_path

NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Flaw:
    """A record that cannot be read, or a file that cannot be read from a record on."""

    file: str
    record: int | None
    """The offset of its line, or the number of its row; None: the whole file."""
    problem: str
    advice: str
    is_damage: bool = False
    """Whether the rest of the file or row group is lost, too."""


@dataclass(frozen=True)
class Block:
    """A part of a file: its documents, and the flaws that begin in it."""

    documents: list[str]
    flaws: list[Flaw]


@dataclass(frozen=True)
class BlockRange:
    """The blocks first, first + step, ... of a file. A reader also ends at the end of the file."""

    file: str
    first: int = 0
    end: int = NO_LIMIT
    step: int = 1


class FileSource(DocumentSource):
    """Files that are read in blocks, in any order. Every document is in exactly one block."""

    def __init__(
        self,
        spec: str,
        files: Sequence["FileVersion"],
        text_bytes: int,
        most_shards: int,
        on_error: OnError,
    ):
        stats = [(file.name, file.size, file.version) for file in files]
        super().__init__(
            spec=spec,
            text_bytes=text_bytes,
            most_shards=most_shards,
            identity=hashlib.sha256(repr(stats).encode()).hexdigest(),
            on_error=on_error,
        )
        self._versions = {file.name: file.version for file in files}

    def version(self, file: str) -> int:
        """Return the version of a file now. Of an object, the version when the source was made.

        This is called for every block, and would be a request each time. `tupe prepare` compares
        the versions of all files when a shard is complete.
        """
        return self._versions[file] if is_object(file) else _local_file(file).version

    @abc.abstractmethod
    def blocks_of_shard(self, index: int, count: int) -> list[BlockRange]:
        """Return the blocks of shard `index` of `count`, in order."""

    @abc.abstractmethod
    def read_block(self, file: str, block: int) -> Block | None:
        """Return one block, or None past the end of the file."""

    @abc.abstractmethod
    def where(self, flaw: Flaw) -> str:
        """Return the file and the line or row of a flaw. This may be slow."""

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        def read(file: bytes, block: np.int64) -> tuple[Any, np.bool_]:
            found = self.read_block(file.decode(), int(block))
            if found is not None:
                self.stop_at(found.flaws)
            return strings(found.documents if found else []), np.bool_(found is not None)

        def of_file(
            file: tf.Tensor, first: tf.Tensor, end: tf.Tensor, step: tf.Tensor
        ) -> tf.data.Dataset:
            blocks = tf.data.Dataset.range(first, end, step)
            read_blocks = blocks.map(lambda block: call(read, [file, block], (tf.string, tf.bool)))
            return (
                read_blocks.take_while(lambda _, inside: tf.ensure_shape(inside, []))
                .map(lambda documents, _: tf.ensure_shape(documents, [None]))
                .unbatch()
            )

        ranges = self.blocks_of_shard(index, count)
        if not ranges:
            return tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
        numbers = np.array([(each.first, each.end, each.step) for each in ranges], np.int64)
        return tf.data.Dataset.from_tensor_slices(
            ([each.file for each in ranges], *numbers.T)
        ).flat_map(of_file)

    def blocks(self, index: int, count: int) -> Iterator[Block]:
        """Yield the blocks of shard `index` of `count`, in order."""
        for blocks in self.blocks_of_shard(index, count):
            numbers = range(blocks.first, blocks.end, blocks.step)
            read = (self.read_block(blocks.file, number) for number in numbers)
            for block in read:
                if block is None:
                    break
                yield block

    def count_broken(self, index: int, count: int) -> Broken:
        return self.broken(flaw for block in self.blocks(index, count) for flaw in block.flaws)

    def broken(self, flaws: Iterable[Flaw]) -> Broken:
        """Count flaws, and describe the first."""
        number = damaged = 0
        first = ""
        for flaw in flaws:
            first = first or f"{self.where(flaw)}: {flaw.problem}"
            number += 1
            damaged += flaw.is_damage
        return Broken(number, damaged, first)

    def stop_at(self, flaws: Sequence[Flaw]) -> None:
        """Raise for the first flaw, unless flaws are skipped."""
        if flaws and self.on_error == "stop":
            raise UserError(
                f"{self.where(flaws[0])}: {flaws[0].problem}; {flaws[0].advice}, or skip it in "
                "`tupe vocab` and `tupe prepare` with --on-error=skip"
            )


@dataclass(frozen=True)
class FileVersion:
    """A file, and a number that changes when it does."""

    name: str
    size: int
    version: int


def match_files(pattern: str) -> list[FileVersion]:
    """Return the files that match a glob, sorted. Raise if there is none or one is unreadable."""
    check_reachable(storage_path(pattern))
    found = _match_objects(pattern) if is_object(pattern) else _match_local(pattern)
    if not found:
        raise UserError(
            f"no file matches {pattern!r}; check the path, and quote globs in the shell"
        )
    if not any(file.size for file in found):
        raise UserError(f"{found[0].name}: all files that match {pattern!r} are empty")
    return found


def _match_local(pattern: str) -> list[FileVersion]:
    files = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    for file in files:
        if not os.access(file, os.R_OK):
            raise UserError(f"{file}: permission denied; make the file readable")
    return [_local_file(file) for file in files]


def _match_objects(pattern: str) -> list[FileVersion]:
    """The version of an object is its generation. A listing has it, a thousand in a request."""
    found = filesystem().glob(pattern, detail=True)
    return [
        FileVersion(f"{SCHEME}{name}", int(details["size"]), int(details["generation"]))
        for name, details in sorted(found.items())
        if details["type"] == "file"
    ]


def _local_file(file: str) -> FileVersion:
    """The version of a local file is the time of its last change."""
    status = os.stat(file)
    return FileVersion(file, status.st_size, status.st_mtime_ns)
