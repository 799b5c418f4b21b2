"""A reader that needs no preparation: a SeqIO task straight to batches, for small runs.

Selected by `data.reader='live'`.

The state is a count: the epoch, and the sequences taken from it. Restoring runs the deterministic
pipeline of that epoch again and skips the sequences already taken. The saved state of a tf.data
iterator would instead hold its shuffle buffers: megabytes that only the same number of processes
and the same TensorFlow can read.

Every process runs the whole pipeline and keeps its host shard of each batch. The batches are thus
the same for any number of processes, but each process does the work of all. Runs for which that is
too slow should use `tupe prepare`.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tupe_jax.data.pretraining.readers import (
    HostShard,
    State,
    check_same_stream,
    mix_seed,
)
from tupe_jax.data.pretraining.seqio_tasks import PairConverter, SequenceConverter
from tupe_jax.data.pretraining.token_shards import Features, examples_of, stack_examples
from tupe_jax.data.tf_utils import elements, seqio, tf
from tupe_jax.utils.errors import UserError

T = TypeVar("T")
Example = Mapping[str, Any]
# From the seed of an epoch to its sequences, `tokens` `[length]` and other features. Must be
# deterministic.
EpochFn = Callable[[int], tf.data.Dataset]


def epochs_of_task(task: seqio.Task | seqio.Mixture, split: str, length: int) -> EpochFn:
    """Return the epochs of a SeqIO task. A mixture has one endless epoch.

    (A mixture of single passes would end with sequences of its largest source only.)
    """
    features = task.output_features
    converter = PairConverter() if len(features) > 1 else SequenceConverter()
    return lambda seed: seqio.get_dataset(
        task,
        task_feature_lengths={name: length if features[name].rank else None for name in features},
        feature_converter=converter,
        dataset_split=split,
        shuffle=True,
        seed=seed,
        num_epochs=1 if isinstance(task, seqio.Task) else None,
    )


def take_by_size(sources: Sequence[Iterator[T]], sizes: Sequence[int], count: int) -> list[T]:
    """Take `count` items, from each source by its size. If one runs out, the others fill in."""
    taken: list[list[T]] = [[] for _ in sources]
    unfinished = list(range(len(sources)))
    while unfinished and (missing := count - sum(map(len, taken))):
        ends = np.cumsum([max(sizes[number], 1) for number in unfinished])
        quotas = np.diff(missing * ends // ends[-1], prepend=0).tolist()
        for number, quota in zip(tuple(unfinished), quotas, strict=True):
            found = list(itertools.islice(sources[number], quota))
            taken[number] += found
            if len(found) < quota:
                unfinished.remove(number)
    return list(itertools.chain.from_iterable(taken))


class StreamingReader:
    """Batches of a tf.data pipeline that is rebuilt, with a new seed, for every epoch.

    `task` names the pipeline. It and the other settings must be the same when restoring.
    """

    def __init__(
        self,
        epoch_fn: EpochFn,
        *,
        task: str,
        vocabulary_sha256: str,
        length: int,
        batch_size: int,
        seed: int,
        host_shard: HostShard,
    ) -> None:
        self._epoch_fn = epoch_fn
        self._batch_size = batch_size
        self._length = length
        self._seed = seed
        self._indices = host_shard.indices(batch_size)
        self._stream = {
            "reader": "live",
            "task": task,
            "vocabulary_sha256": vocabulary_sha256,
            "length": length,
            "batch_size": batch_size,
            "seed": seed,
        }
        self._sequences: Iterator[Example]
        self._move_to(step=0, epoch=0, taken=0)

    def next(self) -> Features:
        sequences = [self._next_sequence() for _ in range(self._batch_size)]
        self._step += 1
        return stack_examples([sequences[i] for i in self._indices])

    def state(self) -> State:
        position = {"step": self._step, "epoch": self._epoch, "rows_taken": self._taken}
        return {**self._stream, **position}

    def restore(self, state: State) -> None:
        check_same_stream(state, self._stream)
        self._move_to(state["step"], state["epoch"], state["rows_taken"])
        # Here and not in `next`, which should take no longer than the watchdog allows for a batch.
        first = list(itertools.islice(self._sequences, 1))
        self._sequences = itertools.chain(first, self._sequences)

    def _move_to(self, step: int, epoch: int, taken: int) -> None:
        self._step = step
        self._epoch = epoch
        self._taken = taken
        self._sequences = self._remaining_sequences()

    def _next_sequence(self) -> Example:
        sequence = next(self._sequences, None)
        if sequence is None:
            if self._taken == 0:
                raise UserError(
                    f"task {self._stream['task']}: epoch {self._epoch} has no sequences; "
                    "add text to the corpus (sentence pairs need two documents)"
                )
            self._move_to(self._step, self._epoch + 1, taken=0)
            return self._next_sequence()
        self._taken += 1
        return sequence

    def _remaining_sequences(self) -> Iterator[Example]:
        """Yield the sequences of the current epoch that have not been taken."""
        deterministic = tf.data.Options()
        deterministic.deterministic = True
        batches = (
            self._epoch_fn(mix_seed(self._seed, self._epoch))
            .with_options(deterministic)
            .skip(self._taken)
            .map(self._with_length)
            .batch(self._batch_size)  # Only to cross from TensorFlow to NumPy less often.
            .prefetch(2)
        )
        return itertools.chain.from_iterable(map(examples_of, elements(batches)))

    def _with_length(self, example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**example, "tokens": tf.ensure_shape(example["tokens"], [self._length])}
