"""Segments, such as the two texts of a pair: found from [SEP], told apart by attention."""

import jax
import jax.numpy as jnp
from flax import nnx

from tupe_jax.config.schema import ModelConfig
from tupe_jax.model.layers import Weight, zeros


def segment_BxS(tokens_BxS: jax.Array, sep_id: int) -> jax.Array:
    """How many [SEP] are before a token: 0 in A and its [SEP], 1 in B and its own."""
    is_end_BxS = (tokens_BxS == sep_id).astype(jnp.int32)
    return is_end_BxS.cumsum(1) - is_end_BxS


class SegmentTerms(nnx.Module):
    """XLNet's (x_i W^Q + b) . s_ij: one s for words of the same segment, another for the rest."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        H, d = config.num_heads, config.head_size
        self.table = Weight((2, H, d), (None, "heads", "head_size")).create(rngs)
        self.bias = Weight((H, d), ("heads", "head_size"), zeros).create(rngs)

    def scores_BxHxSxS(self, segment_BxS: jax.Array, q_BxSxHxd: jax.Array) -> jax.Array:
        """Added to q k^T before the scale."""
        dtype = q_BxSxHxd.dtype
        same_BxHxS, other_BxHxS = jnp.einsum(
            "bihd,nhd->nbhi",
            q_BxSxHxd + self.bias[...].astype(dtype),
            self.table[...].astype(dtype),
            preferred_element_type=jnp.float32,
        )
        is_same_BxSxS = segment_BxS[:, :, None] == segment_BxS[:, None, :]
        return jnp.where(is_same_BxSxS[:, None], same_BxHxS[..., None], other_BxHxS[..., None])
