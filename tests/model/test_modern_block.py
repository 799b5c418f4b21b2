"""The parts of today's blocks: their formulas, and windows with every positional encoding."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.model.helpers import (
    VARIANTS,
    hidden_states,
    logits,
    random_tokens,
    reconfigured,
    small_config,
    spread_model,
    with_position,
)
from tests.model.test_encodings import assert_encoder_equals_reference
from tupe_jax.kernels.window import pairs_in_window
from tupe_jax.model.encoder import period, scan_layers
from tupe_jax.model.flops import attention_flops_per_token, flops_per_token
from tupe_jax.utils.errors import UserError

MODERNBERT = {
    "pre_layer_norm": True,
    "first_attention_norm": False,
    "norm_bias": False,
    "linear_bias": False,
    "gated_mlp": True,
    "attention_window": 6,
}
LLAMA_LIKE = {**MODERNBERT, "norm": "rms_norm", "activation": "silu", "first_attention_norm": True}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_encoding_works_in_the_modern_block_with_windows(variant):
    assert_encoder_equals_reference(small_config(variant, num_layers=4, **MODERNBERT))


PARTS = [
    {"mask_dropout": 0.12, "mask_id": 7},
    {"norm": "rms_norm"},
    {"norm_bias": False},
    {"linear_bias": False},
    {"gated_mlp": True},
    {"gated_mlp": True, "activation": "silu"},
    {"query_key_norm": True},
    {"query_key_norm": True, "norm": "rms_norm"},
    {"attention_window": 2, "attention_global_every": 0},
    {"attention_window": 4, "attention_global_every": 2},
    {"attention_window": 100, "attention_global_every": 1},
    {"pre_layer_norm": True, "first_attention_norm": False},
    LLAMA_LIKE,
]


@pytest.mark.parametrize("settings", PARTS, ids=str)
def test_each_part_equals_its_formula(settings):
    assert_encoder_equals_reference(small_config("tupe_r", **settings))


@pytest.mark.parametrize(
    "options",
    [
        {"rope_base": 160.0, "rope_local_base": 20.0},
        {"rope_base": 160.0},
        {"rope_share": 0.5},
        {"rope_precision": "float16", "rope_base": 3.0},
    ],
    ids=str,
)
def test_the_options_of_rope(options):
    config = small_config("rope", attention_window=6, attention_global_every=2)
    assert_encoder_equals_reference(with_position(config, options=options))


@pytest.mark.parametrize(
    ("name", "value"),
    [("rope_base", 1.0), ("rope_local_base", -2.0), ("rope_share", 0.0), ("rope_share", 1.5)],
)
def test_wrong_options_of_rope_are_refused_by_name(name, value):
    config = with_position(small_config("rope"), options={name: value})
    with pytest.raises(UserError, match=rf"position\.options\.{name}={value}"):
        spread_model(config)


def test_an_unknown_precision_of_rope_is_refused():
    config = with_position(small_config("rope"), options={"rope_precision": "bfloat16"})
    with pytest.raises(UserError, match=r"position\.options\.rope_precision 'bfloat16'"):
        spread_model(config)


def test_with_mask_dropout_a_mask_has_no_embedding_and_padding_is_not_counted():
    """Its gradient is finite even for a sequence of padding only."""
    config = small_config("none", mask_dropout=0.2, mask_id=7, embedding_norm=False)
    model = spread_model(config)
    tokens = np.array([[5, 7, 9, 11, 0, 0], [0, 0, 0, 0, 0, 0]])
    table = np.asarray(model.encoder.word_embedding[...])
    expected = table[tokens] * 0.8 / (1 - 1 / 4)
    expected[tokens == 7] = expected[tokens == 0] = 0
    np.testing.assert_allclose(model.encoder.embed(tokens), expected, rtol=1e-6)
    gradient = nnx.grad(lambda m: jnp.square(m.encoder.embed(tokens)).sum())(model)
    assert np.isfinite(gradient["encoder"]["word_embedding"][...]).all()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"attention_window": 5}, "attention_window=5"),
        ({"attention_window": -2}, "attention_window=-2"),
        ({"attention_global_every": -1}, "attention_global_every=-1"),
        ({"output_embedding_size": -1}, "output_embedding_size=-1"),
        ({"first_attention_norm": False}, "first_attention_norm=False .*pre_layer_norm=False"),
        (
            {"masked_word_transform": False, "embedding_size": 8},
            "masked_word_transform=False .*output_embedding_size",
        ),
        ({"norm": "batch_norm"}, "model.norm='batch_norm'"),
        ({"mask_dropout": 1.0}, "model.mask_dropout=1.0"),
        ({"mask_dropout": 0.1, "mask_id": 50}, "model.mask_id=50 .*vocab_size=50"),
    ],
)
def test_impossible_blocks_are_refused_by_name(settings, name):
    with pytest.raises(UserError, match=name):
        small_config("bert_a", **settings)


# ------------------------------------------------------------------ layers of two kinds


@pytest.mark.parametrize(
    ("windows", "expected"),
    [((0, 0, 0), 1), ((0, 6, 6), 3), ((0, 6, 6, 0), 3), ((0, 6, 0, 6, 0), 2), ((6,), 1)],
)
def test_windows_repeat_after_a_period(windows, expected):
    assert period(windows) == expected


@pytest.mark.parametrize("layers", [1, 3, 6, 7, 8])
def test_a_scan_over_groups_is_a_loop_over_layers(layers):
    windows = small_config("none", num_layers=layers, attention_window=6).windows
    numbers = jnp.arange(1.0, layers + 1)

    def step(x, number, window):
        return x * 2 + number * window, {"before": x, "number": number}

    x, outputs = scan_layers(windows, step, jnp.float32(1), numbers)
    expected, before = 1.0, []
    for number, window in zip(numbers, windows, strict=True):
        before.append(expected)
        expected = expected * 2 + number * window
    assert x == expected
    np.testing.assert_array_equal(outputs["before"], before)
    np.testing.assert_array_equal(outputs["number"], numbers)


@pytest.mark.slow
def test_the_loop_and_remat_change_nothing():
    settings = {"num_layers": 4, "dropout": 0.2, "attention_dropout": 0.1, **MODERNBERT}
    model, tokens = spread_model(small_config("tupe_r", **settings)), random_tokens()

    def gradients(**changes):
        def loss(model):
            return jnp.square(model(tokens, key=jax.random.key(1))).mean()

        return jax.tree.leaves(nnx.jit(nnx.grad(loss))(reconfigured(model, **changes)))

    expected = gradients(layer_loop="unroll")
    largest = max(abs(leaf).max() for leaf in expected)  # that of theta_1 is 0 up to rounding
    for changes in ({"layer_loop": "scan"}, {"layer_loop": "scan", "remat": "full"}):
        for ours, wanted in zip(gradients(**changes), expected, strict=True):
            np.testing.assert_allclose(ours, wanted, atol=1e-5 * largest)


def test_a_local_layer_sees_its_window_and_no_more():
    config = small_config("tupe_r", num_layers=1, attention_window=4, attention_global_every=0)
    model, tokens = spread_model(config), random_tokens(rows=1, padded=0)
    other = tokens.copy()
    other[0, 9] = tokens[0, 9] % 49 + 1
    one, two = (hidden_states(model, t)[-1][0] for t in (tokens, other))
    changed = np.abs(one - two).max(-1) > 1e-6
    assert changed.nonzero()[0].tolist() == [7, 8, 9, 10, 11]


def test_a_window_wider_than_the_input_is_none():
    model, tokens = spread_model(small_config("tupe_r")), random_tokens()
    wide = reconfigured(model, attention_window=40, attention_global_every=2)
    for one, two in zip(hidden_states(model, tokens), hidden_states(wide, tokens), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


# ------------------------------------------------------------------ the output matrix


def test_an_untied_output_matrix_and_no_transform():
    size = 12
    model, tokens = spread_model(small_config("none", output_embedding_size=size)), random_tokens()
    head, hidden = model.masked_word_head, np.asarray(nnx.jit(type(model).encode)(model, tokens))
    transformed = head.norm(jax.nn.gelu(head.dense(hidden), approximate=False))
    expected = transformed @ head.output_embedding[...].T + head.bias[...]
    np.testing.assert_allclose(logits(model, tokens), expected, atol=1e-4)
    plain = spread_model(small_config("none", masked_word_transform=False))
    hidden = np.asarray(nnx.jit(type(plain).encode)(plain, tokens))
    expected = hidden @ plain.encoder.word_embedding[...].T + plain.masked_word_head.bias[...]
    np.testing.assert_allclose(logits(plain, tokens), expected, atol=1e-4)


# ------------------------------------------------------------------ FLOPs


def test_flops_count_the_window_the_gate_and_the_output_matrix():
    config = small_config("rope")
    S, D = 13, config.hidden_size
    plain = attention_flops_per_token(config, S)
    local = attention_flops_per_token(config, S, window=4)
    assert plain - local == pytest.approx(4 * D * (S * S - pairs_in_window(S, 4)) / S)

    def flops(**settings):
        return flops_per_token(replace(config, **settings), S, 1.0, rows=1)

    windowed = {"attention_window": 4, "attention_global_every": 2}
    assert flops() - flops(**windowed) == pytest.approx(plain - local)  # one of three is local
    assert flops(gated_mlp=True) - flops() == pytest.approx(3 * 2 * D * config.mlp_size)
    assert flops() - flops(masked_word_transform=False) == pytest.approx(2 * D * D)
    added = flops(output_embedding_size=20) - flops()
    assert added == pytest.approx(2 * 4 * (D + config.vocab_size))
