"""Batches: every example once per epoch, a function of (seed, step), in equivalent lengths."""

import jax
import numpy as np
import pytest

from tests.model.helpers import VARIANTS, small_config, spread_model, with_position
from tupe_jax.data.labelled.example import Example
from tupe_jax.finetune.classifier import Classifier
from tupe_jax.finetune.data import (
    EncodedSplit,
    TrainBatches,
    bucket_lengths,
    encode_split,
    evaluation_batches,
)
from tupe_jax.model.params import arrays_of
from tupe_jax.tokenizers.sentencepiece import PAIR_SEPARATORS, SPECIAL
from tupe_jax.training.train_state import random_key

LENGTHS = (3, 9, 5, 14, 4, 7, 3, 12, 6, 5)


@pytest.fixture(scope="module")
def rows():
    tokens = np.zeros((len(LENGTHS), max(LENGTHS)), np.int32)
    for number, length in enumerate(LENGTHS):
        tokens[number, :length] = 5 + (7 * number + np.arange(length)) % 40
    return EncodedSplit(
        tokens, np.array(LENGTHS, np.int32), np.arange(len(LENGTHS), dtype=np.int32) % 2
    )


def epoch_of(batches, epoch):
    """The rows of an epoch by their first token, which is their own, for each trial."""
    steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
    seen = [[], []]
    for batch in map(batches, steps):
        for trial in (0, 1):
            counted = batch.weights_B[trial] > 0
            seen[trial] += batch.tokens_BxS[trial, counted, 0].tolist()
    return seen


def test_an_epoch_has_every_example_once_in_its_own_order(rows):
    batches = TrainBatches(rows, seeds=[0, 1], batch_size=4, buckets=(16,))
    assert batches.per_epoch == 3
    orders = [order for epoch in (0, 1) for order in epoch_of(batches, epoch)]
    everything = sorted(rows.tokens_NxS[:, 0].tolist())
    assert all(sorted(order) == everything for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert not any(order == everything for order in orders)


def test_a_batch_depends_on_seed_and_step_alone(rows):
    first = TrainBatches(rows, seeds=[0, 1], batch_size=4, buckets=(16,))
    for step in range(7):
        first(step)
    alone = TrainBatches(rows, seeds=[1], batch_size=4, buckets=(16,))
    np.testing.assert_array_equal(first(5).tokens_BxS[1], alone(5).tokens_BxS[0])
    np.testing.assert_array_equal(first(5).labels_B[1], alone(5).labels_B[0])


def test_buckets_change_the_padding_and_nothing_else(rows):
    in_buckets = TrainBatches(rows, seeds=[0, 1], batch_size=2, buckets=(4, 8, 16))
    in_full = TrainBatches(rows, seeds=[0, 1], batch_size=2, buckets=(16,))
    lengths = set()
    for step in range(10):
        short, full = in_buckets(step), in_full(step)
        length = short.tokens_BxS.shape[-1]
        lengths.add(length)
        np.testing.assert_array_equal(short.tokens_BxS, full.tokens_BxS[..., :length])
        assert not full.tokens_BxS[..., length:].any()
        np.testing.assert_array_equal(short.labels_B, full.labels_B)
        np.testing.assert_array_equal(short.weights_B, full.weights_B)
    assert len(lengths) > 1


@pytest.mark.parametrize(
    ("length", "longest", "buckets"),
    [
        (512, 512, (32, 64, 128, 256, 512)),
        (512, 100, (32, 64, 128)),
        (100, 100, (32, 64, 100)),
        (64, 20, (32,)),
        (20, 20, (20,)),
    ],
)
def test_buckets_double_until_they_hold_the_longest_sequence(length, longest, buckets):
    assert bucket_lengths(small_config(), length, longest) == buckets


def has_buckets(variant):
    return len(bucket_lengths(small_config(variant), 64, 64)) > 1


def test_encodings_that_depend_on_the_padding_have_no_buckets():
    assert [v for v in VARIANTS if not has_buckets(v)] == ["attenuated", "attenuated_asymmetric"]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["tupe_r", "attenuated_layer", "shaw", "deberta", "rope"])
def test_padding_changes_neither_loss_nor_gradient_dropout_included(variant, rows):
    config = with_position(small_config(variant, num_layers=1), max_length=32)
    classifier = Classifier(config, "head", 2, is_regression=False)
    arrays = arrays_of(spread_model(config, heads={"head": 2}))
    params = classifier.first_params(0, arrays)

    @jax.jit
    def loss_and_gradient(batch):
        return jax.value_and_grad(classifier.loss)(params, batch, random_key(0, "dropout", 3))

    def on_one_trial(buckets):
        batch = TrainBatches(rows, seeds=[0], batch_size=8, buckets=buckets)(1)
        return loss_and_gradient(jax.tree.map(lambda x: x[0], batch))

    short, long = on_one_trial((14,)), on_one_trial((32,))
    for x, y in zip(jax.tree.leaves(short), jax.tree.leaves(long), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def test_evaluation_returns_every_example_at_its_index(rows):
    found = np.zeros_like(rows.tokens_NxS)
    for places, tokens in evaluation_batches(rows, 4, (8, 16)):
        assert tokens.shape[0] == 4
        found[places, : tokens.shape[1]] = tokens[:, : found.shape[1]]
    np.testing.assert_array_equal(found, rows.tokens_NxS)


class Letters:
    special, pair_separators, cls_last = SPECIAL, PAIR_SEPARATORS, False

    def encode(self, text):
        return [ord(letter) - 90 for letter in text]


def test_scores_are_scaled_and_classes_are_not():
    texts = [Example("ab", None, 5.0), Example("abcdefgh", "ij", 1.0)]
    scores = encode_split(texts, Letters(), length=8, score_scale=5.0)
    np.testing.assert_array_equal(scores.labels_N, np.array([1.0, 0.2], np.float32))
    assert scores.lengths_N.tolist() == [4, 8]
    assert scores.longest == 8
    classes = encode_split([Example("ab", None, 2)], Letters(), length=8, score_scale=5.0)
    assert classes.labels_N.tolist() == [2]
    assert classes.longest == 4


def test_a_text_that_names_the_padding_keeps_its_end():
    rows = encode_split([Example("aZb", None, 0)], Letters(), length=8)  # Z is 0
    assert rows.tokens_NxS.tolist() == [[SPECIAL.cls_id, 7, 0, 8, SPECIAL.sep_id]]


def test_the_digest_depends_on_sequences_and_labels(rows):
    other = EncodedSplit(rows.tokens_NxS, rows.lengths_N, 1 - rows.labels_N)
    assert rows.digest != other.digest
