"""Text files: a sentence or paragraph per line, a blank line between documents."""

import functools
import glob
import gzip
import hashlib
import io
import math
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tupe_jax.data.pretraining.sources.base import DocumentSource
from tupe_jax.data.tf_utils import call, strings, tf
from tupe_jax.utils.errors import UserError, reason
from tupe_jax.utils.files import file_size
from tupe_jax.utils.object_storage import check_reachable, filesystem, metadata
from tupe_jax.utils.paths import SCHEME, Path, is_object, storage_path

_NO_LIMIT = 1 << 62

TextStream = io.BufferedReader | gzip.GzipFile


class TextFiles(DocumentSource):
    """Plain or gzipped files: a sentence or paragraph per line, a blank line between documents.

    A file is read in blocks of its uncompressed text, in any order. A block holds the documents
    whose preceding blank line begins in it, so every document is in exactly one block, whatever its
    length. One large file is therefore as easy to divide into shards as many small ones.
    """

    def __init__(self, pattern: str, block_bytes: int = 1 << 20):
        self._block_bytes = block_bytes
        self._files = match_files(pattern)
        stats = [(file, *_size_and_version(file)) for file in self._files]
        sizes = [_text_bytes(file, size) for file, size, _ in stats]
        super().__init__(
            spec=f"text:{pattern}",
            text_bytes=sum(sizes),
            most_shards=sum(math.ceil(size / block_bytes) for size in sizes),
            identity=hashlib.sha256(repr(stats).encode()).hexdigest(),
        )

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        def read(file: bytes, block: np.int64) -> tuple[Any, np.bool_]:
            documents = read_block(file.decode(), int(block), self._block_bytes)
            return strings(documents or []), np.bool_(documents is not None)

        def file_documents(file: tf.Tensor, first: tf.Tensor, step: tf.Tensor) -> tf.data.Dataset:
            blocks = tf.data.Dataset.range(first, _NO_LIMIT, step)
            read_blocks = blocks.map(lambda block: call(read, [file, block], (tf.string, tf.bool)))
            return (
                read_blocks.take_while(lambda _, inside: tf.ensure_shape(inside, []))
                .map(lambda documents, _: tf.ensure_shape(documents, [None]))
                .unbatch()
            )

        blocks = _blocks_of_shard(self._files, index, count)
        if not blocks:
            return tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
        files, firsts, steps = zip(*blocks, strict=True)
        return tf.data.Dataset.from_tensor_slices(
            (list(files), np.array(firsts, np.int64), np.array(steps, np.int64))
        ).flat_map(file_documents)


def _blocks_of_shard(files: Sequence[str], index: int, count: int) -> list[tuple[str, int, int]]:
    """Return (file, first block, step) for each file of one shard.

    Shards take the blocks of each file in turn. A gzipped file must be decompressed from its start,
    so if there are enough of them, each belongs to one shard.
    """
    whole_files = sum(map(_is_gzip, files)) >= count
    blocks = []
    for number, file in enumerate(files):
        if whole_files and _is_gzip(file):
            if number % count == index:
                blocks.append((file, 0, 1))
        else:
            blocks.append((file, (index - number) % count, count))
    return blocks


def match_files(pattern: str) -> list[str]:
    """Return the files that match a glob, sorted. Raise if there is none or one is unreadable."""
    check_reachable(storage_path(pattern))
    if is_object(pattern):
        files = sorted(f"{SCHEME}{name}" for name in filesystem().glob(pattern))
    else:
        files = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    if not files:
        raise UserError(f"no file matches {pattern!r}; check the quotes around it in the shell")
    for file in files:
        if not (is_object(file) or os.access(file, os.R_OK)):
            raise UserError(f"{file}: permission denied; make the file readable")
    if not any(file_size(Path(file)) for file in files):
        raise UserError(f"{files[0]}: all files that match {pattern!r} are empty")
    return files


def _is_gzip(file: str) -> bool:
    return file.endswith(".gz")


def _text_bytes(file: str, size: int) -> int:
    """Return the size of the text: exact for plain files, a typical ratio for gzipped English."""
    return size * 3 if _is_gzip(file) else size


def _size_and_version(file: str) -> tuple[int, int]:
    """Return the size and the time of the last change, or the generation of an object."""
    if is_object(file):
        found = metadata(Path(file))
        return int(found["size"]), int(found["generation"])
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def read_block(file: str, block: int, block_bytes: int) -> list[str] | None:
    """Return the documents of one block, or None past the end of the file.

    Empty lines around documents and white space around lines are dropped.
    """
    begin, end = block * block_bytes, (block + 1) * block_bytes
    # The byte before the block shows whether a line begins exactly at the block's start.
    start = max(begin - 1, 0)
    with _stream_lock:
        try:
            stream = _open(file, _size_and_version(file)[1])
            if stream.seek(start) < start or not stream.peek(1):
                return None
            if begin:
                stream.readline()
            return list(_documents(file, stream, begin, end))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{file}: corrupt gzip file ({error}); copy it again") from None
        except OSError as error:
            raise UserError(
                f"{file}: cannot read it ({reason(error)}); do not move or delete files in use"
            ) from None


def _documents(file: str, stream: TextStream, begin: int, end: int) -> Iterator[str]:
    lines: list[str] = []
    owned = begin == 0  # whether the current document began in this block
    position = stream.tell()
    for raw in stream:
        text = raw.strip()
        if not text:
            if owned and lines:
                yield "\n".join(lines)
            lines = []
            owned = position < end
        elif owned:
            lines.append(_decode(file, stream, position, text))
        if position >= end and not owned:
            return
        position += len(raw)
    if owned and lines:
        yield "\n".join(lines)


def _decode(file: str, stream: TextStream, position: int, text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file}, line {_line_number(stream, position)}: byte 0x{text[error.start]:02x} is not "
            f"UTF-8 ({error.reason}); convert the file to UTF-8 or delete the line"
        ) from None


def _line_number(stream: TextStream, position: int) -> int:
    """Count the lines before a position. This is slow, and only done for an error message."""
    stream.seek(0)
    number = 1
    while stream.tell() < position:
        stream.readline()
        number += 1
    return number


# Blocks are mostly read in order. An open gzip stream then seeks forward at no cost, where a new
# one would decompress everything before the block. tf.data may call `read_block` from several
# threads, which share these streams.
_stream_lock = threading.Lock()


@functools.lru_cache(maxsize=2)
def _open(file: str, version: int) -> TextStream:
    if is_object(file):
        raw = filesystem().open(file, "rb")
        return gzip.GzipFile(fileobj=raw) if _is_gzip(file) else io.BufferedReader(raw)
    return gzip.GzipFile(file, "rb") if _is_gzip(file) else open(file, "rb")
