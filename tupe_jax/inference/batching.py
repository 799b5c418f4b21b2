"""Tokenize texts and batch them into a few shapes, so that few programs are compiled."""

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

TokenIds = NDArray[np.int32]
"""The sequence of a text: [CLS] text [SEP], or text [SEP] [CLS]."""

MASK = SPECIAL_TOKENS[MASK_ID]
BATCH_SIZES = (1, 8, 64)
"""A call uses the smallest size that holds all its sequences, or else the largest."""
_SHORTEST = 16
_SHOWN_CHARACTERS = 40


class SentenceBatch(NamedTuple):
    """Sequences of one padded length; the last one is repeated to fill the batch."""

    tokens_BxS: NDArray[np.int32]
    indices: NDArray[np.int64]
    """Which of the given sequences these are, without the repeated ones."""


def encode_sentences(
    tokenizer: Tokenizer, texts: Sequence[str], config: ModelConfig
) -> list[TokenIds]:
    """The sequence of each text."""
    ids = [
        encode_unmasked(tokenizer, text, describe(text, number, len(texts)))
        for number, text in enumerate(texts, 1)
    ]
    return to_sequences(tokenizer, ids, texts, longest_input(config))


def encode_unmasked(tokenizer: Tokenizer, text: str, description: str) -> list[int]:
    """The ids of a text; raise if it has a [MASK] that the tokenizer reads as letters."""
    ids = tokenizer.encode(text)
    if MASK in text and tokenizer.special.mask_id not in ids:
        raise UserError(
            f"{description} has a {MASK}, which only `fill_mask` reads; replace it with a word"
        )
    return ids


def describe(text: str | tuple[str, ...], number: int, count: int) -> str:
    """A text or a pair for error messages: shortened, and with its number if there are several."""
    shown = _shortened(text) if isinstance(text, str) else tuple(map(_shortened, text))
    return f"the text {shown!r}" + f" (number {number} of {count})" * (count > 1)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def to_sequences(
    tokenizer: Tokenizer, ids: Sequence[list[int]], texts: Sequence[str], longest: float
) -> list[TokenIds]:
    """Add special tokens to the ids of each text.

    Raise if a text has no ordinary tokens, over which a mean would be NaN, or too many.
    """
    special = tokenizer.special
    not_text = {special.pad_id, special.cls_id, special.sep_id}

    def to_sequence(number: int, ids: list[int], text: str) -> TokenIds:
        description = describe(text, number, len(texts))
        if not_text.issuperset(ids):
            raise UserError(f"{description} has no words")
        sequence = np.array(join(tokenizer, ids, None, len(ids) + 2), np.int32)
        if len(sequence) > longest:
            raise UserError(
                f"{description} has {len(sequence)} tokens, more than "
                f"position.max_length={longest}; shorten or split it"
            )
        return sequence

    return [to_sequence(n, *pair) for n, pair in enumerate(zip(ids, texts, strict=True), 1)]


def text_positions(sequence: TokenIds, config: ModelConfig) -> range:
    """The positions of a text's own tokens in its sequence."""
    first = 0 if config.cls_last else 1
    return range(first, first + len(sequence) - 2)


def batches(
    sequences: Sequence[TokenIds],
    config: ModelConfig,
    length: int | None = None,
    sizes: Sequence[int] = BATCH_SIZES,
) -> Iterator[SentenceBatch]:
    """Batch sequences by length, padded to 16, 32, 64 and so on, or all of them to `length`.

    Where padding changes the outputs, sequences are padded to at least position.max_length, so
    that the output for a text does not depend on the other texts.
    """
    batch_size = next((size for size in sizes if size >= len(sequences)), sizes[-1])
    longest = longest_input(config)
    shortest = config.position.max_length if padding_matters(config) else _SHORTEST
    lengths_N = np.array([length or _padded_length(len(s), shortest, longest) for s in sequences])
    for length in np.unique(lengths_N):
        chosen = np.flatnonzero(lengths_N == length)
        for start in range(0, len(chosen), batch_size):
            indices = chosen[start : start + batch_size]
            tokens_BxS = np.full((batch_size, length), config.pad_id, np.int32)
            for b in range(batch_size):
                sequence = sequences[indices[min(b, len(indices) - 1)]]
                tokens_BxS[b, : len(sequence)] = sequence
            yield SentenceBatch(tokens_BxS, indices)


def _padded_length(length: int, shortest: int, longest: float) -> int:
    padded = shortest
    while padded < length:
        padded *= 2
    return int(min(padded, longest))  # a position table ends at `longest`
