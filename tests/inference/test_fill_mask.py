"""Filling masks: texts are encoded as in training, and guesses come from the model."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.model.helpers import logits, small_config, spread_model
from tupe_jax.inference.fill_mask import Filled, Guess, encode_masked, fill_masks
from tupe_jax.tokenizers.sentencepiece import (
    CLS_ID,
    MASK_ID,
    SEP_ID,
    SPECIAL_TOKENS,
    SentencePieceTokenizer,
    train_sentencepiece,
)
from tupe_jax.utils.errors import UserError


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    lines = ["the cat sat on the mat.", "a dog ran to the (old) house, and the cat ran too."] * 50
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    path.write_bytes(train_sentencepiece(lines, 90))
    return SentencePieceTokenizer.load(path)


@pytest.fixture(scope="module")
def model(vocabulary):
    """More embeddings than tokens, as a mesh may need."""
    return spread_model(small_config("tupe_r", vocab_size=vocabulary.size + 6))


@pytest.mark.parametrize(
    ("masked", "word"),
    [
        ("the [MASK] sat on the mat.", "cat"),
        ("the cat sat on the [MASK].", "mat"),
        ("the [MASK], and the cat ran too.", "house"),
        ("[MASK] cat", "the"),
        ("the [MASK]", "mat"),
    ],
)
def test_the_text_around_a_mask_is_encoded_as_around_a_word(vocabulary, masked, word):
    before, after = masked.split("[MASK]")
    with_word = vocabulary.encode(before + word + after)
    ids = encode_masked(vocabulary, masked)
    place = ids.index(MASK_ID)
    pieces_of_word = len(vocabulary.encode(word))
    assert ids[:place] == with_word[:place]
    assert ids[place + 1 :] == with_word[place + pieces_of_word :]


def test_guesses_are_the_most_likely_tokens_of_the_model(model, vocabulary):
    text = "the [MASK] sat on [MASK] mat."
    (filled,) = fill_masks(model, vocabulary, [text], top_k=3)
    ids = np.array([[CLS_ID, *encode_masked(vocabulary, text), SEP_ID]])
    places = np.flatnonzero(ids[0] == MASK_ID)
    logits_MxV = np.array(logits(model, ids))[0, places, : vocabulary.size]
    logits_MxV[:, : len(SPECIAL_TOKENS)] = -np.inf
    expected = np.asarray(jax.nn.softmax(logits_MxV))
    for guesses, probability_V in zip(filled.guesses, expected, strict=True):
        best = np.argsort(-probability_V)[:3]
        assert [guess.id for guess in guesses] == list(best)
        assert [guess.piece for guess in guesses] == [vocabulary.decode([i]) for i in best]
        for guess in guesses:
            is_mark = not guess.piece.isalnum()
            assert guess.starts_word == (vocabulary.starts_word(guess.id) or is_mark)
        np.testing.assert_allclose(
            [guess.probability for guess in guesses], probability_V[best], rtol=1e-4
        )


def test_results_do_not_depend_on_the_other_texts(model, vocabulary):
    short, long = "[MASK] ran.", "the dog and the [MASK] ran to [MASK] cat."
    together = fill_masks(model, vocabulary, [short, long], top_k=2)
    assert [len(filled.guesses) for filled in together] == [1, 2]
    for text, filled in zip((short, long), together, strict=True):
        (alone,) = fill_masks(model, vocabulary, [text], top_k=2)
        for ours, theirs in zip(filled.guesses, alone.guesses, strict=True):
            assert [g.piece for g in ours] == [g.piece for g in theirs]
            np.testing.assert_allclose(
                [g.probability for g in ours], [g.probability for g in theirs], rtol=1e-4
            )


def test_probabilities_of_all_ordinary_tokens_sum_to_one(model, vocabulary):
    (filled,) = fill_masks(model, vocabulary, ["the [MASK]"], top_k=10_000)
    (guesses,) = filled.guesses
    assert len(guesses) == vocabulary.size - len(SPECIAL_TOKENS)
    assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-5)


def test_a_sentence_as_long_as_the_position_table_fits(model, vocabulary):
    text = "the " * 17 + "[MASK]"
    assert len(encode_masked(vocabulary, text)) + 2 == model.config.position.max_length
    assert len(fill_masks(model, vocabulary, [text])) == 1
    with pytest.raises(UserError, match=r"'the the .*\.\.\.' .*21 .*max_length=20"):
        fill_masks(model, vocabulary, ["the " + text])


def test_wrong_input_is_a_user_error(model, vocabulary):
    assert fill_masks(model, vocabulary, []) == []
    with pytest.raises(UserError, match=r"'the cat' .*\[MASK\]"):
        fill_masks(model, vocabulary, ["the cat"])
    with pytest.raises(UserError, match="top_k=0"):
        fill_masks(model, vocabulary, ["the [MASK]"], top_k=0)
    smaller = spread_model(dataclasses.replace(model.config, vocab_size=vocabulary.size - 1))
    with pytest.raises(UserError, match=f"{vocabulary.size} tokens"):
        fill_masks(smaller, vocabulary, ["the [MASK]"])


def test_a_filled_text_contains_the_best_tokens(model, vocabulary):
    text = "The [MASK] [MASK] on"
    (filled,) = fill_masks(model, vocabulary, [text], top_k=2)
    first, second = (mask[0].id for mask in filled.guesses)
    before, after = vocabulary.encode("the"), vocabulary.encode("on")
    assert filled.filled == vocabulary.decode([*before, first, second, *after])


def test_a_filled_text_shows_its_guesses_in_a_line():
    mat, ran, s = Guess("mat", 0.7, 5, True), Guess("ran", 0.2, 6, True), Guess("s", 0.9, 7, False)
    filled = Filled("The [MASK] [MASK]", ((mat, ran), (s,)), "the mats")
    assert repr(filled) == "'The [MASK] [MASK]': mat 70%, ran 20% | ##s 90%"
