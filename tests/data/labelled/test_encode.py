"""Sentences and pairs become sequences of one length, with the paper's special tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupe_jax.data.labelled.encode import encode_examples, join, truncate_longest_first
from tupe_jax.data.labelled.example import Example
from tupe_jax.tokenizers.sentencepiece import CLS_ID, PAD_ID, PAIR_SEPARATORS, SEP_ID, SPECIAL
from tupe_jax.utils.errors import UserError


class Letters:
    """One id per letter: a is 10, b is 11, ..."""

    special, pair_separators, cls_last = SPECIAL, PAIR_SEPARATORS, False

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") + 10 for letter in text]


def test_a_single_sentence() -> None:
    encoded = encode_examples([Example("ab", None, 1)], Letters(), length=6)
    assert encoded.tokens.tolist() == [[CLS_ID, 10, 11, SEP_ID, PAD_ID, PAD_ID]]
    assert encoded.tokens.dtype == encoded.labels.dtype == np.int32


def test_a_pair_has_two_separators_between_its_texts() -> None:
    encoded = encode_examples([Example("ab", "c", 0), Example("a", "", 2)], Letters(), length=8)
    assert encoded.tokens.tolist() == [
        [CLS_ID, 10, 11, SEP_ID, SEP_ID, 12, SEP_ID, PAD_ID],
        [CLS_ID, 10, SEP_ID, SEP_ID, SEP_ID, PAD_ID, PAD_ID, PAD_ID],
    ]
    assert encoded.labels.tolist() == [0, 2]


def test_the_classifier_token_may_be_the_last() -> None:
    class Last(Letters):
        cls_last = True

    assert join(Last(), [10, 11], None, length=6) == [10, 11, SEP_ID, CLS_ID]
    assert join(Last(), [10, 11], [12, 13], length=7) == [
        *(10, 11, SEP_ID, SEP_ID, 12, SEP_ID, CLS_ID)
    ]


def test_scores_stay_numbers() -> None:
    encoded = encode_examples([Example("a", "b", 2.5), Example("a", "b", 3.0)], Letters(), length=8)
    assert (encoded.labels.tolist(), encoded.labels.dtype) == ([2.5, 3.0], np.float32)


def test_a_long_sentence_keeps_its_separator() -> None:
    assert join(Letters(), [10, 11, 12, 13], None, length=4) == [CLS_ID, 10, 11, SEP_ID]


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 16))
def test_truncation_removes_one_token_at_a_time_from_the_longer(a: int, b: int, room: int) -> None:
    first, second = list(range(a)), list(range(b))
    kept = truncate_longest_first(first, second, room)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    assert kept == (first, second)


def test_a_length_too_short_for_the_special_tokens_is_an_error() -> None:
    with pytest.raises(UserError, match=r"\b3 .*\b4"):
        join(Letters(), [10], [11], length=3)
