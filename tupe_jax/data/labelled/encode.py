"""From texts to padded rows for fine-tuning: [CLS] A [SEP] or [CLS] A [SEP] [SEP] B [SEP].

TUPE has no segment embedding; the doubled [SEP] is what tells a pair's border from a sentence's
end. Vocabularies of other models say how many they have there, by which ids, and whether [CLS]
comes last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.labelled.example import Example
from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.utils.errors import UserError


class Encoder(Protocol):
    """What a vocabulary must do here: text to ids, without special ids; and which these are."""

    @property
    def special(self) -> SpecialTokens: ...

    @property
    def pair_separators(self) -> int: ...

    @property
    def cls_last(self) -> bool: ...

    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class LabelledRows:
    """`tokens` `[examples, length]` and one label each: int32 classes or float32 scores."""

    tokens: NDArray[np.int32]
    labels: NDArray[np.int32] | NDArray[np.float32]


def encode_examples(examples: Sequence[Example], encoder: Encoder, length: int) -> LabelledRows:
    """Encode examples of one task into rows of `length` tokens, cut and padded as needed."""
    tokens = np.full((len(examples), length), encoder.special.pad_id, np.int32)
    for row, example in zip(tokens, examples, strict=True):
        first = encoder.encode(example.sentence1)
        second = None if example.sentence2 is None else encoder.encode(example.sentence2)
        ids = join(encoder, first, second, length)
        row[: len(ids)] = ids
    labels = np.array([example.label for example in examples])
    is_score = labels.dtype.kind == "f"
    return LabelledRows(tokens, labels.astype(np.float32) if is_score else labels.astype(np.int32))


def join(encoder: Encoder, first: list[int], second: list[int] | None, length: int) -> list[int]:
    """Return the ids of a single or a pair with their special ids, at most `length`."""
    cls_id, sep_id = encoder.special.cls_id, encoder.special.sep_id
    special = 2 if second is None else 2 + encoder.pair_separators
    if length < special:
        raise UserError(f"a row of {length} tokens has no room for {special} special ones")
    room = length - special
    if second is None:
        row = [*first[:room], sep_id]
    else:
        first, second = truncate_longest_first(first, second, room)
        row = [*first, *[sep_id] * encoder.pair_separators, *second, sep_id]
    return [*row, cls_id] if encoder.cls_last else [cls_id, *row]


def truncate_longest_first(
    first: list[int], second: list[int], room: int
) -> tuple[list[int], list[int]]:
    """Take single tokens off the end of whichever is longer (the second if equal) until both fit.

    In closed form: the first keeps half of the room, rounded up, or what the second leaves.
    """
    keep_first = min(len(first), max((room + 1) // 2, room - len(second)))
    return first[:keep_first], second[: room - keep_first]
