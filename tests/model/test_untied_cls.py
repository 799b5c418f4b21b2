"""[CLS] untied: which encodings, which entries, and what theta_1 does (nothing)."""

import jax
import numpy as np
import pytest
from flax import nnx

from tests.model.helpers import (
    logits,
    position_bias,
    random_tokens,
    small_config,
    spread_model,
    with_position,
)
from tupe_jax.model.params import arrays_of, model_from
from tupe_jax.model.positions import reset

BIAS_TYPE = ["tupe_a", "tupe_r", "t5", "bert_r", "alibi", "attenuated", "attenuated_layer"]


@pytest.mark.parametrize("variant", [*BIAS_TYPE, "attenuated_layer_head"])
def test_the_switch_works_with_every_bias(variant):
    length = 7
    config = with_position(small_config(variant), untie_cls=True)
    bias = position_bias(spread_model(config), length)
    assert np.all(bias[:, 0] == bias[:, :1, 0]), "the [CLS] row is one number per head"
    assert np.all(bias[:, 1:, 0] == bias[:, 1:2, 0]), "and so is the rest of its column"
    assert not np.allclose(bias[:, 0, 0], bias[:, 1, 0])


def test_reset_leaves_word_to_word_biases_alone():
    bias = np.random.default_rng(0).standard_normal((2, 5, 5)).astype(np.float32)
    done = reset(bias, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    np.testing.assert_array_equal(done[:, 1:, 1:], bias[:, 1:, 1:])
    np.testing.assert_array_equal(done[:, 0], [[1.0] * 5, [2.0] * 5])
    np.testing.assert_array_equal(done[:, 1:, 0], [[3.0] * 4, [4.0] * 4])


def theta_1_places(bins):
    absolute = ("encoder", "positions", "absolute", "p_theta_1")
    return absolute, ("encoder", "positions", "relative", "table"), bins // 2


def test_theta_1_is_inert_in_the_gradient():
    model = spread_model(small_config("tupe_r"))
    tokens = random_tokens()

    def loss(model):
        return jax.numpy.square(model(tokens)).mean()

    gradient = nnx.jit(nnx.grad(loss))(model)
    flat = {tuple(map(str, path)): np.asarray(g[...]) for path, g in nnx.to_flat_state(gradient)}
    theta_1, table, bin_ = theta_1_places(model.config.position.relative_bins)
    ordinary = np.abs(flat[("encoder", "positions", "absolute", "table")]).max()
    assert np.abs(flat[theta_1]).max() < 1e-6 * ordinary
    assert np.abs(flat[table][bin_]).max() < 1e-6 * np.abs(flat[table]).max()


def test_theta_1_is_inert_in_the_output():
    model = spread_model(small_config("tupe_r"))
    tokens = random_tokens()
    arrays = {path: array.copy() for path, array in arrays_of(model).items()}
    theta_1, table, bin_ = theta_1_places(model.config.position.relative_bins)
    arrays[theta_1][:] = np.linspace(-3, 3, arrays[theta_1].size)
    arrays[table][bin_] += 5
    changed = model_from(model.config, arrays)
    assert not np.allclose(position_bias(changed, 5), position_bias(model, 5))
    np.testing.assert_allclose(logits(changed, tokens), logits(model, tokens), atol=2e-5)


def test_theta_2_is_not_inert():
    model = spread_model(small_config("tupe_a"))
    tokens = random_tokens()
    arrays = {path: array.copy() for path, array in arrays_of(model).items()}
    arrays[("encoder", "positions", "absolute", "table")][0] += np.arange(16)
    changed = model_from(model.config, arrays)
    assert np.abs(logits(changed, tokens) - logits(model, tokens)).max() > 1e-2
