"""The least a model must beat: guessing masked words from their frequency, blind to the text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.pretraining.readers import TokenShards
from tupe_jax.data.pretraining.token_shards import read_index
from tupe_jax.utils.errors import UserError

_ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class UnigramBaseline:
    """The frequencies of the words of a corpus, as a guess at every masked word alike."""

    probability_V: NDArray[np.float64]

    @classmethod
    def from_counts(
        cls, counts_V: NDArray[np.int64], never_chosen: Sequence[int]
    ) -> "UnigramBaseline":
        """Add-one smoothing, over the tokens that masking can choose at all."""
        maskable_V = ~np.isin(np.arange(len(counts_V)), never_chosen)
        smoothed_V = np.where(maskable_V, counts_V + 1.0, 0.0)
        return cls(smoothed_V / smoothed_V.sum())

    @property
    def entropy(self) -> float:
        """In nats: the loss on masked words that are distributed as the counted text is."""
        p = self.probability_V[self.probability_V > 0]
        return float(-(p * np.log(p)).sum())

    def loss(self, targets: NDArray[np.integer]) -> float:
        """Mean cross-entropy of these words, in nats; to be compared with `valid_loss`."""
        with np.errstate(divide="ignore"):  # a target that is never masked deserves its infinity
            return float(-np.log(self.probability_V[targets]).mean())

    def accuracy(self, targets: NDArray[np.integer]) -> float:
        """How often the most frequent piece is right; to be compared with `valid_accuracy`."""
        return float((targets == self.probability_V.argmax()).mean())


def count_tokens(rows: Iterable[NDArray[np.integer]], vocab_size: int) -> NDArray[np.int64]:
    """How often each piece occurs in arrays of token ids, [V]."""
    counts_V = np.zeros(vocab_size, np.int64)
    for tokens in rows:
        counts_V += np.bincount(tokens.ravel(), minlength=vocab_size)
    return counts_V


def prepared_rows(folder: Path, split: str, at_most: int) -> Iterator[NDArray[np.int32]]:
    """Rows of a prepared folder, [n, length] at a time, evenly spread if there are too many."""
    index = read_index(folder)
    if split not in index.splits:
        raise UserError(f"{folder}: no split {split!r}; it has {', '.join(index.splits)}")
    chosen = index.splits[split]
    source = TokenShards(folder, chosen.shards, index.length, index.dtype)
    numbers = source.spread(at_most)
    for start in range(0, len(numbers), _ROWS_AT_ONCE):
        yield source.read(numbers[start : start + _ROWS_AT_ONCE].tolist())
