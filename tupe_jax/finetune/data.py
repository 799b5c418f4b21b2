"""Encoded examples and their batches; the content of a batch is a function of (seed, step).

A batch is padded to the shortest bucket that holds its longest sequence, so that short sentences
do not cost as much as long ones. Outputs do not depend on padding, and dropout is a function of the
position: no number changes with the buckets.
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
"""Indices of examples in their split."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LabelledBatch:
    """Sequences with their labels; all arrays may have a leading axis of trials."""

    tokens_BxS: Any
    labels_B: Any
    """int32 classes or float32 scores."""
    weights_B: Any
    """0 for examples that only fill the last batch of an epoch, otherwise 1."""


@dataclass(frozen=True)
class EncodedSplit:
    """All sequences of a split in host memory, padded to the longest."""

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
        """Identifies these sequences and labels."""
        arrays = (self.tokens_NxS, self.labels_N)
        return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]

    def tokens_at(self, indices: Indices, buckets: Sequence[int]) -> Ints:
        """The sequences at these indices, [..., S]; S is the shortest bucket that holds them."""
        longest = int(self.lengths_N[indices].max())
        length = min(bucket for bucket in buckets if bucket >= longest)
        tokens = self.tokens_NxS[indices, :length]
        padding = [(0, 0)] * indices.ndim + [(0, length - tokens.shape[-1])]
        return np.pad(tokens, padding, constant_values=self.pad_id)


def encode_split(
    examples: Sequence[Example], encoder: Tokenizer, length: int, score_scale: float = 1.0
) -> EncodedSplit:
    """Encode a split; scores are divided by `score_scale`."""
    encoded = encode_examples(examples, encoder, length)
    # Up to the last token: some tokenizers let a text contain the padding token.
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
    """The lengths of batches: 32, 64, 128 ... up to the longest sequence, at most `length`.

    Only `length` for an encoding whose numbers depend on the length including padding.
    """
    if padding_matters(config):
        return (length,)
    buckets = [SHORTEST_BUCKET]
    while buckets[-1] < longest:
        buckets.append(2 * buckets[-1])
    return tuple(min(bucket, length) for bucket in buckets)


class TrainBatches:
    """The batches of several trials: `batches(step)` has arrays [T, B, ...].

    An epoch has every example once, in the trial's own order. Its last batch is filled with
    examples of weight 0.
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
        """The batch of a step, counted from 0."""
        epoch, number = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order_TxN = np.asarray(_orders(self._seeds_T, epoch, len(self._rows)))
        first = number * self._batch_size
        indices_TxB = self._order_TxN[:, first : first + self._batch_size]
        filled = ((0, 0), (0, self._batch_size - indices_TxB.shape[1]))
        weights_TxB = np.pad(np.ones_like(indices_TxB, np.float32), filled)
        indices_TxB = np.pad(
            indices_TxB, filled, mode="edge"
        )  # repeats an example, so no bucket changes
        tokens_TxBxS = self._rows.tokens_at(indices_TxB, self._buckets)
        return LabelledBatch(tokens_TxBxS, self._rows.labels_N[indices_TxB], weights_TxB)


@functools.partial(jax.jit, static_argnums=2)
def _orders(seeds_T: jax.Array, epoch: jax.Array, count: int) -> jax.Array:
    """A permutation of the examples for each seed, [T, N]."""
    return jax.vmap(lambda seed: jax.random.permutation(random_key(seed, "order", epoch), count))(
        seeds_T
    )


def evaluation_batches(
    rows: EncodedSplit, batch_size: int, buckets: Sequence[int]
) -> Iterator[tuple[Indices, Ints]]:
    """Indices and tokens of all examples, longest first; the last one fills the last batch."""
    order_N = np.argsort(-rows.lengths_N, kind="stable")
    for start in range(0, len(rows), batch_size):
        indices_B = order_N[start : start + batch_size]
        indices_B = np.pad(indices_B, (0, batch_size - len(indices_B)), mode="edge")
        yield indices_B, rows.tokens_at(indices_B, buckets)
