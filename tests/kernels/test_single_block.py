"""The fused kernel, interpreted, against its definition: values and all gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cases import (
    SEED,
    is_token,
    largest_difference,
    numbers,
    output_and_gradients,
    qkv,
)
from tupe_jax.kernels.block_sizes import LANES, fits_one_tile, tiles_for
from tupe_jax.kernels.reference import attention
from tupe_jax.kernels.single_block import single_block_attention

CASES = {  # B, S, H, d, has bias, dropout
    "three sequences, one all padding": (3, 70, 2, 64, True, 0.1),
    "four heads side by side": (1, 128, 4, 32, True, 0.1),
    "a head as wide as the lanes, no bias": (2, 130, 1, 128, False, 0.1),
    "several blocks of queries": (1, 640, 1, 64, True, 0.1),
    "sizes that fit nothing, no dropout": (2, 40, 3, 48, True, 0.0),
}


def both(B, S, H, d, has_bias, rate, dtype):
    """The kernel on inputs of a type, and the definition in float32 on the same numbers."""
    settings = {"scale": (2 * d) ** -0.5, "rate": rate}
    inputs = [*qkv(B, S, H, d, dtype), numbers((H, S, S), 9, dtype) if has_bias else None]

    def run(attend, inputs):
        return output_and_gradients(
            lambda q, k, v, bias: attend(q, k, v, bias, is_token(B, S), SEED, **settings), *inputs
        )

    exact = jax.tree.map(lambda x: x.astype("float32"), inputs)
    return run(single_block_attention, inputs), run(attention, exact)


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    ours, expected = both(*CASES[case], "float32")
    assert largest_difference(ours, expected) < 1e-5


def test_bfloat16_to_its_rounding():
    """Weights, then the sum of products, are rounded to 8 bits: 2^-9 each, of the largest entry.

    A gradient has passed one rounding more.
    """
    (out, gradients), (exact_out, exact_gradients) = both(2, 128, 2, 64, True, 0.1, "bfloat16")
    assert {x.dtype for x in [out, *gradients]} == {jnp.dtype("bfloat16")}
    assert largest_difference(out, exact_out) < 2**-8
    assert largest_difference(gradients, exact_gradients) < 2**-7


def test_a_part_of_a_batch_drops_what_the_whole_does():
    B, S, H, d = 2, 32, 2, 32
    q, k, v = qkv(B, S, H, d)
    settings = {"scale": 1.0, "rate": 0.5}
    whole = attention(q, k, v, None, is_token(B, S), SEED, **settings)
    attend = jax.jit(partial(single_block_attention, **settings))
    part = attend(
        *(x[1:, :, 1:] for x in (q, k, v)),
        None,
        is_token(B, S)[1:],
        SEED,
        first_sequence=1,
        first_head=1,
    )
    np.testing.assert_allclose(part, whole[1:, :, 1:], atol=1e-5)


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
