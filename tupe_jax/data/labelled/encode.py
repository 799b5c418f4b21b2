"""From labelled examples to padded sequences: [CLS] A [SEP] or [CLS] A [SEP] [SEP] B [SEP].

TUPE has no segment embeddings. The doubled [SEP] separates the texts of a pair. Tokenizers of other
models define the number of separators, their ids, and whether [CLS] comes last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.labelled.example import Example
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError


@dataclass(frozen=True)
class EncodedExamples:
    """`tokens` `[examples, length]` and one label each: int32 classes or float32 scores."""

    tokens: NDArray[np.int32]
    labels: NDArray[np.int32] | NDArray[np.float32]


def encode_examples(
    examples: Sequence[Example], tokenizer: Tokenizer, length: int
) -> EncodedExamples:
    """Encode examples of one task into sequences of `length` tokens, truncated and padded."""
    tokens = np.full((len(examples), length), tokenizer.special.pad_id, np.int32)
    for sequence, example in zip(tokens, examples, strict=True):
        first = tokenizer.encode(example.sentence1)
        second = None if example.sentence2 is None else tokenizer.encode(example.sentence2)
        ids = join(tokenizer, first, second, length)
        sequence[: len(ids)] = ids
    labels = np.array([example.label for example in examples])
    is_score = labels.dtype.kind == "f"
    return EncodedExamples(
        tokens, labels.astype(np.float32) if is_score else labels.astype(np.int32)
    )


def join(
    tokenizer: Tokenizer, first: list[int], second: list[int] | None, length: int
) -> list[int]:
    """Return the ids of one text or a pair with special tokens, truncated to `length`."""
    cls_id, sep_id = tokenizer.special.cls_id, tokenizer.special.sep_id
    special = 2 if second is None else 2 + tokenizer.pair_separators
    if length < special:
        raise UserError(f"length {length} has no room for {special} special tokens; increase it")
    room = length - special
    if second is None:
        body = [*first[:room], sep_id]
    else:
        first, second = truncate_longest_first(first, second, room)
        body = [*first, *[sep_id] * tokenizer.pair_separators, *second, sep_id]
    return [*body, cls_id] if tokenizer.cls_last else [cls_id, *body]


def truncate_longest_first(
    first: list[int], second: list[int], room: int
) -> tuple[list[int], list[int]]:
    """Remove single tokens from the end of the longer text (the second if equal) until both fit.

    In closed form: the first keeps half of the room, rounded up, or what the second leaves.
    """
    keep_first = min(len(first), max((room + 1) // 2, room - len(second)))
    return first[:keep_first], second[: room - keep_first]
