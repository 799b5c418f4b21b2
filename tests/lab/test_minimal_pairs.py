"""Minimal pairs: scores follow the definition whatever the batches; files are read."""

import gzip
import json

import jax
import numpy as np
import pytest

from tests.model.helpers import logits, small_config, spread_model
from tupe_jax.config.schema import discriminator_config
from tupe_jax.data.labelled.blimp_snli import MinimalPair, read_minimal_pairs
from tupe_jax.inference.batching import batches, encode_sentences
from tupe_jax.inference.fill_mask import pseudo_log_likelihoods
from tupe_jax.lab.minimal_pairs import builtin_minimal_pairs, score_pairs
from tupe_jax.tokenizers.sentencepiece import CLS_ID, MASK_ID, PAIR_SEPARATORS, SEP_ID, SPECIAL
from tupe_jax.utils.errors import UserError


class Numbers:
    """A tokenizer whose tokens are numbers."""

    special, pair_separators, cls_last = SPECIAL, PAIR_SEPARATORS, False

    def encode(self, text):
        return [int(piece) for piece in text.split()]


@pytest.fixture(scope="module")
def model():
    return spread_model(small_config("tupe_r"))


def by_definition(model, row):
    """One token masked at a time, one sequence at a time."""
    total = 0.0
    for place in range(1, len(row) - 1):
        masked = np.array([row])
        masked[0, place] = MASK_ID
        # Padded to one length for one compilation; padding is not attended to.
        padded = np.pad(masked, ((0, 0), (0, 20 - len(row))))
        log_probability_V = jax.nn.log_softmax(logits(model, padded)[0, place])
        total += float(log_probability_V[row[place]])
    return total


def test_the_score_is_the_sum_over_masked_tokens(model):
    rng = np.random.default_rng(0)
    texts = [" ".join(map(str, rng.integers(5, 50, n))) for n in (1, 3, 13, 14, 15, 18, 18)]
    rows = encode_sentences(Numbers(), texts, model.config)
    assert [len(row) for row in rows] == [3, 5, 15, 16, 17, 20, 20]
    scores = pseudo_log_likelihoods(model, rows, MASK_ID)
    np.testing.assert_allclose(scores, [by_definition(model, row) for row in rows], rtol=1e-4)


def test_pairs_are_scored_by_paradigm_and_together(model):
    texts = [f"{a} {b} 9" for a in range(5, 13) for b in (20, 21)]
    rows = encode_sentences(Numbers(), texts, model.config)
    scores = pseudo_log_likelihoods(model, rows, MASK_ID)
    pairs = [
        MinimalPair(texts[n], texts[n + 1], "one" if n < 8 else "other") for n in range(0, 16, 2)
    ]
    pairs.append(MinimalPair(texts[0], texts[0], "other"))
    delta = [*(scores[0::2] - scores[1::2]), 0.0]
    hits = [*(np.array(delta[:-1]) > 0), 0.5]
    results = score_pairs(model, Numbers(), pairs)
    assert list(results) == ["one", "other", "all", "same words"]
    assert [result.count for result in results.values()] == [4, 5, 9, 1]
    assert results["one"].accuracy.estimate == np.mean(hits[:4])
    assert results["all"].accuracy.estimate == pytest.approx(np.mean(hits))
    assert results["all"].delta.estimate == pytest.approx(np.mean(delta), rel=1e-4)
    assert results["all"].delta.low < np.mean(delta) < results["all"].delta.high
    assert results["same words"].accuracy.estimate == 0.5


def test_a_discriminator_prefers_the_sentence_whose_tokens_are_likelier_original():
    model = spread_model(discriminator_config(small_config("tupe_r")))
    texts = ["7 8 9", "7 20 9 11", "13 14", "30 31 32 33"]
    rows = encode_sentences(Numbers(), texts, model.config)
    scores = [float(jax.nn.log_sigmoid(-model.replaced_BxS(np.array([row]))).sum()) for row in rows]
    pairs = [MinimalPair(texts[0], texts[1], "one"), MinimalPair(texts[2], texts[3], "one")]
    found = score_pairs(model, Numbers(), pairs)["one"]
    delta = [scores[0] - scores[1], scores[2] - scores[3]]
    assert found.accuracy.estimate == np.mean(np.array(delta) > 0)
    assert found.delta.estimate == pytest.approx(np.mean(delta), rel=1e-4)


def test_batches_hold_every_sequence_once(model):
    rows = [np.arange(1, n + 1, dtype=np.int32) for n in (3, 5, 16, 17, 20, 4)]
    seen = []
    for tokens, which in batches(rows, model.config, sizes=(2,)):
        assert tokens.shape in ((2, 16), (2, 20))  # 20 is the end of the table of positions
        for line, n in zip(tokens, which, strict=False):
            assert list(line[line > 0]) == list(rows[n])
        seen += list(which)
    assert sorted(seen) == list(range(6))


def test_sequences_are_sentences_between_special_tokens(model):
    (row,) = encode_sentences(Numbers(), ["7 8"], model.config)
    assert list(row) == [CLS_ID, 7, 8, SEP_ID]
    with pytest.raises(UserError, match="' '"):
        encode_sentences(Numbers(), [" "], model.config)


def test_what_cannot_be_scored_is_an_error(model):
    with pytest.raises(UserError, match="no minimal pairs"):
        score_pairs(model, Numbers(), [])
    long = " ".join(["7"] * 19)
    with pytest.raises(UserError, match=r"21 .*position\.max_length=20"):
        score_pairs(model, Numbers(), [MinimalPair(long, "7", "long")])


def test_the_grammar_gives_pairs_with_one_mistake():
    pairs = builtin_minimal_pairs(200)
    assert len(pairs) == 200
    assert pairs[:30] == builtin_minimal_pairs(30)
    kinds = {pair.paradigm for pair in pairs}
    assert kinds >= {"agreement", "determiner", "word_order", "verb_form", "subcategorisation"}
    assert all(pair.good != pair.bad for pair in pairs)
    only_order = [pair for pair in pairs if pair.paradigm == "word_order"]
    assert all(pair.same_words for pair in only_order)
    assert not any(pair.same_words for pair in pairs if pair.paradigm == "agreement")


def test_files_in_the_form_of_blimp_are_read(tmp_path):
    line = {"sentence_good": "Who left?", "sentence_bad": "Left who?", "UID": "order", "field": "x"}
    path = tmp_path / "blimp.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(line) + "\n").encode() * 2))
    assert read_minimal_pairs(path) == [MinimalPair("Who left?", "Left who?", "order")] * 2
    assert read_minimal_pairs(path)[0].same_words
    path.write_bytes(gzip.compress(b'{"sentence_good": "Who left?", "UID": 3}'))
    with pytest.raises(UserError, match=r"gz:1: .*'sentence_bad', 'UID'"):
        read_minimal_pairs(path)
    with pytest.raises(UserError, match="no such file"):
        read_minimal_pairs(tmp_path / "missing.jsonl")
