"""The expansion of BERT-A's logits: exact, and flat where it should be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.helpers import (
    attention_weights,
    random_tokens,
    small_config,
    spread_model,
)
from tupe_jax.lab.four_terms import TERMS, four_terms, terms_of_first_layer
from tupe_jax.model.params import arrays_of, model_from
from tupe_jax.utils.errors import UserError

TOKENS = random_tokens(padded=0)
TABLE = ("encoder", "positions", "absolute", "table")


@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        ("bert_a", {}),
        ("bert_a", {"pre_layer_norm": True}),
        ("bert_a", {"embedding_size": 8, "segments": 2, "sep_id": int(TOKENS[0, 5])}),
        ("bert_r", {}),
    ],
)
def test_the_four_terms_sum_to_the_logits(variant, settings):
    model = spread_model(small_config(variant, **settings))
    logits = terms_of_first_layer(model.encoder, jnp.asarray(TOKENS)).sum(0)
    if variant == "bert_r":
        logits += model.encoder.positions.bias_HxSxS(TOKENS.shape[1])
    np.testing.assert_allclose(jax.nn.softmax(logits), attention_weights(model, TOKENS), atol=1e-5)


def test_each_term_depends_on_what_it_is_named_after():
    model = spread_model(small_config("bert_a"))
    # Identical words differ by the LayerNorm's divisor alone.
    identical = spread(model, np.full((1, 13), 7))
    assert identical["position-position"] > 5 * identical["word-word"]
    arrays = writable_arrays(model)
    arrays[TABLE][:] = 0
    no_positions = spread(model_from(model.config, arrays))
    assert no_positions["word-word"] > 0.1
    assert {name for name in TERMS if no_positions[name] == 0} == set(TERMS[1:])


def spread(model, tokens=TOKENS):
    return dict(zip(TERMS, four_terms(model, tokens).spread_4xH.mean(1), strict=True))


def writable_arrays(model):
    return {path: np.array(array) for path, array in arrays_of(model).items()}


def test_the_flatness_of_mixed_terms_is_a_number():
    """Words and positions in features of their own, which the projections keep apart."""
    config = small_config("bert_a", num_heads=2)
    model = spread_model(config)
    mixed = four_terms(model, TOKENS).mixed_share_H
    assert mixed.shape == (2,)
    assert 0.2 < mixed.mean() < 0.8

    arrays = writable_arrays(model)
    words, positions = np.arange(16) < 8, np.arange(16) >= 8
    arrays["encoder", "word_embedding"][:, positions] = 0
    arrays[TABLE][:, words] = 0
    # Each half has mean 0, so that the LayerNorm moves nothing from one to the other.
    for name, half in ((("encoder", "word_embedding"), words), (TABLE, positions)):
        arrays[name][:, half] -= arrays[name][:, half].mean(-1, keepdims=True)
    arrays["encoder", "embedding_norm", "bias"][:] = 0
    qkv = ("encoder", "layers", "attention", "query_key_value")
    arrays[*qkv, "bias"][:] = 0
    # Features 0-3 of a head are made of words, 4-7 of positions.
    arrays[*qkv, "kernel"][:, words, :, :, 4:] = 0
    arrays[*qkv, "kernel"][:, positions, :, :, :4] = 0
    apart = four_terms(model_from(config, arrays), TOKENS)
    np.testing.assert_allclose(apart.mixed_share_H, 0, atol=1e-9)
    np.testing.assert_allclose(apart.share_4xH.sum(0), 1, rtol=1e-5)
    assert apart.share_4xH[[0, 3]].min() > 0.05


def test_what_all_positions_have_in_common_is_no_interaction():
    """A table of one and the same vector: position-word prefers words but not positions."""
    model = spread_model(small_config("bert_a"))
    arrays = writable_arrays(model)
    arrays[TABLE][:] = arrays[TABLE][3]
    # Alike in size, so that the LayerNorm's divisor is the same for every word.
    words = arrays["encoder", "word_embedding"]
    words[:] = arrays[TABLE][3] + np.sign(words) * 1e-3
    terms = four_terms(model_from(model.config, arrays), TOKENS)
    alike = dict(zip(TERMS, terms.interaction_4xH.max(1), strict=True))
    spread = dict(zip(TERMS, terms.spread_4xH.min(1), strict=True))
    assert alike["position-word"] < 0.05 * spread["position-word"]
    assert terms.mixed_share_H.min() > 0.1
    assert terms.mixed_interaction_share_H.max() < 0.01


def test_only_positions_at_the_input_are_expanded():
    with pytest.raises(UserError, match=r"position\.absolute='untied'"):
        four_terms(spread_model(small_config("tupe_a")), TOKENS)
    with pytest.raises(UserError, match=r"relative='rope'"):
        four_terms(spread_model(small_config("rope")), TOKENS)
    with pytest.raises(UserError, match="padding"):
        four_terms(spread_model(small_config("bert_a")), random_tokens(padded=2))
