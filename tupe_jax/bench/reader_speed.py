"""The speed of the reader of prepared data, and the time to resume it."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tupe_jax.bench.timing import Speed, seconds_in_turns
from tupe_jax.data.pretraining.prepared_reader import PreparedReader
from tupe_jax.data.pretraining.readers import Share
from tupe_jax.data.pretraining.token_shards import (
    Index,
    Split,
    dtype_name,
    read_index,
    shard_file,
    write_index,
    write_shard,
)

RESUME_STEPS = (10, 1_000_000)


@dataclass(frozen=True)
class ReaderSpeed:
    """The reading speed, and the seconds from `restore` to the first batch, by step."""

    reading: Speed
    resume_seconds: dict[int, float]


def measure_reader(folder: Path, batch_size: int) -> ReaderSpeed:
    """Read the training split as a single process does, into int32 batches."""
    vocabulary_sha256 = read_index(folder).vocabulary_sha256

    def open_reader() -> PreparedReader:
        return PreparedReader(
            folder,
            vocabulary_sha256=vocabulary_sha256,
            split="train",
            batch_size=batch_size,
            seed=0,
            share=Share(),
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


def write_random_rows(
    folder: Path, *, rows: int, length: int, shards: int = 8, vocab_size: int = 32_768
) -> None:
    """Write random prepared data that compresses like text."""
    generator = np.random.default_rng(0)
    written = []
    for number in range(shards):
        ranks = generator.zipf(1.2, size=(rows // shards, length))
        path = folder / shard_file("train", number, shards)
        written.append(write_shard(path, ranks % vocab_size, dtype_name(vocab_size)))
    count = sum(shard.rows for shard in written)
    split = Split(shards=tuple(written), rows=count, tokens=count * length, documents=0)
    write_index(folder, Index("random", "", vocab_size, length, 0, {"train": split}))
