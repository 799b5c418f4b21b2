"""Attention in a window in plain jnp, for where no fused kernel runs.

A block of queries meets its block of keys and the two beside it, so the scores are an array of
B x H x S x 3 blocks instead of B x H x S x S.
"""

import jax
import jax.numpy as jnp

from tupe_jax.kernels.block_sizes import round_up
from tupe_jax.kernels.dropout import is_kept
from tupe_jax.kernels.factored import FactoredBias
from tupe_jax.kernels.reference import MASKED, masked_outside

_SMALLEST = 64
"""Smaller products cost more than they save."""


def band_block(window: int) -> int:
    """Queries of a block. With half a window, the blocks beside hold the rest of the window."""
    return max(window // 2, _SMALLEST)


def banded_attention(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias: FactoredBias,
    is_token_BxS: jax.Array,
    seed: jax.Array | None,
    *,
    scale: float,
    rate: float,
    window: int,
    first_sequence: jax.Array | int = 0,
    first_head: jax.Array | int = 0,
) -> jax.Array:
    """`reference.attention` with a window and the bias `factored.dense(bias)`.

    N blocks of Q queries, for each of them K = 3 Q keys.
    """
    B, S, H, d = q_BxSxHxd.shape
    block = band_block(window)
    q_BxNxQxHxd = _in_blocks(q_BxSxHxd, block, axis=1)
    k_BxNxKxHxd, v_BxNxKxHxd = (_with_beside(x, block, axis=1) for x in (k_BxSxHxd, v_BxSxHxd))
    i_NxQx1 = jnp.arange(q_BxNxQxHxd.shape[1] * block).reshape(-1, block, 1)
    j_Nx1xK = i_NxQx1[:, :1] - block + jnp.arange(3 * block)
    scores_BxHxNxQxK = jnp.einsum(
        "bnihd,bnjhd->bhnij", q_BxNxQxHxd, k_BxNxKxHxd, preferred_element_type=jnp.float32
    )
    # Keys before the first and after the last are below padding, as those outside the window.
    padding_BxS = jnp.where(is_token_BxS, 0.0, MASKED)
    padding_BxNxK = _with_beside(padding_BxS, block, axis=1, fill=2 * MASKED)
    logits = scores_BxHxNxQxK * scale + padding_BxNxK[:, None, :, None]
    logits = logits + _bias_of_band(bias, i_NxQx1, j_Nx1xK, S)
    weights = jax.nn.softmax(masked_outside(logits, i_NxQx1, j_Nx1xK, window))
    if seed is not None and rate:
        sequence = first_sequence + jnp.arange(B)[:, None, None, None, None]
        head = first_head + jnp.arange(H)[:, None, None, None]
        kept = is_kept(seed, sequence, head, i_NxQx1, j_Nx1xK, rate=rate)
        weights = jnp.where(kept, weights / (1 - rate), 0)
    weights = weights.astype(v_BxSxHxd.dtype)
    out_BxNxQxHxd = jnp.einsum("bhnij,bnjhd->bnihd", weights, v_BxNxKxHxd)
    return out_BxNxQxHxd.reshape(B, -1, H, d)[:, :S]


def _bias_of_band(
    bias: FactoredBias, i_NxQx1: jax.Array, j_Nx1xK: jax.Array, length: int
) -> jax.Array:
    """`factored.dense` at these queries and keys, [H, N, Q, K]; [H, 1, Q, K] if alike in all."""
    block = i_NxQx1.shape[1]
    total: jax.Array | float = 0.0
    if bias.by_distance_HxN is not None:
        distance_1xQxK = (j_Nx1xK - i_NxQx1)[:1]
        total += jnp.take(bias.by_distance_HxN, distance_1xQxK + length - 1, axis=1, mode="clip")
    if bias.row_factor_S is not None:
        total *= _in_blocks(bias.row_factor_S, block, axis=0)[..., None]
    if bias.p_q_SxHxd is not None and bias.p_k_SxHxd is not None:
        p_q_NxQxHxd = _in_blocks(bias.p_q_SxHxd, block, axis=0)
        p_k_NxKxHxd = _with_beside(bias.p_k_SxHxd, block, axis=0)
        total += jnp.einsum("nihd,njhd->hnij", p_q_NxQxHxd, p_k_NxKxHxd)
    if bias.theta_1_H is not None and bias.theta_2_H is not None:
        total = jnp.where(j_Nx1xK == 0, bias.theta_2_H[:, None, None, None], total)
        total = jnp.where(i_NxQx1 == 0, bias.theta_1_H[:, None, None, None], total)
    return jnp.asarray(total)


def _in_blocks(x: jax.Array, block: int, *, axis: int, fill: float = 0) -> jax.Array:
    """The axis, padded and split into blocks: [..., N, block, ...]."""
    length = x.shape[axis]
    padding = [(0, 0)] * x.ndim
    padding[axis] = 0, round_up(length, block) - length
    padded = jnp.pad(x, padding, constant_values=fill)
    return padded.reshape(*x.shape[:axis], -1, block, *x.shape[axis + 1 :])


def _with_beside(x: jax.Array, block: int, *, axis: int, fill: float = 0) -> jax.Array:
    """Each block with its two neighbours: [..., N, 3 block, ...]."""
    blocks = _in_blocks(x, block, axis=axis, fill=fill)
    padding = [(0, 0)] * blocks.ndim
    padding[axis] = 1, 1
    padded = jnp.pad(blocks, padding, constant_values=fill)
    count = blocks.shape[axis]
    parts = [jax.lax.slice_in_dim(padded, n, n + count, axis=axis) for n in range(3)]
    return jnp.concatenate(parts, axis + 1)
