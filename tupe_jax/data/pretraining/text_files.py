"""Plain or gzipped text files: a line is a sentence or a paragraph, a blank line ends a document.

A file is read in blocks (of the uncompressed text) that can be read in any order: a block holds the
documents whose preceding blank line begins in it, so every document is in exactly one block,
whatever its length. That makes one large file as easy to share among processes as many small ones,
and makes the position in the corpus two numbers, file and block.
"""

import glob
import gzip
import io
import os
import threading
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tupe_jax.utils.errors import UserError

Stream = io.BufferedReader | gzip.GzipFile


def match_files(pattern: str) -> list[str]:
    """Return the files that match a glob, sorted; none, or an unreadable one, is an error."""
    files = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    if not files:
        raise UserError(f"no file matches {pattern!r}; mind the quotes around a glob in the shell")
    for file in files:
        if not os.access(file, os.R_OK):
            raise UserError(f"{file}: not readable")
    if not any(os.path.getsize(file) for file in files):
        raise UserError(f"{files[0]}: empty, and so is every other file of {pattern!r}")
    return files


def is_gzip(file: str) -> bool:
    return file.endswith(".gz")


def text_bytes(file: str) -> int:
    """Return the size of the text: exact for plain files, a typical ratio for gzipped English."""
    size = Path(file).stat().st_size
    return size * 3 if is_gzip(file) else size


def read_block(file: str, block: int, block_bytes: int) -> list[str] | None:
    """Return the documents of one block, their lines joined by newlines; None past the file's end.

    Empty lines around documents, and white space around lines, are dropped.
    """
    begin, end = block * block_bytes, (block + 1) * block_bytes
    # The byte before the block tells whether a line begins exactly at the block's border.
    start = max(begin - 1, 0)
    with _one_reader:
        try:
            stream = _open(file, os.stat(file).st_mtime_ns)
            if stream.seek(start) < start or not stream.peek(1):
                return None
            if begin:
                stream.readline()
            return list(_documents(file, stream, begin, end))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{file}: broken gzip file ({error}); copy it again") from None
        except OSError as error:
            raise UserError(
                f"{file}: cannot be read ({error.strerror}); files must stay while they are in use"
            ) from None


def _documents(file: str, stream: Stream, begin: int, end: int) -> Iterator[str]:
    lines: list[str] = []
    owned = begin == 0  # whether the document being read began in this block
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


def _decode(file: str, stream: Stream, position: int, text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file}, line {_line_number(stream, position)}: byte 0x{text[error.start]:02x} is not "
            f"UTF-8 ({error.reason}); convert the file to UTF-8 or delete the line"
        ) from None


def _line_number(stream: Stream, position: int) -> int:
    """Count the lines before a position: slow, but done once, for an error message."""
    stream.seek(0)
    number = 1
    while stream.tell() < position:
        stream.readline()
        number += 1
    return number


# Blocks are mostly read one after the other: an open gzip stream then seeks forward for free,
# where a fresh one would have to decompress everything before the block again. tf.data may call
# from several threads, and they share these streams.
_one_reader = threading.Lock()


@lru_cache(maxsize=2)
def _open(file: str, modified: int) -> Stream:
    return gzip.GzipFile(file, "rb") if is_gzip(file) else open(file, "rb")
