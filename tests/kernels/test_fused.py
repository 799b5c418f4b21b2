"""The fused kernels for TPUs and GPUs, interpreted, against their definition."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.cases import (
    SEED,
    is_token,
    largest_difference,
    numbers,
    output_and_gradients,
    qkv,
)
from tupe_jax.kernels.gpu import gpu_attention
from tupe_jax.kernels.reference import attention
from tupe_jax.kernels.single_block import single_block_attention

KERNELS = {"tpu": single_block_attention, "gpu": gpu_attention}
CASES = {  # B, S, H, d, has bias, dropout
    "three sequences, one all padding": (3, 70, 2, 64, True, 0.1),
    "four heads side by side": (1, 128, 4, 32, True, 0.1),
    "a head as wide as the lanes, no bias": (2, 130, 1, 128, False, 0.1),
    "several blocks of queries": (1, 640, 1, 64, True, 0.1),
    "sizes that fit nothing, no dropout": (2, 40, 3, 48, True, 0.0),
    "a few tokens and features": (2, 5, 1, 8, True, 0.1),
}
on_both = pytest.mark.parametrize("kernel", KERNELS)


def both(kernel, B, S, H, d, has_bias, rate, dtype):
    """The kernel on inputs of a type, and the definition in float32 on the same numbers."""
    settings = {"scale": (2 * d) ** -0.5, "rate": rate}
    inputs = [*qkv(B, S, H, d, dtype), numbers((H, S, S), 9, dtype) if has_bias else None]

    def run(attend, inputs):
        return output_and_gradients(
            lambda q, k, v, bias: attend(q, k, v, bias, is_token(B, S), SEED, **settings), *inputs
        )

    exact = jax.tree.map(lambda x: x.astype("float32"), inputs)
    return run(KERNELS[kernel], inputs), run(attention, exact)


@on_both
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case, kernel):
    ours, expected = both(kernel, *CASES[case], "float32")
    assert largest_difference(ours, expected) < 1e-5


@on_both
@pytest.mark.parametrize("sizes", [(2, 128, 2, 64), (3, 77, 3, 24)])
def test_bfloat16_to_its_rounding(kernel, sizes):
    """Weights, then the sum of products, are rounded to 8 bits: 2^-9 each, of the largest entry.

    A gradient has passed one rounding more.
    """
    (out, gradients), (exact_out, exact_gradients) = both(kernel, *sizes, True, 0.1, "bfloat16")
    assert {x.dtype for x in [out, *gradients]} == {jnp.dtype("bfloat16")}
    assert largest_difference(out, exact_out) < 2**-8
    assert largest_difference(gradients, exact_gradients) < 2**-7


@on_both
def test_padding_anywhere(kernel):
    """At the start and in the middle."""
    B, S, H, d = 2, 90, 2, 32
    is_token_BxS = is_token(B, S).at[:, 0].set(False).at[0, 30:75].set(False)

    def run(attend):
        return output_and_gradients(
            lambda *x: attend(*x, is_token_BxS, SEED, scale=0.1, rate=0.1),
            *qkv(B, S, H, d),
            numbers((H, S, S), 9),
        )

    assert largest_difference(run(KERNELS[kernel]), run(attention)) < 1e-5


@on_both
def test_a_part_of_a_batch_drops_what_the_whole_does(kernel):
    B, S, H, d = 2, 32, 2, 32
    q, k, v = qkv(B, S, H, d)
    settings = {"scale": 1.0, "rate": 0.5}
    whole = attention(q, k, v, None, is_token(B, S), SEED, **settings)
    attend = jax.jit(partial(KERNELS[kernel], **settings))
    part = attend(
        *(x[1:, :, 1:] for x in (q, k, v)),
        None,
        is_token(B, S)[1:],
        SEED,
        first_sequence=1,
        first_head=1,
    )
    np.testing.assert_allclose(part, whole[1:, :, 1:], atol=1e-5)
