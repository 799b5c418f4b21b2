"""cuDNN's fused attention, through JAX: for GPUs, without dropout."""

import jax
import jax.numpy as jnp


def cudnn_attention(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias_HxSxS: jax.Array | None,
    is_word_BxS: jax.Array,
    seed: jax.Array | None,
    *,
    scale: float,
    first_row: jax.Array | int = 0,
    first_head: jax.Array | int = 0,
) -> jax.Array:
    """`reference.attention` for rows whose padding is at the end, up to the last word.

    A mask of keys would have to be added to the bias, one copy for every row of the batch; cuDNN
    knows the lengths of rows instead.
    """
    S = is_word_BxS.shape[1]
    last_word_B = jnp.max(jnp.where(is_word_BxS, jnp.arange(S, dtype=jnp.int32), 0), axis=1)
    out: jax.Array = jax.nn.dot_product_attention(
        q_BxSxHxd,
        k_BxSxHxd,
        v_BxSxHxd,
        None if bias_HxSxS is None else bias_HxSxS[None].astype(q_BxSxHxd.dtype),
        scale=scale,
        key_value_seq_lengths=last_word_B + 1,
        implementation="cudnn",
    )
    return out
