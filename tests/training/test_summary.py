"""The unigram baseline: what can be had without looking at the text."""

import math

import numpy as np
import pytest

from tupe_jax.config.schema import ObjectiveConfig
from tupe_jax.data.pretraining.token_shards import (
    PreparedIndex,
    Split,
    shard_file_name,
    write_index,
    write_shard,
)
from tupe_jax.objectives.masking import never_chosen
from tupe_jax.tokenizers.sentencepiece import CLS_ID, MASK_ID, PAD_ID, SEP_ID, SPECIAL, UNK_ID
from tupe_jax.training.baseline import UnigramBaseline, count_tokens, prepared_rows
from tupe_jax.utils.errors import UserError

NEVER_CHOSEN = never_chosen(ObjectiveConfig(), SPECIAL)


def baseline(**counts):
    counts_V = np.zeros(9, np.int64)
    for name, count in counts.items():
        counts_V[int(name.removeprefix("piece_"))] = count
    return UnigramBaseline.from_counts(counts_V, NEVER_CHOSEN)


def test_probabilities_are_smoothed_frequencies_of_what_can_be_masked():
    # Ids 5 .. 8 can be masked: four tokens get one occurrence more. [UNK] never is.
    guess = baseline(piece_0=1000, piece_1=1000, piece_4=1000, piece_5=10, piece_6=5)
    np.testing.assert_allclose(guess.probability_V[[5, 6, 7]], [11 / 19, 6 / 19, 1 / 19])
    assert not guess.probability_V[[PAD_ID, CLS_ID, SEP_ID, MASK_ID, UNK_ID]].any()


def test_what_the_official_rule_chooses_is_counted():
    counts_V = np.array([1000, 2, 4, 0, 1, 10, 5])
    only_padding_and_mask = never_chosen(ObjectiveConfig(mask_rule="released"), SPECIAL)
    guess = UnigramBaseline.from_counts(counts_V, only_padding_and_mask)
    np.testing.assert_allclose(guess.probability_V, np.array([0, 3, 5, 0, 2, 11, 6]) / 27)


def test_loss_accuracy_and_entropy():
    guess = baseline(piece_5=10, piece_6=5)
    assert guess.loss(np.array([5, 5, 6, 8])) == pytest.approx(
        -(2 * math.log(11 / 19) + math.log(6 / 19) + math.log(1 / 19)) / 4
    )
    assert guess.accuracy(np.array([5, 5, 6, 8])) == 0.5
    assert guess.entropy == pytest.approx(
        -sum(p * math.log(p) for p in (11 / 19, 6 / 19, 1 / 19, 1 / 19))
    )


def test_no_counts_mean_that_all_are_alike():
    guess = baseline()
    assert guess.entropy == pytest.approx(math.log(4))
    assert guess.loss(np.array([5, 7])) == pytest.approx(math.log(4))


def test_on_words_drawn_as_counted_the_loss_is_the_entropy():
    rng = np.random.default_rng(0)
    tokens = rng.choice(np.arange(5, 50), p=rng.dirichlet(np.ones(45)), size=(200, 500))
    guess = UnigramBaseline.from_counts(count_tokens([tokens], 50), NEVER_CHOSEN)
    assert guess.loss(tokens) == pytest.approx(guess.entropy, abs=1e-3)


@pytest.fixture
def folder(tmp_path):
    """Ten rows in three shards; row n holds the id n twice."""
    shards = tuple(
        write_shard(
            tmp_path / shard_file_name("train", number, 3), np.stack([rows, rows], axis=1), "uint16"
        )
        for number, rows in enumerate(np.array_split(np.arange(10), 3))
    )
    split = Split(shards=shards, rows=10, tokens=20, documents=1)
    write_index(tmp_path, PreparedIndex("toy", "ab" * 32, 12, 2, 0, {"train": split}))
    return tmp_path


def test_all_rows_of_a_prepared_folder_are_counted(folder):
    counts_V = count_tokens(prepared_rows(folder, "train", at_most=1000), 12)
    assert counts_V.tolist() == [2] * 10 + [0, 0]


def test_a_sample_is_spread_over_the_whole_split(folder):
    (rows,) = prepared_rows(folder, "train", at_most=4)
    assert rows[:, 0].tolist() == [0, 2, 5, 7]


def test_an_unknown_split_is_told(folder):
    with pytest.raises(UserError, match="no split 'test'; it has train"):
        list(prepared_rows(folder, "test", at_most=4))
