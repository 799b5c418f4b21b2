"""What masking promises, for tokens, words and spans alike."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import ObjectiveConfig
from tupe_jax.objectives.masking import mask_tokens
from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.utils.errors import UserError

SPECIAL = SpecialTokens(pad_id=0, cls_id=1, sep_id=2, mask_id=3, unk_id=4)
VOCAB = 200
STARTS_WORD = np.random.default_rng(0).random(VOCAB) < 0.5
UNITS = ["token", "word", "span"]


def rows(count=64, length=128, seed=0):
    """[CLS] a few sentences with [SEP], unknown tokens, and padding of different lengths."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, VOCAB, (count, length))
    tokens[rng.random(tokens.shape) < 0.05] = SPECIAL.sep_id
    tokens[rng.random(tokens.shape) < 0.02] = SPECIAL.unk_id
    tokens[:, 0] = SPECIAL.cls_id
    for row, words in zip(tokens, rng.integers(0, length + 1, count), strict=True):
        row[words:] = SPECIAL.pad_id
    return tokens


@functools.partial(jax.jit, static_argnames=("objective", "special"))
def masked_on_device(tokens, key, objective, special):
    return mask_tokens(
        tokens,
        key,
        objective=objective,
        special=special,
        vocab_size=VOCAB,
        starts_word_V=jnp.asarray(STARTS_WORD),
    )


def mask(tokens, seed=0, special=SPECIAL, **settings):
    key = jax.random.key(seed)
    masked = masked_on_device(tokens, key, ObjectiveConfig(**settings), special)
    return jax.tree.map(np.asarray, masked)


def chosen_in(masked):
    """Where a token is scored, [B, S], from the slots."""
    chosen = np.zeros(masked.tokens_BxS.shape, int)
    for row, positions, weights in zip(
        chosen, masked.positions_BxM, masked.weights_BxM, strict=True
    ):
        np.add.at(row, positions, weights.astype(int))
    assert chosen.max() <= 1, "a position is scored twice"
    return chosen.astype(bool)


def ordinary(tokens):
    return ~np.isin(tokens, SPECIAL.ids)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rate", [0.15, 0.95])
def test_exactly_the_rounded_share_of_ordinary_tokens_is_scored(unit, rate):
    tokens = rows()
    masked = mask(tokens, mask_unit=unit, mask_rate=rate)
    expected = [round(rate * n) for n in ordinary(tokens).sum(1)]
    assert len(set(expected)) > 10
    np.testing.assert_array_equal(masked.weights_BxM.sum(1), expected)
    chosen = chosen_in(masked)
    np.testing.assert_array_equal(chosen.sum(1), expected)
    assert not chosen[~ordinary(tokens)].any()
    assert masked.positions_BxM.shape == (64, round(rate * 128))
    assert set(np.unique(masked.weights_BxM)) == {0, 1}
    assert (masked.positions_BxM[masked.weights_BxM == 0] == 0).all()


@pytest.mark.parametrize("unit", UNITS)
def test_targets_are_the_original_tokens_and_the_others_stay(unit):
    tokens = rows()
    masked = mask(tokens, mask_unit=unit)
    chosen = chosen_in(masked)
    np.testing.assert_array_equal(
        masked.targets_BxM, np.take_along_axis(tokens, masked.positions_BxM, 1)
    )
    np.testing.assert_array_equal(masked.tokens_BxS[~chosen], tokens[~chosen])
    assert (masked.tokens_BxS[chosen] == SPECIAL.mask_id).any()


@pytest.mark.parametrize("unit", UNITS)
def test_80_10_10(unit):
    # One token only, so that a kept one can be told from a random one.
    tokens = np.full((256, 256), 7)
    masked = mask(tokens, mask_unit=unit, mask_rate=0.3)
    became = masked.tokens_BxS[chosen_in(masked)]
    n = became.size

    def share_is(found, p):
        assert abs(found.mean() - p) < 4.5 * np.sqrt(p * (1 - p) / n)

    share_is(became == SPECIAL.mask_id, 0.8)
    random = became[(became != SPECIAL.mask_id) & (became != 7)]
    ordinary_pieces = VOCAB - len(SPECIAL.ids)
    share_is(became == 7, 0.1 + 0.1 / ordinary_pieces)
    # Uniform over every ordinary token: chi-squared has variance 2 per degree of freedom.
    counts = np.bincount(random, minlength=VOCAB)
    assert not counts[list(SPECIAL.ids)].any()
    counts = np.delete(counts, [*SPECIAL.ids, 7])
    assert (counts > 0).all()
    chi_squared = ((counts - counts.mean()) ** 2).sum() / counts.mean()
    assert abs(chi_squared - counts.size) < 4.5 * np.sqrt(2 * counts.size)


def test_other_shares_and_special_ids_anywhere():
    special = SpecialTokens(pad_id=1, cls_id=0, sep_id=2, mask_id=VOCAB - 1)
    tokens = np.full((64, 128), 7)
    shares = {"replace_by_mask": 0.0, "replace_by_random": 1.0}
    masked = mask(tokens, special=special, mask_rate=0.95, **shares)
    assert set(np.unique(masked.tokens_BxS)) == set(range(VOCAB)) - set(special.ids)
    kept = mask(tokens, special=special, replace_by_mask=0.0, replace_by_random=0.0)
    np.testing.assert_array_equal(kept.tokens_BxS, tokens)
    assert kept.weights_BxM.all()


def groups_of(tokens, starts):
    """The number of its group for every ordinary token, counted one by one; -1 for special ones."""
    groups = np.full(tokens.shape, -1)
    for b, row in enumerate(tokens):
        group = 0
        for s, token in enumerate(row):
            if token in SPECIAL.ids or s == 0 or row[s - 1] in SPECIAL.ids or starts[b, s]:
                group += 1
            if token not in SPECIAL.ids:
                groups[b, s] = group
    return groups


def test_words_are_hidden_whole_except_at_most_two_per_row():
    tokens = rows()
    chosen = chosen_in(mask(tokens, mask_unit="word"))
    words = groups_of(tokens, STARTS_WORD[tokens])
    cut = 0
    for row, hidden in zip(words, chosen, strict=True):
        parts = [hidden[row == word] for word in np.unique(row[row >= 0])]
        broken = [part for part in parts if part.any() and not part.all()]
        assert len(broken) <= 2
        for part in broken:  # one part of it is masked
            assert (np.diff(np.pad(part.astype(int), 1)) == 1).sum() == 1
        cut += len(broken)
    assert cut > 0
    assert any(row.tolist().count(w) > 2 for row in words for w in row[row >= 0])


def test_single_tokens_do_not_keep_words_together():
    """Else the test above could not fail."""
    tokens = rows()
    chosen = chosen_in(mask(tokens, mask_unit="token"))
    words = groups_of(tokens, STARTS_WORD[tokens])
    whole = [
        hidden[row == word].all()
        for row, hidden in zip(words, chosen, strict=True)
        for word in np.unique(row[hidden])
        if (row == word).sum() > 1
    ]
    assert np.mean(whole) < 0.4


def test_no_group_reaches_over_a_special_token():
    """A row of two sides without a word start: one of them is hidden, either as often."""
    inside = 5 + np.argmin(STARTS_WORD[5:])
    tokens = np.full((512, 17), inside)
    tokens[:, 8] = SPECIAL.sep_id
    for settings in ({"mask_unit": "word"}, {"mask_unit": "span", "mean_span": 1e9}):
        chosen = chosen_in(mask(tokens, mask_rate=0.25, **settings))
        left, right = chosen[:, :8], chosen[:, 9:]
        # Four of sixteen: in one side, or across the border of the two in their random order.
        both = left.any(1) & right.any(1)
        assert abs(both.mean() - 6 / 16) < 0.1
        assert abs((left.any(1) & ~both).mean() - 5 / 16) < 0.1
        # Two parts of a side would mean that the other side lies between them in the order.
        pieces = (np.diff(np.pad(chosen[~both].astype(int), ((0, 0), (1, 1)))) == 1).sum(1)
        assert (pieces == 1).all()


def run_lengths(chosen):
    return np.concatenate(
        [np.diff(np.flatnonzero(np.diff(np.pad(row.astype(int), 1))))[::2] for row in chosen]
    )


def test_spans_have_the_mean_length_asked_for():
    tokens = np.full((64, 2048), 7)  # long, because a row cuts up to two spans
    for mean in (1.0, 3.0, 6.0):
        lengths = run_lengths(chosen_in(mask(tokens, mask_unit="span", mean_span=mean)))
        # Neighbouring spans may both be drawn: a run is 1 / (1 - rate) times as long on average.
        assert abs(lengths.mean() * 0.85 / mean - 1) < 0.05
        if mean > 1:  # geometric: variance mean * (mean - 1); runs are geometric, too
            run_mean = lengths.mean()
            assert abs(lengths.var() / (run_mean * (run_mean - 1)) - 1) < 0.15


@pytest.mark.parametrize("unit", UNITS)
def test_every_position_is_equally_likely(unit):
    """Also at both ends of a row, and in words of any length."""
    start, inside = 5 + np.argmax(STARTS_WORD[5:]), 5 + np.argmin(STARTS_WORD[5:])
    words_of_one_to_nine = np.isin(np.arange(64), np.cumsum([0, *range(1, 10), 3, 3, 1, 1, 1, 9]))
    tokens = np.repeat(np.where(words_of_one_to_nine, start, inside)[None], 16384, axis=0)
    share_S = chosen_in(mask(tokens, mask_unit=unit, mask_rate=0.25)).mean(0)
    deviation_S = (share_S - 0.25) / np.sqrt(0.25 * 0.75 / len(tokens))
    assert np.abs(deviation_S).max() < 4.5


@pytest.mark.parametrize("unit", UNITS)
def test_the_key_decides_and_nothing_else(unit):
    tokens = rows()
    first, again = mask(tokens, mask_unit=unit), mask(tokens, mask_unit=unit)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    other = mask(tokens, seed=1, mask_unit=unit)
    assert (chosen_in(first) != chosen_in(other)).mean() > 0.02
    assert (first.tokens_BxS != other.tokens_BxS).any()


@pytest.mark.parametrize("unit", UNITS)
def test_rows_do_not_depend_on_each_other(unit):
    tokens = np.repeat(np.random.default_rng(1).integers(5, VOCAB, (1, 128)), 64, axis=0)
    masked = mask(tokens, mask_unit=unit)
    assert len(np.unique(chosen_in(masked), axis=0)) == 64, "equal rows get masks of their own"
    tokens[16:, 60:] = SPECIAL.pad_id
    changed = mask(tokens, mask_unit=unit)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:16], b[:16]), masked, changed)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("token", SPECIAL.ids)
def test_a_row_without_ordinary_tokens_is_left_alone(unit, token):
    tokens = np.full((2, 128), token)
    masked = mask(tokens, mask_unit=unit)
    np.testing.assert_array_equal(masked.tokens_BxS, tokens)
    assert not masked.weights_BxM.any()
    assert not masked.positions_BxM.any()


def test_a_position_at_the_very_start_can_be_hidden():
    """Rows need not start with [CLS]; position 0 is also what unused slots point to."""
    tokens = np.full((512, 16), 7)
    tokens[:, 8:] = SPECIAL.pad_id
    masked = mask(tokens, mask_rate=0.5, replace_by_mask=1.0, replace_by_random=0.0)
    hidden = masked.tokens_BxS == SPECIAL.mask_id
    np.testing.assert_array_equal(hidden, chosen_in(masked))
    assert 0.4 < hidden[:, 0].mean() < 0.6


def test_small_integers_as_they_are_stored_on_disk():
    tokens = rows().astype(np.uint16)
    masked, expected = mask(tokens), mask(tokens.astype(np.int32))
    assert masked.tokens_BxS.dtype == np.int32
    jax.tree.map(np.testing.assert_array_equal, masked, expected)


def test_wrong_use_is_reported():
    key = jax.random.key(0)
    common = {"special": SPECIAL, "vocab_size": VOCAB}
    with pytest.raises(UserError, match=r"mask_rate=0\.01 .*20"):
        mask_tokens(rows(1, 20), key, objective=ObjectiveConfig(mask_rate=0.01), **common)
    with pytest.raises(UserError, match=r"mask_unit='word'"):
        mask_tokens(rows(1, 20), key, objective=ObjectiveConfig(mask_unit="word"), **common)


def sentences(count, length, seed=0):
    """[CLS] and then sentences of 20 tokens that each end with [SEP], as many as fit; padding."""
    rng = np.random.default_rng(seed)
    tokens = np.full((count, length), SPECIAL.pad_id)
    tokens[:, 0] = SPECIAL.cls_id
    for row, number in zip(tokens, rng.integers(1, (length - 1) // 20 + 1, count), strict=True):
        body = rng.integers(5, VOCAB, (number, 20))
        body[:, -1] = SPECIAL.sep_id
        row[1 : 1 + body.size] = body.ravel()
    return tokens


def test_the_released_rule_draws_from_all_positions_but_padding():
    """The official counts, as facts: int(rate * n + u) of the n tokens, every one equally likely.

    [CLS] and [SEP] are among them. Tolerances are 4.5 standard deviations of 1,000 sequences.
    """
    tokens = sentences(1000, 128)
    masked = mask(tokens, mask_rule="released")
    chosen = chosen_in(masked)
    lengths = (tokens != SPECIAL.pad_id).sum(1)
    expected = 0.15 * lengths
    counts = chosen.sum(1)
    assert ((counts == np.floor(expected)) | (counts == np.floor(expected) + 1)).all()
    one_more = counts - np.floor(expected)
    fraction = expected - np.floor(expected)
    spread = 4.5 * np.sqrt((fraction * (1 - fraction)).sum())
    assert abs((one_more - fraction).sum()) < spread
    assert not chosen[tokens == SPECIAL.pad_id].any()

    def share_of_targets(token):
        return (tokens[chosen] == token).mean()

    for token in (SPECIAL.cls_id, SPECIAL.sep_id):
        p = (tokens == token).sum() / lengths.sum()
        assert abs(share_of_targets(token) - p) < 4.5 * np.sqrt(p * (1 - p) / chosen.sum())
    assert 0.1 < chosen[:, 0].mean() < 0.2  # [CLS] in 15 of 100 sequences
    became = masked.tokens_BxS[chosen]
    assert abs((became == SPECIAL.mask_id).mean() - 0.8) < 4.5 * np.sqrt(0.16 / became.size)
    random = became[(became != SPECIAL.mask_id) & (became != tokens[chosen])]
    assert not np.isin(random, SPECIAL.ids).any()


def test_the_paper_recipe_masks_by_the_released_rule_and_the_others_do_not():
    tokens = sentences(64, 128)
    chosen = {}
    for form in ("paper", "modern", "tiny"):
        objective = from_config_dict(load_config(f"tupe_r:{form}")).objective
        masked = masked_on_device(tokens, jax.random.key(0), objective, SPECIAL)
        chosen[form] = chosen_in(jax.tree.map(np.asarray, masked))
    special = np.isin(tokens, SPECIAL.ids)
    assert chosen["paper"][special].any()
    assert not chosen["modern"][special].any()
    assert not chosen["tiny"][special].any()


def test_the_released_rule_is_for_tokens():
    with pytest.raises(UserError, match=r"objective\.mask_rule.*objective\.mask_unit"):
        ObjectiveConfig(mask_rule="released", mask_unit="span")


SHARDED = """
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tests.objectives.test_masking import SPECIAL, UNITS, masked_on_device, rows
from tupe_jax.config.schema import ObjectiveConfig

mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
assert mesh.size == 8
tokens = rows()
sharded = jax.device_put(tokens, NamedSharding(mesh, PartitionSpec("data")))
objectives = [*(ObjectiveConfig(mask_unit=u) for u in UNITS), ObjectiveConfig(mask_rule="released")]
for objective in objectives:
    arguments = jax.random.key(0), objective, SPECIAL
    compiled = masked_on_device.lower(sharded, *arguments).compile().as_text()
    for word in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert word not in compiled, (objective, word)
    ours = masked_on_device(sharded, *arguments)
    assert len(ours.tokens_BxS.sharding.device_set) == 8
    jax.tree.map(np.testing.assert_array_equal, ours, masked_on_device(tokens, *arguments))
print("the same on 8 devices")
"""


@pytest.mark.slow
def test_sharded_rows_get_the_same_masks_without_communication():
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], capture_output=True, text=True, env=environment
    )
    assert "the same on 8 devices" in done.stdout, done.stderr
