"""A model gives the same numbers whichever implementation of attention it has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.model.helpers import (
    VARIANTS,
    as_on_gpus,
    one_layer,
    random_tokens,
    reconfigured,
    small_config,
    spread_model,
    with_position,
)
from tupe_jax.kernels import banded, block_sizes
from tupe_jax.kernels.factored import FactoredBias, dense
from tupe_jax.model.attention_backend import attention_choice
from tupe_jax.model.encoder import Encoder
from tupe_jax.model.positions import encodings

SETTINGS = {
    "num_layers": 1,
    "num_heads": 2,
    "dropout": 0.0,
    "attention_dropout": 0.3,
    "layer_loop": "scan",
}


def loss_and_gradients(model, tokens):
    @nnx.jit
    def run(model):
        def loss(model):
            hidden = model.encode(tokens, key=jax.random.key(1))
            return jnp.square(hidden * (tokens != 0)[..., None]).mean(where=hidden != 0)

        return nnx.value_and_grad(loss)(model)

    return jax.tree.map(np.asarray, run(model))


def assert_same(model, tokens):
    fused = reconfigured(model, attention_implementation="pallas")
    assert_close(loss_and_gradients(model, tokens), loss_and_gradients(fused, tokens))


def assert_close(by_xla, fused_results):
    (loss, gradient), (fused_loss, fused) = by_xla, fused_results
    assert fused_loss == pytest.approx(loss, rel=1e-5)
    scale = max(np.abs(x).max() for x in jax.tree.leaves(gradient))
    for ours, expected in zip(jax.tree.leaves(fused), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(ours, expected, atol=2e-5 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_kernel_and_xla_agree_with_dropout_and_padding(platform, monkeypatch):
    """For an encoding that changes queries and keys, and one that gives each layer a bias.

    In a global and a local layer.
    """
    if platform == "gpu":
        as_on_gpus(monkeypatch)
    windows = {"num_layers": 2, "attention_window": 4, "attention_global_every": 2}
    config = small_config("attenuated_layer", **{**SETTINGS, **windows})
    both = with_position(config, absolute="mixed")
    assert_same(spread_model(both), random_tokens())


@pytest.mark.slow
def test_a_band_of_scores_and_a_masked_square_agree(monkeypatch):
    local = {"attention_window": 4, "attention_global_every": 0}
    model, tokens = spread_model(small_config("tupe_r", **SETTINGS, **local)), random_tokens()
    by_mask = loss_and_gradients(model, tokens)
    monkeypatch.setattr(banded, "_SMALLEST", 1)
    assert attention_choice(model.config, "cpu", tokens.shape[1], window=4).kernel == "banded"
    assert_close(by_mask, loss_and_gradients(model, tokens))


@pytest.mark.parametrize("longest_single_block", [None, pytest.param(0, marks=pytest.mark.slow)])
def test_kernel_and_xla_agree_on_gains(monkeypatch, longest_single_block):
    """With a bias of the size of the scores and, as for long sequences, with one in factors."""
    if longest_single_block is not None:
        monkeypatch.setattr(block_sizes, "_LONGEST_SINGLE_BLOCK", longest_single_block)
    gains = {"t5_gain": 4.0, "untied_gain": 2.0}
    config = with_position(small_config("tupe_r", **SETTINGS), options=gains)
    assert_same(spread_model(config), random_tokens())


def test_long_rows_get_no_bias_of_the_size_of_the_scores(monkeypatch):
    monkeypatch.setattr(block_sizes, "_LONGEST_SINGLE_BLOCK", 0)  # as if all sequences were long
    config = small_config("tupe_r", attention_implementation="pallas", **SETTINGS)
    encoder, tokens = spread_model(config).encoder, random_tokens()
    bias = jax.eval_shape(lambda: Encoder.shared_inputs(encoder, tokens)[0].bias)
    assert isinstance(bias, FactoredBias)
    assert all(leaf.shape[1:] != (13, 13) for leaf in jax.tree.leaves(bias))


def has_bias(variant):
    config = with_position(small_config(variant), untie_cls=False)
    return any(encoding.has_bias for encoding in encodings(config).values())


@pytest.mark.parametrize("untie_cls", [False, True])
@pytest.mark.parametrize("variant", [v for v in VARIANTS if has_bias(v)])
def test_factors_make_the_bias(variant, untie_cls):
    config = small_config(variant, **SETTINGS)
    model = spread_model(with_position(config, untie_cls=untie_cls))
    own = one_layer(model.encoder.layers, 0).attention.positions
    for positions in (model.encoder.positions, own):
        expected = positions.bias_HxSxS(13)
        if expected is None:  # it is the other's
            assert positions.factored_bias(13) == FactoredBias()
        else:
            made = dense(positions.factored_bias(13), 13)
            np.testing.assert_allclose(made, expected, atol=1e-5)
