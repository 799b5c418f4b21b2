"""The reader without preparation: a SeqIO task straight to batches, for small runs.

The position is a count: epoch, and rows taken of it. Restoring runs that epoch's deterministic
pipeline again and skips the rows already taken. The alternative, the saved state of a tf.data
iterator, holds its shuffle buffers: megabytes that only the same number of processes and the same
TensorFlow can read.

Every process runs the whole pipeline and keeps its rows of each batch. That costs each the work
of all, and buys the same batches for any number of processes; a run that feels the cost should
prepare its rows.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.pretraining.graph import elements
from tupe_jax.data.pretraining.readers import Batch, Share, State, check_same_stream, spread_seed
from tupe_jax.data.pretraining.seqio_tasks import RowConverter
from tupe_jax.data.tensorflow_on_cpu import seqio, tf
from tupe_jax.utils.errors import UserError

T = TypeVar("T")
# From an epoch's seed to its rows `{"tokens": [length]}`. Equal seeds must give equal rows.
RowsOfEpoch = Callable[[int], tf.data.Dataset]


def rows_of_task(task: seqio.Task | seqio.Mixture, split: str, length: int) -> RowsOfEpoch:
    """Return the live rows of a SeqIO task, or of a mixture, which is one endless epoch.

    (A mixture of single passes would end with the rows of its largest part only.)
    """
    return lambda seed: seqio.get_dataset(
        task,
        task_feature_lengths={"tokens": length},
        feature_converter=RowConverter(),
        dataset_split=split,
        shuffle=True,
        seed=seed,
        num_epochs=1 if isinstance(task, seqio.Task) else None,
    )


def take_by_size(sources: Sequence[Iterator[T]], sizes: Sequence[int], count: int) -> list[T]:
    """Take `count` items, from each source by its size; others replace what one lacks."""
    taken: list[list[T]] = [[] for _ in sources]
    unfinished = list(range(len(sources)))
    while unfinished and (missing := count - sum(map(len, taken))):
        ends = np.cumsum([max(sizes[number], 1) for number in unfinished])
        shares = np.diff(missing * ends // ends[-1], prepend=0).tolist()
        for number, share in zip(tuple(unfinished), shares, strict=True):
            found = list(itertools.islice(sources[number], share))
            taken[number] += found
            if len(found) < share:
                unfinished.remove(number)
    return list(itertools.chain.from_iterable(taken))


class StreamingReader:
    """Batches of a tf.data pipeline that is built anew, with a new seed, for every epoch.

    `task` names the rows' source; it and the other settings must be the same when restoring.
    """

    def __init__(
        self,
        rows_of_epoch: RowsOfEpoch,
        *,
        task: str,
        vocabulary_sha256: str,
        length: int,
        batch_size: int,
        seed: int,
        share: Share,
    ) -> None:
        self._rows_of_epoch = rows_of_epoch
        self._batch_size = batch_size
        self._length = length
        self._seed = seed
        self._own_rows = share.rows(batch_size)
        self._stream = {
            "reader": "live",
            "task": task,
            "vocabulary_sha256": vocabulary_sha256,
            "length": length,
            "batch_size": batch_size,
            "seed": seed,
        }
        self._go_to(step=0, epoch=0, rows_taken=0)

    def next(self) -> Batch:
        rows = [self._next_row() for _ in range(self._batch_size)]
        self._step += 1
        return {"tokens": np.stack([rows[i] for i in self._own_rows]).astype(np.int32)}

    def state(self) -> State:
        position = {"step": self._step, "epoch": self._epoch, "rows_taken": self._rows_taken}
        return {**self._stream, **position}

    def restore(self, state: State) -> None:
        check_same_stream(state, self._stream)
        self._go_to(state["step"], state["epoch"], state["rows_taken"])

    def _go_to(self, step: int, epoch: int, rows_taken: int) -> None:
        self._step = step
        self._epoch = epoch
        self._rows_taken = rows_taken
        self._rows = self._remaining_rows()

    def _next_row(self) -> NDArray[np.int32]:
        row = next(self._rows, None)
        if row is None:
            if self._rows_taken == 0:
                raise UserError(f"task {self._stream['task']}: epoch {self._epoch} has no rows")
            self._go_to(self._step, self._epoch + 1, rows_taken=0)
            return self._next_row()
        self._rows_taken += 1
        return row

    def _remaining_rows(self) -> Iterator[NDArray[np.int32]]:
        """Yield the rows of the current epoch that have not been taken."""
        deterministic = tf.data.Options()
        deterministic.deterministic = True
        batches = (
            self._rows_of_epoch(spread_seed(self._seed, self._epoch))
            .with_options(deterministic)
            .skip(self._rows_taken)
            .map(lambda row: tf.ensure_shape(row["tokens"], [self._length]))
            .batch(self._batch_size)  # Only to cross from TensorFlow to numpy less often.
            .prefetch(2)
        )
        return itertools.chain.from_iterable(elements(batches))
