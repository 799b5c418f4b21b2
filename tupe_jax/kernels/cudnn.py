"""cuDNN's fused attention, through JAX: for GPUs, without dropout.

cuDNN's own dropout is not usable: its seed is a compile-time constant, and its masks depend on how
often the program has run, so the backward pass of a scan over layers would use other masks.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tupe_jax.kernels import reference


def cudnn_attention(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias_HxSxS: jax.Array | None,
    is_token_BxS: jax.Array,
    seed: jax.Array | None,
    *,
    scale: float,
    first_sequence: jax.Array | int = 0,
    first_head: jax.Array | int = 0,
) -> jax.Array:
    """`reference.attention`, except that a sequence of padding attends to its first token.

    A mask of keys would have to be added to the bias, one copy for every sequence. cuDNN takes the
    lengths of sequences instead, which describe padding at the end. A batch with padding elsewhere
    is computed correctly, but slowly.
    """
    length_B = jnp.sum(is_token_BxS, axis=1, dtype=jnp.int32)
    is_before_end_BxS = jnp.arange(is_token_BxS.shape[1]) < length_B[:, None]
    out: jax.Array = jax.lax.cond(
        jnp.array_equal(is_token_BxS, is_before_end_BxS),
        partial(_by_lengths, scale=scale),
        partial(_one_by_one, scale),
        q_BxSxHxd,
        k_BxSxHxd,
        v_BxSxHxd,
        bias_HxSxS,
        is_token_BxS,
    )
    return out


def _by_lengths(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias_HxSxS: jax.Array | None,
    is_token_BxS: jax.Array,
    *,
    scale: float,
) -> jax.Array:
    out: jax.Array = jax.nn.dot_product_attention(
        q_BxSxHxd,
        k_BxSxHxd,
        v_BxSxHxd,
        None if bias_HxSxS is None else bias_HxSxS[None].astype(q_BxSxHxd.dtype),
        scale=scale,
        key_value_seq_lengths=jnp.maximum(jnp.sum(is_token_BxS, axis=1, dtype=jnp.int32), 1),
        implementation="cudnn",
    )
    return out


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _one_by_one(scale: float, *arrays: Any) -> jax.Array:
    """One sequence at a time, nothing kept: XLA reserves memory for this even if it never runs.

    The backward pass is our own because a remat policy around the layer would keep the scores.
    """
    return _attend_one_by_one(scale, *arrays)


def _forward(scale: float, *arrays: Any) -> tuple[jax.Array, tuple[Any, ...]]:
    return _one_by_one(scale, *arrays), arrays


def _backward(scale: float, arrays: tuple[Any, ...], g: jax.Array) -> tuple[Any, ...]:
    *inputs, is_token_BxS = arrays

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array | None) -> jax.Array:
        return _attend_one_by_one(scale, q, k, v, bias, is_token_BxS)

    _, pull_back = jax.vjp(attend, *inputs)
    return *pull_back(g), None


_one_by_one.defvjp(_forward, _backward)


def _attend_one_by_one(
    scale: float,
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias_HxSxS: jax.Array | None,
    is_token_BxS: jax.Array,
) -> jax.Array:
    @jax.checkpoint
    def attend(sequence: tuple[jax.Array, ...]) -> jax.Array:
        q, k, v, is_token = (x[None] for x in sequence)
        out_1xSxHxd = reference.attention(
            q, k, v, bias_HxSxS, is_token, None, scale=scale, rate=0.0
        )
        return out_1xSxHxd[0]

    out: jax.Array = jax.lax.map(attend, (q_BxSxHxd, k_BxSxHxd, v_BxSxHxd, is_token_BxS))
    return out
