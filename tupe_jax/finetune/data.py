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

from tupe_jax.config.schema import ModelConfig
from tupe_jax.data.labelled.encode import encode_examples
from tupe_jax.data.labelled.example import Example
from tupe_jax.model.positions import padding_matters
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.training.train_state import random_key

SHORTEST_BUCKET = 32

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Indices = NDArray[np.integer[Any]]
"""Numbers of rows in their split."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LabelledBatch:
    """Sequences with their labels; all arrays may have a leading axis of trials."""

    tokens_BxS: Any
    labels_B: Any
    """int32 classes or float32 scores."""
    weights_B: Any
    """0 for rows that fill up the last batch of an epoch, else 1."""


@dataclass(frozen=True)
class EncodedSplit:
    """All rows of a split in host memory, padded to the longest."""

    tokens_NxS: Ints
    lengths_N: Ints
    labels_N: Ints | Floats
    pad_id: int = 0

    def __len__(self) -> int:
        return len(self.tokens_NxS)

    @property
    def longest(self) -> int:
        return int(self.tokens_NxS.shape[1])

    @property
    def digest(self) -> str:
        """Tells these rows and labels from all others."""
        arrays = (self.tokens_NxS, self.labels_N)
        return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]

    def tokens_at(self, places: Indices, buckets: Sequence[int]) -> Ints:
        """The rows at these places, [..., S], S being the shortest bucket that holds them."""
        longest = int(self.lengths_N[places].max())
        length = min(bucket for bucket in buckets if bucket >= longest)
        tokens = self.tokens_NxS[places, :length]
        padding = [(0, 0)] * places.ndim + [(0, length - tokens.shape[-1])]
        return np.pad(tokens, padding, constant_values=self.pad_id)


def encode_split(
    examples: Sequence[Example], encoder: Tokenizer, length: int, score_scale: float = 1.0
) -> EncodedSplit:
    """Encode a split; scores are divided by `score_scale`."""
    encoded = encode_examples(examples, encoder, length)
    # To the last token: a text may name the piece for padding, where a tokenizer lets it.
    is_token_NxS = encoded.tokens != encoder.special.pad_id
    lengths_N = (length - is_token_NxS[:, ::-1].argmax(1)).astype(np.int32)
    labels: Any = encoded.labels
    return EncodedSplit(
        tokens_NxS=np.ascontiguousarray(encoded.tokens[:, : lengths_N.max()]),
        lengths_N=lengths_N,
        labels_N=labels / np.float32(score_scale) if labels.dtype == np.float32 else labels,
        pad_id=encoder.special.pad_id,
    )


def bucket_lengths(config: ModelConfig, length: int, longest: int) -> tuple[int, ...]:
    """The lengths of batches: 32, 64, 128 and so on, up to the longest row; never above `length`.

    Only `length` for an encoding whose numbers depend on the row's length, padding included.
    """
    if padding_matters(config):
        return (length,)
    buckets = [SHORTEST_BUCKET]
    while buckets[-1] < longest:
        buckets.append(2 * buckets[-1])
    return tuple(min(bucket, length) for bucket in buckets)


class TrainBatches:
    """The batches of several trials side by side: `batches(step)` has arrays [T, B, ...].

    An epoch is every row once, in an order of the trial's own; its last batch is filled up with
    rows that do not count.
    """

    def __init__(
        self, rows: EncodedSplit, seeds: Sequence[int], batch_size: int, buckets: Sequence[int]
    ) -> None:
        self._rows, self._buckets, self._batch_size = rows, buckets, batch_size
        self._seeds_T = jnp.array(seeds, jnp.uint32)
        self._epoch, self._order_TxN = -1, np.zeros((len(seeds), 0), np.int64)

    @property
    def per_epoch(self) -> int:
        return -(-len(self._rows) // self._batch_size)

    def __call__(self, step: int) -> LabelledBatch:
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
        tokens_TxBxS = self._rows.tokens_at(places_TxB, self._buckets)
        return LabelledBatch(tokens_TxBxS, self._rows.labels_N[places_TxB], weights_TxB)


@functools.partial(jax.jit, static_argnums=2)
def _orders(seeds_T: jax.Array, epoch: jax.Array, count: int) -> jax.Array:
    """A permutation of the rows for each seed, [T, N]."""
    return jax.vmap(lambda seed: jax.random.permutation(random_key(seed, "order", epoch), count))(
        seeds_T
    )


def evaluation_batches(
    rows: EncodedSplit, batch_size: int, buckets: Sequence[int]
) -> Iterator[tuple[Indices, Ints]]:
    """Indices and tokens of all rows, the longest first; the last row fills up the last batch."""
    order_N = np.argsort(-rows.lengths_N, kind="stable")
    for start in range(0, len(rows), batch_size):
        places_B = order_N[start : start + batch_size]
        places_B = np.pad(places_B, (0, batch_size - len(places_B)), mode="edge")
        yield places_B, rows.tokens_at(places_B, buckets)
