"""The reader of prepared rows: the batch at step s is a function of (seed, s) and of nothing else.

Grain shuffles row *numbers* by a keyed permutation, so that the row at any place of any epoch is
computed, not looked up: resuming at step 1,000,000 costs what step 10 costs. A batch's rows are
then read together, one call per shard.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordReader
from numpy.typing import NDArray

from tupe_jax.data.pretraining.readers import Batch, Share, State, check_same_stream, spread_seed
from tupe_jax.data.pretraining.token_shards import (
    DtypeName,
    Shard,
    decode_rows,
    read_index,
    require_vocabulary,
)
from tupe_jax.utils.errors import RetryError, UserError

# Two threads keep ahead of a device; batches in waiting are small beside a model.
PREFETCH = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)


class PreparedReader:
    """Batches of a folder that `tupe prepare` wrote, in a new global order every epoch."""

    def __init__(
        self,
        folder: Path,
        *,
        vocabulary_sha256: str,
        split: str,
        batch_size: int,
        seed: int,
        share: Share,
    ) -> None:
        index = read_index(folder)
        require_vocabulary(folder, index, vocabulary_sha256)
        if split not in index.splits:
            raise UserError(f"{folder}: no split {split!r}; it has {', '.join(index.splits)}")
        shards = index.splits[split].shards
        rows = index.splits[split].rows
        if rows == 0:
            raise UserError(f"{folder}: split {split!r} has no rows; prepare more text")
        # What decides the rows of a step. The folder's path does not: it may be moved or copied.
        self._stream = {
            "reader": "prepared",
            "task": index.task,
            "vocabulary_sha256": index.vocabulary_sha256,
            "length": index.length,
            "split": split,
            "rows": rows,
            "shards_sha256": _digest(shards),
            "batch_size": batch_size,
            "seed": seed,
            # States saved before there was another packing do not name it.
            **({} if index.packing == "stream" else {"packing": index.packing}),
        }
        source = TokenShards(folder, shards, index.length, index.dtype)
        numbers = (
            grain.MapDataset.range(rows)
            .shuffle(seed=spread_seed(seed))  # Grain itself gives each epoch its own order.
            .repeat()
        )
        own_rows = share.rows(batch_size)
        # Each process computes the numbers of its own rows only, wherever in the batch they are.
        batches = grain.MapDataset.range(len(numbers) // batch_size).map(
            lambda step: source.read([numbers[step * batch_size + row] for row in own_rows])
        )
        self._batches = iter(batches.to_iter_dataset(PREFETCH))

    def next(self) -> Batch:
        return {"tokens": next(self._batches)}

    def state(self) -> State:
        return {**self._stream, "step": self._batches.get_state()["next_index"]}

    def restore(self, state: State) -> None:
        check_same_stream(state, self._stream)
        self._batches.set_state({"next_index": state["step"]})


class TokenShards:
    """Random access to the rows of many shards as if they were one file."""

    def __init__(
        self, folder: Path, shards: Sequence[Shard], length: int, dtype: DtypeName
    ) -> None:
        self._folder = folder
        self._shards = shards
        self._length = length
        self._dtype = dtype
        self._ends = np.cumsum([shard.rows for shard in shards])
        # A pod's folder has thousands of shards: each is opened when first read, then kept.
        self._reader = cache(self._open)

    def read(self, row_numbers: Sequence[int]) -> NDArray[np.int32]:
        """Return these rows in this order, `[len(row_numbers), length]`."""
        numbers = np.asarray(row_numbers)
        shard_of_row = np.searchsorted(self._ends, numbers, side="right")
        tokens = np.empty((len(numbers), self._length), np.int32)
        for shard in np.unique(shard_of_row).tolist():
            places = np.flatnonzero(shard_of_row == shard)
            first = self._ends[shard] - self._shards[shard].rows
            tokens[places] = self._read_shard(shard, (numbers[places] - first).tolist())
        return tokens

    def spread(self, at_most: int) -> NDArray[np.int64]:
        """The numbers of so many rows, of all parts of the corpus: shards stand source by source.

        All rows if there are not more.
        """
        rows = int(self._ends[-1]) if len(self._ends) else 0
        count = min(at_most, rows)
        return np.arange(count) * rows // max(count, 1)

    def _read_shard(self, shard: int, positions: list[int]) -> NDArray[np.int32]:
        try:
            return decode_rows(self._reader(shard).read(positions), self._dtype, self._length)
        except (RuntimeError, ValueError) as error:
            path = self._folder / self._shards[shard].file
            if "read() failed" in str(error):  # says the system: a disk or a network, not the file
                raise RetryError(f"cannot read {path}: {error}") from error
            raise UserError(
                f"{path}: broken shard ({error}); copy it, or prepare the folder again"
            ) from error

    def _open(self, shard: int) -> Any:
        # Rows are read out of order, so reading ahead in the file would be wasted work.
        reader = ArrayRecordReader(
            str(self._folder / self._shards[shard].file), "readahead_buffer_size:0"
        )
        if reader.num_records() != self._shards[shard].rows:
            raise ValueError(
                f"{reader.num_records()} rows, the index says {self._shards[shard].rows}"
            )
        return reader


def _digest(shards: Sequence[Shard]) -> str:
    content = json.dumps([asdict(shard) for shard in shards])
    return hashlib.sha256(content.encode()).hexdigest()
