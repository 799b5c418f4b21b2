"""Attention over long rows, interpreted, against its definition with a bias made as S x S."""

from dataclasses import replace
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
from tupe_jax.kernels.factored import FactoredBias, dense, sum_of_factored
from tupe_jax.kernels.multi_block import multi_block_attention
from tupe_jax.kernels.multi_block_common import tile_of_window, window_of_tile
from tupe_jax.kernels.reference import attention

BLOCK = 128


def bias_of(form, S, H, d):
    distances = FactoredBias(by_distance_HxN=numbers((H, 2 * S - 1), 4))
    return {
        "none": FactoredBias(),
        "t5": distances,
        "attenuated": replace(distances, row_factor_S=jnp.abs(numbers((S,), 5))),
        "tupe_r": sum_of_factored(
            distances,
            FactoredBias(
                p_q_SxHxd=0.2 * numbers((S, H, d), 6),
                p_k_SxHxd=numbers((S, H, d), 7),
                theta_1_H=numbers((H,), 8),
                theta_2_H=numbers((H,), 9),
            ),
        ),
    }[form]


def test_sums_of_biases_in_factors():
    S, H, d = 8, 2, 4
    t5, attenuated, tupe_r = (bias_of(form, S, H, d) for form in ("t5", "attenuated", "tupe_r"))
    products = replace(tupe_r, by_distance_HxN=None, theta_1_H=None, theta_2_H=None)
    for a, b in ((attenuated, products), (products, attenuated), (t5, t5)):
        made = dense(sum_of_factored(a, b), S)
        np.testing.assert_allclose(made, dense(a, S) + dense(b, S), atol=1e-5)
    for a, b in ((attenuated, t5), (t5, attenuated), (attenuated, attenuated), (tupe_r, tupe_r)):
        with pytest.raises(ValueError, match="no sum of that form"):
            sum_of_factored(a, b)


CASES = {  # B, S, H, d, bias, dropout
    "TUPE-R, one sequence all padding": (3, 150, 2, 64, "tupe_r", 0.1),
    "attenuated, no dropout": (1, 256, 1, 128, "attenuated", 0.0),
    "no bias": (2, 200, 1, 32, "none", 0.1),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    B, S, H, d, form, rate = CASES[case]
    settings = {"scale": (2 * d) ** -0.5, "rate": rate}

    def fused(q, k, v, bias):
        return multi_block_attention(q, k, v, bias, is_token(B, S), SEED, block=BLOCK, **settings)

    def plain(q, k, v, bias):
        made = None if form == "none" else dense(bias, S)
        return attention(q, k, v, made, is_token(B, S), SEED, **settings)

    bias = bias_of(form, S, H, d)
    out, (*ours, ours_bias) = output_and_gradients(fused, *qkv(B, S, H, d), bias)
    exact, (*expected, expected_bias) = output_and_gradients(plain, *qkv(B, S, H, d), bias)
    assert largest_difference([out, *ours], [exact, *expected]) < 1e-5
    for name in ("by_distance_HxN", "p_q_SxHxd", "p_k_SxHxd", "theta_2_H"):
        if getattr(bias, name) is not None:
            pair = getattr(ours_bias, name), getattr(expected_bias, name)
            assert largest_difference(*pair) < 1e-5, name
    if bias.theta_1_H is not None:  # a constant for all of a query's logits has no gradient
        assert not ours_bias.theta_1_H.any()
        assert np.abs(expected_bias.theta_1_H).max() < 1e-5


def test_tiles_of_diagonals_and_their_transpose():
    window, tile = numbers((1, 32), 0), numbers((16, 16), 1)
    i, j = np.indices((16, 16))
    made = np.asarray(jax.jit(tile_of_window)(window))
    np.testing.assert_array_equal(made, np.asarray(window)[0, 16 + j - i])
    summed = jax.jit(window_of_tile)(tile)
    np.testing.assert_allclose(np.vdot(summed, window), np.vdot(tile, made), rtol=1e-5)


def test_no_array_of_the_size_of_the_scores():
    """Forward and backward of rows of 2,048: nothing outside the kernels is S x S."""
    B, S, H, d = 1, 2048, 2, 64
    attend = partial(multi_block_attention, scale=1.0, rate=0.1)

    def loss(q, k, v, bias):
        return attend(q, k, v, bias, is_token(B, S), SEED).sum()

    jaxpr = jax.make_jaxpr(jax.grad(loss, argnums=(0, 3)))(
        *qkv(B, S, H, d), bias_of("tupe_r", S, H, d)
    )
    assert max(v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars) < S * S / 4
