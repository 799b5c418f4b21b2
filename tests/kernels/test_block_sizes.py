"""Tiles of the TPU kernels: what they divide, pad and fit."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tupe_jax.kernels.block_sizes import LANES, fits_one_tile, tiles_for

sizes = st.integers(1, 64), st.integers(1, 2048), st.integers(1, 20), st.integers(1, 256)


@given(*sizes)
@settings(max_examples=200, deadline=None)
def test_tiles_divide_what_they_pad(batch, length, num_heads, head_size):
    tiles = tiles_for(batch, length, num_heads, head_size)
    assert tiles.length >= length
    assert tiles.num_heads >= num_heads
    assert tiles.head_size >= head_size
    assert batch % tiles.sequences == tiles.length % tiles.queries == 0
    assert tiles.num_heads % tiles.heads == 0
    # What a TPU can load: whole registers, or all there is.
    assert tiles.features % LANES == 0 or tiles.heads == tiles.num_heads
    assert tiles.queries % LANES == 0


def test_rows_of_1024_fit_and_longer_ones_do_not():
    base = {"num_heads": 12, "head_size": 64, "itemsize": 2}
    assert fits_one_tile(length=1024, **base)
    assert not fits_one_tile(length=1025, **base)
    assert not fits_one_tile(length=1024, **{**base, "head_size": 32})  # four biases at once
