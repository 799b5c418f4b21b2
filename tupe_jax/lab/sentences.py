"""Sentences as batches of few shapes for a compiled function."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config import ModelConfig
from tupe_jax.data.pairs import Encoder
from tupe_jax.errors import UserError

_LENGTH_STEP = 16


class Batch(NamedTuple):
    """Rows of one length; in the last batch of a length the last row is repeated to fill it up."""

    tokens_BxS: NDArray[np.int32]
    rows: NDArray[np.int64]
    """Which of the given rows these are; without the repeated ones."""


def encode_sentences(encoder: Encoder, texts: Sequence[str]) -> list[NDArray[np.int32]]:
    """[CLS] text [SEP] of each."""
    cls_id, sep_id = encoder.special.cls_id, encoder.special.sep_id
    rows = [np.array([cls_id, *encoder.encode(text), sep_id], np.int32) for text in texts]
    for text, row in zip(texts, rows, strict=True):
        if len(row) == 2:
            raise UserError(f"the text {text!r} has no words")
    return rows


def batches(
    rows: Sequence[NDArray[np.int32]], config: ModelConfig, batch_size: int
) -> Iterator[Batch]:
    """The rows by length, padded to the next multiple of 16: one compilation for each of those."""
    if not rows:
        return
    lengths_N = np.array([len(row) for row in rows])
    padded_N = -(-lengths_N // _LENGTH_STEP) * _LENGTH_STEP
    # Not beyond a table of positions for the sake of padding.
    padded_N = np.maximum(lengths_N, np.minimum(padded_N, config.position.max_length))
    for length in np.unique(padded_N):
        chosen = np.flatnonzero(padded_N == length)
        for start in range(0, len(chosen), batch_size):
            part = chosen[start : start + batch_size]
            tokens_BxS = np.full((batch_size, length), config.pad_id, np.int32)
            for b in range(batch_size):
                row = rows[part[min(b, len(part) - 1)]]
                tokens_BxS[b, : len(row)] = row
            yield Batch(tokens_BxS, part)
