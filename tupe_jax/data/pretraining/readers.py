"""Readers: deterministic, endless streams of batches that can be saved and restored.

A reader cuts a stream of sequences into global batches. Epochs follow each other without a gap: if
the last batch of an epoch is not full, the next epoch fills it, so no sequence is lost or repeated
within an epoch. Each process reads its host shard of every global batch. Neither the global batches
nor the state depend on the number of processes, so any process may save the state for all.

`PreparedReader` reads the folder of `tupe prepare`. Its batch at step s depends only on (seed, s):
Grain shuffles sequence *numbers* by a keyed permutation, so the number at any position of any epoch
is computed, not looked up. Resuming at step 1,000,000 costs as much as at step 10.

A read from a mounted bucket takes about 30 ms, and the sequences of a batch are in many shards.
`TokenShards` therefore reads them in many threads, and Grain reads several batches ahead.
"""

import hashlib
import json
import resource
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordReader
from numpy.typing import NDArray

from tupe_jax.data.pretraining.token_shards import (
    Features,
    PreparedIndex,
    RecordType,
    ShardFile,
    decode_records,
    require_tokenizer,
)
from tupe_jax.utils.errors import RetryError, UserError
from tupe_jax.utils.files import file_size
from tupe_jax.utils.object_storage import with_time_limit
from tupe_jax.utils.paths import Path, is_object

# Grain computes a few batches at a time, and the sequences of each are read in many threads. More
# threads of Grain would compete for Python's interpreter lock.
BATCHES_AT_A_TIME = 4
READS_AT_A_TIME = 32  # of one batch
# Batches are read ahead until they fill this memory, but no more than MOST_BATCHES_AHEAD: at 37 ms
# per step, 32 batches cover a stall of the storage for one second.
PREFETCH_BYTES = 64 << 20
MOST_BATCHES_AHEAD = 32

State = dict[str, Any]


class Reader(Protocol):
    """A stream of batches that can be resumed at any step."""

    def next(self) -> Features:
        """Return this host's shard of the next global batch: `tokens` `[sequences, length]`.

        Sentence pairs have `segments` and `is_random_next` as well.
        """

    def state(self) -> State:
        """Return the current position as JSON values."""

    def restore(self, state: State) -> None:
        """Move to a saved position of the same stream."""


@dataclass(frozen=True)
class HostShard:
    """The part of each global batch that one process reads.

    A global batch is divided into equal, contiguous parts. A process reads some of them, which need
    not be adjacent. Processes whose devices hold the same sequences read the same parts.
    """

    held: tuple[int, ...] = (0,)
    """The parts that this process reads, ascending."""
    parts: int = 1
    """The number of parts of a global batch."""

    def __post_init__(self) -> None:
        if not self.held or list(self.held) != sorted(set(self.held)):
            raise UserError(f"parts {self.held} of a batch: expected ascending numbers, at least 1")
        for part in (self.held[0], self.held[-1]):
            if not 0 <= part < self.parts:
                raise UserError(f"part {part} of a batch: expected 0 to {self.parts - 1}")

    def indices(self, batch_size: int) -> list[int]:
        """Return the indices of this shard's sequences in a global batch, ascending."""
        if batch_size < 1 or batch_size % self.parts:
            raise UserError(
                f"a global batch of {batch_size} sequences cannot be split evenly into "
                f"{self.parts} parts; choose a multiple of {self.parts}"
            )
        size = batch_size // self.parts
        return [index for part in self.held for index in range(part * size, (part + 1) * size)]


def mix_seed(seed: int, *more: int) -> int:
    """Return 31 well-mixed bits. A sum like `seed + epoch` would repeat epochs of another seed."""
    return int(np.random.SeedSequence([seed, *more]).generate_state(1)[0]) >> 1


def check_same_stream(saved: State, stream: Mapping[str, Any]) -> None:
    """Raise unless a saved state belongs to the stream that these values describe."""
    for name, here in stream.items():
        there = saved.get(name)
        if there != here:
            raise UserError(
                f"the saved data position has {name} {there!r}, but this run has {here!r}; "
                "resume with the same data settings, or start a new run"
            )


def prefetch(batch_sequences: int, length: int) -> grain.ReadOptions:
    """Return how many batches of a process Grain reads ahead, and how many of them at a time."""
    batch_bytes = batch_sequences * length * np.dtype(np.int32).itemsize
    ahead = min(max(PREFETCH_BYTES // batch_bytes, 2), MOST_BATCHES_AHEAD)
    return grain.ReadOptions(num_threads=min(BATCHES_AT_A_TIME, ahead), prefetch_buffer_size=ahead)


def open_shard(path: Path) -> ArrayRecordReader:
    # Sequences are read out of order, so reading ahead in the file would be wasted work.
    return ArrayRecordReader(str(path), "readahead_buffer_size:0")


class PreparedReader:
    """Batches of a folder that `tupe prepare` wrote, in a new global order every epoch."""

    def __init__(
        self,
        folder: Path,
        index: PreparedIndex,
        *,
        vocabulary_sha256: str,
        split: str,
        batch_size: int,
        seed: int,
        host_shard: HostShard,
        open_shard: Callable[[Path], ArrayRecordReader] = open_shard,
    ) -> None:
        require_tokenizer(folder, index, vocabulary_sha256)
        if split not in index.splits:
            raise UserError(f"{folder}: no split {split!r}; it has {', '.join(index.splits)}")
        shards = index.splits[split].shards
        count = index.splits[split].rows
        if count == 0:
            raise UserError(f"{folder}: split {split!r} has no sequences; prepare more text")
        # What determines the batch of a step. The folder may be moved or copied.
        self._stream = {
            "reader": "prepared",
            "task": index.task,
            "vocabulary_sha256": index.vocabulary_sha256,
            "length": index.length,
            "split": split,
            "rows": count,
            "shards_sha256": _digest(shards),
            "batch_size": batch_size,
            "seed": seed,
            # States of versions with one packing do not name it.
            **({} if index.packing == "stream" else {"packing": index.packing}),
        }
        source = TokenShards(folder, shards, index.record, open_shard)
        numbers = (
            grain.MapDataset.range(count)
            .shuffle(seed=mix_seed(seed))  # Grain gives each epoch its own order.
            .repeat()
        )
        indices = host_shard.indices(batch_size)
        # Each process computes only the numbers of its own sequences.
        batches = grain.MapDataset.range(len(numbers) // batch_size).map(
            lambda step: source.read([numbers[step * batch_size + index] for index in indices])
        )
        self._batches = iter(batches.to_iter_dataset(prefetch(len(indices), index.length)))

    def next(self) -> Features:
        features: Features = next(self._batches)
        return features

    def state(self) -> State:
        return {**self._stream, "step": self._batches.get_state()["next_index"]}

    def restore(self, state: State) -> None:
        check_same_stream(state, self._stream)
        self._batches.set_state({"next_index": state["step"]})


class TokenShards:
    """Random access to the sequences of many shards as if they were one file."""

    def __init__(
        self,
        folder: Path,
        shards: Sequence[ShardFile],
        record: RecordType,
        open_shard: Callable[[Path], ArrayRecordReader] = open_shard,
    ) -> None:
        self._folder = folder
        self._shards = shards
        self._record = record
        self._open_shard = open_shard
        self._ends = np.cumsum([shard.rows for shard in shards])
        # A folder may have thousands of shards: each is opened on first use and kept open.
        self._opened: list[ArrayRecordReader | None] = [None] * len(shards)
        self._opening = [threading.Lock() for _ in shards]
        _allow_open_files(len(shards))
        self._threads = ThreadPoolExecutor(BATCHES_AT_A_TIME * READS_AT_A_TIME, "read")

    def read(self, numbers: Sequence[int]) -> Features:
        """Return the features of these sequences in this order, `[len(numbers), ...]`."""
        numbers_N = np.asarray(numbers, np.int64)
        shard_N = np.searchsorted(self._ends, numbers_N, side="right").tolist()
        records: list[bytes] = [b""] * len(numbers_N)

        def read_some(begin: int, end: int) -> None:
            for index in range(begin, end):
                records[index] = self._read_one(shard_N[index], int(numbers_N[index]))

        # Calling a thread takes longer than a read from memory: large batches are read in parts.
        parts = max(min(len(numbers_N), READS_AT_A_TIME), 1)
        bounds = [len(numbers_N) * part // parts for part in range(parts + 1)]
        for _ in self._threads.map(read_some, bounds[:-1], bounds[1:]):
            pass  # raises the error of a read
        return decode_records(records, self._record)

    def spread(self, at_most: int) -> NDArray[np.int64]:
        """Return the numbers of at most this many sequences, evenly spread over all shards.

        Shards are ordered by source, so the first sequences alone would not represent the corpus.
        """
        total = int(self._ends[-1]) if len(self._ends) else 0
        count = min(at_most, total)
        return np.arange(count) * total // max(count, 1)

    def _read_one(self, shard: int, number: int) -> bytes:
        try:
            reader = self._opened[shard] or self._open(shard)
            record = number - int(self._ends[shard]) + self._shards[shard].rows
            (content,) = reader.read([record])
            if len(content) != self._record.itemsize:
                raise ValueError(f"a record of {len(content)} bytes, not {self._record.itemsize}")
            return bytes(content)
        except UserError:
            raise
        except (RuntimeError, ValueError) as error:
            path = self._folder / self._shards[shard].file
            if self._is_intact(shard, str(error)):
                raise RetryError(f"cannot read {path}: {error}") from error
            raise UserError(
                f"{path}: broken shard ({error}); copy it, or prepare the folder again"
            ) from error

    def _is_intact(self, shard: int, error: str) -> bool:
        """Whether an error is one of the disk or network, not of the file."""
        path = self._folder / self._shards[shard].file
        if not is_object(path):
            return "read() failed" in error
        # ArrayRecord reports no cause, and opens an object that it cannot read as an empty file.
        return path.exists() and file_size(path) == self._shards[shard].bytes

    def _open(self, shard: int) -> ArrayRecordReader:
        with self._opening[shard]:
            reader = self._opened[shard]
            if reader is None:
                path = self._folder / self._shards[shard].file
                reader = with_time_limit(path, lambda: self._open_shard(path))
                if reader.num_records() != self._shards[shard].rows:
                    raise ValueError(
                        f"{reader.num_records()} sequences, but the index lists "
                        f"{self._shards[shard].rows}"
                    )
                self._opened[shard] = reader
            return reader


def _allow_open_files(count: int) -> None:
    """Raise this process's limit of open files, often 1,024, so that all shards can be open."""
    spare = 1_000  # for the rest of the process
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count + spare:
        wanted = count + spare if hard == resource.RLIM_INFINITY else min(count + spare, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _digest(shards: Sequence[ShardFile]) -> str:
    content = json.dumps([asdict(shard) for shard in shards])
    return hashlib.sha256(content.encode()).hexdigest()
