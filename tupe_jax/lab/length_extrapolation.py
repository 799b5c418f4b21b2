"""A model on inputs longer than those it was trained on: masked-LM loss and attention by position.

The same masked tokens are predicted at every length; only the borders of the sequences differ.
Differences between lengths are therefore due to the context and the encoding, not to the text.

Encodings that are functions of the distance (T5's buckets, ALiBi, RoPE, clipped distances) or of
the position (sinusoids) define every length. Tables of positions do not. They are extended by one
of these rules, with T the training length and S the new one, both in tokens with [CLS]:

    as_is         the table's own rows; those from T on were never trained; S is limited by the
                  table
    interpolated  row i is read at 1 + (i - 1)(T - 2)/(S - 2), between two rows of the trained
                  table; row 0, that of [CLS], stays. In a table of distances, distance d is read
                  at d(T - 1)/(S - 1)
    last_row      all rows from T on are copies of row T - 1
"""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import ArrayLike, NDArray

from tupe_jax.config.schema import ModelConfig, ObjectiveConfig
from tupe_jax.lab.position_attention import attention_among_identical_words
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.measurement import full_precision
from tupe_jax.model.params import Path, arrays_of, classification_heads_of, model_from, param_shapes
from tupe_jax.model.positions import encodings, longest_input
from tupe_jax.objectives.masked_lm import masked_lm_term
from tupe_jax.objectives.masking import MaskedBatch, mask_tokens
from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.utils.errors import UserError

Rule = Literal["as_is", "interpolated", "last_row"]
SHOWN_MEASURES = ("locality", "symmetry", "mirror_symmetry")

_TOKENS_AT_ONCE = 8192


@dataclass(frozen=True)
class LengthScore:
    """The results of one input length and, beyond the training length, one rule."""

    length: int
    """Tokens, [CLS] included."""
    rule: Rule
    """How tables of positions were extended; `as_is` if there is nothing to extend."""
    loss: float | None
    """Nats per masked token; None if the model has no masked-LM head or no text is given."""
    measures: Mapping[str, float]
    """`SHOWN_MEASURES` of position-only attention, of the mean over layers and heads."""


@dataclass(frozen=True)
class MaskedStream:
    """A text as one stream of tokens without [CLS]; the targets are masked."""

    tokens_N: NDArray[np.int32]
    """The stream with some tokens replaced by [MASK]."""
    targets_N: NDArray[np.int32]
    is_target_N: NDArray[np.bool_]
    cls_id: int

    def sequences(self, length: int) -> tuple[NDArray[np.int32], ...]:
        """Inputs of this length, which begin with [CLS], [B, S] each.

        These are the tokens, the targets, and whether a token is a target.
        """
        count = len(self.tokens_N) // (length - 1)
        cut = [x_N[: count * (length - 1)].reshape(count, -1) for x_N in self._parts]
        firsts = (self.cls_id, self.cls_id, False)
        return tuple(
            np.pad(x_Bx, ((0, 0), (1, 0)), constant_values=first)
            for x_Bx, first in zip(cut, firsts, strict=True)
        )

    def shortened(self, lengths: Sequence[int]) -> "MaskedStream":
        """The same stream, with only the targets that whole sequences of every length contain."""
        last = min(len(self.tokens_N) // (length - 1) * (length - 1) for length in lengths)
        return replace(self, is_target_N=self.is_target_N & (np.arange(len(self.tokens_N)) < last))

    @property
    def _parts(self) -> tuple[NDArray[Any], ...]:
        return self.tokens_N, self.targets_N, self.is_target_N


def masked_stream(tokens_N: ArrayLike, special: SpecialTokens, vocab_size: int) -> MaskedStream:
    """Mask 15 % of the ordinary tokens, as BERT does; the choice depends only on the text."""
    tokens_1xN = jnp.asarray(tokens_N, jnp.int32)[None]
    masked = mask_tokens(
        tokens_1xN,
        jax.random.key(0),
        objective=ObjectiveConfig(mask_rule="ordinary"),
        special=special,
        vocab_size=vocab_size,
    )
    is_target_N = np.zeros(tokens_1xN.shape[1], bool)
    used_M = np.asarray(masked.weights_BxM[0]) > 0
    is_target_N[np.asarray(masked.positions_BxM[0])[used_M]] = True
    return MaskedStream(
        np.asarray(masked.tokens_BxS[0]), np.asarray(tokens_1xN[0]), is_target_N, special.cls_id
    )


def scores_by_length(
    model: MaskedLM,
    lengths: Sequence[int],
    *,
    trained_length: int,
    words: ArrayLike,
    stream: MaskedStream | None,
) -> list[LengthScore]:
    """Every length with every rule that applies, in the order given.

    `words` are the probing tokens of position-only attention.
    """
    check_lengths(lengths, "lengths")
    if stream is not None:
        stream = stream.shortened(lengths)
        if not stream.is_target_N.any():
            raise UserError(
                f"the text has {len(stream.tokens_N)} tokens, too few for sequences of "
                f"{max(lengths)}; give more text or shorter lengths"
            )
    scores = []
    for length in lengths:
        for rule in rules_for(model.config, trained_length, length):
            longer = extended(model, trained_length, length, rule)
            found = attention_among_identical_words(longer, length - 1, words).measures_of_mean()
            has_loss = stream is not None and model.config.masked_word_head
            loss = masked_loss(longer, stream, length) if has_loss and stream else None
            measures = {name: found[name] for name in SHOWN_MEASURES}
            scores.append(LengthScore(length, rule, loss, measures))
    return scores


def check_lengths(lengths: Sequence[int], setting: str) -> None:
    """Raise unless lengths are ascending and long enough for position-only attention."""
    if list(lengths) != sorted(set(lengths)) or min(lengths, default=4) < 4:
        raise UserError(
            f"{setting}={','.join(map(str, lengths))} must be ascending numbers of tokens, each "
            "at least 4"
        )


def rules_for(config: ModelConfig, trained_length: int, length: int) -> list[Rule]:
    """The rules that can extend an encoding to a length and give different results."""
    if length <= trained_length or longest_input(config) == math.inf:
        return ["as_is"]
    rules: list[Rule] = ["interpolated", "last_row"]
    return ["as_is", *rules] if length <= longest_input(config) else rules


def extended(model: MaskedLM, trained_length: int, length: int, rule: Rule) -> MaskedLM:
    """A model with tables of positions for `length` tokens; the same model if it needs none."""
    config = model.config
    if rule == "as_is":
        return model
    longer = replace(config, position=replace(config.position, max_length=length))
    arrays = arrays_of(model)
    shapes = param_shapes(longer, classification_heads_of(model))
    for path, axis, kind in _tables(config):
        rows = _rows_read(kind, rule, arrays[path].shape[axis], trained_length, length)
        arrays[path] = _read_between(arrays[path], rows, axis)
        assert arrays[path].shape == shapes[path], path
    return model_from(longer, arrays)


Kind = Literal["positions", "distances", "both sides"]
"""What the rows of a table stand for: positions, distances |j - i|, or distances j - i."""


def _tables(config: ModelConfig) -> Iterator[tuple[Path, int, Kind]]:
    """The path, the axis and the kind of every table that limits the length of the input."""
    for part, encoding in encodings(config).items():
        if encoding.longest is None:
            continue
        shared = ("encoder", "positions"), encoding.weights, 0
        by_layer = ("encoder", "layers", "attention", "positions"), encoding.layer_weights, 1
        for prefix, weights, stacked in (shared, by_layer):
            for name, weight in weights.items():
                axes = [axis for axis in weight.axes if axis in ("positions", "distances")]
                for axis in axes:
                    at = weight.axes.index(axis)
                    two_sided = weight.shape[at] > encoding.longest
                    kind: Kind = "positions" if axis == "positions" else "distances"
                    path = (*prefix, part, name)
                    yield path, at + stacked, "both sides" if two_sided else kind


def _rows_read(
    kind: Kind, rule: Rule, rows: int, trained_length: int, length: int
) -> NDArray[np.float64]:
    """Which row of the trained table each row of the longer one is, as a fraction."""
    if rule == "last_row":
        read_S = np.minimum(np.arange(length), trained_length - 1).astype(np.float64)
    elif kind == "positions":
        read_S = np.append(0, np.linspace(1, trained_length - 1, length - 1))
    else:
        read_S = np.linspace(0, trained_length - 1, length)
    if kind == "both sides":
        middle = rows // 2
        return np.concatenate([middle - read_S[:0:-1], middle + read_S])
    return read_S


def _read_between(
    table: NDArray[Any], rows_S: NDArray[np.float64], axis: int
) -> NDArray[np.float32]:
    """Rows of a table at fractional indices, linearly interpolated."""
    below_S = np.floor(rows_S).astype(int)
    above_S = np.ceil(rows_S).astype(int)
    shape = [-1 if a == axis else 1 for a in range(table.ndim)]
    share = (rows_S - below_S).reshape(shape)
    between = (1 - share) * table.take(below_S, axis) + share * table.take(above_S, axis)
    return np.asarray(between, np.float32)


def masked_loss(model: MaskedLM, stream: MaskedStream, length: int) -> float:
    """The mean loss over all targets of a text that is split into inputs of one length."""
    tokens_BxS, targets_BxS, is_target_BxS = stream.sequences(length)
    slots = int(is_target_BxS.sum(1).max())
    # Stable: the targets of a sequence first, in their order.
    positions_BxM = np.argsort(~is_target_BxS, axis=1, kind="stable")[:, :slots].astype(np.int32)
    weights_BxM = np.take_along_axis(is_target_BxS, positions_BxM, 1).astype(np.float32)
    targets_BxM = np.take_along_axis(targets_BxS, positions_BxM, 1)
    arrays = map(jnp.asarray, (tokens_BxS, positions_BxM, targets_BxM, weights_BxM))
    whole = MaskedBatch(*arrays)
    at_once = max(1, _TOKENS_AT_ONCE // length)
    total = 0.0
    for start in range(0, len(tokens_BxS), at_once):
        rows = slice(start, start + at_once)
        total += float(_loss_sum(model, jax.tree.map(operator.itemgetter(rows), whole)))
    return total / float(weights_BxM.sum())


@full_precision
@nnx.jit
def _loss_sum(model: MaskedLM, batch: MaskedBatch) -> jax.Array:
    return masked_lm_term(model, batch, None).loss
