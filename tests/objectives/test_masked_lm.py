"""The masked-word loss against numpy, and how its sums add up."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx

from tests.model.helpers import logits, random_tokens, small_config, spread_model
from tupe_jax.config.schema import Config
from tupe_jax.objectives.masked_lm import (
    MaskedLMObjective,
    cross_entropy,
    is_argmax,
    masked_lm_term,
)
from tupe_jax.objectives.masking import MaskedBatch

ROWS, LENGTH, SLOTS, VOCAB = 4, 13, 3, 50


def masked_rows(seed=0):
    rng = np.random.default_rng(seed)
    positions = np.stack([rng.permutation(LENGTH - 3)[:SLOTS] for _ in range(ROWS)])
    weights = np.ones((ROWS, SLOTS), np.float32)
    weights[1, 1:], positions[1, 1:] = 0, 0
    weights[2], positions[2] = 0, 0
    targets = rng.integers(1, VOCAB, (ROWS, SLOTS))
    return MaskedBatch(random_tokens(ROWS, LENGTH, VOCAB, seed=seed), positions, targets, weights)


term_of = nnx.jit(masked_lm_term)


@pytest.fixture(scope="module")
def model():
    return spread_model(small_config(num_layers=1))


def test_sums_are_those_of_the_scored_positions(model):
    masked = masked_rows()
    all_logits = np.asarray(logits(model, masked.tokens_BxS), np.float64)
    likeliest = all_logits.argmax(-1)
    for b, s in [(0, 0), (3, 1)]:  # some hits
        masked.targets_BxM[b, s] = likeliest[b, masked.positions_BxM[b, s]]
    loss = correct = 0.0
    for b in range(ROWS):
        for s in range(SLOTS):
            if masked.weights_BxM[b, s]:
                at = all_logits[b, masked.positions_BxM[b, s]]
                loss += np.log(np.exp(at).sum()) - at[masked.targets_BxM[b, s]]
                correct += at.argmax() == masked.targets_BxM[b, s]
    term = term_of(model, masked, None)
    np.testing.assert_allclose(term.loss, loss, rtol=1e-5)
    assert term.metrics["accuracy"] == correct >= 2
    assert {leaf.dtype for leaf in jax.tree.leaves(term)} == {np.dtype(np.float32)}
    assert MaskedLMObjective(Config()).weights(masked) == {"masked_lm": 7}


def test_parts_of_a_batch_add_up_to_the_whole(model):
    masked = masked_rows()
    whole = term_of(model, masked, None)
    halves = [jax.tree.map(lambda a, h=h: a[h::2], masked) for h in (0, 1)]
    total = jax.tree.map(np.add, *(term_of(model, half, None) for half in halves))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), total, whole)


def test_unused_slots_do_not_count(model):
    masked = masked_rows()
    other = np.where(masked.weights_BxM > 0, masked.targets_BxM, 9)
    changed = dataclasses.replace(masked, targets_BxM=other)
    assert term_of(model, changed, None).loss == term_of(model, masked, None).loss


def test_dropout_is_on_with_a_key_only():
    model = spread_model(small_config(dropout=0.5, num_layers=1))
    masked = masked_rows()
    with_key = [float(term_of(model, masked, jax.random.key(seed)).loss) for seed in (0, 0, 1)]
    assert with_key[0] == with_key[1] != with_key[2]
    assert float(term_of(model, masked, None).loss) not in with_key


@pytest.mark.parametrize("target", [-1, VOCAB, 2**31 - 1])
def test_a_target_outside_the_vocabulary_is_heard(model, target):
    masked = masked_rows()
    masked.targets_BxM[0, 0] = target
    assert np.isnan(term_of(model, masked, None).loss)


def test_large_logits_do_not_overflow():
    values = np.array([[1e4, 0.0, -1e4]], np.float32)
    np.testing.assert_allclose(cross_entropy(values, np.array([1])), [1e4])
    np.testing.assert_allclose(cross_entropy(values, np.array([0])), [0.0])


def test_logits_in_half_precision_are_summed_in_single():
    values = np.random.default_rng(0).standard_normal((5, 1000)).astype(jax.numpy.bfloat16)
    targets = np.arange(5)
    ours = cross_entropy(values, targets)
    exact = values.astype(np.float64)
    expected = np.log(np.exp(exact).sum(-1)) - exact[np.arange(5), targets]
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_of_equal_logits_the_first_is_the_prediction():
    logits = np.random.default_rng(0).integers(0, 3, (50, 8)).astype(np.float32)
    targets = np.arange(50) % 8
    np.testing.assert_array_equal(is_argmax(logits, targets), logits.argmax(-1) == targets)
