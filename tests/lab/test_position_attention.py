"""Position-only attention: two sources, which must agree where theory says so."""

import numpy as np
import pytest

from tests.lab import matrices
from tests.model.helpers import small_config, spread_model
from tupe_jax.lab import locality, symmetry
from tupe_jax.lab.position_attention import (
    attention_among_identical_words,
    attention_by_bias,
    choose_words,
    disagreement_LxH,
    side_by_side,
)
from tupe_jax.utils.errors import UserError

N = 11
WORDS = (7, 12, 31)
ORDINARY = np.arange(5, 50, dtype=np.int32)


def model_of(variant, **settings):
    return spread_model(small_config(variant, **settings))


@pytest.fixture(scope="module")
def bert_r():
    return model_of("bert_r")


@pytest.mark.parametrize("variant", ["tupe_r", "alibi", "attenuated_layer_head"])
def test_probing_sees_the_softmax_of_the_bias_if_there_is_nothing_but_bias(variant):
    seen = side_by_side(model_of(variant), N, WORDS)
    bias, probed = seen["bias"], seen["identical words"]
    layers = 3 if variant == "attenuated_layer_head" else 1
    assert bias.weights_LxHxNxN.shape == (layers, 4, N, N)
    assert probed.weights_LxHxNxN.shape == (3, 4, N, N)
    assert disagreement_LxH(bias, probed).max() < 1e-5
    assert bias.weights_LxHxNxN.std() > 0.01


def test_bert_r_has_positions_that_its_bias_does_not_show(bert_r):
    seen = side_by_side(bert_r, N, WORDS)
    assert disagreement_LxH(seen["bias"], seen["identical words"]).min() > 0.02


def test_without_positions_identical_words_are_attended_alike():
    seen = side_by_side(model_of("none"), N, WORDS)
    assert list(seen) == ["identical words"]
    np.testing.assert_allclose(seen["identical words"].weights_LxHxNxN, 1 / N, rtol=1e-5)
    assert seen["identical words"].measures_of_mean()["symmetry"] == 1


def test_probing_is_the_mean_over_words(bert_r):
    together = attention_among_identical_words(bert_r, N, WORDS)
    assert together.words == WORDS
    assert together.length == N
    one_by_one = [
        attention_among_identical_words(bert_r, N, [word, word, word]).weights_LxHxNxN
        for word in WORDS
    ]
    # Rows are scaled to 1 after the mean, so the two means are a little apart.
    np.testing.assert_allclose(together.weights_LxHxNxN, np.mean(one_by_one, 0), atol=0.02)
    assert abs(one_by_one[0] - one_by_one[1]).max() > 0.05
    np.testing.assert_allclose(together.weights_LxHxNxN.sum(-1), 1, rtol=1e-5)


def test_the_position_of_cls_is_left_out():
    model = model_of("attenuated")
    weights = attention_by_bias(model, N).weights_LxHxNxN[0, 0]
    bias = matrices.attenuated(N + 1)[1:, 1:]
    expected = matrices.rows_sum_to_one(np.exp(bias))
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


def test_measures_are_those_of_each_head_and_of_the_mean(bert_r):
    attention = attention_by_bias(bert_r, N)
    by_head = attention.measures_LxH()
    assert by_head["locality"].shape == (1, 4)
    assert by_head["locality"][0, 2] == locality(attention.weights_LxHxNxN[0, 2])
    mean = attention.weights_LxHxNxN.mean((0, 1))
    assert attention.measures_of_mean()["symmetry"] == pytest.approx(symmetry(mean))


def test_words_are_ordinary_and_distinct():
    words = choose_words(ORDINARY, 45)
    assert sorted(words) == list(range(5, 50))
    assert list(choose_words(ORDINARY, 10)) == list(choose_words(ORDINARY, 10))
    assert list(choose_words(ORDINARY, 10)) != list(choose_words(ORDINARY, 10, seed=1))
    with pytest.raises(UserError, match=r"\b46 .*\b45 "):
        choose_words(ORDINARY, 46)


def test_lengths_that_do_not_fit_are_rejected(bert_r):
    with pytest.raises(UserError, match=r"21 .*position\.max_length=20"):
        attention_among_identical_words(bert_r, 20, WORDS)
    with pytest.raises(UserError, match=r"\b2 positions"):
        attention_by_bias(bert_r, 2)
