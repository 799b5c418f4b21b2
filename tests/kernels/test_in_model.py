"""A model gives the same numbers whichever implementation of attention it has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.model.helpers import random_tokens, reconfigured, small_config, spread_model
from tupe_jax.kernels import tiles
from tupe_jax.model.encoder import Encoder

SETTINGS = {"num_layers": 1, "dropout": 0.0, "attention_dropout": 0.3, "layer_loop": "scan"}


def loss_and_gradients(model, tokens):
    @nnx.jit
    def run(model):
        def loss(model):
            hidden = model.encode(tokens, key=jax.random.key(1))
            return jnp.square(hidden * (tokens != 0)[..., None]).mean(where=hidden != 0)

        return nnx.value_and_grad(loss)(model)

    return jax.tree.map(np.asarray, run(model))


def assert_same(model, tokens):
    loss, gradient = loss_and_gradients(model, tokens)
    fused_loss, fused = loss_and_gradients(
        reconfigured(model, attention_implementation="pallas"), tokens
    )
    assert fused_loss == pytest.approx(loss, rel=1e-5)
    scale = max(np.abs(x).max() for x in jax.tree.leaves(gradient))
    for ours, expected in zip(jax.tree.leaves(fused), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(ours, expected, atol=2e-5 * scale)


@pytest.mark.parametrize("variant", ["tupe_r", "rope", "attenuated_layer"])
def test_kernel_and_xla_agree_with_dropout_and_padding(variant):
    assert_same(spread_model(small_config(variant, **SETTINGS)), random_tokens())


@pytest.mark.parametrize("variant", ["tupe_r", "attenuated_asymmetric"])
def test_long_rows_agree_too(variant, monkeypatch):
    """As if two tiles were all that a row may have; the bias then is never made as S x S."""
    monkeypatch.setattr(tiles, "_LONGEST_WHOLE_ROW", 0)
    model = spread_model(small_config(variant, **SETTINGS))
    in_factors = reconfigured(model, attention_implementation="pallas").encoder
    bias = jax.eval_shape(lambda: Encoder.shared_inputs(in_factors, random_tokens()).bias)
    assert all(leaf.ndim < 3 or leaf.shape[1] != 13 for leaf in jax.tree.leaves(bias))
    assert_same(model, random_tokens())
