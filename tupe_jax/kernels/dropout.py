"""Attention dropout by hashing: whether a weight is kept is a function of its indices alone.

No random bits are stored: the backward pass recomputes them. Neither blocks nor sharding change
them. The same few lines run in the Pallas kernels and under XLA.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

_QUERY, _KEY = np.uint32(0x9E3779B9), np.uint32(0x7F4A7C15)
"""Two arbitrary numbers that distinguish queries from keys."""


def is_kept(
    seed: ArrayLike,
    sequence: ArrayLike,
    head: ArrayLike,
    i: ArrayLike,
    j: ArrayLike,
    *,
    rate: float,
) -> jax.Array:
    """Whether query i of this sequence and head keeps its weight for key j; arguments broadcast.

    Each query and each key has a well mixed odd integer, and a weight the product of its two: one
    multiplication per weight. (Their sum would need more: its high bits are visibly dependent in
    the four corners of a rectangle. Of the product only the high bits matter here.)
    """
    seed, sequence, head = (_uint32(x) for x in (seed, sequence, head))
    query, key = (
        _mix(_mix(_mix(_mix(seed ^ salt) + sequence) + head) + _uint32(index))
        for salt, index in ((_QUERY, i), (_KEY, j))
    )
    product = (query | 1) * (key | 1)
    # Compared as signed numbers, which every vector unit can.
    below = round((1 - rate) * 2**32) - 2**31
    kept: jax.Array = jax.lax.bitcast_convert_type(product, jnp.int32) < below
    return kept


def _mix(x: jax.Array) -> jax.Array:
    """A permutation of 32-bit integers in which each bit depends on all (MurmurHash3's last)."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _uint32(x: ArrayLike) -> jax.Array:
    return jnp.asarray(x).astype(jnp.uint32)
