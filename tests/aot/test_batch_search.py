"""The search for the largest batch: it is right, and asks seldom."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupe_jax.aot.batch_search import largest_batch


def search(needed, limit, start):
    asked = []

    def needed_bytes(rows):
        asked.append(rows)
        return needed(rows)

    return largest_batch(needed_bytes, limit, start), asked


@pytest.mark.parametrize(
    ("start", "rows", "compilations"),
    [(16, 24, 3), (64, 24, 4), (1, 24, 5), (24, 24, 3)],
)
def test_few_compilations(start, rows, compilations):
    # A base model on a v5e, in MiB: 1,300 whatever the batch, and 570 per row
    found, asked = search(lambda rows: 1300 + 570 * rows, 16128, start)
    assert found == rows
    assert len(asked) <= compilations


@given(
    fixed=st.integers(0, 300),
    per_row=st.integers(1, 200),
    bend=st.floats(0, 0.2),
    start=st.integers(1, 300),
)
def test_the_result_fits_and_the_next_larger_one_does_not(fixed, per_row, bend, start):
    def needed(rows):
        return fixed + per_row * rows + int(bend * rows**1.5)

    found, asked = search(needed, 1000, start)
    next_step = found + 1 if found < 8 else found - found % 8 + 8
    assert any(found < rows <= next_step and needed(rows) > 1000 for rows in asked)
    assert found == 0 or needed(found) <= 1000
    assert found >= start or needed(start) > 1000  # the requested batch is never made smaller
    assert len(asked) == len(set(asked))


def test_extrapolation_is_limited():
    """With next to no memory per row, the search still takes steps of at most four times."""
    _, asked = search(lambda rows: 5_000_000 + 10 * rows, 16_000_000, 1)
    assert all(more <= 4 * less for less, more in itertools.pairwise(asked))


def test_nothing_fits():
    assert search(lambda rows: 2000, 1000, 8)[0] == 0
