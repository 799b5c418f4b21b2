"""Attention windows in the kernels: values, all gradients, and blocks that are skipped."""

from functools import partial

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
from tests.kernels.test_multi_block import bias_of
from tupe_jax.kernels.banded import banded_attention
from tupe_jax.kernels.factored import FactoredBias, dense
from tupe_jax.kernels.gpu import gpu_attention
from tupe_jax.kernels.multi_block import multi_block_attention
from tupe_jax.kernels.reference import attention
from tupe_jax.kernels.single_block import single_block_attention
from tupe_jax.kernels.window import blocks_in_window, pairs_computed, pairs_in_window, skips_half


def with_dense_bias(attend):
    def attend_with_factors(q, k, v, bias, *rest, **settings):
        return attend(q, k, v, dense(bias, q.shape[1]), *rest, **settings)

    return attend_with_factors


KERNELS = {
    "banded": banded_attention,
    "single_block": with_dense_bias(single_block_attention),
    "multi_block": partial(multi_block_attention, block=128),
    "gpu": with_dense_bias(gpu_attention),
}
CASES = {  # B, S, H, d, bias, dropout, window
    "TUPE-R, a window within a block": (2, 260, 2, 16, "tupe_r", 0.1, 30),
    "attenuated, a bit more than two blocks": (1, 384, 1, 16, "attenuated", 0.0, 260),
    "T5, a window of whole blocks": (1, 300, 1, 24, "t5", 0.1, 256),
    "only neighbours": (1, 140, 1, 16, "t5", 0.1, 2),
    "wider than the sequence": (2, 140, 1, 16, "tupe_r", 0.1, 1000),
}
FAST = [("only neighbours", "multi_block"), ("only neighbours", "gpu")]
RUNS = [
    (case, kernel) if (case, kernel) in FAST else pytest.param(case, kernel, marks=pytest.mark.slow)
    for case in CASES
    for kernel in KERNELS
]


@pytest.mark.parametrize(("case", "kernel"), RUNS)
def test_values_and_gradients(case, kernel):
    """With padding at the start, at the end, and over whole windows in the middle."""
    B, S, H, d, form, rate, window = CASES[case]
    is_token_BxS = is_token(B, S).at[0, 60:130].set(False).at[0, 0].set(False)
    settings = {"scale": (2 * d) ** -0.5, "rate": rate, "window": window}
    inputs = *qkv(B, S, H, d), bias_of(form, S, H, d)

    def run(attend):
        return output_and_gradients(
            lambda q, k, v, bias: attend(q, k, v, bias, is_token_BxS, SEED, **settings), *inputs
        )

    ours, our_gradients = run(KERNELS[kernel])
    expected, gradients = run(with_dense_bias(attention))
    assert largest_difference(ours, expected) < 1e-5
    assert largest_difference(learned(our_gradients), learned(gradients)) < 1e-5


def learned(gradients):
    """Those of q, k and v, and of the factors of the bias; that of theta_1 is 0 up to rounding."""
    *of_qkv, bias = gradients
    return *of_qkv, bias.by_distance_HxN, bias.p_q_SxHxd, bias.p_k_SxHxd, bias.theta_2_H


@pytest.mark.parametrize(("kernel", "block"), [("multi_block", 128), ("gpu", 64), ("banded", 64)])
def test_blocks_outside_the_window_are_never_read(kernel, block):
    """NaN in a block of keys reaches the neighbouring blocks, and nothing beyond them.

    A masked score would not stop it: 0 x NaN is NaN.
    """
    blocks, bad = 5, 1
    S, window = block * blocks, 2 * block - 2
    q, k, v = qkv(1, S, 1, 16)
    k, v = (x.at[:, bad * block : (bad + 1) * block].set(jnp.nan) for x in (k, v))
    bias = FactoredBias(by_distance_HxN=numbers((1, 2 * S - 1), 4))
    settings = {"scale": 0.2, "rate": 0.1, "window": window}
    out, (dq, dk, dv, dbias) = output_and_gradients(
        lambda *x: KERNELS[kernel](*x, jnp.ones((1, S), bool), SEED, **settings), q, k, v, bias
    )

    def finite_blocks(x_1xSx1xd):
        is_finite = np.isfinite(x_1xSx1xd).reshape(blocks, -1)
        return [n for n in range(blocks) if is_finite[n].all()]

    assert finite_blocks(out) == finite_blocks(dq) == [3, 4]
    assert finite_blocks(dk) == finite_blocks(dv) == [4]  # the neighbours of NaN queries
    distance = np.arange(-S + 1, S)
    assert not dbias.by_distance_HxN[:, abs(distance) >= 2 * block].any()


WINDOWS = pytest.mark.parametrize("window", [0, 2, 6, 24, 100])


@pytest.mark.parametrize("length", [1, 5, 12])
@WINDOWS
def test_pairs_in_a_window(length, window):
    pairs = sum(
        not window or abs(i - j) <= window // 2 for i in range(length) for j in range(length)
    )
    assert pairs_in_window(length, window) == pairs


@pytest.mark.parametrize("block", [1, 3, 4, 12])
@WINDOWS
def test_the_blocks_of_a_window_are_those_with_a_pair_in_it(block, window):
    i = np.arange(12)
    in_window = (abs(i[:, None] - i) <= window // 2) | (window == 0)
    blocks = 12 // block
    touched = in_window.reshape(blocks, block, blocks, block).any((1, 3))
    for n in range(blocks):
        first, end = blocks_in_window(n, 12, block, window)
        assert touched[n].nonzero()[0].tolist() == list(range(int(first), int(end)))
    assert pairs_computed(12, block, window) == touched.sum() * block**2


def test_a_window_skips_half_when_the_sequence_is_long_enough():
    assert not skips_half(512, 128, 128)
    assert skips_half(1000, 128, 128)
    assert not skips_half(1000, 128, 0)
