"""Files of lines, plain or compressed, divided into blocks of their uncompressed text."""

import abc
import functools
import io
import math
import threading
from collections.abc import Iterator

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.sources.compressed import (
    COMPRESSED_SUFFIXES,
    CorruptFileError,
    Decompressed,
)
from tupe_jax.data.pretraining.sources.files import (
    Block,
    BlockRange,
    FileSource,
    FileVersion,
    Flaw,
    match_files,
)
from tupe_jax.utils.errors import reading_failed, reason
from tupe_jax.utils.object_storage import filesystem, storage_errors
from tupe_jax.utils.paths import is_object

BLOCK_BYTES = 1 << 20
# A typical ratio of English text.
_COMPRESSION = 3
_PIECE_BYTES = 1 << 20


class LineFiles(FileSource):
    """Lines in blocks of `block_bytes` of uncompressed text.

    One large file is therefore as easy to divide into shards as many small ones.
    """

    longest_line = -1
    """The bytes of a line that are read; -1 for all. The rest of a longer line is dropped."""

    def __init__(self, kind: str, argument: str, pattern: str, block_bytes: int, on_error: OnError):
        self._block_bytes = block_bytes
        self._files = match_files(pattern)
        sizes = [uncompressed_bytes(file) for file in self._files]
        super().__init__(
            spec=f"{kind}:{argument}",
            files=self._files,
            text_bytes=sum(sizes),
            most_shards=sum(math.ceil(size / block_bytes) for size in sizes),
            on_error=on_error,
        )

    @abc.abstractmethod
    def parse(self, lines: "Lines", begin: int, end: int) -> Block:
        """Return the documents that begin in [begin, end), and the flaws of lines in it.

        `lines` begins with the first line that begins there, and continues after `end`.
        """

    def blocks_of_shard(self, index: int, count: int) -> list[BlockRange]:
        """Shards take the blocks of each file in turn.

        A compressed file must be decompressed from its start, so if there are enough of them, each
        belongs to one shard.
        """
        whole_files = sum(_is_compressed(file.name) for file in self._files) >= count
        blocks = []
        for number, file in enumerate(self._files):
            if whole_files and _is_compressed(file.name):
                if number % count == index:
                    blocks.append(BlockRange(file.name))
            else:
                blocks.append(BlockRange(file.name, (index - number) % count, step=count))
        return blocks

    def read_block(self, file: str, block: int) -> Block | None:
        begin, end = block * self._block_bytes, (block + 1) * self._block_bytes
        with _stream_lock:
            try:
                with storage_errors():
                    stream = _open(file, self.version(file))
                    offset = _first_line(stream, begin, end)
                    if offset is None:
                        return None
                    if offset >= end:
                        return Block([], [])
                    lines = Lines(file, stream, offset, self.longest_line)
                    return self.parse(lines, begin, end)
            except OSError as error:
                raise reading_failed(
                    f"{file}: cannot read it ({reason(error)}); do not move or delete files in use",
                    error,
                ) from None

    def where(self, flaw: Flaw) -> str:
        assert flaw.record is not None
        with _stream_lock, storage_errors():
            stream = _open(flaw.file, self.version(flaw.file))
            return f"{flaw.file}, line {_line_number(stream, flaw.record)}"


class Lines:
    """The lines of a stream with their offsets, to the end of the file or a damaged place."""

    def __init__(self, file: str, stream: io.BufferedReader, offset: int, longest: int):
        self.file = file
        self.offset = offset
        """That of the line that comes next."""
        self.damage: Flaw | None = None
        """Set when the lines have ended at a damaged place."""
        self._stream = stream
        self._longest = longest

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        while line := self._next():
            yield line

    def _next(self) -> tuple[int, bytes] | None:
        begin = self.offset
        try:
            line = part = self._stream.readline(self._longest)
            self.offset += len(part)
            while len(part) == self._longest and not part.endswith(b"\n"):
                part = self._stream.readline(self._longest)
                self.offset += len(part)
        except CorruptFileError as error:
            kind = "gzip" if self.file.endswith(".gz") else "Zstandard"
            self.damage = Flaw(
                self.file,
                begin,
                f"corrupt {kind} file from here on ({error})",
                "copy it again",
                is_damage=True,
            )
            self.offset = begin
            return None
        return (begin, line) if line else None


def _first_line(stream: io.BufferedReader, begin: int, end: int) -> int | None:
    """Move to the first line that begins in [begin, end) and return its offset.

    Return `end` if no line begins there, and None if the file ends before.
    """
    # The byte before shows whether a line begins exactly at `begin`.
    start = max(begin - 1, 0)
    try:
        if stream.seek(start) < start or not stream.peek(1):
            return None
        if not begin:
            return 0
        rest = stream.readline(end - start)
    except CorruptFileError:
        return None if begin else 0  # the damage begins in an earlier block, or is to be reported
    return start + len(rest) if rest.endswith(b"\n") else end


def utf8(lines: Lines, offset: int, line: bytes) -> str | Flaw:
    """Decode a line of text."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        return Flaw(
            lines.file,
            offset,
            f"byte 0x{line[error.start]:02x} is not UTF-8 ({error.reason})",
            "convert the file to UTF-8 or delete the line",
        )


def _is_compressed(file: str) -> bool:
    return file.endswith(COMPRESSED_SUFFIXES)


def uncompressed_bytes(file: FileVersion) -> int:
    """Return the size of the text: exact for plain files, an estimate for compressed ones."""
    return file.size * (_COMPRESSION if _is_compressed(file.name) else 1)


def _line_number(stream: io.BufferedReader, offset: int) -> int:
    """Count the lines before an offset. This is slow, and only done for a message."""
    stream.seek(0)
    number, left = 1, offset
    while left and (piece := stream.read1(min(left, _PIECE_BYTES))):
        number += piece.count(b"\n")
        left -= len(piece)
    return number


# Blocks are mostly read in order. An open compressed stream then seeks forward at no cost, where a
# new one would decompress everything before the block. tf.data may call `read_block` from several
# threads, which share these streams.
_stream_lock = threading.Lock()


@functools.lru_cache(maxsize=2)
def _open(file: str, version: int) -> io.BufferedReader:
    raw = (
        filesystem().open(file, "rb") if is_object(file) else open(file, "rb", buffering=0)  # noqa: SIM115
    )
    return io.BufferedReader(Decompressed(raw, file) if _is_compressed(file) else raw)
