"""Labelled rows and the batches of them: which rows, is a function of (seed, step).

A batch is cut to the shortest of a few lengths that holds its longest row, so that short sentences
do not pay for long ones. What a row gives does not depend on the padding behind it, and dropout is
a function of places: no number changes with the lengths.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tupe_jax.config import ModelConfig
from tupe_jax.data.examples import Example
from tupe_jax.data.pairs import Encoder, encode_examples
from tupe_jax.data.vocabulary import PAD_ID
from tupe_jax.model.positions import encodings
from tupe_jax.training.state import random_key

SHORTEST_BUCKET = 32

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Rows with their labels; all arrays may have a leading axis of trials."""

    tokens_BxS: Any
    labels_B: Any
    """int32 classes or float32 scores."""
    weights_B: Any
    """0 for rows that fill up the last batch of an epoch, else 1."""


@dataclass(frozen=True)
class Rows:
    """All rows of a split in host memory, padded to the longest."""

    tokens_NxS: Ints
    lengths_N: Ints
    labels_N: Ints | Floats

    def __len__(self) -> int:
        return len(self.tokens_NxS)

    @property
    def digest(self) -> str:
        """Tells these rows and labels from all others."""
        arrays = (self.tokens_NxS, self.labels_N)
        return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]

    def batch(self, places: NDArray[np.int64], weights: Floats, length: int) -> Batch:
        """The rows at these places, [...], cut to `length` or padded to it."""
        tokens = self.tokens_NxS[places][..., :length]
        missing = length - tokens.shape[-1]
        tokens = np.pad(tokens, [(0, 0)] * places.ndim + [(0, missing)], constant_values=PAD_ID)
        return Batch(tokens, self.labels_N[places], weights)


def encode_rows(
    examples: Sequence[Example], encoder: Encoder, length: int, score_scale: float = 1.0
) -> Rows:
    """Encode a split; scores are divided by `score_scale`."""
    encoded = encode_examples(examples, encoder, length)
    lengths_N = (encoded.tokens != PAD_ID).sum(1, dtype=np.int32)
    labels: Any = encoded.labels
    return Rows(
        tokens_NxS=np.ascontiguousarray(encoded.tokens[:, : lengths_N.max()]),
        lengths_N=lengths_N,
        labels_N=labels / np.float32(score_scale) if labels.dtype == np.float32 else labels,
    )


def bucket_lengths(config: ModelConfig, length: int) -> tuple[int, ...]:
    """The lengths that batches may have: 32, 64, 128 and so on, the last one `length`.

    Only the last for an encoding whose numbers depend on the length of the row, padding included.
    """
    if any(encoding.row_factor for encoding in encodings(config).values()):
        return (length,)
    doubled = []
    bucket = SHORTEST_BUCKET
    while bucket < length:
        doubled.append(bucket)
        bucket *= 2
    return (*doubled, length)


def bucket_of(longest: int, buckets: Sequence[int]) -> int:
    """The shortest bucket that holds a row of this length."""
    return min(bucket for bucket in buckets if bucket >= longest)


class TrainBatches:
    """The batches of several trials side by side: `batches(step)` has arrays [T, B, ...].

    An epoch is every row once, in an order of the trial's own; its last batch is filled up with
    rows that do not count.
    """

    def __init__(
        self, rows: Rows, seeds: Sequence[int], batch_size: int, buckets: Sequence[int]
    ) -> None:
        self._rows, self._buckets, self._batch_size = rows, buckets, batch_size
        self._seeds_T = jnp.array(seeds, jnp.uint32)
        self._epoch, self._order_TxN = -1, np.zeros((len(seeds), 0), np.int64)

    @property
    def per_epoch(self) -> int:
        return -(-len(self._rows) // self._batch_size)

    def __call__(self, step: int) -> Batch:
        """The batch that follows after `step` others."""
        epoch, number = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order_TxN = np.asarray(_orders(self._seeds_T, epoch, len(self._rows)))
        first = number * self._batch_size
        places_TxB = self._order_TxN[:, first : first + self._batch_size]
        filled = ((0, 0), (0, self._batch_size - places_TxB.shape[1]))
        weights_TxB = np.pad(np.ones_like(places_TxB, np.float32), filled)
        places_TxB = np.pad(places_TxB, filled, mode="edge")  # no longer than the batch is anyway
        longest = int(self._rows.lengths_N[places_TxB].max())
        return self._rows.batch(places_TxB, weights_TxB, bucket_of(longest, self._buckets))


@functools.partial(jax.jit, static_argnums=2)
def _orders(seeds_T: jax.Array, epoch: jax.Array, count: int) -> jax.Array:
    """A permutation of the rows for each seed, [T, N]."""
    return jax.vmap(lambda seed: jax.random.permutation(random_key(seed, "order", epoch), count))(
        seeds_T
    )


def evaluation_batches(
    rows: Rows, batch_size: int, buckets: Sequence[int]
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """All rows, the longest first, with their places; some places come twice in the last batch."""
    order_N = np.argsort(-rows.lengths_N, kind="stable")
    for start in range(0, len(rows), batch_size):
        places_B = order_N[start : start + batch_size]
        longest = int(rows.lengths_N[places_B].max())
        places_B = np.pad(places_B, (0, batch_size - len(places_B)), mode="edge")
        weights_B = np.ones(batch_size, np.float32)
        yield places_B, rows.batch(places_B, weights_B, bucket_of(longest, buckets))
