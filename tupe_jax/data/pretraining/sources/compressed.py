"""Streams of gzip and Zstandard files that end at a damaged place, always at the same one."""

import contextlib
import io
import zlib
from typing import Any, BinaryIO

import zstandard

# Little, because 64 kB of a corpus of copies may decompress to many megabytes.
_CHUNK_BYTES = 1 << 14
# Large archives are often compressed with `zstd --long=31`, which needs this window.
_LARGEST_WINDOW = 1 << 31

COMPRESSED_SUFFIXES = (".gz", ".zst")


class CorruptFileError(Exception):
    """A compressed file is damaged or truncated; the text before that place can be read."""


class Decompressed(io.RawIOBase):
    """The text of a compressed file. It can seek backward by starting again.

    The clients of gzip and zstandard raise at a place that depends on how they are read, and
    zstandard does not notice that a file is truncated. Here every byte before the damaged chunk can
    be read, and reading on raises `CorruptFileError`.
    """

    def __init__(self, file: BinaryIO, name: str):
        self._file = file
        self._is_gzip = name.endswith(".gz")
        self._restart()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        if not self._fill():
            return 0
        content = self._output[self._used : self._used + len(buffer)]
        buffer[: len(content)] = content
        self._advance(len(content))
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset, or to the end of the text or a damaged place if that is earlier."""
        assert whence == io.SEEK_SET
        if offset < self._position:
            self._restart()
        # Not an error: a BufferedReader would not notice that this stream has moved.
        with contextlib.suppress(CorruptFileError):
            while self._position < offset and self._fill():
                self._advance(min(len(self._output) - self._used, offset - self._position))
        return self._position

    def _restart(self) -> None:
        self._file.seek(0)
        self._position = 0
        self._input, self._output, self._used = b"", b"", 0
        self._decoder: Any = None
        self._problem = ""

    def _advance(self, count: int) -> None:
        self._used += count
        self._position += count

    def _fill(self) -> bool:
        """Decompress until there is text to give. Return whether there is."""
        while self._used == len(self._output):
            if self._problem:
                raise CorruptFileError(self._problem)
            chunk = self._input or self._file.read(_CHUNK_BYTES)
            if not chunk:
                if self._decoder is None:
                    return False
                self._problem = "it is truncated"
                continue
            self._input, self._used = b"", 0
            try:
                self._output = self._decompress(chunk)
            except (zlib.error, zstandard.ZstdError) as error:
                self._output, self._problem = b"", str(error)
        return True

    def _decompress(self, chunk: bytes) -> bytes:
        if self._decoder is None:
            if self._is_gzip and not (chunk := chunk.lstrip(b"\0")):
                return b""  # zeros may follow the compressed text
            self._decoder = self._new_decoder()
        text: bytes = self._decoder.decompress(chunk)
        if self._decoder.eof:  # another member or frame may follow
            self._input = self._decoder.unused_data
            self._decoder = None
        return text

    def _new_decoder(self) -> Any:
        if self._is_gzip:
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        return zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj()
