"""Self-attention for every positional encoding: masks and biases become one bias, then softmax."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from tupe_jax.config.schema import ModelConfig
from tupe_jax.distributed.sharding_rules import constrain
from tupe_jax.kernels.banded import banded_attention
from tupe_jax.kernels.cudnn import cudnn_attention
from tupe_jax.kernels.factored import FactoredBias, dense, sum_of_factored
from tupe_jax.kernels.gpu import gpu_attention
from tupe_jax.kernels.multi_block import multi_block_attention
from tupe_jax.kernels.reference import MASKED, drop, masked_outside
from tupe_jax.kernels.sharded import Attend, Bias, on_mesh
from tupe_jax.kernels.single_block import single_block_attention
from tupe_jax.model.attention_backend import Kernel, attention_choice, platform_here
from tupe_jax.model.layers import Axis, Linear, Weight, make_norm, zeros
from tupe_jax.model.positions import LayerPositions, logit_scale, sum_of

_KERNELS: Mapping[Kernel, Callable[..., jax.Array]] = {
    "single_block": single_block_attention,
    "multi_block": multi_block_attention,
    "gpu": gpu_attention,
    "banded": banded_attention,
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AttentionInputs:
    """The inputs of attention that all layers of a forward pass with the same window share."""

    is_token_BxS: jax.Array
    bias: Bias
    """The bias that all layers share, on the scale of the logits."""
    once: Mapping[str, Any]
    """Position arrays for in-layer terms, see `Encoding.once`."""
    segment_BxS: jax.Array | None = None
    """The segment of each token, if attention depends on segments."""
    window: int = field(default=0, metadata={"static": True})
    """Token i attends to token j if |j - i| <= window / 2; 0: to all."""


class SelfAttention(nnx.Module):
    """softmax(q k^T scale + position terms) v, with the position terms of the config."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        embed = Axis("embed", config.hidden_size)
        heads = Axis("heads", config.num_heads), Axis("head_size", config.head_size)
        self.config = config
        self.query_key_value = Linear(
            [embed],
            [Axis(None, 3), *heads],
            dtype=config.dtype,
            rngs=rngs,
            use_bias=config.linear_bias,
        )
        self.output = Linear(
            heads, [embed], dtype=config.dtype, rngs=rngs, use_bias=config.linear_bias
        )
        normed = config.query_key_norm
        self.query_norm = make_norm(config, heads[1], rngs=rngs) if normed else None
        self.key_norm = make_norm(config, heads[1], rngs=rngs) if normed else None
        self.positions = LayerPositions(config, rngs=rngs)
        self.segments = SegmentTerms(config, rngs=rngs) if config.segment_attention else None

    def __call__(
        self, x_BxSxD: jax.Array, shared: AttentionInputs, key: jax.Array | None
    ) -> jax.Array:
        # Dropout is a function of this seed and of a weight's indices in all implementations.
        rate, scale = self.config.attention_dropout, logit_scale(self.config)
        seed = None if key is None or rate == 0 else jax.random.bits(key)
        length = x_BxSxD.shape[1]
        choice = attention_choice(self.config, platform_here(), length, shared.window)
        if choice.kernel is not None:
            attend = partial(_KERNELS[choice.kernel], scale=scale, rate=rate, window=shared.window)
            out_BxSxHxd = self._fused(attend, x_BxSxD, shared, seed)
        elif choice.implementation == "cudnn" and seed is None:
            out_BxSxHxd = self._fused(partial(cudnn_attention, scale=scale), x_BxSxD, shared, seed)
        else:
            weights_BxHxSxS, v_BxSxHxd = self.weights_and_values(x_BxSxD, shared)
            kept_BxHxSxS = drop(weights_BxHxSxS.astype(v_BxSxHxd.dtype), seed, rate)
            out_BxSxHxd = jnp.einsum("bhij,bjhd->bihd", kept_BxHxSxS, v_BxSxHxd)
        return self.output(constrain(out_BxSxHxd, "batch", None, "heads", None))

    def _fused(
        self, attend: Attend, x_BxSxD: jax.Array, shared: AttentionInputs, seed: jax.Array | None
    ) -> jax.Array:
        """Attention by a function, for encodings without terms that need the tokens."""
        q, k, v = self._project_apart(x_BxSxD)
        q, k = self.positions.queries_keys(shared.once, *self._normed(q, k))
        bias = self._bias(x_BxSxD.shape[1], shared)
        return on_mesh(attend, q, k, v, bias, shared.is_token_BxS, seed)

    def _bias(self, length: int, shared: AttentionInputs) -> Bias:
        """The sum of the bias that all layers share and the layer's own."""
        if isinstance(shared.bias, FactoredBias):
            return sum_of_factored(shared.bias, self.positions.factored_bias(length))
        biases = shared.bias, self.positions.bias_HxSxS(length)
        return sum_of(bias for bias in biases if bias is not None)

    def _project(self, x_BxSxD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values, [B, S, H, d] each."""
        qkv_BxSx3xHxd = constrain(self.query_key_value(x_BxSxD), "batch", None, None, "heads", None)
        q, k, v = (x.squeeze(2) for x in jnp.split(qkv_BxSx3xHxd, 3, axis=2))
        return q, k, v

    def _project_apart(self, x_BxSxD: jax.Array) -> list[jax.Array]:
        """Queries, keys and values by three products of plain matrices.

        Each result lies in memory as the kernel reads it, the heads side by side. A slice of one
        product, or a result with heads of 64 as an axis, would have to be copied.
        """
        B, S, D = x_BxSxD.shape
        projection, dtype = self.query_key_value, self.config.dtype
        *_, H, d = projection.kernel.shape
        kernel_Dx3xF = projection.kernel[...].astype(dtype).reshape(D, 3, -1)
        parts = [x_BxSxD @ kernel_Dx3xF[:, n] for n in range(3)]
        if projection.bias is not None:
            bias_3xF = projection.bias[...].astype(dtype).reshape(3, -1)
            parts = [part + bias_F for part, bias_F in zip(parts, bias_3xF, strict=True)]
        # The backward pass keeps them with their biases: the kernel reads them again.
        parts = [checkpoint_name(part, "query_key_value") for part in parts]
        return [constrain(x.reshape(B, S, H, d), "batch", None, "heads", None) for x in parts]

    def _normed(self, q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Queries and keys after their norms, if they have any."""
        if self.query_norm is None or self.key_norm is None:
            return q, k
        return self.query_norm(q), self.key_norm(k)

    def weights_and_values(
        self, x_BxSxD: jax.Array, shared: AttentionInputs
    ) -> tuple[jax.Array, jax.Array]:
        """The attention weights, float32, and the values that they are applied to."""
        q, k, v = self._project(x_BxSxD)
        q, k = self._normed(q, k)
        more_scores = self._more_scores(shared, q, k)
        q, k = self.positions.queries_keys(shared.once, q, k)
        scores = jnp.einsum("bihd,bjhd->bhij", q, k, preferred_element_type=jnp.float32)
        if more_scores is not None:
            scores += more_scores
        # The backward pass keeps the sum, none of its terms.
        scores = constrain(checkpoint_name(scores, "scores"), "batch", "heads", None, None)
        bias = self._bias(x_BxSxD.shape[1], shared)
        if isinstance(bias, FactoredBias):
            bias = dense(bias, x_BxSxD.shape[1])
        logits = scores * logit_scale(self.config) + with_padding(shared.is_token_BxS, bias)
        i_S = jnp.arange(x_BxSxD.shape[1])
        return jax.nn.softmax(masked_outside(logits, i_S[:, None], i_S, shared.window)), v

    def _more_scores(self, shared: AttentionInputs, q: jax.Array, k: jax.Array) -> jax.Array | None:
        """Terms of positions and segments that need the tokens, before the scale."""
        scores = self.positions.scores_BxHxSxS(shared.once, q, k)
        if self.segments is None or shared.segment_BxS is None:
            return scores
        of_segments = self.segments.scores_BxHxSxS(shared.segment_BxS, q)
        return of_segments if scores is None else scores + of_segments


def with_padding(is_token_BxS: jax.Array, bias_HxSxS: jax.Array | None) -> jax.Array:
    """Key padding and position bias as one bias, [B, H or 1, S or 1, S]."""
    padding = jnp.where(is_token_BxS[:, None, None, :], 0.0, MASKED)
    if bias_HxSxS is None:
        return padding
    return padding + for_every_sequence(bias_HxSxS, is_token_BxS.shape[0])


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def for_every_sequence(bias_HxSxS: jax.Array, sequences: int) -> jax.Array:
    """The bias once for each sequence, [B, H, S, S]; its gradient is the sum over sequences."""
    return jnp.broadcast_to(bias_HxSxS, (sequences, *bias_HxSxS.shape))


def _sum_over_sequences(sequences: int, _: None, gradient_BxHxSxS: jax.Array) -> tuple[jax.Array]:
    if platform_here() != "cpu":
        return (gradient_BxHxSxS.sum(0),)
    # The sum as a matrix product: XLA's reduction on CPUs sums column by column, is 25 times slower
    # and took a fifth of the step at 512 tokens.
    return (jnp.tensordot(jnp.ones(sequences, gradient_BxHxSxS.dtype), gradient_BxHxSxS, 1),)


for_every_sequence.defvjp(
    lambda bias, sequences: (for_every_sequence(bias, sequences), None), _sum_over_sequences
)


def segment_BxS(tokens_BxS: jax.Array, sep_id: int) -> jax.Array:
    """The number of [SEP] before a token: 0 in text A and its [SEP], 1 in text B and its [SEP]."""
    is_end_BxS = (tokens_BxS == sep_id).astype(jnp.int32)
    return is_end_BxS.cumsum(1) - is_end_BxS


class SegmentTerms(nnx.Module):
    """XLNet's (x_i W^Q + b) . s_ij: one s for tokens of the same segment, one for others."""

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
