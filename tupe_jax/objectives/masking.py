"""Masking for masked language modelling: on the device, as a function of a random key."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tupe_jax.config.schema import ObjectiveConfig
from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.utils.errors import UserError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MaskedBatch:
    """Masked sequences, and the positions and tokens to predict.

    Every sequence has the same number of slots. Unused slots have weight 0 and position 0.
    """

    tokens_BxS: jax.Array
    positions_BxM: jax.Array
    targets_BxM: jax.Array
    """The original tokens at the positions."""
    weights_BxM: jax.Array
    """Float32, 1 where a token is scored, else 0."""


def mask_tokens(
    tokens_BxS: jax.Array,
    key: jax.Array,
    *,
    objective: ObjectiveConfig,
    special: SpecialTokens,
    vocab_size: int,
    starts_word_V: jax.Array | None = None,
) -> MaskedBatch:
    """Choose and mask tokens of each sequence; all eligible tokens are equally likely.

    `objective.mask_rule` sets which tokens are eligible, and how many of these n are chosen:

    ordinary   all but special tokens; round(mask_rate * n)
    released   all but padding, [CLS] and [SEP] included; int(mask_rate * n + u), u in [0, 1)

    Most of them become [MASK], some a random ordinary token, the rest stay; all are scored. Words
    and spans are masked whole, except at most two per sequence, which are masked in part to reach
    the exact number. `starts_word_V`, needed for words only, marks the tokens that start one.

    The masks of a sequence depend only on the key, its index in the batch and its tokens, not on
    other sequences or on how the batch is sharded.
    """
    length = tokens_BxS.shape[1]
    counts = _Counts.of(objective, length)
    slots = counts.largest
    if slots < 1:
        raise UserError(
            f"objective.mask_rate={objective.mask_rate} of {length} tokens is less than one; "
            "raise it, or raise data.length"
        )
    tokens_BxS = tokens_BxS.astype(jnp.int32)
    choice_key, replacement_key = jax.random.split(key)

    eligible_BxS = ~_is_any(tokens_BxS, never_chosen(objective, special))
    eligible_Bx1 = eligible_BxS.sum(1, keepdims=True)
    order_BxS = _drawing_order(choice_key, tokens_BxS, eligible_BxS, objective, starts_word_V)
    # A third key, besides the two that `_drawing_order` splits off.
    count_key, window_key = jax.random.split(jax.random.fold_in(choice_key, 2))
    count_Bx1 = counts.draw(count_key, eligible_Bx1)
    if objective.mask_unit == "token":
        start_Bx1 = jnp.zeros_like(eligible_Bx1)
    else:
        start_Bx1 = jax.random.randint(
            window_key, eligible_Bx1.shape, 0, jnp.maximum(eligible_Bx1, 1)
        )
    drawn_BxM, chosen_BxS = _window(order_BxS, start_Bx1, count_Bx1, eligible_Bx1, slots)
    used_BxM = jnp.arange(slots) < count_Bx1
    positions_BxM = jnp.where(used_BxM, (drawn_BxM & _position_bits(length)).astype(jnp.int32), 0)
    replaced_BxS = _replacements(replacement_key, tokens_BxS, objective, special, vocab_size)
    return MaskedBatch(
        tokens_BxS=jnp.where(chosen_BxS, replaced_BxS, tokens_BxS),
        positions_BxM=positions_BxM,
        targets_BxM=jnp.take_along_axis(tokens_BxS, positions_BxM, axis=1),
        weights_BxM=used_BxM.astype(jnp.float32),
    )


def never_chosen(objective: ObjectiveConfig, special: SpecialTokens) -> tuple[int, ...]:
    """The ids that are never a target."""
    return special.ids if objective.mask_rule == "ordinary" else (special.pad_id, special.mask_id)


@dataclass(frozen=True)
class _Counts:
    """How many of n eligible tokens are chosen, for every n up to the sequence length.

    The tables are computed on the host: a float32 product on the device could round differently.
    """

    whole_N: NDArray[np.int32]
    fraction_N: NDArray[np.float32]
    """The probability that one more is chosen."""

    @classmethod
    def of(cls, objective: ObjectiveConfig, length: int) -> "_Counts":
        if objective.mask_rule == "ordinary":
            whole_N = [round(objective.mask_rate * n) for n in range(length + 1)]
            return cls(np.array(whole_N, np.int32), np.zeros(length + 1, np.float32))
        # 0.15 * 20 is 3 as meant, not the 2.9999999999999996 that a binary fraction may give.
        expected_N = [round(objective.mask_rate * n, 9) for n in range(length + 1)]
        return cls(np.floor(expected_N).astype(np.int32), np.mod(expected_N, 1).astype(np.float32))

    @property
    def largest(self) -> int:
        return int((self.whole_N + (self.fraction_N > 0)).max())

    def draw(self, key: jax.Array, n_Bx1: jax.Array) -> jax.Array:
        one_more_Bx1 = jax.random.uniform(key, n_Bx1.shape) < jnp.asarray(self.fraction_N)[n_Bx1]
        return jnp.asarray(self.whole_N)[n_Bx1] + one_more_Bx1


def _window(
    order_BxS: jax.Array,
    start_Bx1: jax.Array,
    count_Bx1: jax.Array,
    eligible_Bx1: jax.Array,
    slots: int,
) -> tuple[jax.Array, jax.Array]:
    """Choose `count` consecutive tokens of the drawing order, from `start`.

    The order of the eligible tokens is a ring, so the window may wrap around. Because it starts
    anywhere on the ring, all tokens are equally likely even if groups differ in size. Always taking
    the first tokens of the order would favour short groups, and the start of the group that is cut.

    Return the drawing numbers for all `slots`, of which those beyond `count` are not used, and a
    mask of the chosen tokens.
    """
    sorted_BxS = jnp.sort(order_BxS, axis=1)
    index_BxM = (start_Bx1 + jnp.arange(slots)) % jnp.maximum(eligible_Bx1, 1)
    drawn_BxM = jnp.take_along_axis(sorted_BxS, index_BxM, axis=1)
    # Compare with the two ends of the window: cheaper than scattering to the positions.
    end_Bx1 = (start_Bx1 + count_Bx1 - 1) % jnp.maximum(eligible_Bx1, 1)
    first_Bx1 = jnp.take_along_axis(sorted_BxS, start_Bx1, axis=1)
    last_Bx1 = jnp.take_along_axis(sorted_BxS, end_Bx1, axis=1)
    after_BxS, before_BxS = order_BxS >= first_Bx1, order_BxS <= last_Bx1
    is_eligible_BxS = (order_BxS >> 31) == 0
    passes_the_end_Bx1 = first_Bx1 > last_Bx1
    inside_BxS = jnp.where(passes_the_end_Bx1, after_BxS | before_BxS, after_BxS & before_BxS)
    return drawn_BxM, inside_BxS & is_eligible_BxS & (count_Bx1 > 0)


def _drawing_order(
    key: jax.Array,
    tokens_BxS: jax.Array,
    eligible_BxS: jax.Array,
    objective: ObjectiveConfig,
    starts_word_V: jax.Array | None,
) -> jax.Array:
    """The drawing number of each token, unique within a sequence. Sorting by it gives the order.

    From the highest bit down: 1 if the token is not eligible, the random number of its group (a
    token, a word or a span), its position. So tokens that are not eligible come last, and the
    tokens of a group stay together.
    """
    noise_key, border_key = jax.random.split(key)
    length = tokens_BxS.shape[1]
    position_S = jnp.arange(length, dtype=jnp.uint32)
    noise_BxS = jax.random.bits(noise_key, tokens_BxS.shape, jnp.uint32) >> 1
    match objective.mask_unit:
        case "token":
            starts_BxS = jnp.ones_like(eligible_BxS)
        case "word":
            if starts_word_V is None:
                raise UserError(
                    "objective.mask_unit='word' needs a tokenizer that marks where words start"
                )
            starts_BxS = jnp.take(starts_word_V, tokens_BxS, mode="fill", fill_value=False)
        case "span":  # lengths are geometric with the given mean
            starts_BxS = jax.random.bernoulli(border_key, 1 / objective.mean_span, tokens_BxS.shape)
    # No group reaches over a special token, such as the end of a sentence.
    follows_special_BxS = jnp.pad(~eligible_BxS[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    starts_BxS |= follows_special_BxS
    group_BxS = jax.lax.cummax(jnp.where(starts_BxS, position_S, 0), axis=1)
    noise_BxS = jnp.take_along_axis(noise_BxS, group_BxS, axis=1)
    last_BxS = (~eligible_BxS).astype(jnp.uint32)
    return last_BxS << 31 | noise_BxS & ~_position_bits(length) | position_S


def _position_bits(length: int) -> np.uint32:
    """The bits of a drawing number that hold the position."""
    return np.uint32((1 << (length - 1).bit_length()) - 1)


def _replacements(
    key: jax.Array,
    tokens_BxS: jax.Array,
    objective: ObjectiveConfig,
    special: SpecialTokens,
    vocab_size: int,
) -> jax.Array:
    """The replacement of each token, used if the token is chosen."""
    kind_key, token_key = jax.random.split(key)
    random_BxS = jax.random.randint(token_key, tokens_BxS.shape, 0, vocab_size - len(special.ids))
    for special_id in special.ids:  # ascending: step over each one
        random_BxS += random_BxS >= special_id
    kind_BxS = jax.random.uniform(kind_key, tokens_BxS.shape)
    by_mask = objective.replace_by_mask
    return jnp.where(
        kind_BxS < by_mask,
        special.mask_id,
        jnp.where(kind_BxS < by_mask + objective.replace_by_random, random_BxS, tokens_BxS),
    )


def _is_any(tokens: jax.Array, ids: tuple[int, ...]) -> jax.Array:
    found = jnp.zeros_like(tokens, bool)
    for one in ids:
        found |= tokens == one
    return found
