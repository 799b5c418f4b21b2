"""Bad input gets one line that names the setting and both numbers; nothing is clipped."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
from flax import nnx

from tests.model.helpers import logits, random_tokens, small_config, spread_model, with_position
from tupe_jax.config.schema import (
    CheckpointConfig,
    ModelConfig,
    PositionConfig,
    WatchdogConfig,
    model_config,
)
from tupe_jax.config.validation import from_mapping
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.positions import relative_encoding
from tupe_jax.utils.errors import UserError


def make(config):
    return nnx.eval_shape(lambda: MaskedLM(config, rngs=nnx.Rngs(0)))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: ModelConfig(hidden_size=100, num_heads=12), ["hidden_size=100", "num_heads=12"]),
        (lambda: ModelConfig(num_layers=0), ["model.num_layers=0"]),
        (lambda: ModelConfig(vocab_size=10, pad_id=10), ["pad_id=10", "vocab_size=10"]),
        (lambda: ModelConfig(dropout=1.0), ["model.dropout=1.0"]),
        (lambda: ModelConfig(layer_norm_eps=0.0), ["model.layer_norm_eps=0.0"]),
        (lambda: ModelConfig(layer_loop="unrol"), ["model.layer_loop='unrol'", "'unroll'"]),
        (lambda: ModelConfig(num_layers="3"), ["model.num_layers='3'", "int"]),
        (lambda: CheckpointConfig(every_minutes=-1.0), ["checkpoint.every_minutes=-1.0"]),
        (lambda: WatchdogConfig(compile_minutes=0.0), ["watchdog.compile_minutes=0.0"]),
        (
            lambda: WatchdogConfig(silence_seconds=300.0),
            ["watchdog.jax_heartbeat_seconds=180", "watchdog.silence_seconds=300"],
        ),
        (lambda: PositionConfig(decay_left=-1.0), ["position.decay_left=-1.0"]),
        (lambda: model_config("bass", "tupe_r"), ["'bass'", "'base'"]),
        (lambda: model_config("base", "tupe"), ["'tupe'", "tupe_r"]),
        (lambda: model_config("base", "tupe_r", hiden_size=3), ["hiden_size", "hidden_size"]),
        (lambda: model_config("base", "tupe_r", num_layers=2.5), ["num_layers=2.5", "int"]),
        (lambda: model_config("base", "tupe_r", num_layers=True), ["num_layers=True", "bool"]),
        (lambda: model_config("base", "tupe_r", dtype="float16"), ["float16", "bfloat16"]),
        (lambda: model_config("base", "tupe_r", remat="some"), ["'some'", "projections"]),
    ],
)
def test_settings(action, words):
    with pytest.raises(UserError) as error:
        action()
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (PositionConfig("learnt", "none"), ["position.absolute", "'learnt'", "untied"]),
        (PositionConfig("untied", "t55"), ["position.relative", "'t55'", "'t5'"]),
        (PositionConfig("added", "none", untie_cls=True), ["untie_cls=True", "'added'", "False"]),
        (PositionConfig("none", "rope", untie_cls=True), ["untie_cls=True", "'rope'"]),
        (PositionConfig("mixed", "shaw", untie_cls=True), ["untie_cls=True", "'mixed'", "'shaw'"]),
        (
            PositionConfig("none", "t5", False, relative_bins=30),
            ["relative_bins=30", "multiple of 4"],
        ),
        (
            PositionConfig("none", "t5", False, max_distance=8),
            ["relative_bins=32", "max_distance=8"],
        ),
    ],
)
def test_unknown_or_contradictory_encodings(position, words):
    with pytest.raises(UserError) as error:
        make(ModelConfig(position=position))
    for word in words:
        assert word in str(error.value)


def test_rope_needs_an_even_head_size():
    with pytest.raises(UserError, match=r"hidden_size=15.*num_heads=5"):
        make(small_config("rope", hidden_size=15, num_heads=5))


@pytest.mark.parametrize("variant", ["bert_a", "tupe_a", "bert_a_d", "attenuated_layer"])
def test_input_longer_than_the_table(variant):
    model = spread_model(small_config(variant))
    with pytest.raises(UserError, match=r"21.*max_length=20"):
        model(random_tokens(length=21))
    with pytest.raises(UserError, match=r"21.*max_length=20"):
        jax.eval_shape(lambda tokens: model(tokens), jnp.ones((2, 21), jnp.int32))


@pytest.mark.parametrize("variant", ["none", "sinusoidal", "t5", "alibi", "rope", "deberta"])
def test_encodings_without_a_table_take_any_length(variant):
    config = with_position(small_config(variant), max_length=4)
    assert np.isfinite(logits(spread_model(config), random_tokens(length=30))).all()


@pytest.mark.parametrize("token", [50, -1])
def test_token_ids_out_of_range(token):
    model = spread_model(small_config("tupe_r"))
    tokens = random_tokens()
    tokens[1, 2] = token
    for wrong in (tokens, jnp.asarray(tokens)):
        with pytest.raises(UserError, match=rf"{token} .*vocab_size=50"):
            model(wrong)
    # Inside jit values cannot be checked: the row turns into NaN instead of another word's.
    result = np.asarray(logits(model, tokens))
    assert np.isnan(result[1]).all()
    assert np.isfinite(result[0]).all()


@pytest.mark.parametrize(
    "tokens", [np.ones((2, 3)), np.ones(3, int), np.ones((1, 2, 3), int), [[1, 2]]]
)
def test_tokens_of_the_wrong_kind(tokens):
    with pytest.raises(UserError, match=r"\[batch, length\]"):
        spread_model(small_config("tupe_r"))(tokens)


@pytest.mark.parametrize("position", [13, -1])
def test_chosen_positions_out_of_range(position):
    model, positions = spread_model(small_config("tupe_r")), np.array([[0], [position]])
    with pytest.raises(UserError, match=rf"{position} .*length=13"):
        model(random_tokens(), positions_BxM=positions)
    chosen = nnx.jit(lambda m, p: m(random_tokens(), positions_BxM=p))(model, positions)
    assert np.isnan(chosen[1]).all()


def test_a_name_is_registered_once():
    with pytest.raises(UserError, match="'t5'"):
        relative_encoding("t5")(lambda config: None)


def test_unknown_head():
    with pytest.raises(UserError, match=r"'cola'.*rte"):
        spread_model(small_config("tupe_r"), heads={"rte": 2}).classify(
            random_tokens(), head="cola"
        )


def test_a_config_dict_becomes_a_config():
    values = ml_collections.ConfigDict(
        {"hidden_size": 32, "num_heads": 4, "dropout": 0, "position": {"relative": "t5"}}
    )
    config = from_mapping(ModelConfig, values, "model")
    assert config == ModelConfig(
        hidden_size=32, num_heads=4, dropout=0.0, position=PositionConfig(relative="t5")
    )
    with pytest.raises(UserError, match=r"model\.position .*'relativ'.*'relative'"):
        from_mapping(ModelConfig, {"position": {"relativ": "t5"}}, "model")
