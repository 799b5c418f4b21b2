"""Order sensitivity of vectors that are known."""

import numpy as np
import pytest

from tupe_jax.lab.order_sensitivity import order_sensitivity
from tupe_jax.lab.parsed_sentence import ParsedSentence

SENTENCES = [
    ParsedSentence((x, y, "."), (frozenset({0, 1}),))
    for x, y in ("ab", "cd", "ef", "gh", "ij", "kl")
]


def test_distances_are_to_any_other_sentence_not_to_the_next_one():
    """Neighbours come from one text and are alike: here the first three, and the last three."""
    originals = np.repeat(np.eye(2), 3, axis=0)
    originals = originals + 1e-3 * np.random.default_rng(0).standard_normal(originals.shape)

    def represent(texts):
        assert len(texts) == 2 * len(SENTENCES)
        return np.concatenate([originals, originals[::-1]])  # all become the other kind

    found = order_sensitivity(SENTENCES, represent)
    # To one's own it is 2; to others 0, 0, 2, 2, 2.
    assert found.sensitivity.estimate == pytest.approx(2 / (6 / 5), rel=1e-2)
