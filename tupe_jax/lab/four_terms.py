"""The logits of BERT-A's first layer as a sum of four terms (Ke et al., 2021, Eq. 6).

With positions p added to words w at the input, a logit is a sum of four products:

    word-word          (w_i W^Q)(w_j W^K)^T        word-position       (w_i W^Q)(p_j W^K)^T
    position-word      (p_i W^Q)(w_j W^K)^T        position-position   (p_i W^Q)(p_j W^K)^T

The paper leaves out the norm between the sum and the product. Here it is included exactly:
given the standard deviation of w_i + p_i it is linear, so it applies to w_i and p_i separately. Its
bias and the biases of the projections do not depend on positions and are added to the word. So the
four terms sum to the model's logits.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import ArrayLike, NDArray

from tupe_jax.config.schema import ModelConfig
from tupe_jax.model.encoder import Encoder, Layer
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.layers import LayerNorm, RMSNorm
from tupe_jax.model.measurement import full_precision
from tupe_jax.model.positions import encodings, logit_scale
from tupe_jax.utils.errors import UserError

TERMS = ("word-word", "word-position", "position-word", "position-position")


@dataclass(frozen=True)
class FourTerms:
    """The terms in the order of TERMS, for each head of the first layer."""

    mean_4xHxSxS: NDArray[np.float32]
    """Mean over sequences: word-specific parts average out, as in the paper's figure."""
    spread_4xH: NDArray[np.float32]
    """Standard deviation over j, the only part of a logit that affects softmax; root mean square
    over i and the sequences."""
    interaction_4xH: NDArray[np.float32]
    """The same without the mean over i. The vectors p have a common mean, which carries no position
    but makes position-word prefer some words; this removes it."""

    @property
    def share_4xH(self) -> NDArray[np.float32]:
        """The variance over j of each term, as a share of the sum over all four terms."""
        variance_4xH = self.spread_4xH**2
        share: NDArray[np.float32] = variance_4xH / variance_4xH.sum(0)
        return share

    @property
    def mixed_share_H(self) -> NDArray[np.float32]:
        """The share of the two mixed terms: 0 if they are flat, 1/2 if all four vary alike."""
        share: NDArray[np.float32] = self.share_4xH[1:3].sum(0)
        return share

    @property
    def mixed_interaction_share_H(self) -> NDArray[np.float32]:
        """The share that is due to interactions of a word with its position."""
        mixed_H = (self.interaction_4xH[1:3] ** 2).sum(0)
        share: NDArray[np.float32] = mixed_H / (self.spread_4xH**2).sum(0)
        return share


def can_be_expanded(config: ModelConfig) -> bool:
    """Whether positions are added to the input and have no other effect."""
    chosen = encodings(config).values()
    added = any(e.input for e in chosen) and config.embedding_norm and not config.query_key_norm
    return added and not any(e.queries_keys or e.scores for e in chosen)


@full_precision
def four_terms(model: MaskedLM, tokens_BxS: ArrayLike) -> FourTerms:
    """The four terms for sequences of text without padding."""
    tokens = np.asarray(tokens_BxS)
    config = model.config
    if not can_be_expanded(config):
        raise UserError(
            f"the four terms need positions that are added to the input and have no other "
            f"effect, not position.absolute={config.position.absolute!r} with "
            f"position.relative={config.position.relative!r}"
        )
    if tokens.ndim != 2 or (tokens == config.pad_id).any():
        raise UserError("the four terms need sequences without padding, an array [batch, length]")
    model.encoder.positions.check_length(tokens.shape[1])
    return FourTerms(*jax.device_get(_statistics(model.encoder, jnp.asarray(tokens))))


@nnx.jit
def _statistics(encoder: Encoder, tokens_BxS: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The fields of `FourTerms`."""
    terms_4xBxHxSxS = terms_of_first_layer(encoder, tokens_BxS)

    def spread(terms: jax.Array) -> jax.Array:
        return jnp.sqrt(terms.var(-1).mean((1, 3)))

    mean_over_i = terms_4xBxHxSxS.mean(-2, keepdims=True)
    return (
        terms_4xBxHxSxS.mean(1),
        spread(terms_4xBxHxSxS),
        spread(terms_4xBxHxSxS - mean_over_i),
    )


def terms_of_first_layer(encoder: Encoder, tokens_BxS: jax.Array) -> jax.Array:
    """The four terms of every logit, [4, B, H, S, S]."""
    layer = _first_layer(encoder)
    position_SxD = encoder.positions.input_SxD(tokens_BxS.shape[1])
    assert position_SxD is not None
    word_BxSxD = encoder.tokens_and_segments(tokens_BxS)
    assert encoder.embedding_norm is not None
    word, position = _through(encoder.embedding_norm, word_BxSxD, position_SxD)
    if encoder.embedding_projection is not None:
        word = encoder.embedding_projection(word)
        position = position @ encoder.embedding_projection.kernel[...]
    if encoder.config.pre_layer_norm and encoder.config.first_attention_norm:
        word, position = _through(layer.attention_norm, word, position)
    projection = layer.attention.query_key_value
    W_Dx2xHxd = projection.kernel[:, :2]
    word_BxSx2xHxd = jnp.tensordot(word, W_Dx2xHxd, 1)
    if projection.bias is not None:
        word_BxSx2xHxd += projection.bias[:2]
    position_BxSx2xHxd = jnp.tensordot(position, W_Dx2xHxd, 1)
    parts_2xBxSx2xHxd = jnp.stack([word_BxSx2xHxd, position_BxSx2xHxd])
    queries, keys = parts_2xBxSx2xHxd[..., 0, :, :], parts_2xBxSx2xHxd[..., 1, :, :]
    terms_2x2xBxHxSxS = jnp.einsum("mbihd,nbjhd->mnbhij", queries, keys)
    return terms_2x2xBxHxSxS.reshape(4, *terms_2x2xBxHxSxS.shape[2:]) * logit_scale(encoder.config)


def _through(
    norm: LayerNorm | RMSNorm, word: jax.Array, position: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The summands of norm(word + position)."""

    def centred(part: jax.Array) -> jax.Array:
        return part - part.mean(-1, keepdims=True) if isinstance(norm, LayerNorm) else part

    mean_square = jnp.square(centred(word + position)).mean(-1, keepdims=True)

    def scaled(part: jax.Array) -> jax.Array:
        return centred(part) / jnp.sqrt(mean_square + norm.eps) * norm.scale[...]

    if isinstance(norm, LayerNorm) and norm.bias is not None:
        return scaled(word) + norm.bias[...], scaled(position)
    return scaled(word), scaled(position)


def _first_layer(encoder: Encoder) -> Layer:
    graph, stacked = nnx.split(encoder.layers)

    def first(weights_Lx: Any) -> Any:
        return weights_Lx[0]

    layer: Layer = nnx.merge(graph, jax.tree.map(first, stacked))
    return layer
