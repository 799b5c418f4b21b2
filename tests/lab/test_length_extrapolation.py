"""Longer inputs: the same targets at every length, and tables extended by the stated rules."""

import numpy as np
import pytest

from tests.model.helpers import small_config, spread_model, with_position
from tupe_jax.config.schema import POSITION_VARIANTS
from tupe_jax.lab.length_extrapolation import (
    extended,
    masked_loss,
    masked_stream,
    rules_for,
    scores_by_length,
)
from tupe_jax.model.measurement import bias_LxHxSxS
from tupe_jax.objectives.masked_lm import cross_entropy
from tupe_jax.tokenizers.sentencepiece import SPECIAL
from tupe_jax.utils.errors import UserError

TRAINED, LONGER = 10, 26
"""25 steps of the interpolated table reach as far as 9 of the trained one."""
WORDS = (7, 12)


def model_of(variant, max_length=TRAINED, **position):
    return spread_model(with_position(small_config(variant), max_length=max_length, **position))


@pytest.fixture(scope="module")
def stream():
    tokens_N = np.random.default_rng(0).integers(5, 50, 420)
    return masked_stream(tokens_N, SPECIAL, vocab_size=50)


def test_every_length_has_the_same_targets(stream):
    short = stream.shortened([10, 26])
    assert 0 < short.is_target_N.sum() < stream.is_target_N.sum()
    found = []
    for length in (10, 26):
        tokens_BxS, targets_BxS, is_target_BxS = short.sequences(length)
        assert tokens_BxS.shape == (420 // (length - 1), length)
        assert (tokens_BxS[:, 0] == SPECIAL.cls_id).all()
        assert not is_target_BxS[:, 0].any()
        found.append((tokens_BxS[is_target_BxS].tolist(), targets_BxS[is_target_BxS].tolist()))
    assert found[0] == found[1]
    masked, original = map(np.array, found[0])
    assert 0.6 < (masked == SPECIAL.mask_id).mean() < 1
    assert not np.isin(original, SPECIAL.ids).any()


def test_the_loss_is_that_of_the_targets(stream):
    model = model_of("t5")
    tokens_BxS, targets_BxS, is_target_BxS = stream.sequences(TRAINED)
    loss_BxS = np.asarray(cross_entropy(model(tokens_BxS), targets_BxS))
    assert masked_loss(model, stream, TRAINED) == pytest.approx(
        loss_BxS[is_target_BxS].mean(), rel=1e-5
    )


def test_tables_of_positions_are_interpolated_and_the_first_row_stays():
    # 26 - 2 is three times 10 - 2, so every third row of the new table is a trained one.
    table = np.asarray(model_of("bert_a").encoder.positions.absolute["table"][...])
    longer = extended(model_of("bert_a"), TRAINED, LONGER, "interpolated")
    rows = np.asarray(longer.encoder.positions.absolute["table"][...])
    assert rows.shape == (LONGER, table.shape[1])
    np.testing.assert_array_equal(rows[0], table[0])
    np.testing.assert_allclose(rows[1::3], table[1:], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(rows[2], (2 * table[1] + table[2]) / 3, rtol=1e-5, atol=1e-7)


def test_rows_beyond_the_training_length_are_not_used_by_the_rules():
    # The table has 40 rows, but only 10 were trained.
    model = model_of("tupe_a", max_length=40)
    table = np.asarray(model.encoder.positions.absolute["table"][...])
    last = extended(model, TRAINED, LONGER, "last_row").encoder.positions.absolute["table"][...]
    np.testing.assert_array_equal(last[:TRAINED], table[:TRAINED])
    np.testing.assert_array_equal(last[TRAINED:], table[[TRAINED - 1] * (LONGER - TRAINED)])
    between = extended(model, TRAINED, LONGER, "interpolated").encoder.positions
    np.testing.assert_allclose(between.absolute["table"][...][-1], table[TRAINED - 1], rtol=1e-5)


@pytest.mark.parametrize("decay_right", [0.5, 0.1])
def test_tables_of_distances_keep_their_sides(decay_right):
    model = model_of("attenuated_layer_head", max_length=12, decay_right=decay_right)
    trained = bias_LxHxSxS(model.encoder, TRAINED)
    last = bias_LxHxSxS(extended(model, TRAINED, LONGER, "last_row").encoder, LONGER)
    np.testing.assert_array_equal(last[..., :TRAINED, :TRAINED], trained)
    np.testing.assert_array_equal(last[..., 0, -1], trained[..., 0, -1])
    np.testing.assert_array_equal(last[..., -1, 0], trained[..., -1, 0])
    between = bias_LxHxSxS(extended(model, TRAINED, 19, "interpolated").encoder, 19)
    np.testing.assert_allclose(between[..., ::2, ::2], trained, rtol=1e-5)


def test_only_tables_need_rules():
    assert rules_for(small_config("alibi"), 10, 80) == ["as_is"]
    table = small_config("tupe_r")
    assert rules_for(table, 10, 10) == ["as_is"]
    assert rules_for(table, 10, 20) == ["as_is", "interpolated", "last_row"]
    assert rules_for(table, 10, 40) == ["interpolated", "last_row"]
    model = model_of("alibi")
    assert extended(model, TRAINED, LONGER, "as_is") is model


def test_scores_have_every_length_and_rule(stream):
    scores = scores_by_length(
        model_of("tupe_a"), [TRAINED, 20], trained_length=TRAINED, words=WORDS, stream=stream
    )
    assert [(score.length, score.rule) for score in scores] == [
        (10, "as_is"),
        (20, "interpolated"),
        (20, "last_row"),
    ]
    assert len({score.loss for score in scores}) == 3
    assert all(0 <= score.measures["locality"] <= 1 for score in scores)
    (alone,) = scores_by_length(
        model_of("none"), [20], trained_length=TRAINED, words=WORDS, stream=None
    )
    assert alone.loss is None
    assert alone.measures["symmetry"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("variant", POSITION_VARIANTS)
def test_every_encoding_can_be_extended(variant, stream):
    scores = scores_by_length(
        model_of(variant), [10, 80], trained_length=TRAINED, words=WORDS, stream=stream
    )
    assert {score.length for score in scores} == {10, 80}
    assert all(np.isfinite(score.loss) for score in scores)


@pytest.mark.parametrize("lengths", [[20, 10], [10, 10], [3]])
def test_lengths_that_make_no_sense_are_refused(lengths):
    with pytest.raises(UserError, match="lengths="):
        scores_by_length(
            model_of("none"), lengths, trained_length=TRAINED, words=WORDS, stream=None
        )


def test_a_text_that_is_too_short_is_refused(stream):
    with pytest.raises(UserError, match="420 tokens"):
        scores_by_length(
            model_of("none"), [512], trained_length=TRAINED, words=WORDS, stream=stream
        )
