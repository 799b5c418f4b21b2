"""Sizes, numerics, randomness and the parts of the model that are not positions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.model.helpers import (
    VARIANTS,
    logits,
    random_tokens,
    reconfigured,
    small_config,
    spread_model,
)
from tupe_jax.config.schema import MODEL_SIZES, model_config
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.layers import dropout, layer_norm
from tupe_jax.model.params import model_from, param_shapes


def parameters(config):
    model = nnx.eval_shape(lambda: MaskedLM(config, rngs=nnx.Rngs(0)))
    return {tuple(map(str, path)): p for path, p in nnx.to_flat_state(nnx.state(model))}


def count(config):
    return sum(int(np.prod(p.shape)) for p in parameters(config).values())


# What each encoding adds to a base model (768 wide, 12 heads of 64, 12 layers, 512 positions,
# 32 bins, distances up to 128), from its formula.
PROJECTIONS = 2 * 768 + 2 * (768 * 768 + 768)  # LayerNorm on p, U^Q and U^K with biases
ADDED_PARAMETERS = {
    "none": 0,
    "sinusoidal": 0,
    "alibi": 0,
    "rope": 0,
    "attenuated": 0,
    "attenuated_asymmetric": 0,
    "bert_a": 512 * 768,
    "t5": 32 * 12,
    "bert_r": 512 * 768 + 32 * 12,
    "shaw": 12 * (2 * 128 + 1) * 64,
    "tupe_a": 512 * 768 + 768 + PROJECTIONS,
    "tupe_r": 512 * 768 + 768 + PROJECTIONS + 33 * 12,
    "tupe_a_tie_cls": 512 * 768 + PROJECTIONS,
    "bert_a_d": 512 * 768 + PROJECTIONS,
    "attenuated_layer": 12 * 512,
    "attenuated_layer_head": 12 * 12 * 512,
    "deberta": 2 * 128 * 768 + 12 * 2 * 768 * 768,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameter_counts_of_base(variant):
    layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    head = 768 * 768 + 768 + 2 * 768 + 32768
    without_positions = 32768 * 768 + 2 * 768 + 12 * layer + head
    assert count(model_config("base", variant)) == without_positions + ADDED_PARAMETERS[variant]


def test_base_is_the_papers_110_million_and_tupe_adds_one_percent():
    bert, tupe = count(model_config("base", "bert_a")), count(model_config("base", "tupe_a"))
    assert 110e6 < bert < 112e6
    assert 1.18e6 < tupe - bert < 1.19e6


@pytest.mark.parametrize("size", MODEL_SIZES)
def test_named_sizes(size):
    expected = {"tiny": 4.8e6, "small": 30e6, "base": 112.5e6, "large": 340e6}
    assert count(model_config(size, "tupe_r")) == pytest.approx(expected[size], rel=0.05)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_is_float32_and_names_its_axes(variant):
    known = {
        "layers",
        "vocab",
        "embed",
        "mlp",
        "heads",
        "head_size",
        "positions",
        "distances",
        None,
    }
    for path, param in parameters(small_config(variant, dtype="bfloat16")).items():
        axes = param.get_metadata("axes")
        assert param.dtype == jnp.float32, path
        assert len(axes) == len(param.shape), path
        assert set(axes) <= known, path
        assert ("layers" in axes) == ("layers" in path), path
        named = [axis for axis in axes if axis]
        assert len(named) == len(set(named)), f"{path}: a mesh axis cannot be used twice"


def test_initialisation_is_the_papers():
    model = MaskedLM(model_config("tiny", "tupe_r", vocab_size=500), rngs=nnx.Rngs(0))
    embedding = np.asarray(model.encoder.word_embedding[...])
    assert np.all(embedding[model.config.pad_id] == 0)
    assert embedding.std() == pytest.approx(0.02, rel=0.05)
    layers = model.encoder.layers
    assert layers.mlp_in.kernel[...].std() == pytest.approx(0.02, rel=0.05)
    assert not np.allclose(layers.mlp_in.kernel[0], layers.mlp_in.kernel[1])
    assert np.all(layers.mlp_in.bias[...] == 0)
    assert np.all(layers.mlp_norm.scale[...] == 1)


# ------------------------------------------------------------------ numerics


def test_bfloat16_compute_stays_near_float32():
    exact = spread_model(small_config("tupe_r"))
    rough = reconfigured(exact, dtype="bfloat16")
    tokens = random_tokens()
    words = tokens != 0
    hidden = nnx.jit(lambda model: model.encode(tokens))(rough)
    assert hidden.dtype == jnp.bfloat16
    assert logits(rough, tokens).dtype == jnp.float32
    apart = np.abs(logits(rough, tokens) - logits(exact, tokens))[words]
    scale = np.abs(logits(exact, tokens)).max()
    assert 0 < apart.max() < 0.05 * scale


def test_softmax_is_float32_in_bfloat16_models():
    model = spread_model(small_config("tupe_r", dtype="bfloat16"))
    jaxpr = jax.make_jaxpr(lambda tokens: model.encode(tokens))(random_tokens())
    exponentials = [line for line in str(jaxpr).splitlines() if " exp " in line]
    assert exponentials
    assert all("f32[" in line.split("= exp")[0] for line in exponentials)


def test_layer_norm_statistics_are_float32():
    # A large mean and a small spread: bfloat16 statistics would find no spread at all.
    x = jnp.asarray(100 + np.random.default_rng(0).standard_normal((4, 512)), jnp.bfloat16)
    exact = np.asarray(x, np.float64)
    expected = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(
        exact.var(-1, keepdims=True) + 1e-5
    )
    ours = layer_norm(x, jnp.ones(512), jnp.zeros(512), 1e-5)
    np.testing.assert_allclose(np.asarray(ours, np.float64), expected, atol=0.02)


def test_padding_changes_nothing_for_the_words():
    model = spread_model(small_config("tupe_r"))
    tokens = random_tokens(rows=1, length=8, padded=0)
    padded = np.concatenate([tokens, np.zeros((1, 5), int)], 1)
    np.testing.assert_allclose(logits(model, padded)[:, :8], logits(model, tokens), atol=2e-5)


def test_a_row_of_padding_is_finite():
    model = spread_model(small_config("tupe_r"))
    assert np.isfinite(logits(model, np.zeros((1, 6), int))).all()


# ------------------------------------------------------------------ randomness


def noisy(model, tokens, seed):
    encode = nnx.jit(lambda model, key: model.encode(tokens, key=key))
    return np.asarray(encode(model, jax.random.key(seed)))


@pytest.mark.slow
def test_dropout_is_a_function_of_the_key_whatever_the_loop_and_remat():
    model, tokens = spread_model(small_config("tupe_r")), random_tokens()
    reference = noisy(reconfigured(model, layer_loop="scan"), tokens, 1)
    for settings in ({"layer_loop": "unroll"}, {"layer_loop": "scan", "remat": "full"}):
        np.testing.assert_allclose(
            noisy(reconfigured(model, **settings), tokens, 1), reference, atol=1e-5
        )
    assert not np.allclose(noisy(model, tokens, 2), reference, atol=0.1)


def test_no_key_no_dropout():
    model, tokens = spread_model(small_config("tupe_r", dropout=0.5)), random_tokens()
    without = reconfigured(model, dropout=0.0, attention_dropout=0.0)
    np.testing.assert_array_equal(logits(model, tokens), logits(without, tokens))


@pytest.mark.parametrize("setting", ["dropout", "attention_dropout"])
def test_each_dropout_rate_is_used(setting):
    off = {"dropout": 0.0, "attention_dropout": 0.0}
    model, tokens = spread_model(small_config("bert_a", **off)), random_tokens()
    plain = noisy(model, tokens, 0)
    np.testing.assert_allclose(plain, model.encode(tokens), atol=1e-5)
    assert not np.allclose(
        noisy(reconfigured(model, **{setting: 0.3}), tokens, 0), plain, atol=0.05
    )


def test_dropout_keeps_the_mean_and_the_rate():
    dropped = np.asarray(dropout(jnp.ones((400, 400)), 0.25, jax.random.key(0)))
    assert (dropped == 0).mean() == pytest.approx(0.25, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.01)


def test_layers_get_different_dropout():
    config = small_config("none", num_layers=2, dropout=0.5, pre_layer_norm=True)
    ones = {("encoder", "layers", "mlp_out", "bias"), ("encoder", "final_norm", "scale")}
    shapes = param_shapes(config, {})
    params = {path: np.full(shape, path in ones, np.float32) for path, shape in shapes.items()}
    # Each layer adds 0 or 2 to every feature: the sum is 0, 2 or 4, never 2 if the noise is shared.
    model = model_from(config, params)
    row = noisy(model, random_tokens(rows=1, padded=0), 0)[0, 0]
    assert len(np.unique(row.round(4))) == 3


# ------------------------------------------------------------------ heads


def test_chosen_positions_are_projected_alone():
    model, tokens = spread_model(small_config("tupe_r")), random_tokens()
    positions = np.array([[3, 1, 7], [0, 0, 5]])
    chosen = nnx.jit(lambda model: model(tokens, positions_BxM=positions))(model)
    everywhere = np.asarray(logits(model, tokens))
    expected = np.stack([everywhere[b, positions[b]] for b in range(2)])
    np.testing.assert_allclose(chosen, expected, atol=1e-5)


def test_the_output_matrix_is_the_word_embedding():
    model, tokens = spread_model(small_config("tupe_r")), random_tokens()

    def column_sum(model):
        return model(tokens)[..., 49].sum()  # a word that is not among the tokens

    assert 49 not in tokens
    gradient = nnx.jit(nnx.grad(column_sum))(model)
    assert np.abs(gradient["encoder"]["word_embedding"][...][49]).max() > 0


@pytest.mark.slow
def test_classification_and_regression_heads():
    heads = {"three": 3, "score": 1}
    model = spread_model(small_config("tupe_r"), heads=heads)
    tokens = random_tokens()
    for name, outputs in heads.items():
        classify = nnx.jit(functools.partial(MaskedLM.classify, head=name))
        result = classify(model, tokens)
        assert result.shape == (2, outputs)
        noise = classify(model, tokens, key=jax.random.key(0))
        assert not np.allclose(result, noise)


def test_equal_configs_share_compiled_functions():
    one, two = (nnx.graphdef(spread_model(small_config("tupe_r"), seed=s)) for s in (0, 1))
    assert one == two
    assert hash(one) == hash(two)


def test_gradients_of_bfloat16_models_are_float32():
    model, tokens = spread_model(small_config("tupe_r", dtype="bfloat16")), random_tokens()
    gradient = nnx.jit(nnx.grad(lambda m: m(tokens).sum()))(model)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
