"""The speed of the reader of prepared data, its memory, and its time to resume."""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from tupe_jax.bench.timing import Speed, seconds_in_turns
from tupe_jax.data.pretraining.readers import (
    MOST_BATCHES_AHEAD,
    HostShard,
    PreparedReader,
    open_shard,
)
from tupe_jax.data.pretraining.token_shards import (
    TOKENS,
    PreparedIndex,
    Split,
    examples_of,
    read_index,
    record_type,
    shard_file_name,
    write_index,
    write_shard,
)
from tupe_jax.utils.paths import Path

RESUME_STEPS = (10, 1_000_000)
# ArrayRecord opens a shard by opening the file and reading its end and its table of records.
OPENING_READS = 3


@dataclass(frozen=True)
class ReaderSpeed:
    """Reading speed, and the seconds from `restore` to the first batch, by step."""

    reading: Speed
    batch_seconds: tuple[float, ...]
    memory_bytes: int
    """Memory that the process gained: batches read ahead, open shards and threads."""
    resume_seconds: dict[int, float]


def measure_reader(
    folder: Path, batch_size: int, *, hosts: int = 1, latency: float = 0.0
) -> ReaderSpeed:
    """Read training data as one of `hosts` processes does, up to int32 batches in memory.

    Each read of a file takes `latency` seconds longer.
    """
    index = read_index(folder)

    def open_reader() -> PreparedReader:
        return PreparedReader(
            folder,
            index,
            vocabulary_sha256=index.vocabulary_sha256,
            split="train",
            batch_size=batch_size,
            seed=0,
            host_shard=HostShard((0,), hosts),
            open_shard=(lambda path: _SlowShard(path, latency)) if latency else open_shard,
        )

    memory_before = _resident_bytes()
    reader = open_reader()
    shape = reader.next()["tokens"].shape

    # Batches that were read ahead take no time; twice as many show the speed of reading.
    batches = 2 * MOST_BATCHES_AHEAD

    def read(count: int) -> None:
        for _ in range(count * batches):
            reader.next()

    (of_batches,) = seconds_in_turns({"reader": read}).values()
    seconds = tuple(each / batches for each in of_batches)
    memory_bytes = _resident_bytes() - memory_before
    speeds = tuple(math.prod(shape) / batch_seconds for batch_seconds in seconds)
    resume_seconds = {}
    for step in RESUME_STEPS:
        reader = open_reader()
        start = time.perf_counter()
        reader.restore({**reader.state(), "step": step})
        reader.next()
        resume_seconds[step] = time.perf_counter() - start
    return ReaderSpeed(Speed("reader", shape, speeds), seconds, memory_bytes, resume_seconds)


class _SlowShard:
    """A shard on storage with this latency."""

    def __init__(self, path: Path, latency: float) -> None:
        time.sleep(OPENING_READS * latency)
        self._reader: ArrayRecordReader = open_shard(path)
        self._latency = latency

    def num_records(self) -> int:
        return int(self._reader.num_records())

    def read(self, records: Sequence[int]) -> list[bytes]:
        time.sleep(self._latency * len(records))
        found: list[bytes] = self._reader.read(records)
        return found


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def write_random_sequences(
    folder: Path, *, rows: int, length: int, shards: int = 8, vocab_size: int = 32_768
) -> None:
    """Write a prepared folder with Zipf-distributed tokens, which compress like text."""
    generator = np.random.default_rng(0)
    written = []
    for number in range(shards):
        ranks = generator.zipf(1.2, size=(rows // shards, length))
        path = folder / shard_file_name("train", number, shards)
        examples = examples_of({TOKENS: ranks % vocab_size})
        written.append(write_shard(path, examples, record_type("stream", vocab_size, length)))
    count = sum(shard.rows for shard in written)
    split = Split(shards=tuple(written), rows=count, tokens=count * length, documents=0)
    write_index(folder, PreparedIndex("random", "", vocab_size, length, 0, {"train": split}))
