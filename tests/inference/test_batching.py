"""Batches have few shapes."""

import numpy as np
import pytest

from tests.model.helpers import small_config, with_position
from tupe_jax.inference.batching import batches


@pytest.mark.parametrize(
    ("encoding", "lengths"), [("alibi", [16, 64, 128]), ("attenuated", [70, 140])]
)
def test_sequences_are_padded_to_few_lengths_or_to_one_where_padding_matters(encoding, lengths):
    """Attenuated weights are divided by a sum over the whole row, padding included."""
    config = with_position(small_config(encoding), max_length=70)
    rows = [np.full(length, 7, np.int32) for length in (5, 16, 60, 71)]
    assert sorted({batch.tokens_BxS.shape[1] for batch in batches(rows, config)}) == lengths
