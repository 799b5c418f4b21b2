"""Every positional encoding equals the formula of its paper, alone and in the whole encoder."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model import numpy_reference as reference
from tests.model.helpers import (
    VARIANTS,
    attention_weights,
    hidden_states,
    position_bias,
    random_tokens,
    reconfigured,
    small_config,
    spread_model,
    with_position,
)
from tupe_jax.config.schema import PositionConfig
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import arrays_of
from tupe_jax.model.positions import ABSOLUTE, RELATIVE, encodings
from tupe_jax.model.positions.distances import by_distance_to_pairs, t5_bucket, toeplitz
from tupe_jax.model.positions.relative import alibi_slopes
from tupe_jax.utils.errors import UserError

GIVES_BIAS = {"untied", "t5", "alibi", "attenuated", "attenuated_layer", "attenuated_layer_head"}
COMBINATIONS = [
    # A decay to the left of its own, so that asymmetric tables are combined, too.
    PositionConfig(
        absolute,
        relative,
        bool({absolute, relative} & GIVES_BIAS),
        decay_left=0.2,
        attenuation_gain=3.0,
    )
    for absolute, relative in itertools.product(ABSOLUTE, RELATIVE)
]


def assert_encoder_equals_reference(config):
    tokens = random_tokens()
    model = spread_model(config)
    expected = reference.encode(config, arrays_of(model), tokens)
    words = tokens != config.pad_id
    for ours, theirs in zip(hidden_states(model, tokens), expected, strict=True):
        np.testing.assert_allclose(
            ours[words], theirs[words], rtol=0, atol=3e-5 * abs(theirs).max()
        )


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_encoder_equals_the_papers_formulas(variant):
    assert_encoder_equals_reference(small_config(variant))


@pytest.mark.parametrize("variant", ["bert_a", "tupe_r"])
def test_pre_layer_norm_equals_its_formula(variant):
    assert_encoder_equals_reference(small_config(variant, pre_layer_norm=True))


GAINS = [
    ("t5", True, {"t5_gain": 5.0}),
    ("bert_r", False, {"t5_gain": 5.0}),
    ("tupe_a", True, {"untied_gain": 3.0}),
    ("tupe_r", True, {"t5_gain": 5.0, "untied_gain": 3.0}),
]
"""Variant, `untie_cls`, options."""


@pytest.mark.parametrize(("variant", "untie_cls", "gains"), GAINS)
def test_a_gain_multiplies_its_bias_and_theta(variant, untie_cls, gains):
    position = {"untie_cls": untie_cls, "options": gains}
    assert_encoder_equals_reference(with_position(small_config(variant, num_layers=1), **position))


def test_a_gain_of_1_changes_no_bit():
    gains = {"t5_gain": 1.0, "untied_gain": 1.0}
    model = spread_model(small_config("tupe_r"))
    with_gains = reconfigured(model, position=with_position(model.config, options=gains).position)
    states = (hidden_states(m, random_tokens()) for m in (model, with_gains))
    for one, other in zip(*states, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("gain", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["t5_gain", "untied_gain"])
def test_a_gain_that_is_not_positive_is_refused_by_name(name, gain):
    with pytest.raises(UserError, match=rf"position\.options\.{name}={gain}"):
        encodings(with_position(small_config("tupe_r"), options={name: gain}))


@pytest.mark.slow
@pytest.mark.parametrize("position", COMBINATIONS, ids=lambda p: f"{p.absolute}+{p.relative}")
def test_encodings_combine(position):
    small = dataclasses.replace(position, max_length=20, relative_bins=8, max_distance=6)
    assert_encoder_equals_reference(small_config(position=small, num_layers=1))


@pytest.mark.parametrize("variant", ["t5", "alibi", "attenuated_layer", "attenuated_layer_head"])
@pytest.mark.parametrize("length", [1, 2, 13])
def test_distance_biases_are_shift_invariant(variant, length):
    model = spread_model(small_config(variant))
    bias = position_bias(model, length)
    for k in range(1 - length, length):
        diagonal = np.diagonal(bias, k, 1, 2)
        assert np.all(diagonal == diagonal[:, :1])


@pytest.mark.parametrize("variant", ["alibi", "attenuated_layer", "attenuated_layer_head"])
def test_symmetric_biases_are_symmetric(variant):
    bias = position_bias(spread_model(small_config(variant)), 13)
    np.testing.assert_array_equal(bias, bias.swapaxes(1, 2))


@pytest.mark.slow
@given(left=st.floats(0.01, 3), right=st.floats(0.01, 3))
@settings(max_examples=20, deadline=None)
def test_attenuated_rows_sum_to_one_and_fall_off_with_their_own_decay(left, right):
    config = with_position(small_config("attenuated"), decay_left=left, decay_right=right)
    delta = position_bias(spread_model(config), 9)[0].astype(np.float64)
    np.testing.assert_allclose(delta.sum(1), 1, rtol=1e-5)
    centre = delta[4]
    np.testing.assert_allclose(centre[3] / centre[4], np.exp(-left), rtol=1e-4)
    np.testing.assert_allclose(centre[5] / centre[4], np.exp(-right), rtol=1e-4)


def test_unequal_decay_breaks_symmetry_of_learnable_tables_too():
    config = with_position(small_config("attenuated_layer"), decay_left=0.1, decay_right=2.0)
    bias = position_bias(spread_model(config), 9)
    assert not np.allclose(bias, bias.swapaxes(1, 2), atol=1e-2)


@pytest.mark.parametrize("decay", [0.5, 0.1])
@pytest.mark.parametrize("variant", ["attenuated_layer", "attenuated_layer_head"])
def test_learnable_tables_start_as_released(variant, decay):
    """The sum is over distances from 0 on; the fixed encoding's is over both sides."""
    config = with_position(
        small_config(variant), decay_left=decay, decay_right=decay, attenuation_gain=2.0
    )
    distance = np.arange(config.position.max_length)
    kernel = np.exp(-decay * distance**2)
    bias = position_bias(MaskedLM(config, rngs=nnx.Rngs(0)), len(distance))
    np.testing.assert_allclose(bias[3, 0], 2 * kernel / kernel.sum(), atol=1e-6)
    if decay == 0.5:
        assert bias[3, 0, 0] == pytest.approx(2 * 0.570, abs=1e-3)


@pytest.mark.parametrize("variant", ["attenuated_layer", "attenuated_layer_head"])
def test_learnable_tables_with_unequal_decays_start_in_proportion_to_the_fixed_encoding(variant):
    learnable = with_position(small_config(variant), decay_left=0.2, decay_right=0.5)
    fixed = with_position(learnable, relative="attenuated")
    middle = 10  # far from both borders
    started, expected = (
        position_bias(MaskedLM(config, rngs=nnx.Rngs(0)), 20)[3, middle]
        for config in (learnable, fixed)
    )
    sides = [sum(np.exp(-decay * d**2) for d in range(20)) for decay in (0.2, 0.5)]
    np.testing.assert_allclose(started * np.mean(sides), expected * (sum(sides) - 1), atol=1e-6)


@pytest.mark.parametrize("variant", ["none", "bert_a", "tupe_a", "rope", "t5", "deberta"])
def test_only_without_positions_is_the_encoder_blind_to_order(variant):
    model = spread_model(small_config(variant))
    tokens = random_tokens(rows=1, padded=0)
    order = np.random.default_rng(1).permutation(tokens.shape[1])
    in_order, shuffled = (hidden_states(model, t)[-1] for t in (tokens, tokens[:, order]))
    apart = np.abs(in_order[:, order] - shuffled).max()
    assert (apart < 1e-4) == (variant == "none")


@pytest.mark.parametrize("variant", ["rope", "shaw", "t5", "deberta"])
def test_attention_of_relative_encodings_depends_on_distance_alone(variant):
    model = spread_model(small_config(variant))
    row, prefix = random_tokens(rows=1, length=8, padded=0), np.full((1, 3), 7)
    alone = attention_weights(model, row)
    moved = attention_weights(model, np.concatenate([prefix, row], 1))[:, :, 3:, 3:]
    np.testing.assert_allclose(moved / moved.sum(-1, keepdims=True), alone, atol=2e-6)


@given(st.integers(1, 30), st.integers(0, 2**31 - 1))
@settings(max_examples=30, deadline=None)
def test_by_distance_to_pairs_picks_column_j_minus_i(length, seed):
    x = np.random.default_rng(seed).standard_normal((2, length, 2 * length - 1)).astype(np.float32)
    expected = np.array(
        [
            [[x[b, i, j - i + length - 1] for j in range(length)] for i in range(length)]
            for b in (0, 1)
        ]
    )
    np.testing.assert_array_equal(by_distance_to_pairs(jnp.asarray(x)), expected)


def test_toeplitz_of_one_word():
    np.testing.assert_array_equal(toeplitz(jnp.array([[3.0], [4.0]]), 1), [[[3.0]], [[4.0]]])


@pytest.mark.parametrize(("bins", "farthest"), [(32, 128), (8, 6), (64, 256), (4, 100)])
def test_t5_buckets_are_exact(bins, farthest):
    distance = np.arange(-600, 601)
    ours = t5_bucket(jnp.asarray(distance), num_buckets=bins, max_distance=farthest)
    np.testing.assert_array_equal(ours, [reference.t5_bucket(d, bins, farthest) for d in distance])


def test_the_bin_that_holds_theta_1_is_never_a_distance():
    buckets = t5_bucket(jnp.arange(-2000, 2001), num_buckets=32, max_distance=128)
    assert sorted(set(np.asarray(buckets).tolist())) == [b for b in range(32) if b != 16]


def test_alibi_slopes_for_any_number_of_heads():
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-k for k in range(1, 9)])
    # 12 heads: the eight above, then every other slope of sixteen heads.
    np.testing.assert_allclose(alibi_slopes(12)[8:], [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
