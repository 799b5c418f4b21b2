"""Sentences as batches of few shapes for a compiled function."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import ModelConfig
from tupe_jax.data.labelled.encode import join
from tupe_jax.model.positions import longest_input, padding_matters
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.tokenizers.sentencepiece import MASK_ID, SPECIAL_TOKENS
from tupe_jax.utils.errors import UserError

Row = NDArray[np.int32]
"""[CLS] text [SEP], or text [SEP] [CLS]: two tokens more than the text."""

MASK = SPECIAL_TOKENS[MASK_ID]
_SHORTEST = 16
SIZES = (1, 8, 64)
"""Rows in a batch: a call has the smallest that holds all it was given, else the largest."""
_SHOWN = 40


class Batch(NamedTuple):
    """Rows of one length; in the last batch of a length the last row is repeated to fill it up."""

    tokens_BxS: NDArray[np.int32]
    rows: NDArray[np.int64]
    """Which of the given rows these are; without the repeated ones."""


def encode_sentences(encoder: Tokenizer, texts: Sequence[str], config: ModelConfig) -> list[Row]:
    """The row of each."""
    pieces = [
        encode_unmasked(encoder, text, named(text, number, len(texts)))
        for number, text in enumerate(texts, 1)
    ]
    return as_rows(encoder, pieces, texts, longest_input(config))


def encode_unmasked(encoder: Tokenizer, text: str, name: str) -> list[int]:
    """The pieces of a text that has no [MASK], or one that its vocabulary knows as a piece."""
    ids = encoder.encode(text)
    if MASK in text and encoder.special.mask_id not in ids:
        raise UserError(
            f"{name} has a {MASK}; `fill_mask` guesses it, but here it would be read as letters: "
            "put a word there"
        )
    return ids


def named(text: str | tuple[str, ...], number: int, count: int) -> str:
    """A text or a pair as messages name it: not all of it, and which of several it is."""
    shown = _shortened(text) if isinstance(text, str) else tuple(map(_shortened, text))
    return f"the text {shown!r}" + f" (number {number} of {count})" * (count > 1)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def as_rows(
    encoder: Tokenizer, pieces: Sequence[list[int]], texts: Sequence[str], longest: float
) -> list[Row]:
    """The row of each text, which these are the pieces of.

    It must have words, and not more than the model can read: a mean over none would be NaN.
    """
    special = encoder.special
    no_words = {special.pad_id, special.cls_id, special.sep_id}

    def row(number: int, ids: list[int], text: str) -> Row:
        which = named(text, number, len(texts))
        if no_words.issuperset(ids):
            raise UserError(f"{which} has no words")
        row = np.array(join(encoder, ids, None, len(ids) + 2), np.int32)
        if len(row) > longest:
            raise UserError(
                f"{which} of {len(row)} tokens is longer than position.max_length={longest}, "
                "all that the model has positions for; shorten or split it"
            )
        return row

    return [row(n, *both) for n, both in enumerate(zip(pieces, texts, strict=True), 1)]


def places_of_text(row: Row, config: ModelConfig) -> range:
    """Where in a row the text's pieces are."""
    first = 0 if config.cls_last else 1
    return range(first, first + len(row) - 2)


def batches(
    rows: Sequence[Row],
    config: ModelConfig,
    length: int | None = None,
    sizes: Sequence[int] = SIZES,
) -> Iterator[Batch]:
    """The rows by length, padded to 16, 32, 64 and so on: one compilation for each of those.

    Or all padded to `length`. Where padding changes numbers, all that are not longer are padded to
    position.max_length: of two sentences, one must not win by the padding of the other.
    """
    batch_size = next((size for size in sizes if size >= len(rows)), sizes[-1])
    longest = longest_input(config)
    shortest = config.position.max_length if padding_matters(config) else _SHORTEST
    lengths_N = np.array([length or _padded_length(len(row), shortest, longest) for row in rows])
    for length in np.unique(lengths_N):
        chosen = np.flatnonzero(lengths_N == length)
        for start in range(0, len(chosen), batch_size):
            part = chosen[start : start + batch_size]
            tokens_BxS = np.full((batch_size, length), config.pad_id, np.int32)
            for b in range(batch_size):
                row = rows[part[min(b, len(part) - 1)]]
                tokens_BxS[b, : len(row)] = row
            yield Batch(tokens_BxS, part)


def _padded_length(length: int, shortest: int, longest: float) -> int:
    padded = shortest
    while padded < length:
        padded *= 2
    # Not beyond a table of positions for the sake of padding.
    return int(min(padded, longest))
