"""Position-only attention of a model, from two sources, and its metrics.

Position 0 is left out of every matrix: in training it always holds [CLS], whose row and column TUPE
unties from the rest. Each remaining row is scaled to sum to 1. So n positions need sequences of
n + 1 tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tupe_jax.lab.metrics import METRICS
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.measurement import bias_LxHxSxS, identical_tokens_LxHxSxS
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.plotting import attention_by_position

Source = Literal["identical words", "bias"]


@dataclass(frozen=True)
class PositionAttention:
    """Position-only attention weights of each layer (or one for all layers) and head."""

    source: Source
    weights_LxHxNxN: NDArray[np.float32]
    words: tuple[int, ...] = ()
    """The ids of the probing tokens that the weights are averaged over."""

    @property
    def length(self) -> int:
        return len(self.weights_LxHxNxN[0, 0])

    def measures_LxH(self) -> dict[str, NDArray[np.float64]]:
        """Every metric of every head."""
        return {
            name: np.array([[metric(head) for head in layer] for layer in self.weights_LxHxNxN])
            for name, metric in METRICS.items()
        }

    def measures_of_mean(self) -> dict[str, float]:
        """Every metric of the mean over all layers and heads, as the literature reports it."""
        mean_NxN = self.weights_LxHxNxN.mean((0, 1))
        return {name: metric(mean_NxN) for name, metric in METRICS.items()}


def choose_words(ordinary: NDArray[np.int32], count: int, seed: int = 0) -> NDArray[np.int32]:
    """Sample distinct probing tokens from the ordinary (not special) tokens."""
    if not 1 <= count <= len(ordinary):
        raise UserError(
            f"cannot choose {count} probing words: the vocabulary has {len(ordinary)} tokens"
        )
    return np.sort(np.random.default_rng(seed).choice(ordinary, count, replace=False))


def attention_among_identical_words(
    model: MaskedLM, length: int, words: ArrayLike
) -> PositionAttention:
    """Identical-word probing: attention of all heads in sequences of one repeated token."""
    words_W = np.asarray(words)
    _check(model, length)
    weights = identical_tokens_LxHxSxS(model.encoder, jnp.asarray(words_W), length + 1)
    words_only = np.asarray(weights)[..., 1:, 1:]
    return PositionAttention(
        "identical words",
        words_only / words_only.sum(-1, keepdims=True),
        tuple(int(word) for word in words_W),
    )


def attention_by_bias(model: MaskedLM, length: int) -> PositionAttention | None:
    """The softmax of the position bias, or None if the encoding has no bias.

    This is exact for encodings that consist of a bias only (TUPE, T5, ALiBi, attenuated). For
    BERT-R it leaves out the embeddings that are added to the input.
    """
    _check(model, length)
    bias = bias_LxHxSxS(model.encoder, length + 1)
    if bias is None:
        return None
    weights = attention_by_position(np.asarray(bias)[..., 1:, 1:])
    return PositionAttention("bias", weights.astype(np.float32))


def disagreement_LxH(one: PositionAttention, other: PositionAttention) -> NDArray[np.float64]:
    """The share of weight that the two assign to different positions, for each layer and head.

    This is half the L1 distance of two rows, averaged over rows: 0 if both agree.
    """
    apart = abs(one.weights_LxHxNxN.astype(np.float64) - other.weights_LxHxNxN)
    means: NDArray[np.float64] = apart.sum(-1).mean(-1) / 2
    return means


def side_by_side(
    model: MaskedLM, length: int, words: ArrayLike
) -> Mapping[Source, PositionAttention]:
    """Both sources by name; the bias only if the encoding has one."""
    by_bias = attention_by_bias(model, length)
    probed = attention_among_identical_words(model, length, words)
    found = (probed,) if by_bias is None else (by_bias, probed)
    return {attention.source: attention for attention in found}


def _check(model: MaskedLM, length: int) -> None:
    if length < 3:
        raise UserError(f"{length} positions are too few; at least 3 are needed")
    model.encoder.positions.check_length(length + 1)
