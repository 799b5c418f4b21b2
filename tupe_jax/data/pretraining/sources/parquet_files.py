"""Parquet files: a column of text, a document per row."""

import functools
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.sources.base import Broken, lines_of_record
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

DEFAULT_COLUMN = "text"
BLOCK_BYTES = 1 << 20
# A column of few different texts is small on disk, so its size does not bound a block alone.
_MOST_ROWS = 1 << 10
# Pages of a column are read one by one, through a buffer: a row group may be larger than memory.
_BUFFER_BYTES = 1 << 20
_TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,  # older writers do not mark text as such
    pa.types.is_large_binary,
)


class ParquetFiles(FileSource):
    """A block holds consecutive rows of a row group. Shards are ranges of blocks."""

    def __init__(self, argument: str, on_error: OnError = "stop", block_bytes: int = BLOCK_BYTES):
        pattern, _, column = argument.rpartition("#") if "#" in argument else (argument, "", "")
        self._column = column or DEFAULT_COLUMN
        files = match_files(pattern)
        found = {file.name: _layout(file, self._column, block_bytes) for file in files}
        self._layouts = {name: one for name, one in found.items() if isinstance(one, _Layout)}
        self._broken_files = [one for one in found.values() if isinstance(one, Flaw)]
        super().__init__(
            spec=f"parquet:{argument}",
            files=files,
            text_bytes=sum(layout.text_bytes for layout in self._layouts.values()),
            most_shards=max(sum(layout.blocks for layout in self._layouts.values()), 1),
            on_error=on_error,
        )
        self.stop_at(self._broken_files)

    def blocks_of_shard(self, index: int, count: int) -> list[BlockRange]:
        """Shards are ranges of all blocks, because a row group must be read from its start."""
        layouts = self._layouts.values()
        total = sum(layout.blocks for layout in layouts)
        first, end = total * index // count, total * (index + 1) // count
        before = [0, *accumulate(layout.blocks for layout in layouts)]
        ranges = (
            BlockRange(layout.file.name, max(first - start, 0), min(end - start, layout.blocks))
            for start, layout in zip(before, layouts, strict=False)
        )
        return [each for each in ranges if each.first < each.end]

    def read_block(self, file: str, block: int) -> Block | None:
        layout = self._layouts[file]
        if block >= layout.blocks:
            return None
        group = layout.group_of(block)
        first = (block - group.first_block) * group.rows_per_block
        end = min(first + group.rows_per_block, group.rows)
        with _reader_lock:
            try:
                with storage_errors():
                    version = self.version(file)
                    reader = _open(file, version, self._column, group.number, group.rows_per_block)
                    values, damage = reader.read(first, end)
            except OSError as error:
                raise reading_failed(
                    f"{file}: cannot read it ({reason(error)}); do not move or delete files in use",
                    error,
                ) from None
        documents: list[str] = []
        flaws: list[Flaw] = []
        for row, value in enumerate(values, start=group.first_row + first):
            text = self._text(file, row, value)
            if isinstance(text, Flaw):
                flaws.append(text)
            elif document := lines_of_record(text):
                documents.append(document)
        if damage is not None and first <= damage.row < end:
            flaws.append(
                Flaw(
                    file,
                    group.first_row + damage.row,
                    f"corrupt from here to the end of row group {group.number + 1} "
                    f"({damage.problem})",
                    "copy it again",
                    is_damage=True,
                )
            )
        return Block(documents, flaws)

    def count_broken(self, index: int, count: int) -> Broken:
        of_blocks = (flaw for block in self.blocks(index, count) for flaw in block.flaws)
        return self.broken(chain(self._broken_files if index == 0 else [], of_blocks))

    def where(self, flaw: Flaw) -> str:
        return flaw.file if flaw.record is None else f"{flaw.file}, row {flaw.record + 1}"

    def _text(self, file: str, row: int, value: bytes | None) -> str | Flaw:
        if value is None:
            return Flaw(file, row, f"column {self._column!r} is null", "correct the row")
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            return Flaw(
                file,
                row,
                f"byte 0x{value[error.start]:02x} is not UTF-8 ({error.reason})",
                "correct the row",
            )


@dataclass(frozen=True)
class _Group:
    """A row group: its first row and block in the file, and how it is divided into blocks."""

    number: int
    rows: int
    first_row: int
    first_block: int
    rows_per_block: int

    @property
    def end_block(self) -> int:
        return self.first_block - (-self.rows // self.rows_per_block)


@dataclass(frozen=True)
class _Layout:
    """How a file is divided into blocks."""

    file: FileVersion
    groups: tuple[_Group, ...]
    text_bytes: int

    @property
    def blocks(self) -> int:
        return self.groups[-1].end_block if self.groups else 0

    def group_of(self, block: int) -> _Group:
        return self.groups[bisect_right(self.groups, block, key=lambda group: group.end_block)]


# Every process reads the footers once, not for each of its shards.
@functools.lru_cache(maxsize=1 << 14)
def _layout(file: FileVersion, column: str, block_bytes: int) -> _Layout | Flaw:
    """Return how a file is divided, or why it cannot be read, from its footer."""
    if not file.size:
        return _Layout(file, (), 0)
    try:
        with storage_errors():
            parquet = _parquet_file(file.name, file.version)
        metadata, schema = parquet.metadata, parquet.schema_arrow
    except (pa.ArrowException, OSError) as error:
        if _is_of_system(error):
            raise
        problem = f"not a Parquet file, or truncated ({error})"
        return Flaw(file.name, None, problem, "copy it again", is_damage=True)
    if (found := schema.names.count(column)) != 1:
        advice = "name the column of the text, as in parquet:GLOB#COLUMN"
        columns = ", ".join(map(repr, schema.names))
        count = f"{found} columns" if found else "no column"
        problem = f"{count} {column!r}; its columns are {columns}"
        return Flaw(file.name, None, problem, advice, is_damage=True)
    kind = schema.field(column).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(is_text(kind) for is_text in _TEXT_TYPES):
        advice = "name a column of strings, as in parquet:GLOB#COLUMN"
        problem = f"column {column!r} is {kind}, not text"
        return Flaw(file.name, None, problem, advice, is_damage=True)
    leaves = range(metadata.num_columns)
    number, *others = [n for n in leaves if metadata.schema.column(n).path == column]
    if others:  # pyarrow would read both
        problem = f"column {column!r} and a nested field have the same path"
        return Flaw(file.name, None, problem, "rename the column", is_damage=True)
    groups: list[_Group] = []
    text_bytes = row = block = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        size = group.column(number).total_uncompressed_size
        text_bytes += size
        rows_per_block = max(1, min(block_bytes * group.num_rows // max(size, 1), _MOST_ROWS))
        groups.append(_Group(index, group.num_rows, row, block, rows_per_block))
        row, block = row + group.num_rows, groups[-1].end_block
    return _Layout(file, tuple(groups), text_bytes)


@dataclass(frozen=True)
class _Damage:
    """The first row of a row group that cannot be read, and why."""

    row: int
    problem: str


class _GroupReader:
    """The values of a column in one row group. It reads forward, and starts again to go back."""

    _row: int
    _batch: Any
    """The values from row `_row` on that were read and not yet returned."""
    _damage: _Damage | None

    def __init__(self, parquet: Any, column: str, group: int, batch_rows: int):
        self._parquet, self._column, self._group = parquet, column, group
        self._batch_rows = batch_rows
        self._restart()

    def read(self, first: int, end: int) -> tuple[list[bytes | None], _Damage | None]:
        """Return the values of rows [first, end), up to the damaged row, if there is one."""
        if first < self._row:
            self._restart()
        values: list[bytes | None] = []
        while self._row < end and self._fill():
            take = min(len(self._batch), (end if self._row >= first else first) - self._row)
            if self._row >= first:
                values += self._batch.slice(0, take).to_pylist()
            self._batch = self._batch.slice(take)
            self._row += take
        return values, self._damage

    def _restart(self) -> None:
        self._row = 0
        self._batch = pa.array([], pa.large_binary())
        self._damage = None
        self._batches = self._open_batches()

    def _open_batches(self) -> Iterator[Any]:
        for batch in self._parquet.iter_batches(
            self._batch_rows, row_groups=[self._group], columns=[self._column], use_threads=False
        ):
            column = batch.column(0)
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            # As bytes, since pyarrow does not check that a string is UTF-8.
            yield column.cast(pa.large_binary())

    def _fill(self) -> bool:
        """Read until there are values. Return whether there are."""
        while not len(self._batch):
            if self._damage:
                return False
            try:
                batch = next(self._batches, None)
            except (pa.ArrowException, OSError) as error:
                if _is_of_system(error):
                    raise
                self._damage = _Damage(self._row, " ".join(str(error).split()))
                return False
            if batch is None:
                return False
            self._batch = batch
        return True


# The footer of a file of many row groups is large, so it is parsed once and not for each of them.
@functools.lru_cache(maxsize=2)
def _parquet_file(file: str, version: int) -> Any:
    return pq.ParquetFile(
        filesystem().open(file, "rb") if is_object(file) else file,
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
    )


def _is_of_system(error: Exception) -> bool:
    """Whether it is about access to the file; pyarrow raises OSError for damaged content too."""
    return isinstance(error, OSError) and error.errno is not None


# Blocks are mostly read in order, by an open reader. tf.data may call `read_block` from several
# threads, which share it.
_reader_lock = threading.Lock()


@functools.lru_cache(maxsize=2)
def _open(file: str, version: int, column: str, group: int, batch_rows: int) -> _GroupReader:
    return _GroupReader(_parquet_file(file, version), column, group, batch_rows)
