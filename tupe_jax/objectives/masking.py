"""Choosing and hiding tokens for masked-word prediction, on the device, as a function of a key."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from tupe_jax.config import ObjectiveConfig
from tupe_jax.errors import UserError
from tupe_jax.special_tokens import SpecialTokens


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MaskedRows:
    """Rows with hidden tokens, and what is to be predicted where.

    Every row has the same number of slots; a slot it does not need has weight 0 and position 0.
    """

    tokens_BxS: jax.Array
    positions_BxM: jax.Array
    targets_BxM: jax.Array
    """The original tokens at the positions."""
    weights_BxM: jax.Array
    """Float32, 1 where a token is scored, else 0."""


def mask_rows(
    tokens_BxS: jax.Array,
    key: jax.Array,
    *,
    objective: ObjectiveConfig,
    special: SpecialTokens,
    vocab_size: int,
    starts_word_V: jax.Array | None = None,
) -> MaskedRows:
    """Hide exactly round(mask_rate * n) of the n ordinary tokens of each row.

    Most of them become [MASK], some a random ordinary token, the rest stay; all are scored. Words
    and spans are hidden whole, except the last one of a row, whose end is left out if the whole
    of it would be too many. `starts_word_V`, needed for words only, tells which tokens start one.

    A row's masks depend on the key, its number in the batch and its tokens, and on nothing else:
    neither on the other rows nor on how the batch is sharded.
    """
    length = tokens_BxS.shape[1]
    slots = round(objective.mask_rate * length)
    if slots < 1:
        raise UserError(
            f"objective.mask_rate={objective.mask_rate} of {length} tokens is less than one; "
            "raise the rate or make rows longer"
        )
    tokens_BxS = tokens_BxS.astype(jnp.int32)
    choice_key, replacement_key = jax.random.split(key)

    ordinary_BxS = ~_is_any(tokens_BxS, special.ids)
    order_BxS = _drawing_order(choice_key, tokens_BxS, ordinary_BxS, objective, starts_word_V)
    # A table, because round() of a float32 product could differ from round() on the host.
    counts = np.array([round(objective.mask_rate * n) for n in range(length + 1)])
    count_Bx1 = jnp.asarray(counts)[ordinary_BxS.sum(1)][:, None]
    drawn_BxM = jnp.sort(order_BxS, axis=1)[:, :slots]
    used_BxM = jnp.arange(slots) < count_Bx1

    positions_BxM = jnp.where(used_BxM, (drawn_BxM & _position_bits(length)).astype(jnp.int32), 0)
    # Those that come no later than the last drawn: cheaper than scattering to the positions.
    last_Bx1 = jnp.where(used_BxM, drawn_BxM, 0).max(1, keepdims=True)
    chosen_BxS = (order_BxS <= last_Bx1) & (count_Bx1 > 0)
    replaced_BxS = _replacements(replacement_key, tokens_BxS, objective, special, vocab_size)
    return MaskedRows(
        tokens_BxS=jnp.where(chosen_BxS, replaced_BxS, tokens_BxS),
        positions_BxM=positions_BxM,
        targets_BxM=jnp.take_along_axis(tokens_BxS, positions_BxM, axis=1),
        weights_BxM=used_BxM.astype(jnp.float32),
    )


def _drawing_order(
    key: jax.Array,
    tokens_BxS: jax.Array,
    ordinary_BxS: jax.Array,
    objective: ObjectiveConfig,
    starts_word_V: jax.Array | None,
) -> jax.Array:
    """A number per token, different within a row: the tokens with the smallest are chosen.

    From the highest bit down: is it special, the random number of its group (a token, a word or a
    span), its position. So special tokens come last and a group comes in one piece, from its start.
    """
    noise_key, border_key = jax.random.split(key)
    length = tokens_BxS.shape[1]
    position_S = jnp.arange(length, dtype=jnp.uint32)
    noise_BxS = jax.random.bits(noise_key, tokens_BxS.shape, jnp.uint32) >> 1
    match objective.mask_unit:
        case "token":
            starts_BxS = jnp.ones_like(ordinary_BxS)
        case "word":
            if starts_word_V is None:
                raise UserError(
                    "objective.mask_unit='word' needs a vocabulary that marks where words start"
                )
            starts_BxS = jnp.take(starts_word_V, tokens_BxS, mode="fill", fill_value=False)
        case "span":  # lengths are geometric with the given mean
            starts_BxS = jax.random.bernoulli(border_key, 1 / objective.mean_span, tokens_BxS.shape)
    # No group reaches over a special token, such as the end of a sentence.
    follows_special_BxS = jnp.pad(~ordinary_BxS[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    starts_BxS |= follows_special_BxS
    group_BxS = jax.lax.cummax(jnp.where(starts_BxS, position_S, 0), axis=1)
    noise_BxS = jnp.take_along_axis(noise_BxS, group_BxS, axis=1)
    special_BxS = (~ordinary_BxS).astype(jnp.uint32)
    return special_BxS << 31 | noise_BxS & ~_position_bits(length) | position_S


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
    """What each token would become if it were chosen."""
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
