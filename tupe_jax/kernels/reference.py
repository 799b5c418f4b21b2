"""The reference implementation in plain jnp, which tests compare the kernels with."""

import jax
import jax.numpy as jnp

from tupe_jax.kernels.dropout import is_kept

MASKED = -1e30
"""A logit that gets no weight; finite, so that a sequence of padding gives no NaN."""
_OUTSIDE = 2 * MASKED
"""Below padding: a query whose window holds only padding attends uniformly over its window, so
nothing outside it needs to be computed."""


def attention(
    q_BxSxHxd: jax.Array,
    k_BxSxHxd: jax.Array,
    v_BxSxHxd: jax.Array,
    bias_HxSxS: jax.Array | None,
    is_token_BxS: jax.Array,
    seed: jax.Array | None,
    *,
    scale: float,
    rate: float,
    window: int = 0,
) -> jax.Array:
    """dropout(softmax(q k^T scale + bias)) v, without weight for padding keys.

    With a window, query i has weights for keys j with |j - i| <= window / 2 only. No seed means no
    dropout. Softmax is float32 whatever the type of q, k and v.
    """
    scores = jnp.einsum("bihd,bjhd->bhij", q_BxSxHxd, k_BxSxHxd, preferred_element_type=jnp.float32)
    logits = scores * scale + jnp.where(is_token_BxS[:, None, None, :], 0.0, MASKED)
    if bias_HxSxS is not None:
        logits += bias_HxSxS
    i_S = jnp.arange(q_BxSxHxd.shape[1])
    logits = masked_outside(logits, i_S[:, None], i_S, window)
    weights_BxHxSxS = drop(jax.nn.softmax(logits), seed, rate).astype(v_BxSxHxd.dtype)
    return jnp.einsum("bhij,bjhd->bihd", weights_BxHxSxS, v_BxSxHxd)


def masked_outside(logits: jax.Array, i: jax.Array, j: jax.Array, window: int) -> jax.Array:
    """The logits of queries i and keys j, without weight outside the window; 0: no window."""
    return jnp.where(abs(j - i) <= window // 2, logits, _OUTSIDE) if window else logits


def drop(weights_BxHxSxS: jax.Array, seed: jax.Array | None, rate: float) -> jax.Array:
    """Zero a share `rate` of the weights and scale the others."""
    if seed is None or rate == 0:
        return weights_BxHxSxS
    B, H, S, _ = weights_BxHxSxS.shape
    sequence, head = jnp.arange(B)[:, None, None, None], jnp.arange(H)[:, None, None]
    kept = is_kept(seed, sequence, head, jnp.arange(S)[:, None], jnp.arange(S), rate=rate)
    return jnp.where(kept, weights_BxHxSxS / (1 - rate), 0)
