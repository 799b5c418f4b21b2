"""From a function of the distance j - i to a matrix over pairs (i, j)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]


def distances(length: int) -> jax.Array:
    """All values of j - i for 0 <= i, j < length, ascending: -(length-1) .. length-1."""
    return jnp.arange(1 - length, length)


def by_distance_to_pairs(x: jax.Array) -> jax.Array:
    """y[..., i, j] = x[..., i, j - i + S - 1], for x of shape [..., S, 2S - 1].

    Row i is shifted to the left by i. Appending one column and reading the flattened matrix in
    rows one shorter shifts all rows at once, and the gradient is as cheap: a gather here would
    need a scatter-add of S x S values in the backward pass.
    """
    *batch, length, width = x.shape
    flat = jnp.pad(x, [(0, 0)] * (len(batch) + 1) + [(0, 1)]).reshape(*batch, length * (width + 1))
    return flat[..., : length * width].reshape(*batch, length, width)[..., length - 1 :]


def toeplitz(bias_HxN: jax.Array, length: int) -> jax.Array:
    """bias[h, i, j] = bias_HxN[h, j - i], the second axis in the order of `distances(length)`."""
    heads, width = bias_HxN.shape
    return by_distance_to_pairs(jnp.broadcast_to(bias_HxN[:, None], (heads, length, width)))


def t5_bucket(distance: jax.Array, *, num_buckets: int, max_distance: int) -> jax.Array:
    """T5's bidirectional bucket of a distance j - i (Raffel et al., 2020, section 2.1).

    The lower half of the buckets is for j <= i, the upper for j > i. Within a half the first
    half of the buckets hold one distance each, the others grow logarithmically up to
    `max_distance`; all larger distances share the last. Bucket num_buckets / 2 stays empty.
    """
    half = num_buckets // 2
    exact = half // 2
    magnitude = jnp.abs(distance)
    # A distance n >= exact falls into bucket exact + floor(log(n / exact) / log(ratio) * (half -
    # exact)). Its lower edges are computed here once, exactly: in float32 arithmetic n = 2 * exact
    # could land on either side of its own edge.
    steps = half - exact
    edges = [
        math.ceil(exact * (max_distance / exact) ** (step / steps) - 1e-9)
        for step in range(1, steps)
    ]
    logarithmic = exact + jnp.searchsorted(jnp.array(edges), magnitude, side="right")
    bucket = jnp.where(magnitude < exact, magnitude, logarithmic)
    return bucket + jnp.where(distance > 0, half, 0)


def log_bucket(distance: Ints, *, num_buckets: int, max_distance: int) -> Ints:
    """DeBERTa's bucket of a distance, from version 2 on; its sign is the distance's.

    Up to half of the buckets hold one distance each, the others grow logarithmically up to
    `max_distance`. In float32, and in this order, so that edges fall as in the released models.
    """
    half = num_buckets // 2
    magnitude = np.maximum(np.abs(distance), half).astype(np.float32)
    growth = np.log(magnitude / np.float32(half)) / np.log(np.float32((max_distance - 1) / half))
    bucket = np.ceil(growth * np.float32(half - 1)).astype(np.int64) + half
    return np.where(np.abs(distance) <= half, distance, np.sign(distance) * bucket)
