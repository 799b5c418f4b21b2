"""The speed of the reader of prepared data, and its time to resume."""

import math
import time
from dataclasses import dataclass

import numpy as np

from tupe_jax.bench.timing import Speed, seconds_in_turns
from tupe_jax.data.pretraining.readers import HostShard, PreparedReader
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


@dataclass(frozen=True)
class ReaderSpeed:
    """Reading speed, and the seconds from `restore` to the first batch, by step."""

    reading: Speed
    resume_seconds: dict[int, float]


def measure_reader(folder: Path, batch_size: int) -> ReaderSpeed:
    """Read training data as one process does, up to int32 batches in memory."""
    vocabulary_sha256 = read_index(folder).vocabulary_sha256

    def open_reader() -> PreparedReader:
        return PreparedReader(
            folder,
            vocabulary_sha256=vocabulary_sha256,
            split="train",
            batch_size=batch_size,
            seed=0,
            host_shard=HostShard(),
        )

    reader = open_reader()
    shape = reader.next()["tokens"].shape

    def read(count: int) -> None:
        for _ in range(count):
            reader.next()

    (seconds,) = seconds_in_turns({"reader": read}).values()
    speeds = tuple(math.prod(shape) / batch_seconds for batch_seconds in seconds)
    resume_seconds = {}
    for step in RESUME_STEPS:
        reader = open_reader()
        start = time.perf_counter()
        reader.restore({**reader.state(), "step": step})
        reader.next()
        resume_seconds[step] = time.perf_counter() - start
    return ReaderSpeed(Speed("reader", shape, speeds), resume_seconds)


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
